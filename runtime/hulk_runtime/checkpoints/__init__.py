"""Checkpoints behind a URL: objects, manifests fenced by attempt, and the parts that the stages of a pipeline write."""
