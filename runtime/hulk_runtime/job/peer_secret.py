"""The file with the job's secret -> its bytes: ranks know each other by them, and sign their checkpoints."""

from typing import Final

from hulk_runtime.errors import ConfigurationError

MIN_SECRET_BYTES: Final = 16


def read(path: str) -> bytes:
    """The secret; empty where the job has none, so that no path is named. Raises ConfigurationError."""
    if not path:
        return b""
    try:
        with open(path, "rb") as file:
            secret = file.read()
    except OSError as error:
        raise ConfigurationError(f"the peers' secret cannot be read: {error}") from error
    if len(secret) < MIN_SECRET_BYTES:
        raise ConfigurationError(f"the peers' secret has {len(secret)} bytes: at least {MIN_SECRET_BYTES} are needed")
    return secret
