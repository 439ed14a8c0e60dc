"""Whether the value network helps to divide machines among jobs."""
