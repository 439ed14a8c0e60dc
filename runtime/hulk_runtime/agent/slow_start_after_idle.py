"""How TCP treats silent connections on the pod network here, as the kernel says."""

from pathlib import Path
from typing import Final

SYSCTLS: Final = Path("/proc/sys/net/ipv4")


def keeps_windows(sysctls: Path = SYSCTLS) -> bool:
    """Whether congestion windows stay open while connections are silent.

    Linux lets them close unless `tcp_slow_start_after_idle` is 0 or the congestion control paces by itself (BBR). The
    agent is in the pod network, whose namespaces are all set up alike. False where the kernel does not say.
    """

    def said(name: str) -> str:
        path = sysctls / name
        return path.read_text().strip() if path.exists() else ""

    return said("tcp_slow_start_after_idle") == "0" or said("tcp_congestion_control").startswith("bbr")
