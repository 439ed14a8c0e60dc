"""Whether a job's pods can outlive an attempt: they run Hulk's launcher, which starts each one's ranks."""

from hulk_operator import names
from hulk_operator.api import HulkJob
from hulk_operator.pods.host_ports import is_on_host


def stays(job: HulkJob) -> bool:
    """Whether the job's pods can stay from one attempt to the next.

    A program of its own has the rank of one attempt in its environment, and ends with that attempt. Pods on their
    nodes' own network have that attempt's ports, and end with it as well.
    """
    command = (job.spec.template.spec.containers[0].model_extra or {}).get("command") or ()
    launched = isinstance(command, list | tuple) and bool(command) and str(command[0]).split("/")[-1] == names.LAUNCHER
    return launched and not is_on_host(job)
