"""Entry of the DaemonSet: run the agent until SIGTERM or SIGINT, then leave nothing behind."""

import asyncio
import logging
import shutil
import signal
import sys

from hulk_runtime.agent import iperf
from hulk_runtime.agent.service import opened
from hulk_runtime.agent.settings import Settings, from_environment
from hulk_runtime.errors import ConfigurationError

log = logging.getLogger(__name__)


async def serve(settings: Settings) -> None:
    """Run one agent until the process is told to stop."""
    async with opened(settings) as agent:
        running = asyncio.create_task(agent.run())
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, running.cancel)
        log.info("agent of %s answers echoes at %s, port %d", settings.node, ", ".join(settings.hosts), agent.echo.port)
        try:
            await running
        except asyncio.CancelledError:
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
    asyncio.run(serve(settings))


if __name__ == "__main__":
    main()
