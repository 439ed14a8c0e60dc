"""The agent's environment, parsed once: who this node is and where its API server is."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hulk_runtime import names

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the agent listens and whom it talks to. Ports are the contract with the other nodes' agents.

    `host` is its address on the pod network, which the others are told, `other_hosts` are those of other families.
    """

    node: str
    host: str
    api_server: str
    token_file: Path
    authority_file: Path | None  # None: the system's own authorities
    echo_port: int = names.AGENT_ECHO_PORT
    http_port: int = names.AGENT_METRICS_PORT
    other_hosts: tuple[str, ...] = ()

    @property
    def hosts(self) -> tuple[str, ...]:
        """Every address to listen at."""
        return (self.host, *self.other_hosts)

    def host_towards(self, peer: str) -> str:
        """The own address of a peer's family; the first where there is none.

        >>> Settings("a", "10.0.0.7", "", Path(), None, other_hosts=("fd00::7",)).host_towards("fd00::9")
        'fd00::7'
        """
        return next((host for host in self.hosts if (":" in host) is (":" in peer)), self.host)


def from_environment(environment: Mapping[str, str] = os.environ) -> Settings:
    """The settings of a pod. `ValueError` naming what is missing.

    >>> from_environment({"NODE_NAME": "node-a", "POD_IP": "10.0.0.7"})
    Traceback (most recent call last):
    ValueError: the environment has no KUBERNETES_SERVICE_HOST, KUBERNETES_SERVICE_PORT
    """
    needed = (names.ENV_NODE_NAME, "POD_IP", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT")
    missing = [name for name in needed if not environment.get(name)]
    if missing:
        raise ValueError(f"the environment has no {', '.join(missing)}")
    node, host, server, port = (environment[name] for name in needed)
    every = environment.get("POD_IPS", host).split(",")
    return Settings(
        node=node,
        host=host,
        api_server=f"https://[{server}]:{port}" if ":" in server else f"https://{server}:{port}",
        token_file=SERVICE_ACCOUNT / "token",
        authority_file=SERVICE_ACCOUNT / "ca.crt",
        other_hosts=tuple(address for address in every if address != host),
    )
