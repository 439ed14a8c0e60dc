"""Replicas that train apart over slow links: what the planner chose for them, predicted beside measured."""
