"""How the operator grows with the cluster: one real process against API servers with 500, 2,000 and 5,000 nodes."""
