"""What this process has used of the processors."""

import resource
import threading
import time


def cpu_s() -> float:
    """Processor seconds so far, its own and the kernel's for it."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def thread_s(thread: threading.Thread) -> float:
    """Of these what one living thread has used."""
    assert thread.ident is not None
    return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
