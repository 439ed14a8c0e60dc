"""The Kubernetes side of Hulk: turns HulkJobs and measured nodes into planned, running gangs of pods."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("hulk-operator")
