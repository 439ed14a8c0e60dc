"""The value of a node's product label, such as `nvidia.com/gpu.product` -> what that accelerator's data sheet says.

GPU feature discovery writes the driver's name of the product with a dash for each blank. Drivers of 2020 and earlier
say no "NVIDIA" (`A100-SXM4-40GB`), and the products of that time are called `Tesla` to this day. Two endings are its
own: `-MIG-2g.20gb` for one instance of a divided accelerator, and `-SHARED` where several pods take turns on one.
AMD's node labeller (`amd.com/gpu.product-name`) has an underscore for each blank.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from importlib import resources

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
_MIG = re.compile(r"(?P<whole>.+)-MIG-(?P<slices>[1-7])g\.(?P<memory_gb>[1-9][0-9]*)gb([.+][a-z.]+)?")
_MIG_BYTES_PER_S = 16e9
"""Instances have no link of their own to each other: what they exchange goes through the host's memory."""

INSIDE_SHARE = 0.8
"""Of a link inside the node, in large messages: what the ring of a collective library reaches on NVLink."""

INSIDE_RTT_S = 2e-5
"""Twice what a message between two accelerators of a node takes that has no bytes: a launch and a flag."""


@dataclass(frozen=True, slots=True)
class Accelerator:
    """One accelerator by its data sheet.

    `flops_per_s`: dense peak by precision, with sums in fp32 as torch asks for them: of GeForce products that is half
    of what is advertised, and a P100 is no faster in fp16 than in fp32. "fp32" is torch's default for matrix products,
    which leaves the tensor cores unused; "tf32" is what it does after `torch.set_float32_matmul_precision("high")`. A
    precision without units of its own is not listed. `eff_max`: the share of it that the largest matrix products reach
    within the accelerator's power, assumed (see `efficiency`). `memory_bytes` has 10^9 bytes a GB, a little less than
    drivers report. `inside` is the link to the other accelerators of the node and `inside_bytes_per_s` its rate per
    accelerator in each direction; bridges between pairs of PCIe cards are not counted, as the label does not tell.
    """

    product: str
    flops_per_s: Mapping[str, float]
    eff_max: float
    memory_bytes: int
    memory_bandwidth_bytes_per_s: float
    inside: str
    inside_bytes_per_s: float
    mig_slices: int = 0

    def peak(self, precision: str) -> float:
        """FLOP/s in a precision; torch emulates what there are no units for, at most as fast as fp32.

        >>> look_up("Tesla-V100-SXM2-16GB").peak("bf16") / 1e12
        15.7
        """
        if precision not in PRECISIONS:
            raise ValueError(f"precision {precision!r} is none of {', '.join(PRECISIONS)}")
        return self.flops_per_s.get(precision, self.flops_per_s["fp32"])

    @property
    def fastest(self) -> float:
        """FLOP/s in its fastest precision: what no program can exceed, whichever precision it says that it has.

        >>> look_up("A100-SXM4-80GB").fastest / 1e12
        312.0
        """
        return max(self.flops_per_s.values())


@lru_cache(maxsize=1024)
def look_up(product: str) -> Accelerator | None:
    """The accelerator of a label's value; None where the table does not know it.

    An instance of a divided accelerator has its slices' part of the FLOP/s and its memory's part of the bandwidth.
    A shared accelerator is not known: nobody can say which part of it the other pods leave.

    >>> look_up("NVIDIA-A100-SXM4-80GB-MIG-2g.20gb").peak("bf16") / look_up("A100-SXM4-80GB").peak("bf16") * 7
    2.0
    >>> look_up("NVIDIA-A100-SXM4-80GB-SHARED") is None
    True
    """
    instance = _MIG.fullmatch(product)
    if instance:
        whole = look_up(instance["whole"])
        return whole and _part(whole, product, int(instance["slices"]), int(instance["memory_gb"]) * 10**9)
    return _table().get(product.removeprefix("NVIDIA-"))


@cache
def fastest() -> float:
    """FLOP/s of the fastest accelerator of the table in its fastest precision."""
    return max(accelerator.fastest for accelerator in _table().values())


def _part(whole: Accelerator, product: str, slices: int, memory_bytes: int) -> Accelerator | None:
    if slices > whole.mig_slices or memory_bytes > whole.memory_bytes:
        return None
    share = slices / whole.mig_slices
    return replace(
        whole,
        product=product,
        flops_per_s={precision: share * flops for precision, flops in whole.flops_per_s.items()},
        memory_bytes=memory_bytes,
        memory_bandwidth_bytes_per_s=whole.memory_bandwidth_bytes_per_s * memory_bytes / whole.memory_bytes,
        inside="host memory",
        inside_bytes_per_s=_MIG_BYTES_PER_S,
        mig_slices=0,
    )


@cache
def _table() -> Mapping[str, Accelerator]:
    """Every product of `products.csv`, by its name without "NVIDIA-"."""
    text = resources.files(__package__).joinpath("products.csv").read_text(encoding="utf-8")
    found = (_accelerator(row) for row in csv.DictReader(text.splitlines()))
    return {one.product.removeprefix("NVIDIA-"): one for one in found}


def _accelerator(row: Mapping[str, str]) -> Accelerator:
    return Accelerator(
        product=row["product"],
        flops_per_s={precision: float(row[precision]) * 1e12 for precision in PRECISIONS if row[precision]},
        eff_max=float(row["eff_max"]),
        memory_bytes=int(row["memory_gb"]) * 10**9,
        memory_bandwidth_bytes_per_s=float(row["memory_gb_per_s"]) * 1e9,
        inside=row["inside"],
        inside_bytes_per_s=float(row["inside_gb_per_s"]) * 1e9,
        mig_slices=int(row["mig_slices"] or 0),
    )
