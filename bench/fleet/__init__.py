"""The fleet's policies beside each other, beside a bound and beside what was published; simulated, nothing is run."""
