"""Pipelines over regions in the geo lab: what the order of blocks is worth, and whether it was foreseen."""
