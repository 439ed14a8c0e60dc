"""All-reduces over the emulated WAN, timed without Kubernetes: namespaces, the relay, one process per node."""
