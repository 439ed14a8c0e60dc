"""The bench of the interpreter's lock: what it concludes, and that a rate is one that was really had."""

from __future__ import annotations

import pytest
import torch

from bench.gil import question
from bench.gil.loads import Load
from bench.gil.partner import partners
from bench.gil.question import RATES_MB_PER_S, Passes
from bench.simulated import free_port

ALONE = Passes("none", 0, 0.0, 0.1, 0.2, 0.0)


def beside(way: str, backward_s: float, reached: float = 1.0, stolen_share: float = 0.0) -> list[Passes]:
    """At every rate."""
    return [Passes(way, rate, reached * rate, 0.1, backward_s, stolen_share) for rate in RATES_MB_PER_S]


def test_the_verdict_is_of_the_interpreter_and_not_of_the_processors() -> None:
    """Traffic costs a quarter wherever it is; sharing the interpreter a tenth on top of it."""
    rounds = [[ALONE, *beside("thread", 0.275), *beside("elsewhere", 0.25), *beside("gloo", 0.2)]]
    assert question.verdicts(rounds) == [
        "backward, thread / elsewhere, most: 1.1, aim at most 1.05: missed",
        "backward, thread / alone, most: 1.375: with what processors and memory cost",
    ]


@pytest.mark.parametrize("short", ["thread", "elsewhere"])
def test_rates_that_one_of_both_did_not_reach_are_not_compared_and_are_named(short: str) -> None:
    fast = {"thread": 1.0, "elsewhere": 1.0, short: 0.5}
    rounds = [[ALONE, *beside("thread", 0.2, fast["thread"]), *beside("elsewhere", 0.2, fast["elsewhere"])]]
    first, _, last = question.verdicts(rounds)
    assert first == "backward, thread / elsewhere, most: no verdict, aim at most 1.05"
    assert last.endswith(": 12, 25, 50, 100, 200 MB/s")


def test_rounds_in_which_others_had_the_processors_do_not_count() -> None:
    calm = [ALONE, *beside("thread", 0.2), *beside("elsewhere", 0.2), *beside("gloo", 0.2)]
    rough = [ALONE, *beside("thread", 0.9, stolen_share=0.5), *beside("elsewhere", 0.2), *beside("gloo", 0.2)]
    assert question.verdicts([calm, rough])[0] == "backward, thread / elsewhere, most: 1, aim at most 1.05: met"
    assert question._slowing([calm, rough]).row_count == len(RATES_MB_PER_S)


def test_a_partner_says_how_long_it_really_took() -> None:
    torch.set_num_threads(1)
    with partners([1, 0, 1], free_port()) as (_, *others):
        load = Load("hulk", 1 << 20, 4, bytes_per_s=8e6, ports=(free_port(), free_port()))
        for other in others:
            other.connect(load)
        for other in others:
            other.start()
        ended = [other.wait() for other in others]
    assert all(one.seconds > 0.25 and one.cpu_s > 0 for one in ended)  # 4 MiB at 8 MB/s, the first burst unpaced
    assert max(load.mb_per_s(one.seconds) for one in ended) < 16
