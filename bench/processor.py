"""What this process has used of the processors."""

import resource


def cpu_s() -> float:
    """Processor seconds so far, its own and the kernel's for it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
