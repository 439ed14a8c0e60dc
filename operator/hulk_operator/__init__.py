"""The Kubernetes side of Hulk: turns HulkJobs and measured nodes into planned, running gangs of pods."""
