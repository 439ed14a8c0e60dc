"""The operator's metrics: a table of definitions, a collector over snapshots of its state, and the port they are on."""

from hulk_operator.metrics.collector import OperatorCollector, exposition, registry
from hulk_operator.metrics.definitions import DEFINITIONS, Definition
from hulk_operator.metrics.server import serve
from hulk_operator.metrics.snapshot import Health, RingPlace, Snapshot, ring

__all__ = [
    "DEFINITIONS",
    "Definition",
    "Health",
    "OperatorCollector",
    "RingPlace",
    "Snapshot",
    "exposition",
    "registry",
    "ring",
    "serve",
]
