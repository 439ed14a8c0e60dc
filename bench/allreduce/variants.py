"""Questions about one all-reduce under other circumstances: what is compared stands side by side in one table each.

idle         after 10 s without traffic                      aim: at most 1.3 x warm
series       one after the other after 10 s without traffic: how many it takes until a path is warm
outage       5 s after all packets were lost for 0.6 s in a pause
first        the first one after connecting and warming up   aim: at most 2 x warm
loss         0.1 % and 1 % of all packets lost at random
foreign      a foreign bulk flow on the busiest link
wrong        the plan believes in 2 x, and in half of the busiest link's rate; shares that stay, and shares that follow
changed      the busiest link has half its rate from one moment on; shares that stay, shares that follow, a new plan
connections  1, 2 and 4 to each peer
ring         the pipelined ring, as flows, in both directions
inside       sums inside regions by Hulk's own connections, and by gloo
encryption   bytes between regions as they are, and encrypted         aim: at most 1.1 x as they are
"""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hulk_lab.wan import relay
from hulk_lab.wan.addresses import LabNetwork

from bench.allreduce import case as cases
from bench.allreduce import ours
from bench.allreduce.case import Case, Spec
from bench.allreduce.gloo_orders import LinkOf, Pair
from bench.allreduce.rounds import Band, Run, Timed, time_in_turn
from bench.conditions import TRIES

IDLE_S = 10.0
LOSSES = (0.001, 0.01)
SEED = 7
MANY_STREAMS = 4
SERIES_RUNS = 10
OUTAGE_S, AFTER_OUTAGE_S = 0.6, 5.0
SETTLED_RUNS = 24
"""After so many the ranks have seen what a link carries: four rounds; a faster link is found by trials, in eight."""


@dataclass(slots=True)
class Setting:
    """A case that is up, one size, and Hulk's own method planned for it."""

    case: Case
    band: Band
    num_bytes: int
    num_runs: int

    def wan(self, links: LinkOf | None = None, **settings: Any) -> Spec:
        """The method planned for these links, those of the lab's file by default."""
        return ours.method(self.case.regions, links or self.case.links, [self.num_bytes], **settings)

    def in_turn(self, specs: Mapping[str, Spec]) -> list[Timed]:
        """Timed in turn; made before, closed afterwards."""
        keys = {label: cases.key_of(spec) for label, spec in specs.items()}
        for label, spec in specs.items():
            self.band.make(keys[label], spec)
        timed = time_in_turn(keys, self.num_bytes, self.num_runs, self.band.run)
        for key in set(keys.values()):
            self.band.close(key)
        return timed

    def disturbed(self, suffix: str) -> list[Timed]:
        """gloo's ways, Hulk's own as planned over one and more connections, and once the ranks have seen the links."""
        fixed = {
            cases.OURS: self.wan(drift=False),
            f"{cases.OURS} x {MANY_STREAMS}": self.wan(drift=False, num_streams=MANY_STREAMS),
        }
        before = {**cases.gloo_methods(self.case, self.num_bytes), **fixed}
        found = [self.alone(label + suffix, spec) for label, spec in before.items()]
        return [*found, self.alone(f"{cases.OURS}, seen{suffix}", self.wan(), SETTLED_RUNS)]

    def settle(self, spec: Spec, num_runs: int) -> None:
        """Make a method, and run it so often untimed."""
        key = cases.key_of(spec)
        self.band.make(key, spec)
        for _ in range(num_runs):
            self.band.run(key, self.num_bytes)

    def alone(self, label: str, spec: Spec, num_before: int = 1) -> Timed:
        """Timed while no other method keeps its paths warm, after so many untimed runs."""
        key = cases.key_of(spec)
        self.settle(spec, num_before)
        timed = self.repeated(label, lambda: self.band.run(key, self.num_bytes))
        self.band.close(key)
        return timed

    def busiest(self) -> Pair:
        """The directed region pair that the plan's flows keep busy longest."""
        rate = {pair: link[0] for pair, link in self.case.links.items()}
        load = ours.loads(self.wan()["plan"]["classes"][-1]["flows"])
        return max(load, key=lambda pair: load[pair] / rate[pair])

    def repeated(self, label: str, run: Callable[[], Run]) -> Timed:
        """`run` until enough count."""
        runs: list[Run] = []
        while sum(found.valid for found in runs) < self.num_runs and len(runs) < TRIES * self.num_runs:
            runs.append(run())
        return Timed(label, self.num_bytes, tuple(runs))


def idle(on: Setting) -> list[Timed]:
    """Warm, and after a pause; gloo's flat ring as well."""
    specs = {cases.FLAT: cases.gloo_methods(on.case, on.num_bytes)[cases.FLAT], cases.OURS: on.wan()}
    found = []
    for label, spec in specs.items():
        key = cases.key_of(spec)
        on.band.make(key, spec)
        found += time_in_turn({f"{label} warm": key}, on.num_bytes, on.num_runs, on.band.run)

        def rested(key: str = key) -> Run:
            time.sleep(IDLE_S)
            return on.band.run(key, on.num_bytes)

        found.append(on.repeated(f"{label} after {IDLE_S:g} s", rested))
        on.band.close(key)
    return found


def outage(on: Setting) -> list[Timed]:
    """Warm, and some time after the WAN brought nothing: TCP has closed its windows then."""
    spec = on.wan()
    key = cases.key_of(spec)
    on.band.make(key, spec)
    found = time_in_turn({f"{cases.OURS} warm": key}, on.num_bytes, on.num_runs, on.band.run)

    def hit() -> Run:
        with _silent(on.band.net):
            time.sleep(OUTAGE_S)
        time.sleep(AFTER_OUTAGE_S)
        return on.band.run(key, on.num_bytes)

    found.append(on.repeated(f"{cases.OURS} after an outage", hit))
    on.band.close(key)
    return found


def series(on: Setting) -> list[Timed]:
    """Each run a column of its own."""
    spec = on.wan()
    key = cases.key_of(spec)
    on.band.make(key, spec)
    time.sleep(IDLE_S)
    runs = [on.band.run(key, on.num_bytes) for _ in range(SERIES_RUNS)]
    on.band.close(key)
    return [Timed(f"run {number + 1}", on.num_bytes, (run,)) for number, run in enumerate(runs)]


def first(on: Setting) -> list[Timed]:
    """New connections for every run; making the method includes its warming up."""

    def fresh() -> Run:
        spec = on.wan()
        key = cases.key_of(spec)
        on.band.make(key, spec)
        run = on.band.run(key, on.num_bytes)
        on.band.close(key)
        return run

    return [*on.in_turn({f"{cases.OURS} warm": on.wan()}), on.repeated(f"{cases.OURS} first", fresh)]


def loss(on: Setting) -> list[Timed]:
    """Every directed link loses packets, each by its own seed."""
    found = [on.alone(f"{cases.OURS} without", on.wan())]
    for share in LOSSES:
        with _lossy(on.band.net, share):
            found += on.disturbed(f" {share:.1%}")
    return found


def foreign(on: Setting) -> list[Timed]:
    """One TCP flow without end on the busiest link, from the first node of one region to that of another."""
    found = [on.alone(f"{cases.OURS} without", on.wan())]
    with _bulk_flow(on, on.busiest()):
        return [*found, *on.disturbed(" beside")]


def wrong(on: Setting) -> list[Timed]:
    """Plans by the truth, and by twice and half of the busiest link's rate; as planned, and once it was seen."""
    busiest = on.busiest()
    rate, one_way_s = on.case.links[busiest]
    found = []
    for factor, label in ((1.0, "true"), (2.0, "x 2"), (0.5, "x 0.5")):
        links = {**on.case.links, busiest: (rate * factor, one_way_s)}
        found.append(on.alone(label, on.wan(links, drift=False)))
        found.append(on.alone(f"{label}, seen", on.wan(links), SETTLED_RUNS if factor > 1 else 2 * SETTLED_RUNS))
    return found


def changed(on: Setting) -> list[Timed]:
    """Before, and with the busiest link at half its rate: as planned, when the ranks have seen it, planned anew."""
    busiest = on.busiest()
    rate, one_way_s = on.case.links[busiest]
    fixed, seen = on.wan(drift=False), on.wan()
    before = on.alone("before", fixed)
    on.settle(seen, 2)
    with _slowed(on, busiest):
        on.settle(seen, SETTLED_RUNS)
        after = on.alone("changed, seen", seen)
        new = on.wan({**on.case.links, busiest: (rate / 2, one_way_s)}, drift=False)
        return [before, on.alone("changed", fixed), after, on.alone("planned anew", new)]


def connections(on: Setting) -> list[Timed]:
    """The same plan over more connections."""
    return on.in_turn({f"{number} to a peer": on.wan(num_streams=number) for number in (1, 2, MANY_STREAMS)})


def ring(on: Setting) -> list[Timed]:
    """Chunks round the ring of regions and once more round, in both directions."""
    regions = range(len(on.case.counts))
    specs: dict[str, Spec] = {cases.OURS: on.wan()}
    for label, order in (("ring", tuple(regions)), ("ring, other direction", tuple(reversed(regions)))):
        specs[label] = ours.with_flows(on.wan(), ours.ring_flows(order))
    return on.in_turn(specs)


def inside(on: Setting) -> list[Timed]:
    """The same plan both ways."""
    return on.in_turn({"engine inside": on.wan(), "gloo inside": on.wan(inside=True)})


def encryption(on: Setting) -> list[Timed]:
    """The same plan both ways, kept to: a trial of a faster pace would cost whichever of the two it falls to."""
    spec = on.wan(drift=False)
    return on.in_turn({"plain": ours.unencrypted(spec), "encrypted": spec})


@contextlib.contextmanager
def _silent(net: LabNetwork) -> Iterator[None]:
    for link in net.spec.links:
        relay.cut(net, link.source, link.target)
    try:
        yield
    finally:
        for link in net.spec.links:
            relay.heal(net, link.source, link.target)


@contextlib.contextmanager
def _lossy(net: LabNetwork, share: float) -> Iterator[None]:
    for number, link in enumerate(net.spec.links):
        relay.lose(net, link.source, link.target, share, seed=SEED + number)
    try:
        yield
    finally:
        for link in net.spec.links:
            relay.heal(net, link.source, link.target)


@contextlib.contextmanager
def _slowed(on: Setting, pair: Pair) -> Iterator[None]:
    """Half the rate that the lab's file says."""
    names = on.case.region_names
    source, target = names[pair[0]], names[pair[1]]
    relay.slow(on.band.net, source, target, mbit_per_s=on.band.net.spec.link(source, target).mbit_per_s / 2)
    try:
        yield
    finally:
        relay.heal(on.band.net, source, target)


@contextlib.contextmanager
def _bulk_flow(on: Setting, pair: Pair) -> Iterator[None]:
    source, target = (on.band.net.nodes_of(on.case.region_names[region])[0] for region in pair)
    ends = ((target, ["-s", "-1"]), (source, ["-c", target.address, "-t", "3600"]))
    started: list[subprocess.Popen[bytes]] = []
    try:
        for node, arguments in ends:
            inside = ["setpriv", "--pdeathsig", "KILL", "nsenter", f"--net={node.netns_path}", "iperf3", *arguments]
            started.append(subprocess.Popen(inside, stdout=subprocess.DEVNULL))
            time.sleep(1)  # the server must listen; then the flow is past slow start
        time.sleep(2)
        yield
    finally:
        for process in started:
            process.kill()
            process.wait()


QUESTIONS: Mapping[str, Callable[[Setting], list[Timed]]] = {
    "idle": idle,
    "series": series,
    "outage": outage,
    "first": first,
    "loss": loss,
    "foreign": foreign,
    "wrong": wrong,
    "changed": changed,
    "connections": connections,
    "ring": ring,
    "inside": inside,
    "encryption": encryption,
}
AIMS: Mapping[str, tuple[str, str, float]] = {
    "idle": (f"{cases.OURS} after {IDLE_S:g} s", f"{cases.OURS} warm", 1.3),
    "first": (f"{cases.OURS} first", f"{cases.OURS} warm", 2.0),
    "encryption": ("encrypted", "plain", 1.1),
}
"""(over, under, most): ratios that are asked for."""


def labels(rows: Sequence[Timed]) -> list[str]:
    """Of the columns."""
    return list(dict.fromkeys(timed.method for timed in rows))
