"""Whether the all-reduce's Python thread slows the training beside it, and at which rate it is itself the limit."""
