"""The connections of a rank to its peers: never blocking, paced, warm."""
