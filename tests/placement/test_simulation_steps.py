"""The simulation of one step on cases worked out by hand, and what it has in common with the closed form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hulk_native import packets_of
from hulk_placement.cost.closed_form.pipeline import SCHEDULES, Chain, pipeline_ends
from hulk_placement.cost.simulation.outcome import Simulated, simulate_step
from hulk_placement.cost.simulation.schedule import BACKWARD, FORWARD, Schedule, schedule
from hulk_placement.cost.simulation.step import AllReduce, Bucket, Edge, Place, Replica, Resource, Step, Way
from hulk_placement.cost.timeline import Span, chain, timeline
from hulk_placement.cost.where import Row, where
from hypothesis import given
from hypothesis import strategies as st

LINK, UPLINK = Place("link", ("a", "b")), Place("uplink out of", ("a",))
MACHINE = Place("inside machine", ("m",))
RESOURCES = (Resource(LINK, 10.0), Resource(MACHINE, math.inf), Resource(UPLINK, 8.0))
ON_LINK, ON_MACHINE, ON_UPLINK = Way((0,), 10.0, 0.0), Way((1,), 1e9, 0.0), Way((0, 2), 10.0, 0.0)


def alone(forward_s: float, backward_s: float, num_micro_batches: int = 1) -> Replica:
    """A replica of one stage."""
    return Replica.alike(schedule("gpipe", 1, num_micro_batches), [forward_s], [backward_s])


def pipeline(
    name: str, num: int, times: Sequence[float], num_bytes: float = 0.0, way: Way = ON_LINK, back: Way = ON_MACHINE
) -> Replica:
    """Stages whose passes take these times, the same both ways."""
    boundaries = len(times) - 1
    order = schedule(name, len(times), num)
    return Replica.alike(order, times, times, [num_bytes] * boundaries, [(way, back)] * boundaries)


def reducing(
    num_bytes: float, *cells: tuple[int, int], ready: Sequence[float] = (1.0,), way: Way = ON_LINK
) -> AllReduce:
    """Equal buckets of one phase each over one way, two at a time."""
    return AllReduce(cells, tuple(Bucket(part, ((Edge(way, num_bytes),),)) for part in ready), num_in_flight=2)


STEPS = {
    "a replica alone computes": (Step((), (alone(1.0, 2.0, 3),)), 9.0),
    "two replicas share a link: 20 bytes at 5 a second each": (
        Step(RESOURCES, (pipeline("gpipe", 1, [1.0, 1.0], 20.0),) * 2),
        8.0,
    ),
    "an uplink holds one transfer back to 8 bytes a second": (
        Step(RESOURCES, (pipeline("gpipe", 1, [1.0, 1.0], 16.0, ON_UPLINK),)),
        6.0,
    ),
    "an all-reduce follows the slowest of its replicas": (
        Step(RESOURCES, (alone(1.0, 2.0), alone(2.0, 4.0)), (reducing(30.0, (0, 0), (1, 0)),)),
        9.0,
    ),
    "a first bucket is reduced while the last pass runs: 1 + 2 .. 3, then 3 .. 4": (
        Step(RESOURCES, (alone(1.0, 2.0),) * 2, (reducing(10.0, (0, 0), (1, 0), ready=(0.5, 1.0)),)),
        4.0,
    ),
    "without overlap both buckets share the link from the end": (
        Step(
            RESOURCES,
            (alone(1.0, 2.0),) * 2,
            (reducing(10.0, (0, 0), (1, 0), ready=(0.5, 1.0)),),
            overlap=False,
            is_early=False,
        ),
        5.0,
    ),
    "replicas that reduce once in 4 steps bear a quarter of it": (
        Step(RESOURCES, (alone(1.0, 2.0),) * 2, (reducing(40.0, (0, 0), (1, 0)),), is_early=False, num_steps_apart=4),
        4.0,
    ),
    "what stages share is summed in the end": (
        Step(
            RESOURCES,
            (alone(1.0, 2.0), alone(1.0, 1.0)),
            (
                reducing(10.0, (0, 0), (1, 0)),
                AllReduce(((0, 0), (1, 0)), (Bucket(1.0, ((Edge(ON_LINK, 20.0),),)),), after_all=True),
            ),
        ),
        6.0,
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_step_worked_out_by_hand(name: str) -> None:
    step, seconds = STEPS[name]
    found = simulate_step(step)
    assert found.step_s == pytest.approx(seconds)
    _is_whole(found)


def _is_whole(found: Simulated) -> None:
    """The parts of the step are the step, and the chain leads from its beginning to its end without a gap."""
    assert where(found).step_s == pytest.approx(found.step_s)
    spans = chain(found)
    assert [span.start_s for span in spans] == pytest.approx([0.0, *(span.end_s for span in spans[:-1])])
    assert spans[-1].end_s == pytest.approx(found.end_s)


def test_fair_shares_of_unequal_flows() -> None:
    """Of 10 bytes a second one gets 3, its most, the other 7; after 2 s the first is done and the other has all."""
    slow = Way((0,), 3.0, 0.0)
    groups = reducing(6.0, (0, 0), way=slow), reducing(34.0, (1, 0))
    found = simulate_step(Step(RESOURCES, (alone(0.0, 1.0),) * 2, groups))
    assert found.sums.end_S.tolist() == pytest.approx([3.0, 5.0])
    assert (found.uses[0].num_bytes, found.uses[0].busy_s) == pytest.approx((40.0, 4.0))


def test_a_flow_that_goes_twice_over_a_link_has_half_of_it() -> None:
    twice = Way((0, 0), 10.0, 0.0)
    found = simulate_step(Step(RESOURCES, (alone(0.0, 1.0),), (reducing(20.0, (0, 0), way=twice),)))
    assert found.step_s == pytest.approx(5.0)


SECONDS = st.floats(0.01, 10.0)
STAGE = st.tuples(SECONDS, SECONDS, SECONDS, SECONDS, SECONDS, st.sampled_from([0.0, 0.1, 5.0]))
BYTES = st.sampled_from([1.0, 25e3, 98e3, 1e6])


@given(
    st.sampled_from(sorted(SCHEDULES)),
    st.integers(1, 40),
    st.lists(st.tuples(STAGE, st.booleans()), min_size=2, max_size=5),
    BYTES,
    st.booleans(),
)
def test_a_pipeline_alone_is_the_closed_form(
    name: str, num: int, stages: list[tuple[tuple[float, ...], bool]], num_bytes: float, overlap: bool
) -> None:
    """Over silent connections too, whose windows grow; only some machines' do."""
    forward, backward, send, back, latency, back_latency = np.array([figures for figures, _ in stages]).T.copy()
    is_cold = np.array([cold for _, cold in stages])
    ways = [
        (Way((1,), num_bytes / s, there, is_cold=a), Way((1,), num_bytes / b, here, is_cold=c))
        for s, there, b, here, a, c in zip(send, latency, back, back_latency, is_cold, is_cold[1:], strict=False)
    ]
    replica = Replica.alike(
        schedule(name, len(stages), num), forward.tolist(), backward.tolist(), [num_bytes] * len(ways), ways
    )
    packets = is_cold * packets_of(num_bytes)
    chain = Chain(forward, backward, send, latency, packets, back, back_latency, np.roll(packets, -1))
    ends_s = pipeline_ends(SCHEDULES[name], num, chain, overlap)
    found = simulate_step(Step(RESOURCES, (replica,), overlap=overlap))
    assert found.ends_DP[0].tolist() == pytest.approx(ends_s.tolist(), rel=1e-9)
    _is_whole(found)


def test_messages_wait_for_the_windows_of_silent_connections() -> None:
    """Eight activations of ten packets on each connection, round trips of 2 s: the first leaves at once, two more a
    round trip later, four more after two, the last after three; gradients the same way back."""
    cold = Way((1,), 1e12, 1.0, is_cold=True)
    step = Step(RESOURCES, (pipeline("gpipe", 8, [1e-3, 1e-3], 98e3, cold, cold),))
    found = simulate_step(step)
    assert found.blocks.arrived_HM[0].tolist() == pytest.approx([1.0, 3.0, 3.0, 5.0, 5.0, 5.0, 5.0, 7.0], abs=0.05)
    assert found.step_s == pytest.approx(14.0, abs=0.05)
    _is_whole(found)


def test_orders_that_wait_for_each_other_are_named() -> None:
    one, other = ((FORWARD, 0), (BACKWARD, 0)), ((FORWARD, 1), (BACKWARD, 1))
    order = Schedule(((*one, *other), ((FORWARD, 0), (FORWARD, 1), (BACKWARD, 1), (BACKWARD, 0))))
    replica = Replica.alike(order, [1.0, 1.0], [1.0, 1.0], [1.0], [(ON_LINK, ON_LINK)])
    with pytest.raises(ValueError, match="replica 0, stage 0: the backward pass of micro-batch 0 never gets its input"):
        simulate_step(Step(RESOURCES, (replica,)))


def test_where_a_pipeline_goes_and_what_waited_for_what() -> None:
    """Two stages of 1 s each way, 5 bytes at 10 a second: stage 0 waits 0.5 s for that, 2 s for stage 1."""
    found = simulate_step(Step(RESOURCES, (pipeline("gpipe", 1, [1.0, 1.0], 5.0),)))
    assert found.step_s == pytest.approx(4.5)
    assert where(found).rows[:3] == (
        Row("compute", None, 2.0),
        Row("bubble", None, 2.0),
        Row("transfer", LINK, 0.5),
    )
    assert chain(found)[:3] == [
        Span(0.0, 1.0, "forward", (0, 0), 0),
        Span(1.0, 1.5, "transfer", (0, 0), 0, LINK),
        Span(1.5, 2.5, "forward", (0, 1), 0),
    ]


def test_the_timeline_has_every_block_transfer_and_bucket_once() -> None:
    step = Step(
        RESOURCES,
        (pipeline("1f1b", 3, [1.0, 1.0], 5.0),) * 2,
        tuple(reducing(10.0, (0, stage), (1, stage), ready=(0.5, 1.0)) for stage in (0, 1)),
    )
    kinds = [span.kind for span in timeline(simulate_step(step))]
    assert {kind: kinds.count(kind) for kind in kinds} == {
        "forward": 12,
        "backward": 12,
        "transfer": 12,
        "all-reduce": 4,
    }


BAD = {
    "all-reduces 0 steps apart": lambda: Step((), (alone(1.0, 1.0),), num_steps_apart=0),
    "replicas must be >= 1": lambda: Step((), ()),
    "a cell is a member of several all-reduces": lambda: Step(
        RESOURCES, (alone(1.0, 1.0),), (reducing(1.0, (0, 0)), reducing(1.0, (0, 0)))
    ),
    "there are 1 replicas of 1 stages": lambda: Step(RESOURCES, (alone(1.0, 1.0),), (reducing(1.0, (1, 0)),)),
    "resources 0 .. 0 are used, there are 0": lambda: Step((), (alone(1.0, 1.0),), (reducing(1.0, (0, 0)),)),
    "link a > b: 0.0 B/s must be > 0": lambda: Resource(LINK, 0.0),
    "inf B/s must be > 0": lambda: Way((0,), math.inf, 0.0),
    "must draw on one resource": lambda: Way((), 1.0, 0.0),
    "edge: -1.0 bytes": lambda: Edge(ON_LINK, -1.0),
    "ready at 1.5": lambda: Bucket(1.5, ((Edge(ON_LINK, 1.0),),)),
    "0 phases": lambda: Bucket(1.0, ()),
    "0 buckets in flight": lambda: AllReduce(((0, 0),), (), num_in_flight=0),
    "goes backward before it goes forward": lambda: Schedule((((BACKWARD, 0), (FORWARD, 0)),)),
    "schedule 'zigzag' must be gpipe or 1f1b": lambda: schedule("zigzag", 1, 1),
    "are not 1 micro-batches": lambda: Schedule((((FORWARD, 0), (BACKWARD, 0)), ((FORWARD, 0), (BACKWARD, 1)))),
    "1 boundaries have ways, 0 must": lambda: Replica.alike(
        schedule("gpipe", 1, 1), [1.0], [1.0], [], [(ON_LINK, ON_LINK)]
    ),
    "among times and bytes that must be >= 0": lambda: alone(-1.0, 1.0),
}


@pytest.mark.parametrize("said", BAD)
def test_a_step_that_cannot_be_is_refused(said: str) -> None:
    with pytest.raises(ValueError, match=said):
        BAD[said]()
