"""How long the replicas' all-reduces take: the crate's `closed_form::{sync, rings, wan, tied}`."""

from __future__ import annotations

from hulk_native import edge_seconds, holds_tie, ring_cut, slack_seconds, tied_seconds

from hulk_placement.cost.gloo import SOFTWARE_S

__all__ = ["GLOO", "SOFTWARE_S", "WAN", "edge_seconds", "holds_tie", "ring_cut", "slack_seconds", "tied_seconds"]

GLOO, WAN = 1, 2
"""Bits of `Setting.transports`."""
