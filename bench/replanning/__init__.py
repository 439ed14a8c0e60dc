"""What re-planning takes in the geo lab: a node that is lost, a link that drifts."""
