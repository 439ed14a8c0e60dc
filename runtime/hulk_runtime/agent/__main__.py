"""Entry of the DaemonSet: run the agent until SIGTERM or SIGINT, then leave nothing behind."""

import asyncio
import logging
import shutil
import signal
import sys

from hulk_runtime import errors
from hulk_runtime.agent import iperf, tasks
from hulk_runtime.agent.service import opened
from hulk_runtime.agent.settings import Settings, from_environment
from hulk_runtime.errors import BackgroundError, ConfigurationError

log = logging.getLogger(__name__)


async def serve(settings: Settings) -> None:
    """Run one agent until the process is told to stop."""
    async with opened(settings) as agent:
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        log.info("agent of %s answers echoes at %s, port %d", settings.node, ", ".join(settings.hosts), agent.echo.port)
        await tasks.first_of(agent.run(), stop.wait())
        log.info("told to stop")


def main() -> None:
    """Console script `hulk-agent`."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        settings = from_environment()
        if shutil.which(iperf.PROGRAM) is None:
            raise ValueError(f"the program {iperf.PROGRAM} is not in PATH")
    except ValueError as error:
        sys.stderr.write(f"hulk-agent: {error}\n")
        sys.exit(ConfigurationError.exit_code)
    try:
        asyncio.run(serve(settings))
    except BackgroundError as error:
        sys.exit(errors.report(error))


if __name__ == "__main__":
    main()
