"""The operator's settings, from its environment."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hulk_placement.fleet.types import Settings as Fleet
from hulk_placement.replan.decide import Policy

from hulk_operator import names
from hulk_operator.planning.child_process import IDLE_S
from hulk_operator.pods import Instrumentation, ScaleUp
from hulk_operator.probing import Budget
from hulk_operator.reconcile.types import Timing

DEFAULT_LEASE_S: Final = 10
"""Another operator acts within 15 s of a death: it waits for so long, looks every second, and reads the jobs."""
DEFAULT_SETTLE_S: Final = 120
QUEUE_POLICIES: Final = ("gadget", "drf", "srpt", "fifo")
"""Those of `hulk_placement.fleet` that decide by what the operator knows of jobs."""
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
MAX_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class Settings:
    """How this operator runs. `namespace` None: all namespaces; `identity`: who holds the lease.

    `planner_idle_s`: for how long the planner's process is kept for the next problem; a new one takes seconds to load.
    `prometheus_namespaces`: from where workers' metrics are read. `pod_groups`: whether gangs have PodGroups.
    """

    identity: str
    namespace: str | None = None
    lease_namespace: str = names.DEFAULT_NAMESPACE
    lease_s: int = DEFAULT_LEASE_S
    metrics_port: int = names.OPERATOR_METRICS_PORT
    timing: Timing = field(default_factory=Timing)
    probing: Budget = field(default_factory=Budget)
    planner_idle_s: int = IDLE_S
    prometheus_namespaces: tuple[str, ...] = ()
    scale_up: ScaleUp = field(default_factory=ScaleUp)
    pod_groups: bool = False
    instrumentation: Instrumentation = field(default_factory=Instrumentation)
    policy: Policy = field(default_factory=Policy)  # of when a running job moves to another plan
    fleet: Fleet = field(
        default_factory=lambda: Fleet(settle_s=DEFAULT_SETTLE_S)
    )  # of who gets what where jobs compete


def from_environment(environ: Mapping[str, str], identity: str) -> Settings:
    """Settings by environment; ValueError that names the variable whose value cannot be.

    >>> from_environment({"HULK_NAMESPACE": "research"}, "pod-1").namespace
    'research'
    """
    return Settings(
        identity=identity,
        namespace=environ.get(names.ENV_NAMESPACE) or None,
        lease_namespace=environ.get(names.ENV_LEASE_NAMESPACE) or names.DEFAULT_NAMESPACE,
        lease_s=_whole(environ, names.ENV_LEASE_SECONDS, DEFAULT_LEASE_S, at_least=1),
        metrics_port=_whole(environ, names.ENV_METRICS_PORT, names.OPERATOR_METRICS_PORT, at_most=MAX_PORT),
        probing=_probing(environ, Budget()),
        planner_idle_s=_whole(environ, names.ENV_PLANNER_IDLE_SECONDS, IDLE_S, at_least=1),
        prometheus_namespaces=tuple(filter(None, environ.get(names.ENV_PROMETHEUS_NAMESPACES, "").split(","))),
        scale_up=ScaleUp(
            environ.get(names.ENV_PLACEHOLDER_IMAGE) or names.PLACEHOLDER_IMAGE,
            environ.get(names.ENV_PROVISIONING_CLASS) or names.PROVISIONING_CLASS,
        ),
        pod_groups=environ.get(names.ENV_POD_GROUPS) == "true",
        instrumentation=_instrumentation(environ, Instrumentation()),
        fleet=_fleet(environ),
    )


def _probing(environ: Mapping[str, str], default: Budget) -> Budget:
    return Budget(
        max_tests=_whole(environ, names.ENV_PROBING_MAX_TESTS, default.max_tests),
        max_bytes=_whole(environ, names.ENV_PROBING_BYTES_PER_TEST, default.max_bytes, at_least=1),
        bytes_per_hour=_whole(environ, names.ENV_PROBING_BYTES_PER_HOUR, default.bytes_per_hour),
        refresh_s=_whole(environ, names.ENV_PROBING_REFRESH_SECONDS, int(default.refresh_s), at_least=1),
    )


def _instrumentation(environ: Mapping[str, str], default: Instrumentation) -> Instrumentation:
    policy = environ.get(names.ENV_INSTRUMENTATION_PULL_POLICY) or default.pull_policy
    if policy not in PULL_POLICIES:
        raise ValueError(
            f"{names.ENV_INSTRUMENTATION_PULL_POLICY}: {policy!r} must be one of {', '.join(PULL_POLICIES)}"
        )
    return Instrumentation(environ.get(names.ENV_INSTRUMENTATION_IMAGE) or default.image, policy)


def _fleet(environ: Mapping[str, str]) -> Fleet:
    """Quotas and fair shares of namespaces. What quotas promise together may be more than there is."""
    quotas = _by_namespace(environ, names.ENV_QUEUE_QUOTAS)
    for namespace, quota in quotas.items():
        if quota < 0 or quota != int(quota):
            raise ValueError(f"{names.ENV_QUEUE_QUOTAS}: {namespace}: {quota} must be a whole number of at least 0")
    shares = _by_namespace(environ, names.ENV_QUEUE_SHARES)
    for namespace, share in shares.items():
        if not 0 < share < math.inf:
            raise ValueError(f"{names.ENV_QUEUE_SHARES}: {namespace}: {share} must be a number above 0")
    settle_s = _whole(environ, names.ENV_QUEUE_SETTLE_SECONDS, DEFAULT_SETTLE_S)
    policy = environ.get(names.ENV_QUEUE_POLICY) or QUEUE_POLICIES[0]
    if policy not in QUEUE_POLICIES:
        raise ValueError(f"{names.ENV_QUEUE_POLICY}: {policy!r} must be one of {', '.join(QUEUE_POLICIES)}")
    whole = {name: int(quota) for name, quota in quotas.items()}
    return Fleet(policy=policy, quotas=whole, shares=shares, settle_s=settle_s)


def _by_namespace(environ: Mapping[str, str], name: str) -> dict[str, float]:
    """A number for each of some namespaces.

    >>> _by_namespace({"X": '{"research": 4}'}, "X")
    {'research': 4.0}
    """
    text = environ.get(name) or "{}"
    try:
        found = json.loads(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} is no JSON") from None
    numbers = isinstance(found, dict) and all(type(value) in (int, float) for value in found.values())
    if not numbers:
        raise ValueError(f"{name}: {text!r} must be a JSON object of numbers by namespace")
    return {namespace: float(value) for namespace, value in found.items()}


def _whole(environ: Mapping[str, str], name: str, default: int, *, at_least: int = 0, at_most: float = math.inf) -> int:
    text = environ.get(name) or str(default)
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} must be a whole number") from None
    if value < at_least:
        raise ValueError(f"{name}: {value} must be at least {at_least}")
    if value > at_most:
        raise ValueError(f"{name}: {value} must be at most {at_most}")
    return value
