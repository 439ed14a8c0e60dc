"""The Kubernetes side of Hulk: turns HulkJobs and measured nodes into planned, running gangs of pods."""

from functools import cache


@cache
def version() -> str:
    """The installed version; looking it up loads a parser of mail headers, which most commands need not."""
    from importlib.metadata import version as installed

    return installed("hulk-operator")
