"""A job on shares of pools -> the graphs that the value network reads, compiled.

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

from hulk_placement.compiled import compiled, inlined
from hulk_placement.cost.closed_form.arrays import Floats, Ints
from hulk_placement.gnn.weights import Single
from hulk_placement.layouts import starts
from hulk_placement.split.division import speed_by_pool
from hulk_placement.split.job import Job

NUM_NODE, NUM_EDGE, NUM_GRAPH = 7, 4, 6
LIMIT = 4.0
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
        activation_s_PP = float(setting.output_L.max()) / option.micro_batch / flow_PP
        gradient_s_P = float(setting.gradient_J[-1]) * option.tensor / np.diag(flow_PP)
    return Figures(
        speed_P=speed_by_pool(job) * option.micro_batch,
        memory_P=np.minimum(setting.memory_K[kind_P], 1e15),
        log_size_P=_log(job.pools.usable_JP[job.number].astype(float)),
        region_P=region_P,
        states_bytes=float(setting.held_J[-1]) * option.tensor,
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
    _fill(figures, np.ascontiguousarray(counts_BP), graphs)
    return graphs


@inlined
def _within(value: float) -> float:
    return max(-LIMIT, min(LIMIT, value))


@compiled
def _fill(figures: Figures, counts_BP: Ints, graphs: Graphs) -> None:
    """Write the figures of each graph."""
    pools = np.zeros(counts_BP.shape[1], np.int64)
    is_seen_R = np.zeros(figures.region_P.max() + 1, np.bool_)
    log_layers, log_states = math.log10(figures.num_layers), math.log10(figures.states_bytes)
    for b in range(counts_BP.shape[0]):
        total, accelerators, memory, num, num_regions = 0.0, 0.0, 0.0, 0, 0
        is_seen_R[:] = False
        for pool in range(counts_BP.shape[1]):
            count = counts_BP[b, pool]
            if count > 0 and figures.speed_P[pool] > 0.0:
                pools[num] = pool
                num += 1
                total += count * figures.speed_P[pool]
                accelerators += count
                memory += count * figures.memory_P[pool]
                num_regions += not is_seen_R[figures.region_P[pool]]
                is_seen_R[figures.region_P[pool]] = True
        ideal_s = figures.global_batch / total
        graphs.ideal_B[b] = ideal_s
        log_mean, log_ideal = math.log10(total / accelerators), math.log10(ideal_s)
        log_layer_s = -log_mean - log_layers
        for i in range(num):
            pool = pools[i]
            count, speed, log_memory = counts_BP[b, pool], figures.speed_P[pool], math.log10(figures.memory_P[pool])
            share, log_count = count * speed / total, math.log10(count)
            graphs.share_BN[b, i] = share
            node = graphs.node_BN7[b, i]
            node[0] = _within(math.log10(speed) - log_mean)
            node[1] = _within(log_count)
            node[2] = _within(math.log10(share))
            node[3] = _within(log_memory - log_states + log_layers)
            node[4] = _within(log_memory + log_count - log_states)
            node[5] = _within(figures.log_size_P[pool])
            node[6] = _within(figures.log_gradient_s_P[pool] - log_ideal)
            for j in range(num):
                edge, other = graphs.edge_BNN4[b, i, j], pools[j]
                edge[0] = _within(figures.log_activation_s_PP[pool, other] - log_layer_s)
                edge[1] = _within(figures.log_reduce_s_PP[pool, other] - log_ideal)
                edge[2] = _within(figures.log_latency_s_PP[pool, other] - log_layer_s)
                edge[3] = figures.unknown_PP[pool, other]
        graph = graphs.graph_B6[b]
        graph[0] = _within(log_layers)
        graph[1] = _within(math.log10(figures.global_batch))
        graph[2] = _within(math.log10(accelerators))
        graph[3] = _within(math.log10(memory) - log_states)
        graph[4] = _within(math.log10(num_regions))
        graph[5] = _within(math.log10(num))


def log_step(graphs: Graphs, ratio_B: Single) -> Floats:
    """The natural logarithm of a step's seconds from the network's answer, log10(step / ideal)."""
    return np.asarray(np.log(graphs.ideal_B) + math.log(10.0) * ratio_B)
