"""What all tests share: the real control plane with simulated nodes, and the geo lab.

Both are started once per session, on first use, under names of their own, so that neither a running demo nor another
checkout's tests are touched; both are removed at the end, also after a failure.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from depth import WHOLE, num_examples
from hulk_lab import kueue, kwok, up
from hulk_lab.builds import golang
from hulk_lab.spec import KwokSpec, LabSpec
from hypothesis import settings
from lab_names import lab_name

REPOSITORY = Path(__file__).resolve().parents[1]
AUTOGROUP = Path("/proc/self/autogroup")
"""Of the kernel's scheduler, which gives each session of processes an equal share, by its niceness; root may set it."""
NICENESS = 5  # of what no clock looks at: a third of a full share
settings.register_profile(
    "hulk", deadline=None, max_examples=num_examples(100)
)  # what compiles or loads on its first use takes seconds there
settings.load_profile("hulk")
IS_LANE = "PYTEST_XDIST_WORKER" in os.environ
LABS = ("lab", "controlplane")  # the markers, as pyproject.toml describes them


def pytest_configure() -> None:
    """Side by side, each lane has a share of the processors of its own, whatever the others start."""
    if IS_LANE:
        os.setsid()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Beside the labs, where programs wait for each other, the other tests come second."""
    if IS_LANE:
        with suppress(OSError):  # not root, or another kernel: then all lanes are alike
            AUTOGROUP.write_text(str(0 if _group(item) in LABS else NICENESS))


@pytest.hookimpl(tryfirst=True)  # the groups are read in the same hook
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Side by side (`-n 2 --dist loadgroup`), the tests of each lab stay together, and the labs, the longest, begin.

    What only the whole run looks at is left out of a short one, unless it is asked for by name.
    """
    named = any("::" in argument for argument in config.args)
    short = [] if WHOLE or named else [item for item in items if item.get_closest_marker("whole")]
    if short:
        config.hook.pytest_deselected(items=short)
        items[:] = [item for item in items if item not in short]
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_group(item)))
        item.user_properties.append(("ring", _ring(item)))
    items.sort(key=lambda item: (*LABS, _group(item)).index(_group(item)))


def _group(item: pytest.Item) -> str:
    return next((name for name in LABS if item.get_closest_marker(name)), item.path.name)


def _ring(item: pytest.Item) -> str:
    """Which ring a test belongs to: a lab, or the package whose pure stages it tests."""
    group = _group(item)
    return group if group in LABS else f"pure: {item.path.relative_to(REPOSITORY).parts[1]}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the time went: tests and seconds of each ring, setting up and tearing down included."""
    num_tests: Counter[str] = Counter()
    seconds: Counter[str] = Counter()
    for report in (one for reports in terminalreporter.stats.values() for one in reports):
        if isinstance(report, pytest.TestReport):
            ring = dict(report.user_properties).get("ring", "doctests")
            num_tests[str(ring)] += report.when == "call"
            seconds[str(ring)] += report.duration
    if not seconds:
        return
    terminalreporter.section("seconds by ring")
    for ring, spent_s in seconds.most_common():
        terminalreporter.write_line(f"{spent_s:8.1f} s  {num_tests[ring]:5} tests  {ring}")


@pytest.fixture(scope="session")
def repository() -> Path:
    """The checkout."""
    return REPOSITORY


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tests that compare bits: they depend on how many threads share a sum."""
    import torch  # only here: it takes seconds

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def forks() -> Iterator[ForkServerContext]:
    """Makes processes that have torch and the operator imported: either takes seconds of CPU, and hundreds are needed.

    They, and what they start themselves, would import pytest's main module as well.
    """
    context = multiprocessing.get_context("forkserver")
    # torch's DistributedDataParallel imports torch._dynamo, for seconds in every rank
    context.set_forkserver_preload(["torch", "torch._dynamo", "killing"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys.modules["__main__"], "__spec__", None, raising=False)
        patch.delattr(sys.modules["__main__"], "__file__", raising=False)
        with pytest.MonkeyPatch.context() as starting:
            starting.setenv("PYTHONPATH", str(REPOSITORY / "tests" / "operator"), prepend=os.pathsep)
            starting.setenv("OMP_NUM_THREADS", "1")  # read when torch is loaded
            forkserver.ensure_running()
        yield context


@pytest.fixture(scope="session")
def control_plane_lab() -> Iterator[up.Lab]:
    """A lab of nothing but a control plane and kwok."""
    spec = LabSpec(name=lab_name("cp"), kwok=KwokSpec(nodes=1))
    try:
        yield up.up(spec)
    finally:
        up.down(spec.name)


@pytest.fixture(scope="session")
def control_plane(control_plane_lab: up.Lab) -> Path:
    """The administrator's kubeconfig of a real API server, scheduler and controller manager."""
    return control_plane_lab.control.kubeconfig


@pytest.fixture(scope="session")
def kueue_lab(control_plane_lab: up.Lab) -> Iterator[up.Lab]:
    """The lab with Kueue's own controller, built at its first use."""
    golang.build(next(part for part in golang.PARTS if part.name == "kueue"))
    kwok.start(control_plane_lab.control)
    kueue.start(control_plane_lab.control)
    try:
        yield control_plane_lab
    finally:
        kueue.stop(control_plane_lab.control)


@pytest.fixture
def kwok_nodes(control_plane_lab: up.Lab) -> Iterator[Callable[..., list[str]]]:
    """kwok_nodes(count, regions=3, accelerators=1): that many Ready simulated nodes; removed after the test."""

    def make(count: int, regions: int = 3, accelerators: int = 1) -> list[str]:
        spec = KwokSpec(nodes=count, regions=regions, accelerators=accelerators)
        return kwok.add_nodes(control_plane_lab.control, spec)

    yield make
    kwok.remove_nodes(control_plane_lab.control)
