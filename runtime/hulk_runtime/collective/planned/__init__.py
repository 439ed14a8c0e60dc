"""What the plan says of an all-reduce, and what each rank does for it."""
