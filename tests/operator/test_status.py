"""Conditions, the phase derived from them, the one patch, and the events of what changed."""

import json
from typing import Any

import pytest
from hulk_operator.api import ConditionType, HulkJobStatus, LastFailure, Phase
from hulk_operator.status import condition, event, merge_patch, phase, transitions, with_condition
from hypothesis import given
from hypothesis import strategies as st
from views import GENERATION, NOW, ago, deploying, job, running, status

JSON = st.recursive(st.integers() | st.text(max_size=3), lambda inner: st.dictionaries(st.text(max_size=2), inner))


def applied(target: Any, patch: Any) -> Any:
    """RFC 7386, section 2."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = applied(result.get(key), value)
    return result


@given(st.dictionaries(st.text(max_size=2), JSON), st.dictionaries(st.text(max_size=2), JSON))
def test_the_patch_turns_one_object_into_the_other(before: dict[str, Any], after: dict[str, Any]) -> None:
    assert applied(before, merge_patch(before, after)) == after
    assert merge_patch(after, after) == {}


def test_a_transition_time_moves_only_with_the_value() -> None:
    planned = ConditionType.PLANNED
    first = with_condition(HulkJobStatus(), planned, False, "NoRoom", "2 free", ago(9.5), 1)
    again = with_condition(first, planned, False, "NoMemory", "3 free", NOW, 2)
    turned = with_condition(again, planned, True, "Planned", "", NOW, 2)
    times = [found.last_transition_time for one in (first, again, turned) if (found := condition(one, planned))]
    assert times == [ago(10), ago(10), NOW]


def test_conditions_keep_one_order() -> None:
    late_first = status(1, Running=(True, "Running"), Planned=(True, "Planned"))
    assert [found.type for found in late_first.conditions] == ["Planned", "Running"]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (HulkJobStatus(), Phase.PENDING),
        (status(1, Planned=(False, "NoRoom")), Phase.PENDING),
        (deploying(), Phase.DEPLOYING),
        (running(), Phase.RUNNING),
        (status(1, Planned=(False, "Suspended"), Suspended=(True, "Suspended")), Phase.SUSPENDED),
        (status(1, Planned=(True, "Planned"), Succeeded=(True, "Succeeded")), Phase.SUCCEEDED),
        (status(1, Planned=(False, "X"), Suspended=(True, "Suspended"), Failed=(True, "X")), Phase.FAILED),
    ],
)
def test_the_phase(found: HulkJobStatus, expected: Phase) -> None:
    assert phase(found) == expected


def test_transitions_are_told_once_with_their_weight() -> None:
    before, after = deploying(), running()
    assert [(told.type, told.reason) for told in transitions(before, after)] == [
        ("Normal", "Deployed"),
        ("Normal", "Running"),
    ]
    assert list(transitions(after, after)) == []
    refused = status(0, Planned=(False, "NotEnoughAccelerators"))
    assert [told.type for told in transitions(HulkJobStatus(), refused)] == ["Warning"]


def test_a_failure_is_told_with_pod_node_and_code() -> None:
    last = LastFailure(attempt=2, pod="demo-2-1", node="n", exit_code=3, reason="Error", message="boom", time=NOW)
    (told, *_) = transitions(running(2), running(2).model_copy(update={"last_failure": last}))
    assert told.message == "Attempt 2 (demo-2-1 on node n, exit code 3): boom"


def test_saying_the_same_again_is_the_same_event() -> None:
    (first, _) = transitions(deploying(), running())
    names = {
        event(job(), first, attempt, time)["metadata"]["name"] for attempt, time in [(1, NOW), (1, ago(5)), (2, NOW)]
    }
    assert len(names) == 2
    made = event(job(), first, 1, NOW)
    assert (made["involvedObject"]["uid"], made["count"]) == ("u1", 1)


def test_a_pass_that_a_change_of_the_spec_made_vain_says_nothing_twice() -> None:
    (first, _) = transitions(deploying(), running())

    def name(generation: int, seen: int) -> str:
        """Of the event about a job whose status knows an older generation."""
        before = job().status.model_copy(update={"observed_generation": seen})
        meta = job().metadata.model_copy(update={"generation": generation})
        told = event(job().model_copy(update={"metadata": meta, "status": before}), first, 1, NOW)
        return str(told["metadata"]["name"])

    assert name(generation=2, seen=1) == name(generation=1, seen=1)  # the pass is repeated
    assert name(generation=3, seen=2) != name(generation=1, seen=1)  # it has become true again


def test_the_largest_status_is_small() -> None:
    whole = running().model_copy(update={"last_failure": None, "observed_generation": GENERATION})
    assert len(json.dumps(whole.wire())) < 4096
