"""Replicas that train apart: what a round waits, and the fragments, delay and precision that the planner chooses."""

import re
from collections.abc import Callable
from dataclasses import replace
from itertools import permutations

import pytest
from hulk_placement import wire
from hulk_placement.cost.foresee import foresee
from hulk_placement.cost.fragments import begins, fragment_shares, num_units
from hulk_placement.cost.predict import predict
from hulk_placement.cost.streaming import waited_seconds
from hulk_placement.layouts import data_parallel
from hulk_placement.model import Known, Layer, Model
from hulk_placement.plan import Plan
from hulk_placement.search.job import place
from hulk_placement.search.streaming import SLACK, TOLERATED, Options
from hulk_placement.solution import Budget, Unplaced
from hulk_placement.solve import solve
from hulk_placement.sync import Rounds, Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload
from hulk_runtime.diloco.fragments import num_units as runtime_units
from hulk_runtime.diloco.fragments import strided
from hulk_runtime.diloco.outer_step import Outer, outer_for
from hulk_runtime.diloco.settings import Job
from hulk_runtime.plan import wire as runtime_wire
from hypothesis import given, settings
from hypothesis import strategies as st

OPEN = Rounds(fragments=None, delay_steps=None)
ANY = replace(OPEN, any_precision=True)
COMPUTE_S, NUM_LAYERS, LAYER_VALUES, FLOPS = 0.4, 12, 1 << 18, 1e9
REGIONS = ("a", "b", "c")


def job(sync: Sync) -> Workload:
    """One worker a region, of 12 layers of 1 MiB."""
    part = FLOPS / NUM_LAYERS / 3
    layers = tuple(Layer(f"h.{number}", LAYER_VALUES, part, 2 * part, 0, 0) for number in range(NUM_LAYERS))
    return Workload("team/job", Model(layers), 3, dict.fromkeys(REGIONS, 1), 3, 3, pins=REGIONS, sync=sync)


def world(mbit_per_s: float, rtt_s: float = 0.04) -> Topology:
    links = {pair: Link(rtt_s, mbit_per_s * 1e6 / 8) for pair in permutations(REGIONS, 2)}
    return Topology(tuple(Machine(r, r, flops_per_s=FLOPS / COMPUTE_S) for r in REGIONS), region_links=links)


def planned(sync: Sync, mbit_per_s: float) -> Plan:
    return solve([job(sync)], [], world(mbit_per_s)).plans["team/job"]


sums = st.lists(st.tuples(st.floats(0.0, 9.0), st.floats(0.1, 1.0)), min_size=1, max_size=5).map(
    lambda found: [(seconds, seconds * taken) for seconds, taken in found]
)


def executed(step_s: float, num_steps: int, delay: int, timed: list[tuple[float, float]], rounds: int) -> list[float]:
    """When each round ends, step after step as `hulk.DiLoCo` does them."""
    now, sent, ends, found = 0.0, 0.0, dict[int, float](), list[float]()
    for step in range(1, rounds * num_steps + 1):
        now += step_s
        for number, offset in enumerate(begins(num_steps, len(timed))):
            if (step - offset) % num_steps == 0 and step >= offset:
                sent = max(now + timed[number][0], sent + timed[number][1])
                ends[step + delay] = sent
        now = max(now, ends.pop(step, 0.0))
        if step % num_steps == 0:
            found.append(now)
    return found


@settings(max_examples=60, deadline=None)
@given(sums, st.integers(5, 12), st.data())
def test_a_round_takes_what_it_does_step_after_step(
    timed: list[tuple[float, float]], num_steps: int, data: st.DataObject
) -> None:
    delay = data.draw(st.integers(0, num_steps - 1))
    ends = executed(1.0, num_steps, delay, timed, 240)
    mean_s = (ends[-1] - ends[119]) / 120
    assert waited_seconds(1.0, num_steps, delay, timed) == pytest.approx(mean_s - num_steps, abs=0.02)


@settings(max_examples=60, deadline=None)
@given(sums, st.integers(5, 12), st.floats(0.1, 1.0), st.data())
def test_faster_links_and_later_merges_never_make_a_round_longer(
    timed: list[tuple[float, float]], num_steps: int, faster: float, data: st.DataObject
) -> None:
    delay = data.draw(st.integers(1, num_steps - 1))
    waited_s = waited_seconds(1.0, num_steps, delay, timed)
    assert waited_seconds(1.0, num_steps, delay, [(faster * t, faster * o) for t, o in timed]) <= waited_s + 1e-9
    assert waited_s <= waited_seconds(1.0, num_steps, delay - 1, timed) + 1e-9


NAMES = st.from_regex(r"(h\.[0-9](\.(attn|mlp|1\.fc))?|wte|head|out\.norm)", fullmatch=True)


@given(st.dictionaries(NAMES, st.integers(1, 99)), st.data())
def test_fragments_have_what_the_runtime_gives_them(sizes: dict[str, int], data: st.DataObject) -> None:
    parameters = {f"{name}.weight": size for name, size in sizes.items()}
    assert num_units(sizes) == runtime_units(parameters)
    number = data.draw(st.integers(1, max(1, num_units(sizes))))
    names = strided(parameters, number) if sizes else [[]]
    total = sum(sizes.values()) or 1
    wanted = [sum(parameters[name] for name in part) / total for part in names]
    assert fragment_shares(sizes, number) == pytest.approx(tuple(wanted) if sizes else (1.0,))


def test_layers_of_one_number_are_one_unit() -> None:
    parts = [FLOPS / NUM_LAYERS / 3, 2 * FLOPS / NUM_LAYERS / 3]
    names = [f"h.{number}.{part}" for number in range(3) for part in ("norm", "attn", "mlp", "out")]
    halves = Model(tuple(Layer(name, LAYER_VALUES, parts[0], parts[1], 0, 0) for name in names))
    asked = replace(job(Sync("local", 25, rounds=OPEN)), model=halves)
    assert Options(planned(asked.sync, 50), asked, world(50)).numbers() == range(1, 4)


def test_a_model_whose_layers_are_not_known_may_have_fragments() -> None:
    """Its stand-in has one layer, and a sum of all at once would be merged many steps late."""
    counted = job(Sync("local", 25, rounds=OPEN))
    whole = replace(counted, model=Model.of_totals(counted.model.num_parameters, FLOPS))
    stand_in = replace(whole, model=replace(whole.model, known=Known.SEQUENCE))
    one, found = (solve([asked], [], world(50)).plans["team/job"] for asked in (whole, stand_in))
    assert one.fragments == 1 < found.fragments
    assert found.delay_steps == planned(counted.sync, 50).delay_steps < one.delay_steps


def test_in_one_piece_a_step_bears_its_part_of_one_all_reduce() -> None:
    every, local = planned(Sync("wan"), 50), planned(Sync("local", 25), 50)
    assert local.collective is not None
    alone = predict(replace(local, inner_steps=1), job(Sync("local", 1)), world(50)).communication_s
    assert local.prediction.step_s == pytest.approx(COMPUTE_S + alone / 25)
    assert (local.fragments, local.delay_steps) == (1, 0)
    assert every.prediction.utilisation < 0.3 < local.prediction.utilisation < 0.9


def test_over_slow_links_fragments_hide_what_is_sent() -> None:
    plan = planned(Sync("local", 25, rounds=OPEN), 50)
    assert plan.fragments > 1
    assert 1 <= plan.delay_steps <= 25 // plan.fragments
    assert plan.prediction.utilisation > 0.99
    assert plan.prediction == predict(plan, job(Sync("local", 25, rounds=OPEN)), world(50))


@pytest.mark.parametrize("rounds", [OPEN, Rounds(), Rounds(fragments=4, delay_steps=0), Rounds(delay_steps=2)])
def test_what_is_promised_of_a_plan_is_what_it_was_chosen_by(rounds: Rounds) -> None:
    asked, topology = job(Sync("local", 25, rounds=rounds)), world(20)
    plan = planned(asked.sync, 20)
    found = foresee(plan, asked, topology)
    assert found.step_s == pytest.approx(plan.prediction.step_s)
    assert found.utilisation == pytest.approx(plan.prediction.utilisation)


def test_over_fast_links_nothing_is_late_or_rounded() -> None:
    plan = planned(Sync("local", 25, rounds=ANY), 20_000)
    assert plan.collective is not None
    assert (plan.fragments, plan.delay_steps, plan.collective.compression) == (1, 0, "none")


@pytest.mark.parametrize("mbit_per_s", [2000.0, 300.0, 50.0, 12.0, 3.0])
def test_of_all_that_hide_as_much_the_earliest_merge_is_chosen(mbit_per_s: float) -> None:
    asked, topology = job(Sync("local", 20, rounds=OPEN)), world(mbit_per_s)
    plan = planned(asked.sync, mbit_per_s)
    one = replace(plan, fragments=1, delay_steps=0)
    options = Options(replace(one, prediction=predict(one, asked, topology)), asked, topology)
    every = {
        (delay, fragments): options.utilisation(fragments, delay, SLACK)
        for fragments in range(1, NUM_LAYERS + 1)
        for delay in range(min(20 // fragments, 19) + 1)
    }
    enough = max(every.values()) * (1 - TOLERATED)
    assert (plan.delay_steps, plan.fragments) == min(key for key, found in every.items() if found >= enough)


@pytest.mark.parametrize(
    ("rounds", "expected"),
    [
        (Rounds(fragments=3, delay_steps=None), (3, None)),
        (Rounds(fragments=None, delay_steps=2), (None, 2)),
        (Rounds(fragments=4, delay_steps=0), (4, 0)),
        (Rounds(fragments=20, delay_steps=19), (20, 19)),
    ],
)
def test_what_a_job_says_is_kept(rounds: Rounds, expected: tuple[int | None, int | None]) -> None:
    plan = planned(Sync("local", 20, "int8", rounds=replace(rounds, any_precision=True)), 10)
    assert plan.collective is not None
    assert plan.collective.compression == "int8"
    assert expected in {(a, b) for a in (plan.fragments, None) for b in (plan.delay_steps, None)}


@pytest.mark.parametrize(("mbit_per_s", "expected"), [(50.0, "none"), (5.0, "int8"), (1.8, "int4")])
def test_outer_gradients_are_as_exact_as_the_links_allow(mbit_per_s: float, expected: str) -> None:
    plan = planned(Sync("local", 25, rounds=ANY), mbit_per_s)
    assert plan.collective is not None
    assert plan.collective.compression == expected
    assert plan.prediction.utilisation > 0.9


@settings(max_examples=8, deadline=None)
@given(st.floats(1.0, 100.0), st.floats(1.0, 4.0))
def test_more_bandwidth_never_lowers_utilisation(mbit_per_s: float, factor: float) -> None:
    slow, fast = (planned(Sync("local", 20, rounds=OPEN), rate) for rate in (mbit_per_s, factor * mbit_per_s))
    assert fast.prediction.utilisation >= slow.prediction.utilisation * (1 - TOLERATED) - 1e-9


def test_the_runtime_trains_as_the_plan_says() -> None:
    asked = job(Sync("local", 25, rounds=replace(ANY, warmup_steps=7)))
    plan = planned(asked.sync, 5)
    blob = wire.encode(plan, wire.Meta.of(asked, operator_version="test", steps=1))
    found, (decoded, meta) = Job.of(runtime_wire.decode(blob)), wire.decode(blob)
    assert plan.collective is not None
    assert (found.sync_every, found.warmup) == (25, 7)
    assert (found.num_fragments, found.delay) == (plan.fragments, plan.delay_steps) != (1, 0)
    assert found.compression == plan.collective.compression == "int8"
    assert (decoded.fragments, decoded.delay_steps) == (plan.fragments, plan.delay_steps)
    assert wire.encode(decoded, meta) == blob


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (Rounds(), (1.0, 0.5)),
        (Rounds(delay_steps=3), (0.7, 0.9)),
        (Rounds(outer_momentum=0.0), (1.0, 0.0)),
        (Rounds(outer_learning_rate=0.4, delay_steps=3), (0.4, 0.9)),
    ],
)
def test_the_outer_step_is_by_the_delay_but_for_what_a_job_says(asked: Rounds, expected: tuple[float, float]) -> None:
    sync = Sync("local", 25, rounds=asked)
    plan = planned(sync, 5)
    blob = wire.encode(plan, wire.Meta.of(job(sync), operator_version="test", steps=1))
    assert Job.of(runtime_wire.decode(blob)).outer == Outer(*expected)
    assert wire.encode(*wire.decode(blob)) == blob
    by_hand, default = outer_for(plan.delay_steps), Rounds().planned(1, plan.delay_steps)
    assert (by_hand.learning_rate, by_hand.momentum) == (default.outer_learning_rate, default.outer_momentum)


def test_why_says_from_which_bandwidth_on_each_way_hardly_waits() -> None:
    asked, plan = job(Sync("local", 25, rounds=OPEN)), planned(Sync("local", 25, rounds=OPEN), 50)
    (said,) = (sentence for sentence in plan.why if "bandwidth of the narrowest link" in sentence)
    assert "(it has 50 Mbit/s" in said
    found = {words.strip(): float(rate) for words, rate in re.findall(r"([a-z0-9 ]+) from ([\d.]+) Mbit/s", said)}
    assert list(found) == ["all layers at once", "streaming", "streaming in int8", "streaming in int4"]
    assert "a sum in every step at none" in said  # two round trips are more than 5 % of it
    assert found["all layers at once"] > found["streaming"] > 3 * found["streaming in int8"]
    once = replace(plan, fragments=1, delay_steps=0)
    for factor, is_enough in ((1.03, True), (0.97, False)):
        topology = world(found["all layers at once"] * factor)
        assert (predict(once, asked, topology).utilisation >= 0.95) is is_enough


def test_why_compares_with_a_sum_in_every_step_in_its_best_number_of_buckets() -> None:
    """A plan for rounds has one bucket, of which nothing overlaps."""
    asked, topology = job(Sync("local", 25, rounds=OPEN)), world(1500, rtt_s=0.004)
    plan = solve([asked], [], topology).plans["team/job"]
    every = [replace(plan, inner_steps=None, fragments=1, delay_steps=0, num_buckets=number) for number in (1, 2, 4)]
    said = " ".join(plan.why)
    best = min((predict(way, asked, topology).step_s, way.num_buckets) for way in every)
    assert f"a synchronous step {best[0]:.3f} s (gradients in {best[1]} buckets)" in said
    (rate,) = (float(rate) for rate in re.findall(r"a sum in every step from ([\d.]+) Mbit/s", said))
    for factor, is_enough in ((1.03, True), (0.97, False)):
        there = world(rate * factor, rtt_s=0.004)
        assert (max(predict(way, asked, there).utilisation for way in every) >= 0.95) is is_enough


def test_why_says_where_any_bandwidth_is_enough() -> None:
    rounds = Sync("local", 400, rounds=OPEN)
    asked = replace(job(rounds), model=Model((Layer("h.0", 100, FLOPS / 3, 2 * FLOPS / 3, 0, 0),)))
    said = " ".join(solve([asked], [], world(20)).plans["team/job"].why)
    assert f"all layers at once already at {20 / 1024:.2g} Mbit/s" in said


def test_why_counts_the_best_fragments_there_are() -> None:
    """Not those of the plan, which over quick links are few."""
    asked, plan = job(Sync("local", 25, rounds=OPEN)), planned(Sync("local", 25, rounds=OPEN), 2000)
    (rate,) = (float(rate) for rate in re.findall(r"streaming from ([\d.]+) Mbit/s", " ".join(plan.why)))
    for factor, is_enough in ((1.03, True), (0.97, False)):
        there = world(rate * factor)
        ways = (
            replace(plan, fragments=number, delay_steps=min(25 // number, 24)) for number in range(1, NUM_LAYERS + 1)
        )
        assert (max(predict(way, asked, there).utilisation for way in ways) >= 0.95) is is_enough


def near(mbit_per_s: float, sync: Sync, num_workers: tuple[int, int], speeds: tuple[float, ...]) -> Plan:
    """One region's plan for 24 sequences a step."""
    machines = tuple(Machine(f"n{number}", "r", flops_per_s=speed) for number, speed in enumerate(speeds))
    links = {("r", "r"): Link(0.001, mbit_per_s * 1e6 / 8)}
    names = [machine.name for machine in machines]
    asked = replace(job(sync), candidates=dict.fromkeys(names, 1), pins=(), global_batch=24)
    asked = replace(asked, min_workers=num_workers[0], max_workers=num_workers[1])
    return solve([asked], [], Topology(machines, region_links=links)).plans["team/job"]


@pytest.mark.parametrize("mbit_per_s", [5.0, 10.0, 200.0])
@pytest.mark.parametrize("speeds", [(FLOPS * 3,) * 8, tuple(FLOPS * speed for speed in (4, 4, 3, 3, 2, 2, 1, 1))])
def test_in_one_region_as_many_workers_train_as_sums_are_hidden_of(
    mbit_per_s: float, speeds: tuple[float, ...]
) -> None:
    """Of sums in the open more are always better here, until 8 wait for one another for most of a step."""
    sync = Sync("local", 10, rounds=OPEN)
    found = near(mbit_per_s, sync, (1, 8), speeds)
    best_s = min(near(mbit_per_s, sync, (num, num), speeds).prediction.step_s for num in range(1, 9))
    assert found.prediction.step_s <= best_s * (1 + 1e-9)
    assert (1 - found.optimality_gap) * found.prediction.step_s <= best_s * (1 + 1e-9)
    assert len(found.workers) < 8 or mbit_per_s == 200.0
    assert "reduces gradients" not in " ".join(found.why)


def test_precisions_that_are_tried_later_have_the_seconds_that_are_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 9 s the first has 3 and takes 1, the second 4 and takes 1, the third what is left."""
    now_s, given = 0.0, list[float]()

    def search(workload: Workload, topology: Topology, budget: Budget, clock: Callable[[], float]) -> Plan | Unplaced:
        nonlocal now_s
        now_s += 1.0
        given.append(budget.seconds)
        return place(workload, topology, budget, clock)

    monkeypatch.setattr(data_parallel, "place_keeping", search)
    data_parallel.place_replicas(job(Sync("local", 25, rounds=ANY)), world(1), Budget(seconds=9.0), lambda: now_s)
    assert given == [3.0, 4.0, 7.0]


def test_sums_under_way_take_memory() -> None:
    """Twice four bytes of each value of the fragments that are under way at once."""
    asked, plan = job(Sync("local", 24, rounds=OPEN)), planned(Sync("local", 24, rounds=OPEN), 50)
    num = NUM_LAYERS * LAYER_VALUES
    held = {
        late: predict(replace(plan, fragments=late[0], delay_steps=late[1]), asked, world(50)).memory_bytes
        for late in ((1, 0), (1, 9), (4, 1), (4, 6), (4, 13))
    }
    more = {late: (found - held[1, 0]) / (8 * num) for late, found in held.items()}
    assert more == pytest.approx({(1, 0): 0, (1, 9): 1, (4, 1): 0.25, (4, 6): 0.5, (4, 13): 0.75})
    fixed = replace(asked, sync=Sync("local", 24, rounds=Rounds(fragments=1, delay_steps=9)))
    assert fixed.replica_bytes(1) - asked.replica_bytes(1) == 8 * num


@pytest.mark.parametrize("part", [0.0, 1 / 6, 1.0])
def test_no_more_is_under_way_than_there_is_memory_for(part: float) -> None:
    asked, topology = job(Sync("local", 25, rounds=OPEN)), world(10)
    room = predict(replace(planned(Sync("local", 25), 10)), asked, topology).memory_bytes
    room += round(part * 8 * NUM_LAYERS * LAYER_VALUES) + 1
    machines = tuple(replace(machine, memory_bytes=room) for machine in topology.machines)
    plan = solve([asked], [], replace(topology, machines=machines)).plans["team/job"]
    assert plan.prediction.memory_bytes <= room
    assert bool(plan.delay_steps) is bool(part)
    assert part != 1 / 6 or plan.fragments >= 6
