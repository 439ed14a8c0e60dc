"""What local SGD and compression do to the loss: the bundled GPT, the same data and start, as many sequences each.

    every step       all ranks sum their gradients in every step, as fp32
    bf16, int8       the same, each hop of the sum compressed, with error feedback
    local 10, 50     local SGD with so many inner steps and DiLoCo's outer step, as fp32 or compressed
    local, mean      the same, but the outer step is the mean of the ranks' parameters
    never            one rank alone with its own share

The ranks are threads of one process that run the runtime's own steppers; every rank is a region of its own, so that all
values are compressed twice, on their way to the sum and back. The loss is that of the parameters that all ranks have in
common, in nats per byte, on text that is not trained on; spread is what another order of the data changes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from hulk_runtime.diloco.outer_step import DILOCO, Outer
from hulk_runtime.examples import text
from hulk_runtime.examples.byte_gpt import ByteTask
from hulk_runtime.plan import wire
from rich.console import Console
from rich.table import Table

from bench.equal_plan import equal_plan
from bench.raw import Raw
from bench.thread_ranks import train

NUM_RANKS = 3
SHARE = 2
"""Sequences of a rank in each step."""
MODEL = wire.Model(layers=2, hidden=64, heads=4, sequence_length=64, vocabulary=256)
LEARNING_RATE = 1e-3
HELD_OUT_BYTES = 400_000
NUM_HELD_OUT = 128
NO_BREAK = "\N{NO-BREAK SPACE}"
LOOKS = (50, 100, 200, 500, 1000)
SHORT_LOOKS = (50, 100)
ORDER_STRIDE = 10**6
"""Another order of the data is that of steps this much later."""


MEAN = Outer(learning_rate=1.0, momentum=0.0)


@dataclass(frozen=True, slots=True)
class Method:
    """How the ranks come together. `inner_steps` 0: in every step. `num_ranks` 1: not at all."""

    name: str
    inner_steps: int = 0
    compression: str = "none"
    num_ranks: int = NUM_RANKS
    outer: Outer = DILOCO


METHODS = (
    Method("every step"),
    Method("every step, bf16", compression="bf16"),
    Method("every step, int8", compression="int8"),
    Method("local 10", 10),
    Method("local 10, mean", 10, outer=MEAN),
    Method("local 50", 50),
    Method("local 50, mean", 50, outer=MEAN),
    Method("local 50, int8", 50, "int8"),
    Method("never", num_ranks=1),
)


@dataclass(frozen=True, slots=True)
class Run:
    """One training. `losses` after so many steps of NUM_RANKS x SHARE sequences each."""

    method: Method
    order: int
    losses: dict[int, float]
    sent_bytes_per_step: float
    """By each rank on its way to the sum; as much comes back."""
    seconds: float


class Ordered(ByteTask):
    """The example's task with another order of the data."""

    def __init__(self, plan: wire.Plan, order: int, source: text.Text) -> None:
        super().__init__(plan, torch.device("cpu"), LEARNING_RATE, source)
        self._order = order

    def loss(self, step: int, sequences: range) -> torch.Tensor:
        """As the example's."""
        return super().loss(step + ORDER_STRIDE * self._order, sequences)


def run(short: bool) -> None:
    """Print the table."""
    console, raw = Console(highlight=False), Raw("convergence")
    looks = SHORT_LOOKS if short else LOOKS
    torch.set_num_threads(1)
    runs = []
    for method, order in [*((method, 0) for method in METHODS), (METHODS[0], 1)]:
        runs.append(_train(method, order, looks))
        raw.add(runs[-1])
    batch = f"{NUM_RANKS} ranks x {SHARE} sequences of {MODEL.sequence_length} bytes a step"
    console.print(f"{batch}, {MODEL.layers}x{MODEL.hidden}, AdamW {LEARNING_RATE:g}; ranks are threads, hops emulated")
    console.print(
        f"loss on {NUM_HELD_OUT} other sequences after so many steps, beside every step's; kB a rank sends to the sum"
    )
    *compared, again = runs
    console.print(_table(compared, looks))
    spread = abs(again.losses[looks[-1]] - compared[0].losses[looks[-1]])
    console.print(f"every step, in another order of the data: {spread:.3f} from the first row after {looks[-1]} steps")


def _table(runs: list[Run], looks: tuple[int, ...]) -> Table:
    table = Table("method", "kB a step", *[str(step) for step in looks], "beside")
    for row in runs:
        losses = [f"{row.losses[step]:.3f}" if step in row.losses else "-" for step in looks]
        beside = row.losses[looks[-1]] - runs[0].losses[looks[-1]]
        table.add_row(
            row.method.name.replace(" ", NO_BREAK), f"{row.sent_bytes_per_step / 1e3:.1f}", *losses, f"{beside:+.3f}"
        )
    return table


def _train(method: Method, order: int, looks: tuple[int, ...]) -> Run:
    source = text.standard_library_source()
    trained, held_out = source[:-HELD_OUT_BYTES], source[-HELD_OUT_BYTES:]
    plan = plan_of(method, looks[-1])
    judge = ByteTask(plan_of(Method("judge", num_ranks=1), 1, NUM_HELD_OUT), torch.device("cpu"), 0.0, held_out)
    losses: dict[int, float] = {}

    def look(step: int, module: torch.nn.Module) -> None:
        if step in looks:
            losses[step] = _loss(judge, module)

    began = time.perf_counter()
    sent_bytes = train(plan, lambda: Ordered(plan, order, trained), method.compression, look)
    return Run(method, order, losses, sent_bytes / looks[-1], time.perf_counter() - began)


def _loss(judge: ByteTask, module: torch.nn.Module) -> float:
    judge.module.load_state_dict(module.state_dict())
    with torch.no_grad():
        return float(judge.loss(1, range(NUM_HELD_OUT)))


def plan_of(method: Method, steps: int, share: int = SHARE) -> wire.Plan:
    """Of one row."""
    sync = _sync(method) if method.inner_steps else None
    return equal_plan("bench/convergence", MODEL, method.num_ranks, share, steps=steps, sync=sync)


def _sync(method: Method) -> wire.Sync:
    return wire.Sync(
        mode="local",
        inner_steps=method.inner_steps,
        outer_learning_rate=method.outer.learning_rate,
        outer_momentum=method.outer.momentum,
    )
