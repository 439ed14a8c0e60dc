"""Which machines train a workload: feasibility, the choice of machines, the baselines it must beat."""
