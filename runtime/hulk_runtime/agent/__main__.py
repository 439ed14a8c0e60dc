"""Entry of the DaemonSet: run the agent until SIGTERM or SIGINT, then leave nothing behind."""

import asyncio
import logging
import os
import shutil
import signal
import sys

from hulk_runtime import errors
from hulk_runtime.agent import iperf, logs, tasks
from hulk_runtime.agent.service import opened
from hulk_runtime.agent.settings import Settings, from_environment
from hulk_runtime.errors import BackgroundError, ConfigurationError

log = logging.getLogger(__name__)


async def serve(settings: Settings, level: logs.Level) -> None:
    """Run one agent until the process is told to stop."""
    async with opened(settings) as agent:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        log.info("agent of %s answers echoes at %s, port %d", settings.node, ", ".join(settings.hosts), agent.echo.port)
        await tasks.first_of(agent.run(), stop.wait(), level.follow())
        log.info("told to stop")


def main() -> None:
    """Console script `hulk-agent`."""
    try:
        level = logs.configure(os.environ)
        settings = from_environment()
        if shutil.which(iperf.PROGRAM) is None:
            raise ValueError(f"the program {iperf.PROGRAM} is not in PATH")
    except ValueError as error:
        sys.stderr.write(f"hulk-agent: {error}\n")
        sys.exit(ConfigurationError.exit_code)
    try:
        asyncio.run(serve(settings, level))
    except BackgroundError as error:
        sys.exit(errors.report(error))


if __name__ == "__main__":
    main()
