"""What probing orders, judged on simulated agents that carry out the orders they get."""

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import pytest
from hulk_operator import names
from hulk_operator.api import EchoAddress, LinkStatus, Measurement, NodeProfile, NodeProfileSpec, NodeProfileStatus
from hulk_operator.api.meta import ObjectMeta
from hulk_operator.probing import Budget, Decision, ProbeNode, decide, election
from hulk_operator.probing.measurement_orders import MAX_TARGETS
from hulk_operator.probing.measurement_schedule import STOPPED_AFTER_S, foreign_addresses
from hulk_operator.probing.runner import probe_node
from hulk_operator.watched import Store

START = datetime(2026, 1, 1, tzinfo=UTC)
MB = 1_000_000


@dataclass
class Agents:
    """Nodes whose agents answer every echo at once and finish every bandwidth test before the next pass."""

    nodes: list[ProbeNode]
    now: datetime = START
    budget: Budget = field(default_factory=Budget)
    jobs: list[set[str]] = field(default_factory=list)
    stopped: set[str] = field(default_factory=set)
    failing: set[tuple[str, str]] = field(default_factory=set)
    rate: int = 10 * MB
    profiles: dict[str, NodeProfile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for index, node in enumerate(self.nodes):
            address = EchoAddress(address=f"10.{index // 65536}.{index // 256 % 256}.{index % 256}", port=9403)
            self.nodes[index] = replace(node, addresses=frozenset({address.address}))
            self.profiles[node.name] = NodeProfile(
                metadata=ObjectMeta(name=node.name), status=NodeProfileStatus(echo=address)
            )

    def decide(self) -> Decision:
        """One pass: the orders are written to the profiles."""
        decision = decide(self.now, self.nodes, self.profiles, self.jobs, self.budget)
        self.budget = replace(self.budget, history=decision.history)
        for name, orders in decision.measurements.items():
            highest = max((order.id for order in orders), default=0)
            spec = NodeProfileSpec(
                measurement_id=max(highest, self.profiles[name].spec.measurement_id), measurements=orders
            )
            self.profiles[name] = self.profiles[name].model_copy(update={"spec": spec})
        return decision

    def work(self, seconds: float = 10.0) -> None:
        """Time passes and every live agent carries out its orders."""
        self.now += timedelta(seconds=seconds)
        for name, profile in self.profiles.items():
            if name not in self.stopped:
                self.profiles[name] = profile.model_copy(update={"status": self._measure(name, profile)})

    def _measure(self, name: str, profile: NodeProfile) -> NodeProfileStatus:
        links = {row.target: row for row in profile.status.links}
        for order in profile.spec.measurements:
            old = links.get(order.target, LinkStatus(target=order.target, time=self.now))
            if order.kind == "rtt" and order.target not in self.stopped:
                figures: dict[str, object] = {"rtt_p50_microseconds": 50_000, "rtt_p95_microseconds": 60_000}
                links[order.target] = old.model_copy(update={"time": self.now, **figures})
            client = order.kind == "bandwidth" and order.role == "client" and order.id > profile.status.last_id
            if client and (name, order.target) not in self.failing:
                figures = {"bandwidth_bytes_per_second": self.rate, "bandwidth_time": self.now}
                links[order.target] = old.model_copy(update=figures)
        done = [order.id for order in profile.spec.measurements if order.kind == "bandwidth"]
        last_id = max([profile.status.last_id, *done])
        return profile.status.model_copy(update={"last_id": last_id, "links": tuple(links.values())})

    def settle(self, passes: int = 40) -> list[Decision]:
        """Passes until nothing is due."""
        decisions = []
        for _ in range(passes):
            decisions.append(self.decide())
            if not decisions[-1].attempts and not decisions[-1].num_pending:
                return decisions
            self.work()
        raise AssertionError(f"still due after {passes} passes: {decisions[-1].waiting}")

    def measured_regions(self) -> set[tuple[str, str]]:
        """Directed region pairs with a bandwidth."""
        region = {node.name: node.region for node in self.nodes}
        return {
            (region[name], region[row.target])
            for name, profile in self.profiles.items()
            for row in profile.status.links
            if row.bandwidth_bytes_per_second
        }


def cluster(num_regions: int, nodes_per_region: int) -> list[ProbeNode]:
    return [
        ProbeNode(f"n{region}-{index}", f"r{region}")
        for region in range(num_regions)
        for index in range(nodes_per_region)
    ]


def echoes(decision: Decision) -> list[tuple[str, str]]:
    return [
        (name, order.target)
        for name, orders in decision.measurements.items()
        for order in orders
        if order.kind == "rtt"
    ]


def bandwidth_orders(decision: Decision) -> list[tuple[str, Measurement]]:
    return [
        (name, order) for name, orders in decision.measurements.items() for order in orders if order.kind == "bandwidth"
    ]


def ways(nodes: Iterable[ProbeNode], source: str, target: str) -> set[tuple[str, str]]:
    region = {node.name: node.region for node in nodes}
    return {("out of", region[source]), ("into", region[target])} if region[source] != region[target] else set()


def test_every_region_pair_is_measured_in_both_directions_and_a_few_inside() -> None:
    agents = Agents(cluster(3, 2))
    agents.settle()
    assert agents.measured_regions() == {(f"r{a}", f"r{b}") for a in range(3) for b in range(3)}


def test_both_sides_get_the_same_id_and_each_others_address() -> None:
    agents = Agents(cluster(2, 1))
    decision = agents.decide()
    assert len(decision.attempts) == 1
    attempt = decision.attempts[0]
    (source, client), (target, server) = sorted(bandwidth_orders(decision), key=lambda item: item[1].role)
    assert (source, target) == (attempt.source, attempt.target)
    assert (client.role, server.role) == ("client", "server")
    assert client.id == server.id == attempt.id
    assert (client.target, server.target) == (target, source)
    assert client.address == agents.profiles[target].status.echo.address  # type: ignore[union-attr]
    assert client.port == server.port == names.AGENT_BANDWIDTH_PORT
    assert client.not_before == server.not_before


def test_probing_grows_with_regions_squared_plus_nodes() -> None:
    num_regions, per_region = 20, 50
    agents = Agents(cluster(num_regions, per_region))
    decision = agents.decide()
    inner = num_regions * 2 * agents.budget.num_inner_links
    num_nodes = num_regions * per_region
    found = echoes(decision)
    assert len(found) == len(set(found))
    assert num_regions * (num_regions - 1) + num_nodes - num_regions <= len(found)
    assert len(found) <= num_regions * (num_regions - 1) + num_nodes + inner
    assert max(Counter(source for source, _ in found).values()) <= 2 * (num_regions - 1) + 2 * 3
    due = len(decision.attempts) + sum(decision.waiting.values())
    assert due == num_regions * (num_regions - 1) + inner


def test_three_regions_are_measured_in_two_rounds() -> None:
    """Each region sends to one and receives from another at the same time, on different nodes."""
    nodes = cluster(3, 2)
    region = {node.name: node.region for node in nodes}
    agents = Agents(nodes)
    rounds = [[(region[a.source], region[a.target]) for a in decision.attempts] for decision in agents.settle()]
    between = [[(source, target) for source, target in pairs if source != target] for pairs in rounds]
    assert [len(pairs) for pairs in between[:2]] == [3, 3]
    assert len({pair for pairs in between[:2] for pair in pairs}) == 6


def test_every_node_stands_for_its_share_of_the_other_regions() -> None:
    per_region = {f"r{region}": [f"n{region}-{index}" for index in range(4)] for region in range(10)}
    delegates = Counter(source for source, _ in election.between(per_region))
    assert max(delegates.values()) == 3  # nine others over four nodes
    gone = {**per_region, "r0": [name for name in per_region["r0"] if name != "n0-0"]}
    moved = set(election.between(gone)) - set(election.between(per_region))
    assert 2 * delegates["n0-0"] <= len(moved) <= 4 * delegates["n0-0"]


def test_never_two_tests_on_one_node_or_one_way_out_of_or_into_a_region() -> None:
    nodes = cluster(8, 3)
    agents = Agents(nodes)
    for decision in agents.settle(200):
        ends = [end for attempt in decision.attempts for end in (attempt.source, attempt.target)]
        assert len(ends) == len(set(ends))
        taken = [way for attempt in decision.attempts for way in ways(nodes, attempt.source, attempt.target)]
        assert len(taken) == len(set(taken))
        assert len(decision.attempts) <= agents.budget.max_tests
    assert len(agents.measured_regions()) == 8 * 8


def test_tests_under_way_count_and_are_not_ordered_again() -> None:
    agents = Agents(cluster(2, 1))
    first = agents.decide()
    agents.now += timedelta(seconds=5)  # nobody has finished
    second = agents.decide()
    assert second.attempts == ()
    assert second.num_pending == 1
    assert bandwidth_orders(second) == bandwidth_orders(first)
    assert second.waiting == {"LinkBusy": 1}


def test_a_test_that_nobody_finishes_is_forgotten_and_tried_again_later() -> None:
    agents = Agents(cluster(2, 1), stopped={"n0-0"})
    first = agents.decide().attempts[0]
    agents.now += timedelta(seconds=90)
    assert agents.decide().attempts[0] != first


def test_an_unchanged_cluster_keeps_its_orders() -> None:
    agents = Agents(cluster(3, 4))
    settled = agents.settle()[-1]
    agents.work(60)
    assert agents.decide().measurements == settled.measurements


def test_stale_bandwidths_are_measured_again() -> None:
    agents = Agents(cluster(2, 1))
    agents.settle()
    agents.work(agents.budget.refresh_s - 60)
    assert not agents.decide().attempts
    agents.work(120)
    assert agents.decide().attempts


def test_no_bandwidth_test_and_no_echo_beside_a_job() -> None:
    nodes = cluster(3, 2)
    agents = Agents(nodes, jobs=[{"n0-0", "n1-0"}])
    decisions = agents.settle()
    assert agents.measured_regions() == {("r2", "r2")}  # the only link that the job does not touch
    assert decisions[-1].waiting == {"JobRunning": 10}
    region = {node.name: node.region for node in nodes}
    assert {region[name] for pair in echoes(decisions[-1]) for name in pair} == {"r2"}
    agents.jobs = []
    agents.settle()
    assert len(agents.measured_regions()) == 9


def test_a_job_inside_one_region_leaves_the_other_nodes_way_out_alone() -> None:
    agents = Agents(cluster(2, 4))
    pairs = {(attempt.source, attempt.target) for decision in agents.settle() for attempt in decision.attempts}
    between = next(pair for pair in pairs if pair[0][1] == "0" and pair[1][1] == "1")
    bystander = next(node.name for node in agents.nodes if node.region == "r0" and node.name not in between)
    again = Agents(cluster(2, 4), jobs=[{bystander}])
    again.settle()
    assert ("r0", "r1") in again.measured_regions()


def test_a_job_that_starts_ends_the_tests_beside_it() -> None:
    agents = Agents(cluster(2, 1))
    assert bandwidth_orders(agents.decide())
    agents.jobs = [{"n0-0", "n1-0"}]
    decision = agents.decide()
    assert bandwidth_orders(decision) == []
    assert echoes(decision) == []


def test_a_dead_representative_is_replaced() -> None:
    agents = Agents(cluster(2, 3))
    agents.settle()
    pair = next(p for p in echoes(agents.decide()) if p[0][1] == "0" and p[1][1] == "1")
    agents.nodes = [replace(node, ready=node.name != pair[0]) for node in agents.nodes]
    after = echoes(agents.decide())
    assert not [p for p in after if p[1] == pair[0]]
    assert len([p for p in after if p[0][1] == "0" and p[1][1] == "1"]) == 1
    agents.settle()
    assert len(agents.measured_regions()) == 4


def test_a_representative_whose_agent_stopped_is_replaced_and_may_come_back() -> None:
    agents = Agents(cluster(2, 3))
    agents.settle()
    before = echoes(agents.decide())
    silent = next(target for _, target in before if target[1] == "0")
    agents.stopped = {silent}
    agents.work(STOPPED_AFTER_S / 2)
    assert echoes(agents.decide()) == before
    agents.work(STOPPED_AFTER_S)
    after = echoes(agents.decide())
    assert not [pair for pair in after if pair[1] == silent]
    assert [pair for pair in after if pair[0] == silent]  # it is asked on, so that its return is seen
    agents.stopped = set()
    agents.work(10)
    assert sorted(echoes(agents.decide())) == sorted(before)


def test_where_no_agent_answers_all_are_asked() -> None:
    agents = Agents(cluster(2, 1))
    agents.settle()
    agents.stopped = {"n0-0", "n1-0"}
    agents.work(10 * STOPPED_AFTER_S)
    assert len(echoes(agents.decide())) == 2


def test_a_failed_test_waits_longer_every_time() -> None:
    agents = Agents(cluster(2, 1), failing={("n0-0", "n1-0"), ("n1-0", "n0-0")})
    tries: list[datetime] = []
    for _ in range(400):
        tries += [agents.now for attempt in agents.decide().attempts if attempt.source == "n0-0"]
        agents.work(10)
    gaps = [(later - earlier).total_seconds() for earlier, later in itertools.pairwise(tries)]
    assert gaps[0] >= agents.budget.retry_s
    assert all(later >= 1.5 * earlier for earlier, later in itertools.pairwise(gaps))
    assert len(gaps) >= 4


def test_a_deleted_profile_is_measured_again_at_once_however_often() -> None:
    """Its tests had results: they are no failures, and their bytes stay counted."""
    agents = Agents(cluster(2, 1))
    for _ in range(6):
        agents.settle(passes=5)
        for name, profile in agents.profiles.items():
            echo = profile.status.echo
            agents.profiles[name] = NodeProfile(metadata=profile.metadata, status=NodeProfileStatus(echo=echo))
    results = [attempt.used_bytes for attempt in agents.budget.history]
    assert results == [pytest.approx(5 * agents.rate)] * 12  # 4 s that count and one that does not


def test_the_byte_budget_holds_for_every_hour() -> None:
    budget = Budget(bytes_per_hour=100 * MB, max_bytes=50 * MB, refresh_s=600.0)
    agents = Agents(cluster(4, 1), budget=budget)
    spent: list[tuple[datetime, int]] = []
    waited = 0
    for _ in range(900):
        decision = agents.decide()
        spent += [(agents.now, min(5 * agents.rate, 50 * MB)) for _ in decision.attempts]
        waited += decision.waiting.get("ByteBudget", 0)
        agents.work(10)
    for time, _ in spent:
        assert sum(num for when, num in spent if timedelta(0) <= when - time < timedelta(hours=1)) <= 100 * MB
    assert waited
    assert len(spent) >= 4


def test_a_lie_counts_as_not_measured() -> None:
    agents = Agents(cluster(2, 1), rate=2 * 10**15)
    for _ in range(4):
        agents.decide()
        agents.work()
    agents.now += timedelta(hours=1)
    assert agents.decide().attempts


def test_a_node_without_agent_or_profile_gets_and_gives_no_measurement() -> None:
    agents = Agents(cluster(2, 2))
    agents.profiles["n0-0"] = NodeProfile(metadata=ObjectMeta(name="n0-0"))
    del agents.profiles["n1-0"]
    pairs = echoes(agents.decide())
    assert not [pair for pair in pairs if pair[1] in {"n0-0", "n1-0"}]
    assert "n1-0" not in {pair[0] for pair in pairs}


def test_an_address_that_kubernetes_does_not_know_for_the_node_is_as_good_as_none() -> None:
    agents = Agents(cluster(2, 2))
    liar, victim = agents.profiles["n0-0"], agents.profiles["n0-1"].status.echo
    agents.profiles["n0-0"] = liar.model_copy(update={"status": NodeProfileStatus(echo=victim)})
    assert victim is not None
    (refused,) = foreign_addresses(agents.nodes, agents.profiles)
    assert (refused.source, refused.reason) == ("n0-0", "ForeignAddress")
    assert victim.address in refused.message
    decision = agents.decide()
    assert not [pair for pair in echoes(decision) if pair[1] == "n0-0"]
    told = {
        order.target for orders in decision.measurements.values() for order in orders if order.address == victim.address
    }
    assert told == {"n0-1"}


def test_an_agent_is_at_its_pods_or_its_nodes_address() -> None:
    status = {
        "conditions": [{"type": "Ready", "status": "True"}],
        "addresses": [
            {"type": "InternalIP", "address": "192.0.2.1"},
            {"type": "ExternalIP", "address": "203.0.113.1"},
            {"type": "Hostname", "address": "n"},
        ],
    }
    labels = dict(term.split("=") for term in names.AGENT_SELECTOR.split(","))
    addresses = [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]
    store = Store(agents_in="system")
    for name, where, told in (
        ("agent-1", "n", {"podIP": "10.0.0.1", "podIPs": addresses}),
        ("agent-2", "other", {"podIP": "10.0.0.2"}),
        ("agent-3", "", {}),
    ):
        metadata = {"name": name, "namespace": "system", "resourceVersion": "1", "labels": labels}
        store.others.put({"metadata": metadata, "spec": {"nodeName": where, "containers": []}, "status": told})
    node = probe_node({"metadata": {"name": "n"}, "status": status}, store.snapshot().agents["n"])
    assert node.addresses == {"192.0.2.1", "10.0.0.1", "fd00::1"}


def test_more_targets_than_a_profile_holds_are_counted_as_waiting() -> None:
    agents = Agents(cluster(MAX_TARGETS + 5, 1), budget=Budget(max_tests=0))
    decision = agents.decide()
    assert max(len(orders) for orders in decision.measurements.values()) == MAX_TARGETS
    assert decision.waiting["TooManyTargets"] == 4 * (MAX_TARGETS + 5)


@pytest.mark.parametrize(
    "change", [{"max_tests": -1}, {"seconds": 0}, {"streams": 65}, {"refresh_s": 0.0}, {"bytes_per_hour": -1}]
)
def test_an_impossible_budget_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="budget"):
        Budget(**change)  # type: ignore[arg-type]
