"""Benchmarks: they print ratios measured within one run, and keep simulated and measured figures apart."""
