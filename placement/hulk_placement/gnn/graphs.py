"""A job on shares of pools -> the graphs that the value network reads (`hulk_native.fill_graphs`).

Nodes are the pools that a share has something of, edges all pairs of them with each itself. Figures are relative to the
job (`ideal`: all accelerators of the share always busy, nothing sent), their logarithms to base 10, at most 4 off 0.

| node | edge from j to i | graph |
|---|---|---|
| speed / mean of the share | activations over the link / a layer's compute | layers |
| accelerators | all-reduce of all gradients / ideal | sequences of a step |
| share of the speed | latency / a layer's compute | accelerators |
| layers that the memory holds | 1 where the link must not be used | memory / states |
| memory / states of the model | | regions |
| accelerators of a machine | | pools |
| gradients over the region's inside / ideal | | |
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from hulk_native import fill_graphs

from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.gnn.weights import Single
from hulk_placement.layouts import starts
from hulk_placement.split.division import speed_by_pool
from hulk_placement.split.job import Job

NUM_NODE, NUM_EDGE, NUM_GRAPH = 7, 4, 6
NEVER = 30.0
"""Logarithm of what is 0 (its negative) or infinite."""


class Graphs(NamedTuple):
    """B graphs of at most N nodes; nodes beyond a graph's own number have the share 0."""

    node_BN7: Single
    edge_BNN4: Single
    """[b, i, j]: what j sends to i."""
    graph_B6: Single
    share_BN: Single
    """Of the speed; sums to 1."""
    num_B: Ints
    """Nodes of each graph."""
    ideal_B: Floats
    """Seconds."""


class Figures(NamedTuple):
    """What is the same for all shares of a job; `log_` are logarithms to base 10."""

    speed_P: Floats
    """Sequences a second of one accelerator; 0 where the job may not use the pool."""
    memory_P: Floats
    log_size_P: Floats
    region_P: Ints
    states_bytes: float
    log_gradient_s_P: Floats
    """Seconds of all gradients over the inside of the pool's region."""
    log_activation_s_PP: Floats
    """[i, j]: from j to i, as in all edges."""
    log_reduce_s_PP: Floats
    log_latency_s_PP: Floats
    unknown_PP: Floats
    num_layers: int
    global_batch: int


def figures_of(job: Job) -> Figures:
    """The figures of a job; those that no option changes much, so of the first one."""
    option = job.space.options[0]
    setting = job.setting(option)
    region_P, kind_P = job.ground.region_M, setting.kind_M[job.first_P]
    both = np.ix_(region_P, region_P)
    flow_PP = setting.flow_RR[both]
    with np.errstate(divide="ignore", invalid="ignore"):
        activation_s_PP = float(setting.output_L.max()) / option.cell_batch / flow_PP
        gradient_s_P = float(setting.gradient_J[-1]) * option.width / np.diag(flow_PP)
    return Figures(
        speed_P=speed_by_pool(job) * option.cell_batch,
        memory_P=np.minimum(setting.memory_K[kind_P], 1e15),
        log_size_P=_log(job.pools.usable_JP[job.number].astype(float)),
        region_P=region_P,
        states_bytes=float(setting.held_J[-1]) * option.width,
        log_gradient_s_P=_log(gradient_s_P),
        log_activation_s_PP=_log(activation_s_PP.T),
        log_reduce_s_PP=_log(starts.edge_seconds(setting, 1)[both].T),
        log_latency_s_PP=_log(setting.latency_RR[both].T),
        unknown_PP=np.ascontiguousarray((flow_PP.T <= 0.0).astype(float)),
        num_layers=len(setting.output_L),
        global_batch=job.workload.global_batch,
    )


def _log(values: Floats) -> Floats:
    """Logarithms to base 10 within NEVER; nothing over a link that carries nothing (NaN) takes no time."""
    with np.errstate(divide="ignore"):
        return np.ascontiguousarray(np.clip(np.nan_to_num(np.log10(values), nan=-NEVER), -NEVER, NEVER))


def graphs_of(figures: Figures, counts_BP: Ints) -> Graphs:
    """The graphs of shares none of which is empty."""
    num_B = ((counts_BP > 0) & (figures.speed_P > 0.0)).sum(axis=1)
    num_graphs, most = len(counts_BP), int(num_B.max())
    graphs = Graphs(
        node_BN7=np.zeros((num_graphs, most, NUM_NODE), np.float32),
        edge_BNN4=np.zeros((num_graphs, most, most, NUM_EDGE), np.float32),
        graph_B6=np.zeros((num_graphs, NUM_GRAPH), np.float32),
        share_BN=np.zeros((num_graphs, most), np.float32),
        num_B=num_B,
        ideal_B=np.zeros(num_graphs),
    )
    fill_graphs(figures, counts_BP, graphs)
    return graphs


def log_step(graphs: Graphs, ratio_B: Single) -> Floats:
    """The natural logarithm of a step's seconds from the network's answer, log10(step / ideal)."""
    return np.asarray(np.log(graphs.ideal_B) + math.log(10.0) * ratio_B)
