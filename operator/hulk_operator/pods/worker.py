"""`WorkerPod`: the few facts about one worker that the reconcile decides by, and what they mean together."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from hulk_operator import names

# status.reason of pods that a kubelet refused for what it finds on its node: devices, NUMA, SMT, sysctls, AppArmor.
UNFIT_REASONS: Final = frozenset(
    {
        "AppArmor",
        "PodFeatureUnsupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SMTAlignmentError",
        "SysctlForbidden",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
_NOT_STARTED: Final = frozenset({"StartError", "ContainerCannotRun"})  # of runtimes: the exit code is no program's
_NOT_EXECUTED: Final = re.compile(r"exec \S+: exec format error\s*")  # the whole output of a runtime's last step
# status.reason of pods that a kubelet refused because the node was full after all: with the resource's name, which for
# an extended resource is no word ("OutOfnvidia.com/gpu").
KUBELET_REFUSES: Final = "OutOf"
_FULL: Final = "OutOfResource"
STUCK_REASONS: Final = frozenset(
    {
        "CreateContainerConfigError",
        "CreateContainerError",
        "ErrImageNeverPull",
        "ImageInspectError",
        "ImagePullBackOff",
        "InvalidImageName",
        "RegistryUnavailable",
        "RunContainerError",
    }
)
"""Reasons a container waits for that time alone does not cure."""
INIT_RUNS: Final = "InitContainerRuns"
SIDECAR_NOT_STARTED: Final = "SidecarNotStarted"
_CRASHES: Final = "CrashLoopBackOff"  # of a native sidecar: no other container is restarted
LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)  # when all was seen, to those who ask for no times
_MAX_REASON: Final = 64


@dataclass(frozen=True, slots=True)
class Exit:
    """How a worker's container ended, and when that was first seen: its node's clock says nothing here.

    `container` names the init container that failed before it, where one did.
    """

    code: int
    reason: str
    message: str
    time: datetime
    container: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """A PascalCase reason and the server's words."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class WorkerPod:
    """One worker's pod. `node` is empty until it is bound.

    `delete_by`: when deleting, the end of its grace period, which counts from when the deletion was first seen.
    `waiting`: what the worker waits for, or an init container before it, or another container that is stuck.
    `gates`: the scheduling gates that it waits behind, `finalizers`: those that keep it when it is deleted.
    The worker is one of its containers; `others_run`: of the other ordinary ones some do. `failure`: why the pod failed
    as a whole, where the kubelet says so. `job`: the key of the one that it is labelled with. `amounts`: what it takes
    of its node, by resource.
    """

    name: str
    uid: str
    job_uid: str
    attempt: int
    worker: int
    node: str = ""
    ip: str = ""
    phase: str = "Pending"
    delete_by: datetime | None = None
    exit: Exit | None = None
    waiting: Reason | None = None
    unschedulable: str = ""
    disruption: Reason | None = None
    gates: tuple[str, ...] = ()
    finalizers: tuple[str, ...] = ()
    failure: Reason | None = None
    others_run: bool = False
    metrics_port: int = names.WORKER_METRICS_PORT
    job: str = ""
    amounts: Mapping[str, int] = field(default_factory=dict)

    @property
    def address(self) -> str:
        """Where it serves its metrics, as host:port; empty before it has an address."""
        host = f"[{self.ip}]" if ":" in self.ip else self.ip
        return f"{host}:{self.metrics_port}" if host else ""

    @property
    def kept(self) -> bool:
        """Whether it is deleted and finalizers keep it."""
        return self.delete_by is not None and bool(self.finalizers)

    @property
    def lives(self) -> bool:
        """Whether it holds its node's resources, or will when it is bound; one that is kept may use its devices yet."""
        return self.phase not in ("Succeeded", "Failed") or self.kept

    @property
    def running(self) -> bool:
        """Whether its worker container runs."""
        return self.phase == "Running" and self.exit is None and self.waiting is None

    @property
    def succeeded(self) -> bool:
        """Whether the worker ended with exit code 0, whatever the other containers do; it may have been told to end."""
        return not self.failed and (self.phase == "Succeeded" or self.exit is not None)

    @property
    def interrupted(self) -> bool:
        """Whether somebody takes the pod away."""
        return self.delete_by is not None or self.disruption is not None

    @property
    def failed(self) -> bool:
        """Whether the worker ended badly, an init container did before it, or the pod as a whole."""
        ended_badly = self.phase == "Failed" if self.exit is None else self.exit.code != 0
        return ended_badly or self.failure is not None

    @property
    def not_started(self) -> Reason | None:
        """Why its node cannot start one of its containers, or does not take it; None while time may cure that."""
        if self.failure and self.failure.reason in UNFIT_REASONS:
            return self.failure
        if self.exit and (self.exit.reason in _NOT_STARTED or _NOT_EXECUTED.fullmatch(self.exit.message)):
            where = f"init container {self.exit.container}: " if self.exit.container else ""
            return Reason(self.exit.reason, where + self.exit.message)
        waits = None if self.ended else self.waiting
        return waits if waits and waits.reason in STUCK_REASONS else None

    @property
    def initializing(self) -> bool:
        """Whether the worker waits for an init container, or for a native sidecar, that its node has started."""
        return self.waiting is not None and self.waiting.reason in (INIT_RUNS, SIDECAR_NOT_STARTED, _CRASHES)

    @property
    def ended(self) -> bool:
        """Whether the worker will do nothing any more."""
        return self.succeeded or self.failed


def reason_of(text: str, otherwise: str = "Unknown") -> str:
    """A reason as anyone may give it -> the PascalCase word that a status and an event hold.

    >>> reason_of("ImagePullBackOff"), reason_of("evicted_by team/a"), reason_of("OutOfnvidia.com/gpu"), reason_of("42")
    ('ImagePullBackOff', 'EvictedByTeamA', 'OutOfResource', 'Unknown')
    """
    words = re.findall(r"[A-Za-z0-9]+", text)
    if text.startswith(KUBELET_REFUSES) and len(words) > 1:
        return _FULL
    found = "".join(word[0].upper() + word[1:] for word in words).lstrip("0123456789")[:_MAX_REASON]
    return found[:1].upper() + found[1:] or otherwise
