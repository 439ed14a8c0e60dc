"""What to measure next: nodes, what they have measured and what jobs run -> every node's complete list of orders.

    eligible nodes --election--> pairs --+--> standing echoes      (all pairs that no job disturbs)
                                         +--> due bandwidth tests  (stale pairs; one per node, one out of and one into
                                                                    a region: the two directions do not disturb)

No bandwidth is tested beside a running job: not on its nodes and, for a job over several regions, not out of or into
its regions. Echoes of those links are withdrawn as well, because a sample under load must never overwrite an idle one;
while a job runs, its own transfers tell about them (see `underload`).

Where an agent answers it says itself, and whoever controls it could name anybody: every other agent would send to that
address. So only an address that Kubernetes knows for its node counts; any other is as good as none.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from hulk_operator.api import EchoAddress, Measurement, NodeProfile
from hulk_operator.probing import election, link_validation
from hulk_operator.probing.link_validation import LinkSample, Rejection
from hulk_operator.probing.measurement_orders import MAX_TARGETS, Ids, UnderWay, bandwidth_orders, echo_order, pending
from hulk_operator.probing.types import Attempt, Budget, Decision, Pair, ProbeNode

STOPPED_AFTER_S: Final = 180.0  # an agent whose standing echoes bring nothing for this long is not elected
HOUR_S: Final = 3600.0
DAY_S: Final = 24 * HOUR_S
Resource = tuple[str, str]  # ("node", name), ("out of", region) or ("into", region): what two tests may not share


@dataclass(frozen=True, slots=True)
class _World:
    now_s: float
    region_of: Mapping[str, str]
    regions: Mapping[str, Sequence[str]]  # eligible nodes by region
    profiles: Mapping[str, NodeProfile]
    addresses: Mapping[str, EchoAddress]
    idle: Mapping[Pair, LinkSample]
    occupied: frozenset[Resource]  # by jobs
    budget: Budget


def decide(
    now: datetime,
    nodes: Sequence[ProbeNode],
    profiles: Mapping[str, NodeProfile],
    jobs_running: Iterable[Collection[str]],
    budget: Budget,
) -> Decision:
    """The orders of every node that has a profile; `jobs_running` are the node names of each job that has pods."""
    world = _world(now, nodes, profiles, jobs_running, budget)
    tests = pending(profiles, world.now_s)
    kept = {
        number: test for number, test in tests.items() if not _needs(world, test.source, test.target) & world.occupied
    }
    ids = Ids(world.now_s, (profile.spec.measurement_id for profile in profiles.values()))
    measured_pairs = [*election.between(world.regions), *election.inside(world.regions, budget.num_inner_links)]
    echoes, dropped = _echoes(world, measured_pairs, ids)
    attempts, new_tests, waiting = _new_tests(world, measured_pairs, kept.values(), ids)
    waiting["TooManyTargets"] += dropped
    measurements = {
        name: (
            *echoes.get(name, ()),
            *(order for order in profile.spec.measurements if order.kind == "bandwidth" and order.id in kept),
            *new_tests.get(name, ()),
        )
        for name, profile in profiles.items()
    }
    history = (*world.budget.history, *attempts)
    waits = {reason: count for reason, count in waiting.items() if count}
    return Decision(measurements, attempts, history, len(kept), waits)


def foreign_addresses(nodes: Iterable[ProbeNode], profiles: Mapping[str, NodeProfile]) -> tuple[Rejection, ...]:
    """The agents that say they are where Kubernetes does not know them."""
    said = [(node, profiles[node.name].status.echo) for node in nodes if node.name in profiles]
    return tuple(
        Rejection(node.name, "", "ForeignAddress", f"its agent says it is at {echo.address}")
        for node, echo in said
        if echo is not None and echo.address not in node.addresses
    )


def _world(
    now: datetime,
    nodes: Sequence[ProbeNode],
    profiles: Mapping[str, NodeProfile],
    jobs_running: Iterable[Collection[str]],
    budget: Budget,
) -> _World:
    region_of = {node.name: node.region for node in nodes}
    accepted = link_validation.accept(profiles.values(), region_of.keys(), now)
    foreign = {rejection.source for rejection in foreign_addresses(nodes, profiles)}
    addresses = {
        name: profile.status.echo
        for name, profile in profiles.items()
        if profile.status.echo is not None and name not in foreign
    }
    up = [node for node in nodes if node.ready and node.trusted and node.name in addresses]
    lively = {node.name for node in up if not _stopped(profiles[node.name], now.timestamp())}
    regions: dict[str, list[str]] = {}
    for node in up:
        regions.setdefault(node.region, []).append(node.name)
    for region, members in regions.items():  # where no agent seems to live, all of them are asked
        regions[region] = sorted(lively.intersection(members) or members)
    occupied = _occupied(jobs_running, region_of)
    idle = accepted.idle()
    budget = replace(budget, history=_with_results(budget, idle, now.timestamp()))
    return _World(now.timestamp(), region_of, regions, profiles, addresses, idle, occupied, budget)


def _stopped(profile: NodeProfile, now_s: float) -> bool:
    standing = [order.id / 1000 for order in profile.spec.measurements if order.kind == "rtt"]
    newest_s = max((row.time.timestamp() for row in profile.status.links if not row.under_load), default=0.0)
    return bool(standing) and now_s - max(newest_s, min(standing)) > STOPPED_AFTER_S


def _occupied(jobs_running: Iterable[Collection[str]], region_of: Mapping[str, str]) -> frozenset[Resource]:
    found: set[Resource] = set()
    for job in jobs_running:
        found |= {("node", name) for name in job}
        regions = {region_of[name] for name in job if name in region_of}
        if len(regions) > 1:
            found |= {(way, region) for region in regions for way in ("out of", "into")}
    return frozenset(found)


def _needs(world: _World, source: str, target: str) -> frozenset[Resource]:
    """What a transfer between two nodes takes for itself."""
    ends: set[Resource] = {("node", source), ("node", target)}
    if _crosses(world, source, target):
        ends |= {("out of", world.region_of.get(source, "")), ("into", world.region_of.get(target, ""))}
    return frozenset(ends)


def _crosses(world: _World, source: str, target: str) -> bool:
    return world.region_of.get(source, "") != world.region_of.get(target, "")


def _echoes(world: _World, measured_pairs: Iterable[Pair], ids: Ids) -> tuple[dict[str, tuple[Measurement, ...]], int]:
    """The standing echoes by node, unchanged ones with the id they had, and how many found no place."""
    members: dict[str, list[str]] = {}
    for name in sorted(world.profiles):  # also of stopped agents, which show by this that they are back
        if world.regions.get(world.region_of.get(name, "")):
            members.setdefault(world.region_of[name], []).append(name)
    first = {region: election.elect(region, world.regions[region]) for region in members}
    inner = [(name, first[region]) for region, names_ in members.items() for name in names_ if name != first[region]]
    targets: dict[str, dict[str, None]] = {}
    for source, target in [*measured_pairs, *inner]:
        if not _needs(world, source, target) & world.occupied:
            targets.setdefault(source, {})[target] = None
    dropped = sum(max(0, len(found) - MAX_TARGETS) for found in targets.values())
    return {
        source: tuple(_standing(world, source, target, ids) for target in list(found)[:MAX_TARGETS])
        for source, found in targets.items()
    }, dropped


def _standing(world: _World, source: str, target: str, ids: Ids) -> Measurement:
    address = world.addresses[target]
    for order in world.profiles[source].spec.measurements:
        same_place = (order.address, order.port) == (address.address, address.port)
        if order.kind == "rtt" and order.target == target and same_place:
            return order
    return echo_order(ids.take(), target, address)


def _new_tests(
    world: _World, measured_pairs: Iterable[Pair], under_way: Iterable[UnderWay], ids: Ids
) -> tuple[tuple[Attempt, ...], dict[str, list[Measurement]], Counter[str]]:
    """The due tests that fit beside jobs, each other and the budget, the longest unmeasured first."""
    budget = world.budget
    tests = list(under_way)
    taken = frozenset().union(*(_needs(world, test.source, test.target) for test in tests))
    left_bytes = budget.bytes_per_hour - _spent_bytes(world)
    attempts: list[Attempt] = []
    new: dict[str, list[Measurement]] = {}
    waiting: Counter[str] = Counter()
    for pair in _due(world, measured_pairs):
        needs, cost = _needs(world, *pair), _cost_bytes(world, pair)
        obstacles = (
            ("JobRunning", bool(needs & world.occupied)),
            ("LinkBusy", bool(needs & taken)),
            ("TestLimit", len(tests) + len(attempts) >= budget.max_tests),
            ("ByteBudget", cost > left_bytes),
        )
        obstacle = next((reason for reason, holds in obstacles if holds), None)
        if obstacle:
            waiting[obstacle] += 1
            continue
        taken, left_bytes = taken | needs, left_bytes - cost
        attempts.append(Attempt(ids.take(), *pair, budget.max_bytes))
        for name, order in bandwidth_orders(attempts[-1].id, pair, world.addresses, budget, world.now_s).items():
            new.setdefault(name, []).append(order)
    return tuple(attempts), new, waiting


def _due(world: _World, measured_pairs: Iterable[Pair]) -> list[Pair]:
    """Pairs whose bandwidth is unknown or stale and whose last failures are long enough ago, oldest first."""
    ages = {pair: _measured_at_s(world, pair) for pair in measured_pairs}
    due = [
        pair
        for pair, time_s in ages.items()
        if world.now_s - time_s > world.budget.refresh_s and world.now_s >= _retry_at_s(world, pair)
    ]
    return sorted(due, key=lambda pair: ages[pair])


def _measured_at_s(world: _World, pair: Pair) -> float:
    return world.idle[pair].bandwidth_time_s if pair in world.idle else 0.0


def _retry_at_s(world: _World, pair: Pair) -> float:
    """After n failures in a row: n-times doubled retry time after the last."""
    tries = [
        attempt.time_s
        for attempt in world.budget.history
        if (attempt.source, attempt.target) == pair and attempt.used_bytes is None
    ]
    if not tries:
        return 0.0
    return max(tries) + min(world.budget.refresh_s, world.budget.retry_s * 2.0 ** (len(tries) - 1))


def _spent_bytes(world: _World) -> float:
    """What the tests of the last hour took: as measured where a result is there, else all they could."""
    lately = [attempt for attempt in world.budget.history if world.now_s - attempt.time_s < HOUR_S]
    return sum(attempt.num_bytes if attempt.used_bytes is None else attempt.used_bytes for attempt in lately)


def _with_results(budget: Budget, idle: Mapping[Pair, LinkSample], now_s: float) -> tuple[Attempt, ...]:
    """The last day's tests; one with a result has it for ever, also when the profile that held it is deleted."""

    def with_result(attempt: Attempt) -> Attempt:
        link = idle.get((attempt.source, attempt.target))
        if attempt.used_bytes is not None or link is None or link.bandwidth_bytes_per_s is None:
            return attempt
        if link.bandwidth_time_s < attempt.time_s:
            return attempt
        return replace(attempt, used_bytes=_transferred(link.bandwidth_bytes_per_s, budget, attempt.num_bytes))

    return tuple(with_result(attempt) for attempt in budget.history if now_s - attempt.time_s < DAY_S)


def _cost_bytes(world: _World, pair: Pair) -> float:
    """What a test will take, judged by the last one."""
    link = world.idle.get(pair)
    if link is None or link.bandwidth_bytes_per_s is None:
        return float(world.budget.max_bytes)
    return _transferred(link.bandwidth_bytes_per_s, world.budget, world.budget.max_bytes)


def _transferred(bytes_per_s: float, budget: Budget, num_bytes: int) -> float:
    wanted = bytes_per_s * (budget.seconds + 1)  # one second is sent and not counted
    return min(wanted, num_bytes) if num_bytes else wanted
