"""What ranks that shard a replica send each other, and how much of it they wait for (ZeRO-3, FSDP2).

Each of S ranks has sequences of its own and keeps 1/S of all parameters, gradients and optimizer states. A layer's
parameters are gathered before its forward pass and again before its backward pass, its gradients are reduce-scattered
behind that: three times (S - 1) / S of a layer, where an all-reduce sends it two times (Rajbhandari et al. 2020, arXiv
1910.02054, section 7). The next layer is gathered while one computes (Zhao et al. 2023, arXiv 2304.11277, section 3.3),
and both go over one link:

    forward    g0 | max(c0, g1) | max(c1, g2) | c2
    backward                      max(c2, g1) | max(c1, g0 + r2) | max(c0, r1) | r0

Each stage of a pipeline gathers its own layers so. There the last one is gathered for the backward pass too: forward
passes of other micro-batches are between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np

from hulk_placement.cost.closed_form.arrays import Floats
from hulk_placement.cost.ties import tied_layers
from hulk_placement.model.layer import BYTES_PER_ACTIVATION, BYTES_PER_FP32
from hulk_placement.topology import Link, Topology
from hulk_placement.workload import Workload


def ring_s(link: Link, num_ranks: int, num_bytes: float) -> float:
    """Seconds of an all-gather, or a reduce-scatter, of so many bytes in all: S - 1 steps of 1/S of them.

    >>> ring_s(Link(rtt_s=0.5, bandwidth_bytes_per_s=100.0), 4, 400)
    3.75
    """
    return (num_ranks - 1) * (link.latency_s + num_bytes / num_ranks / link.bandwidth_bytes_per_s)


def collectives_s(
    workload: Workload, link: Link, shard: int, tensor: int, cuts: Sequence[int]
) -> tuple[Floats, Floats]:
    """Seconds to gather each layer in the training's precision, and to reduce-scatter its gradients in four bytes.

    `cuts` are the first layers of stages, of which each has a copy of what it shares with an earlier one.
    """
    layers, short = workload.model.layers, BYTES_PER_ACTIVATION[workload.precision]
    gather_s, scatter_s = [], []
    for first, last in pairwise([*cuts, len(layers)]):
        copies = set(tied_layers(layers, first, last))
        for layer in layers[first:last]:
            is_copy = layer in copies
            num = layer.num_parameters + is_copy * layer.tied_parameters
            trained = layer.trained_parameters + is_copy * layer.trained_tied_parameters
            gather_s.append(ring_s(link, shard, short * num / tensor))
            scatter_s.append(ring_s(link, shard, BYTES_PER_FP32 * trained / tensor))
    return np.array(gather_s), np.array(scatter_s)


def passes_s(
    cuts: Sequence[int], forward_L: Floats, backward_L: Floats, gather_L: Floats, scatter_L: Floats
) -> tuple[Floats, Floats]:
    """Seconds of each layer's passes in stages that gather their own layers, by what they only compute for."""
    stages = [slice(*edges) for edges in pairwise([*cuts, len(forward_L)])]
    forward = [forward_s(forward_L[own], gather_L[own]) for own in stages]
    backward = [backward_s(backward_L[own], gather_L[own], scatter_L[own]) for own in stages]
    for own, seconds in zip(stages, backward if len(stages) > 1 else (), strict=False):
        seconds[-1] += gather_L[own][-1]
    return np.concatenate(forward), np.concatenate(backward)


def forward_s(compute_L: Floats, gather_L: Floats) -> Floats:
    """Seconds of each layer's forward pass; the first one waits until it is gathered.

    >>> forward_s(np.array([2.0, 2.0, 2.0]), np.array([1.0, 1.0, 5.0])).tolist()
    [3.0, 5.0, 2.0]
    """
    found: Floats = np.maximum(compute_L, [*gather_L[1:], 0.0])
    found[0] += gather_L[0]
    return found


def backward_s(compute_L: Floats, gather_L: Floats, scatter_L: Floats) -> Floats:
    """Seconds of each layer's backward pass, the last layer's first; the first layer's gradients are waited for.

    The last layer is whole since its forward pass.

    >>> backward_s(np.array([4.0, 4.0, 4.0]), np.array([1.0, 1.0, 5.0]), np.array([2.0, 2.0, 9.0])).tolist()
    [6.0, 10.0, 4.0]
    """
    found: Floats = np.maximum(compute_L, np.array([0.0, *gather_L[:-1]]) + np.array([*scatter_L[1:], 0.0]))
    found[0] += scatter_L[0]
    return found


def around(topology: Topology, ranks: Sequence[str], num_rings: int = 1) -> Link:
    """What each of so many rings over the same machines gets of the link that holds it back, by its ranks' machines.

    Between machines all rings share one link, inside each has its own accelerators.

    >>> from hulk_placement.topology import Machine
    >>> there = {pair: Link(0.01, 80.0) for pair in (("a", "b"), ("b", "a"))}
    >>> inside = {"a": Link(0.0, 60.0), "b": Link(0.0, 99.0)}
    >>> topology = Topology(tuple(Machine(name, "r", inside=link) for name, link in inside.items()), there)
    >>> [around(topology, ranks, num).bandwidth_bytes_per_s for ranks, num in (("aa", 2), ("ab", 1), ("ab", 2))]
    [60.0, 80.0, 40.0]
    """
    links = []
    for place, target in enumerate(ranks):
        source = ranks[place - 1]
        link = topology.inside(source) if source == target else topology.link(source, target)
        share = 1 if source == target else num_rings
        links.append(Link(link.rtt_s, link.bandwidth_bytes_per_s / share, kind=link.kind))
    slowest = min(links, key=lambda link: link.bandwidth_bytes_per_s)
    return replace(slowest, rtt_s=max(link.rtt_s for link in links))
