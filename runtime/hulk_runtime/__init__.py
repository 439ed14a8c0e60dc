"""What runs inside the pods: the measuring agent, the launcher, training and its progress.

A program that `hulk-launch` starts needs nothing of it; one that likes to show its loss calls `hulk_runtime.report`.
"""

from hulk_runtime.job.step_record import report

__all__ = ["report"]
