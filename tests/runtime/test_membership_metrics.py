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


def test_a_link_is_that_to_the_rank_of_the_same_part_in_the_next_replica():
    """Two replicas on two nodes each, whose ranks tell of 1 to 4 MB/s."""
    registry = CollectorRegistry()
    metrics = JobMetrics(registry, ["a", "b", "c", "d"], ranks_apart=2)
    ranks = tuple(RankReport(1, 0.1, LinkSample(0.01, 1e6 * (rank + 1))) for rank in range(4))
    metrics.set_step(1, 1.0, 0, StepReport(1.0, False, ranks))
    found = {
        (source, target): registry.get_sample_value(
            "hulk_worker_link_bandwidth_bytes_per_second", {"source": source, "target": target}
        )
        for source in "abcd"
        for target in "abcd"
    }
    assert {pair: rate for pair, rate in found.items() if rate} == {
        ("a", "c"): 1e6,
        ("b", "d"): 2e6,
        ("c", "a"): 3e6,
        ("d", "b"): 4e6,
    }
