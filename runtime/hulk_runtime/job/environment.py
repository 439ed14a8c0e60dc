"""Turns a pod's environment variables into one frozen value, once, at the edge."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from hulk_runtime import names
from hulk_runtime.errors import ConfigurationError

DEFAULT_RENDEZVOUS_S = 300.0
DEFAULT_SILENCE_S = 60.0
DEFAULT_START_S = 20.0
DEFAULT_STAY_S = 120.0
DEFAULT_GRACE_S = 30.0
DEFAULT_CHECKPOINT_EVERY_STEPS = 50
DEFAULT_CHECKPOINT_KEEP = 3


@dataclass(frozen=True, slots=True)
class Checkpointing:
    """Where checkpoints go (`url`), how often, and how many are kept.

    `committed_step`: of the last one that the operator knows of; 0 = of none. `trusts_store`: the job goes on from what
    it has not signed, too.
    """

    url: str
    every_steps: int
    num_kept: int
    committed_step: int = 0
    trusts_store: bool = False

    def __post_init__(self) -> None:
        if self.every_steps < 1 or self.num_kept < 1:
            raise ValueError(f"checkpoint every {self.every_steps} steps, keep {self.num_kept}: both must be > 0")


@dataclass(frozen=True, slots=True)
class Environment:
    """One rank's place in the job. `start_s` bounds the wait for go.

    It listens for the other ranks' sums at `collective_port`: of a pod's first rank, each further one has the next; 0
    means any.

    `rendezvous_s` bounds joining and the wait for a peer before the first step; `silence_s` that in training.
    """

    job: str
    job_uid: str
    attempt: int
    worker: int
    rank: int
    world_size: int
    local_rank: int
    master_address: str
    master_port: int
    metrics_port: int
    start_digest: str
    collective_port: int
    plan_path: str
    peer_secret_path: str
    checkpointing: Checkpointing | None
    rendezvous_s: float
    silence_s: float
    start_s: float
    pipeline_log: str = ""
    """A folder for what each rank of a pipeline did when."""

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"rank {self.rank} is not in a world of {self.world_size}")


def read(environ: Mapping[str, str]) -> Environment:
    """Read one rank's environment. Raises ConfigurationError that names the variable.

    >>> e = read({"RANK": "1", "WORLD_SIZE": "2", "HULK_JOB": "team/demo", "HULK_ATTEMPT": "3"})
    >>> e.rank, e.world_size, e.job, e.attempt, e.master_port, e.checkpointing
    (1, 2, 'team/demo', 3, 29400, None)
    """
    try:
        return Environment(
            job=environ.get(names.ENV_JOB, "local/local"),
            job_uid=environ.get(names.ENV_JOB_UID, ""),
            attempt=integer(environ, names.ENV_ATTEMPT, 1),
            worker=integer(environ, names.ENV_WORKER, 0),
            rank=integer(environ, names.ENV_RANK, 0),
            world_size=integer(environ, names.ENV_WORLD_SIZE, 1),
            local_rank=integer(environ, names.ENV_LOCAL_RANK, 0),
            master_address=environ.get(names.ENV_MASTER_ADDR, "127.0.0.1"),
            master_port=integer(environ, names.ENV_MASTER_PORT, names.MASTER_PORT),
            metrics_port=integer(environ, names.ENV_METRICS_PORT, names.WORKER_METRICS_PORT),
            start_digest=environ.get(names.ENV_START_DIGEST, ""),
            collective_port=_collective_port(environ),
            plan_path=environ.get(names.ENV_PLAN, names.PLAN_PATH),
            peer_secret_path=environ.get(names.ENV_PEER_SECRET, ""),
            checkpointing=_checkpointing(environ),
            rendezvous_s=number(environ, names.ENV_RENDEZVOUS_SECONDS, DEFAULT_RENDEZVOUS_S),
            silence_s=number(environ, names.ENV_SILENCE_SECONDS, DEFAULT_SILENCE_S),
            pipeline_log=environ.get(names.ENV_PIPELINE_LOG, ""),
            start_s=number(environ, names.ENV_START_SECONDS, DEFAULT_START_S),
        )
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _collective_port(environ: Mapping[str, str]) -> int:
    """
    >>> _collective_port({"LOCAL_RANK": "1"}), _collective_port({"LOCAL_RANK": "1", "HULK_COLLECTIVE_PORT": "0"})
    (29402, 0)
    """
    first = integer(environ, names.ENV_COLLECTIVE_PORT, names.COLLECTIVE_PORT)
    return first and first + integer(environ, names.ENV_LOCAL_RANK, 0)


def _checkpointing(environ: Mapping[str, str]) -> Checkpointing | None:
    url = environ.get(names.ENV_CHECKPOINT_URL, "")
    if not url:
        return None
    return Checkpointing(
        url,
        integer(environ, names.ENV_CHECKPOINT_EVERY_STEPS, DEFAULT_CHECKPOINT_EVERY_STEPS),
        integer(environ, names.ENV_CHECKPOINT_KEEP, DEFAULT_CHECKPOINT_KEEP),
        integer(environ, names.ENV_CHECKPOINT_STEP, 0),
        bool(integer(environ, names.ENV_CHECKPOINT_TRUST_STORE, 0)),
    )


def number(environ: Mapping[str, str], name: str, default: float) -> float:
    """A number >= 0 from the environment. Raises ConfigurationError that names the variable."""
    text = environ.get(name, "")
    try:
        value = float(text) if text else default
    except ValueError:
        raise ConfigurationError(f"{name}={text!r} is not a number") from None
    if not (math.isfinite(value) and value >= 0):
        raise ConfigurationError(f"{name}={text!r} must be >= 0 and finite")
    return value


def integer(environ: Mapping[str, str], name: str, default: int) -> int:
    """A whole number from the environment. Raises ConfigurationError that names the variable."""
    text = environ.get(name, "")
    try:
        return int(text) if text else default
    except ValueError:
        raise ConfigurationError(f"{name}={text!r} is not a whole number") from None
