"""Turns what the cluster holds (HulkJobs, Nodes, NodeProfiles, HulkTopology) into what the planner takes."""
