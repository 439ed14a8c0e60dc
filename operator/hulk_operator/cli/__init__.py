"""`hulk`, also `kubectl hulk`: plans, shows and explains jobs. Nothing here writes to a cluster."""

from hulk_operator.cli.app import main

__all__ = ["main"]
