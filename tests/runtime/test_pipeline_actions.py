"""What is read of a schedule, what each device does for it, and which schedules are refused before they start."""

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

import pytest
from hulk_placement.schedule.shapes import SHAPES, chain, split_weights
from hulk_runtime.errors import ConfigurationError, PlanError
from hulk_runtime.pipeline import deadlock_check
from hulk_runtime.pipeline.actions import Action, Receive, Run, Send, Shared, Sum, actions
from hulk_runtime.pipeline.dataflow import Flows, Way
from hulk_runtime.pipeline.shared_parameters import Tie, shared
from hulk_runtime.plan import pipeline_schedule
from pipeline_schedules import all_forward, any_of, backward_first, written

F0, F1, B1, B0 = range(4)
NUMBERED = """
import json, sys
from hulk_runtime.pipeline import actions, shared_parameters
from hulk_runtime.plan import pipeline_schedule
from hulk_runtime.pipeline.dataflow import Flows
flows = Flows(pipeline_schedule.read(json.load(open(sys.argv[1]))))
shared = shared_parameters.shared(flows, 2, [shared_parameters.Tie((("0", "a"), ("3", "b")))])
print([one.name for one in shared], actions.actions(flows, shared))
"""


def two_stages(**changes: Any) -> dict[str, Any]:
    """2 stages on 2 devices, 1 micro-batch."""
    return {**written(SHAPES["v"](2, 1.0, 2.0), 1, all_forward), **changes}


def turns(*blocks: int) -> dict[str, Any]:
    return {"before": [[block, 0] for block in blocks]}


def blocks(number: int, **changes: Any) -> list[dict[str, Any]]:
    return [{**block, **changes} if n == number else block for n, block in enumerate(two_stages()["blocks"])]


def of(kind: type, own: tuple[Action, ...]) -> list[Any]:
    return [action for action in own if isinstance(action, kind)]


def answer_to(flows: Flows, send: Send) -> Receive | None:
    """The gradients of activations, where they come from whoever got these."""
    producer, consumer = send.way.source, send.way.target
    source, target = flows.part_of(consumer, "backward"), flows.part_of(producer, "backward")
    if flows.schedule.blocks[producer].kind != "forward" or source is None or target is None:
        return None
    return Receive(Way(source, target), send.micro_batch, send.target)


def test_actions_of_two_stages() -> None:
    there, back = Way(F0, F1), Way(B1, B0)
    assert actions(Flows(pipeline_schedule.read(two_stages()))) == (
        (Run(F0, 0), Send(there, 0, 1), Receive(back, 0, 1), Run(B0, 0)),
        (Receive(there, 0, 0), Run(F1, 0), Run(B1, 0), Send(back, 0, 0)),
    )


@pytest.mark.parametrize("num_ahead", [2, 7, 1000])
@pytest.mark.parametrize("seed", range(30))
def test_messages_of_any_order_meet(seed: int, num_ahead: int) -> None:
    """Every message is sent once and received once, in the same order by both, and posted before it is needed."""
    one = SHAPES[list(SHAPES)[seed % len(SHAPES)]](4, 1.0, 2.0)
    schedule = pipeline_schedule.read(written(split_weights(one) if seed % 2 else one, 4, any_of(seed)))
    flows = Flows(schedule)
    each = actions(flows, shared(flows, 2, ()), num_ahead)
    for source, own in enumerate(each):
        for target in set(range(4)) - {source}:
            sent = [(send.way, send.micro_batch) for send in of(Send, own) if send.target == target]
            posted = [(r.way, r.micro_batch) for r in of(Receive, each[target]) if r.source == source]
            assert sent == posted
            assert len(set(sent)) == len(sent)
        posted_at = {action: place for place, action in enumerate(own) if isinstance(action, Receive)}
        for place, run in ((n, action) for n, action in enumerate(own) if isinstance(action, Run)):
            for way in flows.ways_into[run.block]:
                giver = flows.giver(way, source)
                assert giver == source or posted_at[Receive(way, run.micro_batch, giver)] < place


@pytest.mark.parametrize("chosen", [all_forward, backward_first, any_of(1)], ids=["gpipe", "1f1b", "any"])
@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_are_expected_behind_their_activations_however_early_the_rest_is(shape: str, chosen: Any) -> None:
    """Said earlier it would leave before them, and take of what a silent connection sends at once."""
    flows = Flows(pipeline_schedule.read(written(SHAPES[shape](4, 1.0, 2.0), 4, chosen)))
    each = [{action: place for place, action in enumerate(own)} for own in actions(flows, num_ahead=1000)]
    pairs = [(places, send, answer_to(flows, send)) for places in each for send in of(Send, tuple(places))]
    answered = [places[send] < places[answer] for places, send, answer in pairs if answer in places]
    assert answered
    assert all(answered)


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_begin_in_one_order_and_behind_their_last_gradient(shape: str) -> None:
    schedule = pipeline_schedule.read(written(split_weights(SHAPES[shape](4, 1.0, 2.0)), 4, backward_first))
    flows = Flows(schedule)
    wanted = shared(flows, 2, ())
    each = [of(Sum, own) for own in actions(flows, wanted)]
    begun = Counter(one.shared for own in each for one in own)
    assert begun == {n: len(one.stages) for n, one in enumerate(wanted)}
    whole = [one.shared for one in max(each, key=len)]
    assert all([n for n in whole if Sum(n) in own] == [s.shared for s in own if s.shared in whole] for own in each)
    for device, own in enumerate(actions(flows, wanted)):
        for place, action in enumerate(own):
            if isinstance(action, Sum):
                later = [schedule.blocks[run.block] for run in of(Run, own[place:])]
                stages = wanted[action.shared].stages[device]
                assert not any(block.stage in stages and block.kind != "forward" for block in later)


def test_a_sum_begins_while_others_still_compute() -> None:
    """In a pipeline of 4 the last stage sums up behind its last backward block, long before the first one does."""
    flows = Flows(pipeline_schedule.read(written(SHAPES["v"](4, 1.0, 2.0), 4, backward_first)))
    ends = deadlock_check.ends(flows)
    last = [max(ends[turn] for turn in own.turns) for own in flows.schedule.orders]
    assert last == sorted(last, reverse=True)
    assert [own[-1] for own in actions(flows, shared(flows, 2, ()))] == [Sum(n) for n in range(4)]


def test_what_is_shared() -> None:
    """Shape X has each stage on two devices; a tie is of two stages, which may be on one device."""
    x = Flows(pipeline_schedule.read(written(SHAPES["x"](4, 1.0, 2.0), 1, all_forward)))
    found = [(one.name, set(one.stages)) for one in shared(x, 1, ())]
    assert found == [("0#0", {0, 3}), ("1#0", {1, 2}), ("2#0", {1, 2}), ("3#0", {0, 3})]
    wave = Flows(pipeline_schedule.read(written(SHAPES["wave"](2, 1.0, 2.0), 1, all_forward)))
    tie = Tie((("0", "weight"), ("3", "weight")))
    assert shared(wave, 1, [tie]) == [Shared("0/weight", {0: frozenset({"0", "3"})})]
    m = Flows(pipeline_schedule.read(written(SHAPES["m"](2, 1.0, 2.0), 1, all_forward)))
    with pytest.raises(ConfigurationError, match=r"weight of stage all is tied, and the stage is cut over \(0, 1\)"):
        shared(m, 1, [Tie((("all", "weight"), ("1", "weight")))])


def test_all_processes_number_what_is_shared_alike(tmp_path) -> None:
    """Each has its own order of what is in a set; ranks that are not forks of one process have no other in common."""
    schedule = written(SHAPES["x"](4, 1.0, 2.0), 2, backward_first)
    (tmp_path / "schedule.json").write_text(json.dumps(schedule))
    told = {
        subprocess.run(
            [sys.executable, "-c", NUMBERED, str(tmp_path / "schedule.json")],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1
    assert "Sum" in told.pop()


def test_passes_that_have_nothing_to_do_with_each_other() -> None:
    def components(shape: str) -> int:
        return len(Flows(pipeline_schedule.read(written(SHAPES[shape](4, 1.0, 2.0), 1, all_forward))).components)

    assert {shape: components(shape) for shape in SHAPES} == {shape: 1 + (shape == "x") for shape in SHAPES}


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"version": 2}, "schedule of version 2, this runtime reads version 1"),
        ({"version": True}, "schedule of version True"),
        ({"numMicroBatches": 0}, "numMicroBatches: must be > 0"),
        ({"orders": [turns(F0, B0)]}, "1 orders for 2 devices"),
        ({"orders": [turns(F0), turns(F1, B1)]}, "device 0 has 1 turns, its 2 blocks and 1 micro-batches need 2"),
        ({"orders": [turns(F0, F0), turns(F1, B1)]}, "device 0 never runs B0 of micro-batch 0"),
        ({"orders": [{"round": [[F0, 0]], "times": 10**12}, turns(F1, B1)]}, "device 0 has 1000000000000 turns"),
        ({"blocks": blocks(F1, devices=[2])}, r"block F1: devices \(2,\) of 2"),
        ({"blocks": blocks(F1, after=[7])}, "block F1: needs block 7 of 4"),
        ({"blocks": blocks(B1, forward=B0)}, "block B1: block B0 is not the forward block"),
        ({"blocks": blocks(B1, devices=[0])}, r"block B1 of stage 1 on devices \(0,\), F1 of stage 1 on \(1,\)"),
        ({"blocks": blocks(B1, kind="weight")}, "block F1 has 0 backward blocks and 1 of weights"),
    ],
)
def test_what_is_not_a_schedule_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        pipeline_schedule.read(two_stages(**changes))


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        (
            {"orders": [turns(B0, F0), turns(F1, B1)]},
            "never end: device 0 waits at B0 of micro-batch 0 for B1 of micro-batch 0, F0 of micro-batch 0; "
            "device 1 waits at F1 of micro-batch 0 for F0 of micro-batch 0",
        ),
        ({"orders": [turns(F0, B0), turns(B1, F1)]}, "device 1 waits at B1 of micro-batch 0 for F1 of micro-batch 0"),
        ({"blocks": blocks(F0, after=[F1])}, "it would never end"),
        ({"blocks": blocks(B0, after=[B1, F1])}, r"block B0 on devices \(0,\) is after F1, of which it needs nothing"),
    ],
)
def test_what_would_never_end_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PlanError, match=complaint):
        actions(Flows(pipeline_schedule.read(two_stages(**changes))))


def test_blocks_on_several_devices_that_wait_for_each_other_are_refused() -> None:
    placement = chain([("a", [0, 1]), ("b", [0, 1])], 2, 1.0, 1.0).forward_only()
    order = {"before": [[0, 0], [0, 1], [1, 0], [1, 1]]}
    alike = {**written(placement, 2, all_forward), "orders": [order, order]}
    assert len(deadlock_check.ends(Flows(pipeline_schedule.read(alike)))) == 4
    crossed = {**alike, "orders": [order, {"before": [[0, 0], [1, 0], [0, 1], [1, 1]]}]}
    with pytest.raises(PlanError, match="device 0 waits at Fa of micro-batch 1 for device 1 to start it too"):
        deadlock_check.ends(Flows(pipeline_schedule.read(crossed)))
