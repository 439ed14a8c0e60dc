"""Streaming DiLoCo by torchft and by `hulk.DiLoCo` over the same links: seconds, bytes, and the loss they come to.

Each replica is one rank in a region of its own. Both have the same model, data, fragments, delay and outer optimizer;
torchft is the package index's, in buckets, which is quicker for it than its default, a sum for each parameter.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hulk_lab.wan import relay
from hulk_placement.sync import Rounds, Sync
from hulk_runtime.examples.gpt_model import Gpt
from rich.console import Console
from rich.table import Table

from bench.allreduce import job
from bench.allreduce.case import Case
from bench.allreduce.gang import Gang
from bench.conditions import Watch, one_that_counts
from bench.raw import Raw
from bench.trainers.planned import INSTRUMENTED, MOST_OFF, Planned, off, planned, with_packages
from bench.trainers.replica import DELAY, FRAGMENTS, OUTER_MOMENTUM, OUTER_RATE, SYNC_EVERY, TRAINED_HERE
from bench.verdicts import verdict

SCRIPT = str(Path(__file__).with_name("replica.py"))
CASE, COMPUTE_S = Case("A", (1, 1, 1)), 0.1
TORCHFT, HULK = "torchft", "hulk"
NAMES = {TORCHFT: "diloco by torchft", HULK: "hulk.DiLoCo"}
NUM_STEPS = 15 * SYNC_EVERY + DELAY
SHORT_STEPS = 3 * SYNC_EVERY + DELAY


@dataclass(frozen=True, slots=True)
class Look:
    """What all replicas have in common after a step."""

    step: int
    seconds: float
    loss: float


@dataclass(frozen=True, slots=True)
class Run:
    """One training. `sent_bytes`: over links between regions, by all ranks in a step, headers included."""

    way: str
    looks: tuple[Look, ...]
    sent_bytes: float
    valid: bool

    @property
    def step_s(self) -> float:
        """From the first look to the last."""
        first, last = self.looks[0], self.looks[-1]
        return (last.seconds - first.seconds) / (last.step - first.step)


def table(console: Console, raw: Raw, short: bool) -> None:
    """One table, then the verdict."""
    num_steps = SHORT_STEPS if short else NUM_STEPS
    num_values, predicted_s = num_parameters(), predicted_step_s()
    with planned(CASE, 4 * num_values, COMPUTE_S) as up:
        runs = {way: one_that_counts(_once, up, way, num_steps) for way in (TORCHFT, HULK)}
    for each in runs.values():
        raw.add(each)
    loss = max(one.looks[-1].loss for one in runs.values())
    found = Table("way", "step s", "predicted s", "of which compute", "kB sent a step", "loss", f"s to {loss:.3f}", "")
    for way, one in runs.items():
        found.add_row(
            NAMES[way],
            f"{one.step_s:.3f}",
            f"{predicted_s:.3f}" if way == HULK else "",
            f"{COMPUTE_S / one.step_s:.0%}",
            f"{one.sent_bytes / 1e3:.0f}",
            f"{one.looks[-1].loss:.4f}",
            f"{seconds_to(loss, one.looks):.1f}",
            "" if one.valid else "does not count",
        )
    console.print(
        f"{num_values / 1e6:.2f} M parameters, {num_steps} steps of {COMPUTE_S:g} s of compute, {CASE}, rounds of "
        f"{SYNC_EVERY} steps, {FRAGMENTS} fragments merged {DELAY} steps late; loss in nats per byte of other text"
    )
    console.print(found)
    ratio = seconds_to(loss, runs[TORCHFT].looks) / seconds_to(loss, runs[HULK].looks)
    counts = all(one.valid for one in runs.values())
    error = abs(off(predicted_s, runs[HULK].step_s)) if runs[HULK].valid else None
    console.print(verdict("time to a loss, torchft / Hulk", ratio if counts else None, "at least", 1.0))
    console.print(verdict(f"{NAMES[HULK]}: % that its prediction is off", error, "at most", MOST_OFF))


def num_parameters() -> int:
    """Of what is trained."""
    return sum(one.numel() for one in Gpt(TRAINED_HERE.model).parameters())


def predicted_step_s() -> float:
    """Of a job whose replicas train apart as the script's do, in equal fragments."""
    rounds = Rounds(OUTER_RATE, OUTER_MOMENTUM, FRAGMENTS, DELAY)
    plan = job.planned(CASE, 4 * num_parameters(), COMPUTE_S, Sync("local", SYNC_EVERY, rounds=rounds))
    return plan.prediction.step_s


def seconds_to(loss: float, looks: Sequence[Look]) -> float:
    """When a loss was first reached, between looks in proportion; it was reached.

    >>> seconds_to(2.5, [Look(20, 0.0, 4.0), Look(40, 2.0, 3.0), Look(60, 4.0, 2.0)])
    3.0
    """
    for before, after in itertools.pairwise(looks):
        if after.loss <= loss:
            share = (before.loss - loss) / (before.loss - after.loss)
            return before.seconds + share * (after.seconds - before.seconds)
    raise ValueError(f"a loss of {loss} was not reached: {looks[-1]}")


def _once(up: Planned, way: str, num_steps: int) -> Run:
    variables = {"HULK_INSTRUMENTATION": "auto", **up.variables} if way == HULK else {"HULK_INSTRUMENTATION": "none"}
    variables |= {**with_packages("peers"), "RUST_LOG": "error"}
    looks, watch, valid, sent = list[Look](), None, False, 0
    with Gang(up.net, INSTRUMENTED, SCRIPT, way, str(num_steps), str(COMPUTE_S), env=variables) as gang:
        for line in gang.lines():
            match line.split():
                case ["ready"]:
                    watch, sent = Watch(up.net), relay.stats(up.net).num_bytes
                case ["trained"]:
                    assert watch is not None
                    valid, sent = watch.conditions().valid, relay.stats(up.net).num_bytes - sent
                case ["look", step, seconds, loss]:
                    looks.append(Look(int(step), float(seconds), float(loss)))
        gang.wait()
    return Run(way, tuple(looks), sent / num_steps, valid)
