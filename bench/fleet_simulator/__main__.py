"""`python -m bench.fleet_simulator`: what policies make of jobs that arrive on one fleet, beside what none exceeds."""

import math
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from hulk_operator.cli.options import PLAIN
from hulk_operator.cli.output import Output, emit, note
from hulk_operator.cli.planner_files import any_topology
from hulk_placement.fleet.types import Settings

from bench.fleet_simulator import Outcome, Scenario, simulate
from bench.fleet_simulator.draws import read_trace
from bench.fleet_simulator.jobs_file import read_jobs
from bench.fleet_simulator.links import LinkTimes
from bench.fleet_simulator.offline import bound
from bench.fleet_simulator.picture import svg as draw
from bench.fleet_simulator.policies import POLICIES
from bench.fleet_simulator.presets import PUBLISHED, Switches, gadget, mobihoc
from bench.fleet_simulator.report import document
from bench.fleet_simulator.tables import fleet_tables

PRESETS = ("gadget", "mobihoc")
OPTIONS_OF = {
    "--jobs": ("topology", "until_s", "slot_s", "quota", "share"),
    "--preset gadget": ("num_jobs", "load", "trace", "constant_zeta", "fixed_workers", "work_in_worker_slots"),
}
"""Options that mean nothing elsewhere."""


def fleet_simulate(
    context: typer.Context,
    jobs: Annotated[Path | None, typer.Option(help="Table of jobs (CSV), with --topology.")] = None,
    topology: Annotated[Path | None, typer.Option("-t", "--topology", help="Machines and links.")] = None,
    preset: Annotated[str | None, typer.Option(help=f"In place of files: {', '.join(PRESETS)}.")] = None,
    policy: Annotated[str, typer.Option(help=f"With commas: {', '.join(POLICIES)}.")] = "gadget,drf,las,srpt,fifo",
    num_jobs: Annotated[int, typer.Option(min=1, help="Of --preset gadget.")] = 100,
    load: Annotated[
        float | None,
        typer.Option(help="Of --preset gadget: grow midpoints until this load is offered. Default: as published."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="What a preset and gadget-paper draw by.")] = 1,
    trace: Annotated[Path | None, typer.Option(help="Arrivals of --preset gadget: rows slot,job.")] = None,
    constant_zeta: Annotated[
        bool,
        typer.Option("--constant-zeta/--ring-zeta", help="A worker's samples a slot: constant, or less by the ring."),
    ] = True,
    fixed_workers: Annotated[
        bool,
        typer.Option("--fixed-workers/--most-workers", help="FIFO and LAS ask for 1 to 10 workers, or for the most."),
    ] = True,
    work_in_worker_slots: Annotated[
        bool, typer.Option("--work-in-worker-slots/--work-in-samples", help="What F counts.")
    ] = False,
    until_s: Annotated[
        float, typer.Option(help="End of --jobs. Default: when all are done.", show_default=False)
    ] = math.inf,
    slot_s: Annotated[float, typer.Option(help="Longest time between decisions of --jobs.")] = 60.0,
    quota: Annotated[
        list[str] | None, typer.Option(help="NAMESPACE=ACCELERATORS, of --jobs; as often as there are quotas.")
    ] = None,
    share: Annotated[
        list[str] | None, typer.Option(help="NAMESPACE=WEIGHT, of --jobs: whose gains count for more.")
    ] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the timeline's picture to this file.")] = None,
    output: Annotated[
        Output, typer.Option("-o", "--output", help="table for people, json or yaml for programs.")
    ] = Output.TABLE,
) -> None:
    """Simulate jobs that arrive on a fleet under each policy: nothing is run, nothing is created."""
    policies = [name.strip() for name in policy.split(",") if name.strip()]
    unknown = [name for name in policies if name not in POLICIES]
    if unknown or not policies:
        raise ValueError(f"--policy {policy}: must be of {', '.join(POLICIES)}")
    if (preset is None) == (jobs is None):
        raise ValueError("give jobs with --jobs and --topology, or a --preset")
    if preset is None:
        assert jobs is not None
        _check_options(context, "--jobs")
        config = Settings(slot_s=slot_s, seed=seed, quotas=_quotas(quota), shares=_figures("--share", share))
        scenario = _of_files(jobs, topology, until_s, config)
    else:
        if preset not in PRESETS:
            raise ValueError(f"--preset {preset!r} must be one of {', '.join(PRESETS)}")
        _check_options(context, f"--preset {preset}")
        asked = Asked(num_jobs, seed, Switches(constant_zeta, fixed_workers, work_in_worker_slots, load), trace)
        scenario = _of_preset(preset, asked)
    outcomes = [_outcome(scenario, name) for name in policies]
    published = _published(preset, scenario, policies, load)
    made = document(scenario, outcomes, bound(scenario), published)
    if svg is not None:
        svg.write_text(draw(scenario, outcomes), encoding="utf-8")
        note(f"wrote {svg}")
    emit(_finite(made), fleet_tables(made), output)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is asked of a preset."""

    num_jobs: int
    seed: int
    switches: Switches
    trace: Path | None


def _of_preset(preset: str, asked: Asked) -> Scenario:
    if preset == "mobihoc":
        return mobihoc(asked.seed)
    slots = None
    if asked.trace is not None:
        slots = read_trace(asked.trace.read_text(encoding="utf-8").splitlines())
        if not slots:
            raise ValueError(f"--trace {asked.trace}: no row slot,job in it")
    return gadget(asked.num_jobs, asked.seed, asked.switches, slots)


def _check_options(context: typer.Context, simulated: str) -> None:
    """No option is given that what is simulated takes no notice of."""
    for owner, names in OPTIONS_OF.items():
        sources = {name: context.get_parameter_source(name) for name in names}
        given = [name for name, source in sources.items() if source is not None and source.name == "COMMANDLINE"]
        if given and owner != simulated:
            options = ", ".join(option.opts[-1] for option in context.command.params if option.name in given)
            raise ValueError(f"{options}: of {owner}, and {simulated} is simulated")


def _quotas(given: list[str] | None) -> dict[str, int]:
    found = _figures("--quota", given)
    for namespace, number in found.items():
        if not number.is_integer():
            raise ValueError(f"--quota {namespace}={number:g} must be whole accelerators")
    return {namespace: int(number) for namespace, number in found.items()}


def _figures(option: str, given: list[str] | None) -> dict[str, float]:
    """NAMESPACE=FIGURE, each once."""
    found: dict[str, float] = {}
    for text in given or []:
        namespace, _, figure = text.partition("=")
        try:
            number = float(figure)
        except ValueError:
            number = math.nan
        if not namespace or not math.isfinite(number):
            raise ValueError(f"{option} {text!r} must be NAMESPACE=NUMBER")
        if namespace in found:
            raise ValueError(
                f"{option}: namespace {namespace} is there twice, with {found[namespace]:g} and {number:g}"
            )
        found[namespace] = number
    return found


def _of_files(jobs: Path, topology: Path | None, until_s: float, settings: Settings) -> Scenario:
    if topology is None:
        raise ValueError("--jobs are simulated on machines: give them with --topology")
    if not until_s > 0:
        raise ValueError(f"--until-s {until_s:g} must be > 0")
    known = any_topology(topology, sys.stdin).topology
    read = read_jobs(jobs.read_text(encoding="utf-8").splitlines())
    times = LinkTimes(known)
    drawn = {"jobs": str(jobs), "topology": str(topology), "slot_s": settings.slot_s}
    return Scenario(known, read, settings, times, times, until_s, drawn)


def _outcome(scenario: Scenario, name: str) -> Outcome:
    return simulate(replace(scenario, settings=replace(scenario.settings, policy=name)), time.process_time)


def _published(preset: str | None, scenario: Scenario, policies: list[str], load: float | None) -> dict[str, int]:
    """The paper's totals, where its own load and as many jobs are simulated."""
    if preset != "gadget" or load is not None:
        return {}
    found = {name: PUBLISHED.get(name, {}).get(len(scenario.jobs)) for name in policies}
    return {name: total for name, total in found.items() if total is not None}


def _finite(value: Any) -> Any:
    """JSON has no infinity: None."""
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def main() -> None:
    """Entry point."""
    app = typer.Typer(**PLAIN)
    app.command()(fleet_simulate)
    try:
        app()
    except (ValueError, OSError) as error:
        raise SystemExit(str(error)) from None


if __name__ == "__main__":
    main()
