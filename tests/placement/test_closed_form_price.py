"""What a step's traffic costs: in the closed form of searches, as a plan states it, and by the table of its links."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest
from hulk_placement.collective.plan import WIRE_SHARE
from hulk_placement.cost.closed_form.arrays import Cache, Layout
from hulk_placement.cost.closed_form.evaluate import evaluate
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.cost.predict import predict, stage_groups
from hulk_placement.cost.traffic import link_traffic
from hulk_placement.layouts.plans import plan_of
from hulk_placement.layouts.reducing import ways
from hulk_placement.layouts.trials import Shape, Trial, Trials
from hulk_placement.model import Layer, Model
from hulk_placement.nccl import Nccl
from hulk_placement.plan import ALGORITHMS, Plan
from hulk_placement.sync import Sync
from hulk_placement.topology import Link, Machine, Topology
from hulk_placement.workload import Workload

NUM_SEEDS, NUM_LAYERS, GLOBAL_BATCH = 30, 6, 24


@dataclass(frozen=True)
class Case:
    """A layout on machines that cost nothing, so that a step's price is that of its traffic."""

    topology: Topology
    workload: Workload
    ground: Ground
    option: Option
    layout: Layout

    @property
    def cost(self) -> float:
        """By the closed form."""
        return evaluate(self.ground.setting(self.option), self.layout, self.cache)

    @property
    def cache(self) -> Cache:
        return Cache(*self.layout.machine_DP.shape, len(self.ground.regions), len(self.ground.machines))

    @property
    def plan(self) -> Plan:
        """Not predicted."""
        shape = Shape(self.option, *self.layout.machine_DP.shape)
        return plan_of(Trials(self.ground), Trial(0.0, 0, shape, self.layout))


def drawn(
    seed: int,
    sync: Sync,
    num_regions: int = 4,
    *,
    inside: bool = False,
    whole: bool = False,
    price: float | None = None,
) -> Case:
    """Two to six replicas; `inside` regions traffic has a price too, `whole` models have neither stages nor ties."""
    chance, regions = random.Random(seed), "abcdef"[:num_regions]
    pairs = list(product(regions, regions))
    machines = tuple(Machine(f"{region}{n}", region, "", 4, flops_per_s=1e12) for region in regions for n in range(3))
    rates = {pair: chance.uniform(1e7, 1e8) for pair in pairs}
    links = {(a, b): Link(1e-4, 1e9) if a == b else Link(0.1, rates[a, b]) for a, b in pairs}
    prices = {(a, b): price or chance.uniform(1.0, 100.0) for a, b in pairs if inside or a != b}
    topology = Topology(machines, region_links=links, egress_price_per_gb=prices)
    layers = [Layer(f"layer.{n}", 4_000_000, 1e9, 2e9, chance.randint(1, 9) * 100_000, 0) for n in range(NUM_LAYERS)]
    if not whole and chance.random() < 0.5:
        layers[-1] = replace(layers[-1], tied_to=0, tied_parameters=1_000_000)
    stages, data = 1 if whole else chance.randint(1, 3), chance.randint(2, 6)
    degrees = {"pipeline": None, "tensor": None}
    free, money = {machine.name: 4 for machine in machines}, "throughput-per-money"
    workload = Workload(
        "team/job", Model(tuple(layers)), GLOBAL_BATCH, free, max_workers=99, objective=money, sync=sync, **degrees
    )
    ends = sorted(chance.sample(range(1, GLOBAL_BATCH), data - 1))
    tour = [
        *chance.sample(range(num_regions), num_regions),
        *chance.choices(range(num_regions), k=chance.choice((0, 2))),
    ]
    layout = Layout(
        machine_DP=np.array([chance.choices(range(len(machines)), k=stages) for _ in range(data)]),
        first_P=np.array([0, *sorted(chance.sample(range(1, NUM_LAYERS), stages - 1)), NUM_LAYERS]),
        shares_D=np.diff([0, *ends, GLOBAL_BATCH]),
        tour_W=np.array(tour),
    )
    option = Option(1, 1 if whole else chance.choice((1, 2)))
    return Case(topology, workload, Ground.of(workload, topology, machines), option, layout)


def stated(case: Case, algorithm: str) -> float:
    """The price of the layout's plan with the shortest step of those that sum so."""
    plans = [plan for plan in ways(case.plan, case.workload, case.topology, lambda: 0.0) if plan.algorithm == algorithm]
    return min(plans, key=lambda plan: plan.prediction.step_s).prediction.price


def is_apart(case: Case) -> bool:
    """Whether the first stage is in several regions."""
    return len(set(case.ground.region_M[case.layout.machine_DP[:, 0]])) > 1


@pytest.mark.parametrize("inside", [False, True])
def test_a_search_pays_for_gloos_rings_what_the_plan_states(inside: bool) -> None:
    """Over all machines of the rings, stages and ties; also where a tour comes to a region twice."""
    for seed in range(NUM_SEEDS):
        case = drawn(seed, Sync("ring"), inside=inside)
        assert case.cost == pytest.approx(stated(case, "ring"), rel=1e-9), seed


def test_stages_on_one_machine_pay_nothing_for_what_they_send_each_other() -> None:
    case = drawn(0, Sync("ring"), inside=True)
    layout = case.layout._replace(
        machine_DP=np.zeros((1, 2), np.int64), first_P=np.array([0, 3, NUM_LAYERS]), shares_D=np.array([GLOBAL_BATCH])
    )
    assert replace(case, layout=layout).cost == 0.0


@pytest.mark.parametrize("compression", WIRE_SHARE)
def test_a_search_pays_for_hulks_own_between_two_regions_what_the_plan_states(compression: str) -> None:
    cases = [drawn(seed, Sync("wan", compression=compression), 2, whole=True) for seed in range(NUM_SEEDS)]
    apart = [case for case in cases if is_apart(case)]
    assert len(apart) > NUM_SEEDS / 2
    for case in apart:
        assert case.cost == pytest.approx(stated(case, "wan"), rel=1e-9)


def test_a_search_pays_for_hulks_own_between_more_regions_the_least_that_flows_send() -> None:
    """All bytes but the root's cross once on their way in, and once on their way out; where all links cost the same."""
    exact = 0
    for seed in range(NUM_SEEDS):
        case = drawn(seed, Sync("wan"), 5, whole=True, price=1.0)
        if is_apart(case):
            promised = stated(case, "wan")
            assert case.cost <= promised * (1 + 1e-9), seed
            exact += case.cost == pytest.approx(promised, rel=1e-9)
    assert exact > NUM_SEEDS / 2


def test_what_is_compressed_is_sent_in_less_time() -> None:
    seconds = {}
    for compression in WIRE_SHARE:
        case = drawn(0, Sync("wan", compression=compression), 2, whole=True)
        assert is_apart(case)
        cache, setting = case.cache, case.ground.setting(case.option)
        evaluate(setting._replace(latency_RR=setting.latency_RR * 0), case.layout, cache)
        seconds[compression] = cache.sync_P[0] / WIRE_SHARE[compression]
    assert seconds == pytest.approx(dict.fromkeys(WIRE_SHARE, seconds["none"]))


def summed_by(case: Case, algorithm: str) -> Iterator[tuple[Plan, Workload]]:
    """Plans of a layout, predicted, whose sums go so: over NCCL by its ring, its trees, and as its tuner chooses."""
    if algorithm == "wan":
        yield from ((plan, case.workload) for plan in ways(case.plan, case.workload, case.topology, lambda: 0.0))
        return
    settings = [Nccl()]
    if algorithm == "nccl":
        settings += [Nccl(algorithm="ring"), Nccl(algorithm="tree"), Nccl(protocol="LL")]
    for nccl in settings:
        workload, plan = replace(case.workload, nccl=nccl), replace(case.plan, algorithm=algorithm)
        yield replace(plan, prediction=predict(plan, workload, case.topology)), workload


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_plan_states_the_price_of_the_bytes_that_its_links_carry(algorithm: str) -> None:
    """By the table of links and of the wires that two machines have alone, whatever sums gradients."""
    wire, num = Link(0.1, 1e8, own_wire=True), 0
    for seed in range(NUM_SEEDS):
        case = drawn(seed, Sync("wan" if algorithm == "wan" else "ring"), inside=True, whole=algorithm == "wan")
        topology = replace(case.topology, node_links={("a0", "b0"): wire, ("b0", "a0"): wire})
        for plan, workload in summed_by(replace(case, topology=topology), algorithm):
            shared, wired = link_traffic(plan, workload, topology, stage_groups(plan, workload))
            carried = [*shared.total().items()]
            carried += [((source[0], target[0]), sent) for (source, target), sent in wired.total().items()]
            price = sum(topology.egress_price_per_gb[pair] * num_bytes / 1e9 for pair, num_bytes in carried)
            assert plan.prediction.price == pytest.approx(price, rel=1e-9), seed
            num += plan.algorithm == algorithm and price > 0.0
    assert num > NUM_SEEDS / 2
