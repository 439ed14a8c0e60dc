"""The logs of operator and agent: text or JSON, at a level that a file changes while they run."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from hulk_operator import logs as operator_logs
from hulk_runtime.agent import logs as agent_logs

BOTH = pytest.mark.parametrize("logs", [operator_logs, agent_logs], ids=["operator", "agent"])
SCRIPT = """
import logging, os, {module} as logs
level = logs.configure(os.environ)
log, library = logs.OWN.getChild("part"), logging.getLogger("library")
log.info("first\\nof %s", "two")
log.debug("hidden")
library.info("hidden")
library.warning("heard")
try:
    raise ValueError("caught")
except ValueError:
    log.exception("broke")
raise RuntimeError("uncaught")
"""


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """What is configured here is undone."""
    root, levels = logging.getLogger(), {logs.OWN: logs.OWN.level for logs in (operator_logs, agent_logs)}
    before, level, hook = root.handlers[:], root.level, sys.excepthook
    yield
    root.handlers[:], sys.excepthook = before, hook
    root.setLevel(level)
    for own, was in levels.items():
        own.setLevel(was)


def said(logs: ModuleType, form: str) -> str:
    command = [sys.executable, "-c", SCRIPT.format(module=logs.__name__)]
    environment = {**os.environ, "HULK_LOG_FORMAT": form}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr


@BOTH
def test_json_is_an_object_a_line_whatever_happens(logs: ModuleType) -> None:
    lines = [json.loads(line) for line in said(logs, "json").splitlines()]
    own = f"{logs.OWN.name}.part"
    assert [(line["level"], line["logger"], line["message"]) for line in lines] == [
        ("INFO", own, "first\nof two"),
        ("WARNING", "library", "heard"),
        ("ERROR", own, "broke"),
        ("CRITICAL", "root", "ends by a defect"),
    ]
    assert "ValueError: caught" in lines[2]["exception"]
    assert "RuntimeError: uncaught" in lines[3]["exception"]
    assert all(line["time"].endswith("+00:00") for line in lines)


@BOTH
def test_text_is_for_people(logs: ModuleType) -> None:
    text = said(logs, "text")
    assert f" INFO {logs.OWN.name}.part: first\nof two\n" in text
    assert "hidden" not in text
    assert "RuntimeError: uncaught" in text


@BOTH
def test_a_format_that_is_none_is_refused_by_name(logs: ModuleType) -> None:
    with pytest.raises(ValueError, match="HULK_LOG_FORMAT: 'xml' must be one of text, json"):
        logs.configure({"HULK_LOG_FORMAT": "xml"})


@BOTH
def test_the_file_changes_the_level_of_hulks_own_loggers(
    logs: ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "level"
    level = logs.configure({"HULK_LOG_LEVEL_FILE": str(file)})
    logging.getLogger().addHandler(caplog.handler)
    assert logs.OWN.level == logging.INFO  # no file
    file.write_text("debug\n")
    level.look()
    assert logs.OWN.level == logging.DEBUG
    assert logging.getLogger("library").getEffectiveLevel() == logging.WARNING
    file.write_text("loud")
    level.look()
    level.look()
    assert logs.OWN.level == logging.DEBUG
    file.write_text("ERROR")
    level.look()
    assert logs.OWN.level == logging.ERROR
    file.unlink()
    level.look()
    assert logs.OWN.level == logging.INFO
    assert [record.getMessage().partition("the log level ")[2] for record in caplog.records] == [
        "is debug from now on",
        "'loud' must be one of debug, info, warning, error",  # told once
        "is error from now on",
        "is info from now on",
    ]


@BOTH
async def test_the_file_is_looked_at_again_and_again(
    logs: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs, "LOOK_S", 0.001)
    file = tmp_path / "level"
    level = logs.configure({"HULK_LOG_LEVEL_FILE": str(file)})
    following = asyncio.ensure_future(level.follow())
    file.write_text("warning")
    async with asyncio.timeout(30):
        while logs.OWN.level != logging.WARNING:
            await asyncio.sleep(0.001)
    following.cancel()


def test_an_operator_that_cannot_go_on_says_so_in_its_format(tmp_path: Path) -> None:
    environment = {**os.environ, "HULK_LOG_FORMAT": "json", "KUBECONFIG": str(tmp_path / "none")}
    command = [sys.executable, "-m", "hulk_operator"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    (line,) = map(json.loads, ended.stderr.splitlines())
    assert (ended.returncode, line["level"]) == (1, "CRITICAL")
    assert "there is no kubeconfig" in line["message"]
