"""What a rank says of who takes part is what the operator reads."""

from hulk_operator import worker_answers
from hulk_operator.observation import Observation
from hulk_runtime.training.metrics import JobMetrics
from prometheus_client import CollectorRegistry, generate_latest


def read(registry: CollectorRegistry) -> Observation:
    return worker_answers.parse_metrics(generate_latest(registry).decode())


def test_the_operator_reads_the_epoch_and_who_was_left_out():
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, ["a", "b", "c", "d"])
    metrics.set_info(7, "gloo", "wan")
    metrics.set_membership(0, range(4))
    assert (read(registry).attempt, read(registry).epoch, read(registry).absent) == (7, 0, set())
    metrics.set_membership(1, (0, 1, 3))
    assert (read(registry).epoch, read(registry).absent) == (1, {2})
