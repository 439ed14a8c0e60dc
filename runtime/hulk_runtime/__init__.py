"""What runs inside the pods: the measuring agent, the launcher, training and its progress."""
