"""What a rank says of who takes part, and of its steps, is what the operator reads."""

from hulk_operator import worker_answers
from hulk_operator.observation import Observation
from hulk_runtime.collective.tcp_info import LinkSample
from hulk_runtime.training.data_parallel import RankReport, StepReport
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


def test_steps_before_the_first_round_are_of_no_predicted_length():
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, ["a"], inner_steps=2, warmup_steps=3)
    report = StepReport(1.0, False, (RankReport(1, 0.1, LinkSample(0.0, 0.0)),))
    for step, seconds, expected in ((1, 9.0, 0.0), (2, 9.0, 0.0), (3, 9.0, 0.0), (4, 1.0, 0.0), (5, 2.0, 1.5)):
        metrics.set_step(step, seconds, 0, report)
        assert (registry.get_sample_value("hulk_worker_step_seconds"), step) == (expected, step)
