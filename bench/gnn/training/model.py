"""The value network in PyTorch Geometric, as it is trained; `gnn.network` runs the same from exported weights."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from hulk_placement.gnn.graphs import NUM_EDGE, NUM_GRAPH, NUM_NODE, Graphs
from hulk_placement.gnn.network import NUM_ROUNDS
from numpy.typing import NDArray
from torch_geometric.data import Data
from torch_geometric.nn import MessagePassing
from torch_geometric.utils import scatter

WIDTH, READ = 32, 64


class Round(MessagePassing):
    """One exchange of messages: relu(A h_j + B h_i + C e_ij + a), summed by shares and their maximum."""

    def __init__(self) -> None:
        super().__init__(aggr=None)
        self.source = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.target = torch.nn.Linear(WIDTH, WIDTH, bias=False)
        self.edge = torch.nn.Linear(NUM_EDGE, WIDTH)
        self.update_all = torch.nn.Linear(3 * WIDTH + NUM_GRAPH, WIDTH)

    def forward(self, data: Data, h: torch.Tensor) -> torch.Tensor:
        seen = self.propagate(data.edge_index, h=h, edge=data.edge_attr, share=data.share)
        per_node = data.graph[data.batch]
        return h + torch.relu(self.update_all(torch.cat([h, seen, per_node], dim=-1)))

    def message(self, h_i: torch.Tensor, h_j: torch.Tensor, edge: torch.Tensor, share_j: torch.Tensor) -> torch.Tensor:
        made = torch.relu(self.source(h_j) + self.target(h_i) + self.edge(edge))
        return torch.cat([share_j * made, made], dim=-1)

    def aggregate(self, inputs: torch.Tensor, index: torch.Tensor, dim_size: int | None = None) -> torch.Tensor:
        weighted, plain = inputs.split(WIDTH, dim=-1)
        summed = scatter(weighted, index, dim=0, dim_size=dim_size, reduce="sum")
        return torch.cat([summed, scatter(plain, index, dim=0, dim_size=dim_size, reduce="max")], dim=-1)


class Value(torch.nn.Module):
    """log10(step / ideal) of each graph of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.node = torch.nn.Linear(NUM_NODE, WIDTH)
        self.rounds = torch.nn.ModuleList(Round() for _ in range(NUM_ROUNDS))
        self.pooled = torch.nn.Linear(2 * WIDTH, READ)
        self.answer = torch.nn.Linear(READ, 1)

    def forward(self, data: Data) -> torch.Tensor:
        h = torch.relu(self.node(data.x))
        for exchange in self.rounds:
            h = exchange(data, h)
        summed = scatter(data.share * h, data.batch, dim=0, reduce="sum")
        highest = scatter(h, data.batch, dim=0, reduce="max")
        answer: torch.Tensor = self.answer(torch.relu(self.pooled(torch.cat([summed, highest], dim=-1))))
        return answer[:, 0]

    def exported(self) -> dict[str, NDArray[np.float32]]:
        """The weights by the names that `gnn.network` knows, matrices as (inputs, outputs)."""
        names: dict[str, Any] = {"node": self.node, "pooled": self.pooled, "answer": self.answer}
        for k, exchange in enumerate(self.rounds):
            names |= {f"source{k}": exchange.source, f"target{k}": exchange.target}
            names |= {f"edge{k}": exchange.edge, f"update{k}": exchange.update_all}
        found = {name: layer.weight.detach().numpy().T.copy() for name, layer in names.items()}
        for name, layer in names.items():
            if layer.bias is not None:
                stem, number = name.rstrip("0123456789"), name[len(name.rstrip("0123456789")) :]
                found[f"{stem}_bias{number}"] = layer.bias.detach().numpy().copy()
        return found


def batch_of(graphs: Graphs, chosen: NDArray[np.int64]) -> Data:
    """Some of the graphs as one graph of PyTorch Geometric, without the padding."""
    is_node = np.arange(graphs.share_BN.shape[1]) < graphs.num_B[chosen][:, None]
    graph_of, node_of = np.nonzero(is_node)
    number = np.cumsum(is_node.ravel()).reshape(is_node.shape) - 1
    which, i, j = np.nonzero(is_node[:, :, None] & is_node[:, None, :])
    return Data(
        x=torch.tensor(graphs.node_BN7[chosen[graph_of], node_of]),
        edge_index=torch.tensor(np.stack([number[which, j], number[which, i]])),
        edge_attr=torch.tensor(graphs.edge_BNN4[chosen[which], i, j]),
        share=torch.tensor(graphs.share_BN[chosen[graph_of], node_of][:, None]),
        graph=torch.tensor(graphs.graph_B6[chosen]),
        batch=torch.tensor(graph_of),
    )
