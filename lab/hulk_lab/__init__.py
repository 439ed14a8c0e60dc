"""The geo lab: a real multi-region Kubernetes on one Linux machine."""
