"""Several jobs at once: which machines train which model, then how each job is laid out on its own."""
