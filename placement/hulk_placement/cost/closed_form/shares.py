"""A replica's sequences in micro-batches, as few as hold them, all of one size: `closed_form::shares` in Python."""

from __future__ import annotations

from hulk_placement.cost.closed_form.arrays import Layout, Setting


def num_batches_of_all(setting: Setting) -> int:
    """Micro-batches of a step: as few as the global batch fits into."""
    return int((setting.global_batch + setting.micro_batch - 1) // setting.micro_batch)


def num_batches(setting: Setting, layout: Layout, replica: int) -> int:
    """Micro-batches of a replica: as few as its sequences fit into."""
    return int((layout.shares_D[replica] + setting.micro_batch - 1) // setting.micro_batch)


def filled(setting: Setting, layout: Layout, replica: int) -> float:
    """Of a whole micro-batch what each of a replica's has, all of one size: 1 where its sequences just fill them."""
    return float(layout.shares_D[replica] / (num_batches(setting, layout, replica) * setting.micro_batch))
