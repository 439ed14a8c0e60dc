"""The value network's forward pass, from weights that the training exported: numpy, and one loop of `hulk_native`.

Of each graph, twice over its nodes i with hidden state h (width 32), edges e and the graph's own figures g:

    m_ij = relu(A h_j + B h_i + C e_ij + a)
    h_i <- h_i + relu(U [h_i, sum_j share_j m_ij, max_j m_ij, g] + u)

then the answer log10(step / ideal) = w relu(V [sum_i share_i h_i, max_i h_i] + v) + b. A message-passing network after
Gilmer et al. 2017 (arXiv 1704.01212) whose messages see the edge; sums weighted with shares of the speed, and maxima,
because a step waits for the slowest. All h are at least 0, so that nodes of padding, which have 0, change no maximum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from hulk_native import exchange_messages

from hulk_placement.gnn.graphs import Graphs
from hulk_placement.gnn.weights import Single, packaged

NUM_ROUNDS = 2
WEIGHTS = "value"


@dataclass(frozen=True)
class Network:
    """The weights by name; matrices are (inputs, outputs)."""

    weights: Mapping[str, Single]

    @classmethod
    def trained(cls) -> Network:
        """The network whose weights are part of the package."""
        return cls(packaged(WEIGHTS))

    def ratios(self, graphs: Graphs) -> Single:
        """log10(step / ideal) of each graph, (B,)."""
        w, share_BN = self.weights, graphs.share_BN
        num_graphs, most = share_BN.shape
        is_node = (np.arange(most) < graphs.num_B[:, None])[..., None]
        h = _relu(_linear(graphs.node_BN7, w["node"], w["node_bias"])) * is_node
        width = h.shape[-1]
        seen = np.zeros((num_graphs, most, 2 * width), np.float32)
        for k in range(NUM_ROUNDS):
            sent, got = h @ w[f"source{k}"], _linear(h, w[f"target{k}"], w[f"edge_bias{k}"])
            exchange_messages(sent, got, graphs.edge_BNN4, w[f"edge{k}"], share_BN, graphs.num_B, seen)
            own, others, whole = np.split(w[f"update{k}"], (width, 3 * width))
            update = h @ own + seen @ others + (graphs.graph_B6 @ whole + w[f"update_bias{k}"])[:, None, :]
            h = (h + _relu(update)) * is_node
        pooled = np.concatenate([np.matmul(share_BN[:, None, :], h)[:, 0, :], h.max(axis=1)], axis=-1)
        answer = _linear(_relu(_linear(pooled, w["pooled"], w["pooled_bias"])), w["answer"], w["answer_bias"])
        return np.asarray(answer[:, 0], np.float32)


def _linear(values: Single, weights: Single, bias: Single) -> Single:
    return np.asarray(values @ weights + bias)


def _relu(values: Single) -> Single:
    return np.asarray(np.maximum(values, 0, out=values))
