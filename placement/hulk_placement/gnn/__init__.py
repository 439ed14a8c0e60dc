"""The value network: what a job's step takes on a share of all pools, guessed for hundreds of shares at once."""
