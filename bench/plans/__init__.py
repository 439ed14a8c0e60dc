"""What the planner answers for recorded cases: today's plans beside those of the commit that the table is of."""
