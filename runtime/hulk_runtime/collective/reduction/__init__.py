"""The vectors of all-reduces: values, what hops carry of them, and their sums. Knows nothing of sockets."""
