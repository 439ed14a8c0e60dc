"""An API server without etcd, admission or validation: the protocol of the real one, over objects in memory."""
