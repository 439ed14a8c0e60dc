"""What gloo costs by the planner's closed forms, beside what was measured and beside the event simulation."""
