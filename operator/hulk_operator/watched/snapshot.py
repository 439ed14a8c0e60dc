"""The cluster at one moment, as planning and probing read it. Nothing in it changes, so threads may have it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from hulk_operator.api import HulkTopologySpec, NodeProfile
from hulk_operator.inputs.pod_size import Amounts
from hulk_operator.pods import WorkerPod
from hulk_operator.watched.nodes import Node


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Nodes and profiles by name, all worker pods, and sums of all other pods.

    `taken`: what pods that are no workers take, by node. `agents`: the addresses of the agents' pods, by node.
    `asked`: what a claim of each ResourceClaimTemplate takes, by the template's `namespace/name`. `unreadable`: why a
    profile cannot be read, by its name.
    """

    nodes: Mapping[str, Node] = field(default_factory=dict)
    workers: tuple[WorkerPod, ...] = ()
    taken: Mapping[str, Amounts] = field(default_factory=dict)
    agents: Mapping[str, frozenset[str]] = field(default_factory=dict)
    profiles: Mapping[str, NodeProfile] = field(default_factory=dict)
    unreadable: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, Amounts] = field(default_factory=dict)
    declared: HulkTopologySpec = field(default_factory=HulkTopologySpec)
