"""What a pod is and does before it trains: its environment, attempt and plan, its ranks, its answer to SIGTERM."""
