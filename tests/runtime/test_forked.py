"""Processes are forked whatever else was selected."""

import sys
from types import ModuleType


def test_a_process_is_forked_after_another_folders_conftest_was_read(job, monkeypatch):
    """pytest reads every folder's under the one name `conftest`."""
    monkeypatch.setitem(sys.modules, "conftest", ModuleType("conftest"))
    process = job.fork("-c", "print('hello')")
    assert process.wait() == 0
    assert process.output == "hello\n"
