"""What namespaces' quotas still admit while accelerators are given out: the one place where a quota says no."""

from __future__ import annotations

from collections.abc import Mapping

from hulk_placement.words import counted

MANY = 1 << 20
"""Workers that are admitted of a job that needs no accelerator, or whose namespace has no quota."""


class Quotas:
    """The accelerators that each namespace's jobs may have together, less those that are `taken` already.

    `take` changes what is left, below 0 too: what cannot be interrupted is kept beyond a quota. The rest only looks.

    >>> quotas = Quotas({"lab": 8}, {"lab": 3})
    >>> quotas.workers("lab", 2), quotas.workers("other", 2) == MANY
    (2, True)
    >>> quotas.take("lab", 2 * 2)
    >>> quotas.lack("lab", least=1, accelerators_per_worker=2)
    'its least is 1 worker of 2 accelerators, and of the quota of namespace lab 1 accelerator is left'
    """

    def __init__(self, limits: Mapping[str, int], taken: Mapping[str, int] | None = None) -> None:
        self.limits = dict(limits)
        self.left = {namespace: limit - (taken or {}).get(namespace, 0) for namespace, limit in limits.items()}

    def copy(self) -> Quotas:
        """The same, to be taken from by itself."""
        found = Quotas(self.limits)
        found.left = dict(self.left)
        return found

    def take(self, namespace: str, accelerators: int) -> None:
        """Count so many accelerators more of a namespace; fewer, where they are below 0."""
        if namespace in self.left:
            self.left[namespace] -= accelerators

    def workers(self, namespace: str, accelerators_per_worker: int) -> int:
        """How many workers more are admitted."""
        return _admitted(self.left, namespace, accelerators_per_worker)

    def is_ever_enough(self, namespace: str, least: int, accelerators_per_worker: int) -> bool:
        """Whether so many workers would be admitted if the namespace had nothing else."""
        return least <= _admitted(self.limits, namespace, accelerators_per_worker)

    def lack(self, namespace: str, least: int, accelerators_per_worker: int) -> str:
        """The sentence for a job of whose least number of workers that is not admitted."""
        wanted = f"its least is {counted(least, 'worker')} of {counted(accelerators_per_worker, 'accelerator')}, and"
        if self.is_ever_enough(namespace, least, accelerators_per_worker):
            left = max(0, self.left[namespace])
            there = f"{counted(left, 'accelerator')} {'is' if left == 1 else 'are'} left"
            return f"{wanted} of the quota of namespace {namespace} {there}"
        limit, most = self.limits[namespace], _admitted(self.limits, namespace, accelerators_per_worker)
        return f"{wanted} the quota of namespace {namespace}, {counted(limit, 'accelerator')}, admits {most} of them"


def _admitted(accelerators: Mapping[str, int], namespace: str, accelerators_per_worker: int) -> int:
    if namespace not in accelerators or not accelerators_per_worker:
        return MANY
    return max(0, accelerators[namespace] // accelerators_per_worker)
