"""The operator's settings, from its environment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from hulk_operator import names
from hulk_operator.reconcile.types import Timing

DEFAULT_LEASE_S: Final = 15


@dataclass(frozen=True, slots=True)
class Settings:
    """How this operator runs. `namespace` None: all namespaces; `identity`: who holds the lease."""

    identity: str
    namespace: str | None = None
    lease_namespace: str = names.DEFAULT_NAMESPACE
    lease_s: int = DEFAULT_LEASE_S
    metrics_port: int = names.OPERATOR_METRICS_PORT
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        if self.lease_s < 1:
            raise ValueError(f"{names.ENV_LEASE_SECONDS}: {self.lease_s} s must be >= 1")
        if not 0 <= self.metrics_port <= 65_535:
            raise ValueError(f"{names.ENV_METRICS_PORT}: {self.metrics_port} must be 0 to 65535")


def from_environment(environ: Mapping[str, str], identity: str) -> Settings:
    """Settings by environment; ValueError that names the variable whose value cannot be.

    >>> from_environment({"HULK_NAMESPACE": "research"}, "pod-1").namespace
    'research'
    """
    return Settings(
        identity=identity,
        namespace=environ.get(names.ENV_NAMESPACE) or None,
        lease_namespace=environ.get(names.ENV_LEASE_NAMESPACE) or names.DEFAULT_NAMESPACE,
        lease_s=_whole(environ, names.ENV_LEASE_SECONDS, DEFAULT_LEASE_S),
        metrics_port=_whole(environ, names.ENV_METRICS_PORT, names.OPERATOR_METRICS_PORT),
    )


def _whole(environ: Mapping[str, str], name: str, default: int) -> int:
    text = environ.get(name) or str(default)
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}: {text!r} must be a whole number") from None
