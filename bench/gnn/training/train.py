"""`python -m bench.gnn.training`: problems drawn by a seed, samples, a network; then one that such a network guides.

What the guided search asks about is labelled as well, because a search finds the shares that its network is wrong
about. Beside the value network the classifier of the paper's formulation, by one good division of each problem.
"""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from hulk_placement.gnn.network import WEIGHTS, Network
from hulk_placement.gnn.weights import write

from bench.divisions.classify import WEIGHTS as CLASSIFIER
from bench.gnn.training.classifier import Example, classifier_of, example_of
from bench.gnn.training.clusters import DATA_VERSION
from bench.gnn.training.fit import Score, fit
from bench.gnn.training.samples import Sample, labelled, problem, searched

GUIDED_SHARE = 1 / 3
"""Of all problems: those whose search the first network guides."""

HELD_OUT = 10
"""Of so many problems one is not trained on."""

FIRST_STEPS, STEPS = 2, 5
"""Batches for each problem, that the first network and the last one are trained by."""


@dataclass
class Collected:
    """What was learned from and what was not."""

    trained: list[Sample] = field(default_factory=list)
    held_out: list[Sample] = field(default_factory=list)
    examples: list[Example] = field(default_factory=list)


def train(
    seed: int, num_problems: int, folder: Path, num_workers: int = 1, tell: Callable[[str], None] = lambda _: None
) -> Score:
    """Train on so many problems, weights into the folder; the same on one machine for the same seed."""
    torch.set_num_threads(1)
    collected = Collected()
    num_blind = num_problems - round(GUIDED_SHARE * num_problems)
    with _mapping(num_workers) as mapping:
        _collect(collected, mapping(partial(_one, seed, None), range(num_blind)))
        first, score = fit(collected.trained, collected.held_out, seed, FIRST_STEPS * num_blind)
        tell(f"{num_blind} problems: {score}")
        guide = Network(first.exported())
        _collect(collected, mapping(partial(_one, seed, guide), range(num_blind, num_problems)), num_blind)
    network, score = fit(collected.trained, collected.held_out, seed, STEPS * num_problems)
    tell(f"{num_problems} problems: {score}")
    classifier, share = classifier_of(collected.examples, seed)
    tell(str(share))
    made = {"command": f"python -m bench.gnn.training --seed {seed} --problems {num_problems}", "data": DATA_VERSION}
    write(folder / f"{WEIGHTS}.npz", network.exported(), {**made, "score": asdict(score)})
    write(folder / f"{CLASSIFIER}.npz", classifier.exported(), {**made, "score": asdict(share)})
    return score


def _one(seed: int, network: Network | None, number: int) -> tuple[list[Sample], Example | None]:
    divisions, rng = problem(seed, number)
    searched(divisions, rng, network)
    samples = labelled(divisions, rng)
    return samples, example_of(divisions, seed)


def _collect(collected: Collected, found: Iterable[tuple[list[Sample], Example | None]], first: int = 0) -> None:
    for number, (samples, example) in enumerate(found, first):
        target = collected.trained if number % HELD_OUT else collected.held_out
        target += samples
        collected.examples += [] if example is None else [example]


@contextmanager
def _mapping(num_workers: int) -> Iterator[Callable[..., Iterable[Any]]]:
    """`map`, over so many processes."""
    if num_workers == 1:
        yield map
        return
    with ProcessPoolExecutor(num_workers, multiprocessing.get_context("spawn")) as pool:
        yield pool.map
