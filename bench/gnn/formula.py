"""A closed formula in place of the value network: what the guided search is worth without anything learned."""

from __future__ import annotations

import numpy as np
from hulk_placement.gnn.graphs import Graphs
from hulk_placement.gnn.weights import Single


class Formula:
    """One sum over all pools or a pipeline through them, whichever is quicker, by the worst link it cannot avoid."""

    def ratios(self, graphs: Graphs) -> Single:
        """log10(step / ideal) of each graph, (B,)."""
        most = graphs.share_BN.shape[1]
        is_node_BN = np.arange(most) < graphs.num_B[:, None]
        is_edge_BNN = is_node_BN[:, :, None] & is_node_BN[:, None, :]
        is_edge_BNN &= ~np.eye(most, dtype=bool) | (graphs.num_B == 1)[:, None, None]
        best_BN2 = np.where(is_edge_BNN[..., None], graphs.edge_BNN4[..., :2], np.inf).min(axis=2)
        activation_B, reduce_B = np.where(is_node_BN[..., None], best_BN2, -np.inf).max(axis=1).T
        inside_B = np.where(is_node_BN, graphs.node_BN7[..., 6], -np.inf).max(axis=1)
        layers_B = 10.0 ** graphs.graph_B6[:, 0]
        pipeline_B = 10.0**activation_B * graphs.num_B / layers_B + 10.0**inside_B / graphs.num_B
        return np.asarray(np.log10(1.0 + np.minimum(10.0**reduce_B, pipeline_B)), np.float32)
