"""What the documents and docstrings show runs as shown."""

import dataclasses
import doctest
import importlib
import re
from pathlib import Path

import pytest
from hulk_runtime import errors, reference
from hulk_runtime.plan import document, wire

DOCS = Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.parametrize("name", ["job.environment", "job.launcher", "collective.tcp_info", "training.data_parallel"])
def test_docstring_examples_hold(name):
    results = doctest.testmod(importlib.import_module(f"hulk_runtime.{name}"))
    assert results.attempted > 0
    assert results.failed == 0


def test_the_task_in_the_guide_trains(job, make_plan, make_training, tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "guides" / "runtime-task.md").read_text(), re.DOTALL)
    (script,) = [block for block in blocks if "entry.run" in block]
    path = tmp_path / "task.py"
    path.write_text(script)
    plan = make_plan((1, 1), training=make_training(steps=40, optimizer="sgd"))
    losses = [float(loss) for loss in job.run_ranks(plan, str(path))[0].losses().values()]
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])


def test_a_plain_script_finds_its_region(job, make_plan, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", (DOCS / "guides" / "training-data.md").read_text(), re.DOTALL)
    (script,) = [block for block in blocks if "region = plan" in block]
    job.write_plan(make_plan((1, 1)))
    monkeypatch.setenv("HULK_PLAN", job.environment["HULK_PLAN"])
    monkeypatch.setenv("HULK_WORKER", "1")
    found: dict[str, object] = {}
    exec(script, found)
    assert found["region"] == "region-1"


def test_the_page_of_metrics_is_fresh_and_says_what_each_is():
    assert (DOCS / "reference" / "metrics-runtime.md").read_text() == reference.page()
    assert all(metric.documentation for metric in (*reference.worker_metrics(), *reference.agent_metrics()))
    assert "| `hulk_agent_echoes_total` | counter | `result` |" in reference.page()
    assert "| `hulk_worker_link_rtt_seconds` | gauge | `source`, `target` |" in reference.page()


def test_the_wire_document_names_every_key_and_exit_code():
    text = (DOCS / "reference" / "plan-wire.md").read_text()
    for field in dataclasses.fields(wire.Plan):
        assert f"`{document.key_of(field.name)}`" in text
    for kind in errors.HulkError.__subclasses__():
        assert re.search(rf"\| {kind.exit_code} \| `{kind.__name__}`", text)
