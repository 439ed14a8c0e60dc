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
