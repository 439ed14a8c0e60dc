"""`python -m bench allreduce` and `ddp`: which cases, sizes and questions make the whole answer, and the short one."""

from __future__ import annotations

from bench.allreduce import answers, ddp, speed
from bench.allreduce.case import Case
from bench.allreduce.profiles import default_nodes
from bench.allreduce.rounds import MIB
from bench.allreduce.variants import QUESTIONS

SIZES = tuple(round(size * MIB) for size in (0.25, 1, 4, 16, 64))
THREE, SIX = (1, 1, 1), (2, 2, 2)
CASES = (
    *(Case(profile, counts) for profile in "ABCD" for counts in (THREE, SIX)),
    *(Case("E", (count,) * 4) for count in (1, 2, 3)),
    Case("E", default_nodes("E")),
)
CIRCUMSTANCES = (Case("A", THREE), Case("B", SIX))
CIRCUMSTANCE_SIZES = (MIB // 4, 4 * MIB, 16 * MIB)
NUM_RUNS = 5
SHORT_CASES, SHORT_SIZES, NUM_SHORT_RUNS = (Case("A", THREE), Case("B", SIX)), (MIB // 4, 4 * MIB), 1


def run(short: bool) -> None:
    """Speed on every case, then everything else on two of them."""
    if short:
        speed.run(SHORT_CASES, SHORT_SIZES, NUM_SHORT_RUNS)
        print("left out: other cases and sizes, medians of several runs, and the questions", ", ".join(QUESTIONS))
        return
    speed.run(CASES, SIZES, NUM_RUNS)
    answers.run(tuple(QUESTIONS), CIRCUMSTANCES, CIRCUMSTANCE_SIZES, NUM_RUNS)


def run_ddp(short: bool) -> None:
    """DDP's steps on three and on six nodes."""
    if short:
        ddp.run((Case("B", THREE),), ddp.NUM_LAYERS[:1], NUM_SHORT_RUNS)
        print("left out: other cases, the larger model and medians of several runs")
    else:
        ddp.run((Case("A", THREE), Case("B", THREE), Case("B", SIX)), ddp.NUM_LAYERS, NUM_RUNS)
