"""How good the fleet's decisions are: `python -m bench fleet`.

Everything is simulated. Published totals stand beside ours in a column of their own: their scenario is not known to the
last figure, and in what is known of it every policy comes close to the bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import partial

from hulk_placement.fleet.utility import UtilityKind
from rich.console import Console
from rich.table import Table

from bench.fleet.cases import LOADS, NUM_SERVERS, decision_s, hard, live_decision_s, loaded
from bench.fleet.runs import Row, interval, leads, simulated, words, worst_lead
from bench.fleet_simulator import Scenario
from bench.fleet_simulator.offline import bound, makespan_bound
from bench.fleet_simulator.presets import PUBLISHED, Switches, gadget, mobihoc
from bench.raw import Raw
from bench.verdicts import verdict

BASELINES = ("drf", "las", "srpt", "fifo", "sjf-bco")
SAME = 1e-4
"""Of the bound: two policies that are no further apart gain the same."""

FEW = (10, 20, 30, 40, 50)
PUBLISHED_FRACTION = 0.78
"""The best of the published fractions of the optimum, .61 to .78, at 10 to 50 jobs."""


def run(short: bool = False) -> None:
    """Print every table; `short` takes 3 seeds in place of 20, and 2 in place of 5 where they decide no aim."""
    console, raw, seeds = Console(highlight=False, width=170), Raw("fleet"), range(1, 4 if short else 21)
    console.print(f"seeds 1 to {seeds[-1]} of the loads; ± is half of the 95 % interval; simulated, nothing is run")
    decisions(console, 20 if short else 500)
    loads(console, raw, seeds)
    for part in (batch, parts, few_jobs, published):
        part(console, raw, seeds[: 2 if short else 5])


def loads(console: Console, raw: Raw, seeds: Sequence[int]) -> None:
    """Fractions of the bound at every load, and our lead over each baseline."""
    everything: list[Row] = []
    for num_servers in NUM_SERVERS:
        policies = ("gadget", *BASELINES)
        table = _table(f"100 jobs on {num_servers} servers: utility as a fraction of the bound", "load", *policies)
        for load in LOADS:
            name = f"{num_servers} servers, load {load:g}"
            rows = _rows(raw, name, seeds, partial(loaded, num_servers, load), policies)
            everything += rows
            table.add_row(f"{load:g}", *(words(_fractions(rows, policy)) for policy in policies))
        console.print(table)
    for name in dict.fromkeys(row.case for row in everything):
        rows = [row for row in everything if row.case == name]
        console.print(verdict(f"{name}: mean fraction", interval(_fractions(rows, "gadget"))[0], "at least", 0.9))
        least = min(worst_lead(rows, other) for other in BASELINES)
        console.print(verdict(f"{name}: least lead over any baseline on any seed", least, "at least", -SAME))
        console.print("  lead, " + ", ".join(f"{other} {words(leads(rows, other))}" for other in BASELINES))


def few_jobs(console: Console, raw: Raw, seeds: Sequence[int]) -> None:
    """The fraction of the bound at few jobs, in the published setting and on few servers."""
    table = _table(
        "fraction of the bound, which is at least the optimum", "jobs", "published setting", "10 servers, load 1"
    )
    fractions = []
    for num in FEW:
        own = _rows(raw, f"{num} jobs", seeds, partial(gadget, num), ("gadget",))
        few = _rows(
            raw,
            f"{num} jobs, 10 servers",
            seeds,
            partial(gadget, num, switches=Switches(load=1.0, num_servers=10)),
            ("gadget",),
        )
        fractions += [statistics.fmean(_fractions(own, "gadget")), statistics.fmean(_fractions(few, "gadget"))]
        table.add_row(str(num), words(_fractions(own, "gadget")), words(_fractions(few, "gadget")))
    console.print(table)
    console.print(verdict("least mean fraction at 10 to 50 jobs", min(fractions), "at least", PUBLISHED_FRACTION))


def published(console: Console, raw: Raw, seeds: Sequence[int]) -> None:
    """Total utilities by number of jobs beside the published ones, with two readings of the setting."""
    readings = {
        "F in samples": Switches(),
        "F in worker-slots": Switches(work_in_worker_slots=True),
    }
    for reading, switches in readings.items():
        table = _table(f"total utility, {reading}: ours (published); no reproduction", "jobs", *PUBLISHED, "bound")
        for num in (40, 60, 80, 100):
            rows = _rows(
                raw,
                f"{num} jobs, {reading}",
                seeds,
                partial(gadget, num, switches=switches),
                tuple(PUBLISHED),
            )
            cells = [
                f"{statistics.fmean(row.utility for row in rows if row.policy == policy):.0f} ({totals[num]})"
                for policy, totals in PUBLISHED.items()
            ]
            table.add_row(str(num), *cells, f"{statistics.fmean(row.bound for row in rows):.0f}")
        console.print(table)


PARTS: dict[str, tuple[str, dict[str, object]]] = {
    "as published": ("gadget-paper", {}),
    "repaired": ("gadget-repaired", {}),
    "Hulk's": ("gadget", {}),
    "without local search": ("gadget", {"local_search": False}),
    "look-ahead of one slot": ("gadget", {"lookahead_slots": 1}),
    "without hysteresis": ("gadget", {"hysteresis": 0.0}),
    "restarts taken for free": ("gadget", {"restart_costs": False}),
}


def parts(console: Console, raw: Raw, seeds: Sequence[int]) -> None:
    """What each part of the policy is worth, where rings contend, restarts cost and jobs compete."""
    for kind in (UtilityKind.SIGMOID, UtilityKind.SQRT):
        _parts(console, raw, seeds, kind)
    console.print("an overrun counts in one decision; machines that are given out twice share their time")
    console.print("proven of the published policy, for concave utilities only: 1 / (3 Γ + 1), so no more than 0.25")


def _parts(console: Console, raw: Raw, seeds: Sequence[int], kind: UtilityKind) -> None:
    rows = _asked(raw, [partial(_part_rows, kind, seed) for seed in seeds])
    title = f"60 jobs with {kind} utilities on 10 servers, rings contend, a restart costs 600 s"
    table = _table(title, "", "fraction", "Hulk's lead", "moves", "overruns")
    for name in PARTS:
        mine = [row for row in rows if row.policy == name]
        table.add_row(
            name,
            words([row.fraction for row in mine]),
            "" if name == "Hulk's" else words(leads(rows, name, "Hulk's")),
            f"{statistics.fmean(row.num_moves for row in mine):.0f}",
            f"{statistics.fmean(row.num_overruns for row in mine):.0f}",
        )
    console.print(table)


def batch(console: Console, raw: Raw, seeds: Sequence[int]) -> None:
    """The batch of the MobiHoc paper: makespans."""
    policies = ("gadget", "sjf-bco", "srpt", "fifo")
    rows = _rows(raw, "mobihoc", seeds, mobihoc, policies)
    floors = {seed: makespan_bound(mobihoc(seed)) for seed in seeds}
    table = _table("160 jobs at once on 20 servers: makespan / lower bound", "seed", *policies, "bound, s")
    for seed in seeds:
        cells = [
            next(row.makespan_s for row in rows if (row.seed, row.policy) == (seed, policy)) for policy in policies
        ]
        table.add_row(str(seed), *(f"{cell / floors[seed]:.2f}" for cell in cells), f"{floors[seed]:.0f}")
    console.print(table)
    ours = {row.seed: row.makespan_s for row in rows if row.policy == "gadget"}
    ratios = [ours[row.seed] / row.makespan_s for row in rows if row.policy == "sjf-bco"]
    console.print(
        f"makespan / SJF-BCO's: {words(ratios)}; ours interrupts jobs ({UtilityKind.BACKLOG} utility), its does not"
    )
    console.print(verdict("largest ratio of makespans to SJF-BCO", max(ratios), "below", 1.0))


def decisions(console: Console, num_live: int) -> None:
    """How long a decision takes; by the operator's step times also for fewer jobs."""
    first_s, next_s = decision_s(500, 1000, 1)
    console.print(verdict("decision for 500 jobs on 1,000 machines, processor s", first_s, "at most", 2.0))
    console.print(verdict("the next one, all running, processor s", next_s, "at most", 2.0))
    first_s, next_s = live_decision_s(num_live, 1000, 1)
    what = f"decision for {num_live} jobs on 1,000 machines by cost.predict"
    console.print(verdict(f"{what}, processor s", first_s, "at most", 2.0))
    console.print(verdict("the next one, all running, processor s", next_s, "at most", 2.0))


def _rows(
    raw: Raw, case: str, seeds: Sequence[int], scenario: Callable[..., Scenario], policies: Sequence[str]
) -> list[Row]:
    return _asked(raw, [partial(_scenario_rows, case, seed, scenario, policies) for seed in seeds])


def _asked(raw: Raw, questions: Sequence[Callable[[], list[Row]]]) -> list[Row]:
    """The rows of all questions, asked side by side on all processors, in order."""
    rows = []
    with ProcessPoolExecutor() as pool:
        for future in [pool.submit(question) for question in questions]:
            for row in future.result():
                raw.add(row)
                rows.append(row)
    return rows


def _scenario_rows(case: str, seed: int, scenario: Callable[..., Scenario], policies: Sequence[str]) -> list[Row]:
    made = scenario(seed=seed)
    most = bound(made)
    return [simulated(case, seed, made, policy, most) for policy in policies]


def _part_rows(kind: UtilityKind, seed: int) -> list[Row]:
    scenario = hard(seed, kind)
    most = bound(scenario)
    return [
        simulated(
            f"parts, {kind}",
            seed,
            replace(scenario, settings=replace(scenario.settings, **changes)),  # type: ignore[arg-type]
            policy,
            most,
            name,
        )
        for name, (policy, changes) in PARTS.items()
    ]


def _fractions(rows: Sequence[Row], policy: str) -> list[float]:
    return [row.fraction for row in rows if row.policy == policy]


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number else "left")
    return table
