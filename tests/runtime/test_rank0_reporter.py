"""What rank 0 leaves behind."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hulk_runtime import errors
from hulk_runtime.collective.tcp_info import LinkSample
from hulk_runtime.job import environment
from hulk_runtime.plan import wire
from hulk_runtime.training.data_parallel import RankReport, StepReport
from hulk_runtime.training.rank0_reporter import Rank0Reporter
from hulk_runtime.training.stepper import Timing
from prometheus_client import CollectorRegistry


def test_what_was_refused_in_the_checkpoints_folder_is_served(make_plan, encode_plan, tmp_path):
    (tmp_path / "plan").write_bytes(encode_plan(make_plan((1,))))
    (tmp_path / "secret").write_bytes(bytes(32))
    (tmp_path / "u-1").mkdir()
    (tmp_path / "u-1" / "latest-00000009").write_bytes(b"{}")
    variables = {
        "HULK_CHECKPOINT_URL": f"file://{tmp_path}",
        "HULK_JOB_UID": "u-1",
        "HULK_PEER_SECRET": str(tmp_path / "secret"),
    }
    group, registry = cast(Any, SimpleNamespace(backend="gloo", wan=None)), CollectorRegistry()
    reporter = Rank0Reporter(environment.read(variables), wire.load(tmp_path / "plan"), registry, group)
    assert reporter.checkpoints is not None
    with pytest.raises(errors.CheckpointError):
        reporter.checkpoints.begin()
    reporter.resumed(0)
    assert registry.get_sample_value("hulk_worker_checkpoint_refused") == 1


@pytest.mark.parametrize("steps", [0, 3])
def test_a_run_without_checkpoints_ends_with_its_last_step_too(make_plan, encode_plan, tmp_path, monkeypatch, steps):
    left: list[str] = []
    monkeypatch.setattr(errors, "write_termination_message", left.append)
    (tmp_path / "plan").write_bytes(encode_plan(make_plan((1,))))
    group = cast(Any, SimpleNamespace(backend="gloo", wan=None))
    reporter = Rank0Reporter(environment.read({}), wire.load(tmp_path / "plan"), CollectorRegistry(), group)
    stepper = cast(Any, SimpleNamespace(sent_bytes=0))
    for step in range(1, steps + 1):
        report = StepReport(3.0 - step / 8, False, (RankReport(step, 0.1, LinkSample(0.0, 0.0)),))
        reporter.completed(step, Timing(0.2, 0.1, 0.1), report, stepper)
    reporter.close(steps, stepper)
    assert left == (["ended attempt=1 step=3 loss=2.625 checkpoint_bytes=0"] if steps else [])
