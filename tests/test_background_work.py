"""No thread and no task runs beside others but by the two rooms that count and restart them."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ALLOWED = {
    "operator/hulk_operator/background.py",
    "runtime/hulk_runtime/background.py",
    "runtime/hulk_runtime/agent/tasks.py",
}
BEGIN = {"Thread", "Timer", "create_task", "ensure_future", "TaskGroup"}
"""What makes a thread or a task."""


def begun(source: str) -> Iterator[tuple[int, str]]:
    """Lines that begin a thread or a task, or make a class of threads."""
    if not any(name in source for name in BEGIN):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            used = [node.func]
        elif isinstance(node, ast.ClassDef):
            used = node.bases
        else:
            continue
        for each in used:
            text = ast.unparse(each)
            if text.rpartition(".")[2] in BEGIN and not text.startswith("background."):
                yield node.lineno, text


@pytest.mark.parametrize("room", ["operator", "placement", "runtime"])
def test_threads_and_tasks_are_begun_in_one_place(room: str, repository: Path) -> None:
    found = {
        f"{path.relative_to(repository)}:{line}: {text}"
        for path in (repository / room).rglob("*.py")
        if str(path.relative_to(repository)) not in ALLOWED
        for line, text in begun(path.read_text())
    }
    assert not found, "use hulk_runtime.background, hulk_runtime.agent.tasks or hulk_operator.background"


@pytest.mark.parametrize(
    "line", ["threading.Thread(target=f).start()", "asyncio.create_task(f())", "class A(threading.Thread): pass"]
)
def test_what_begins_one_is_found(line: str) -> None:
    assert list(begun(line))
