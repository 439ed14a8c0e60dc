"""Many jobs on one fleet: `decide.decide` says who has which workers now, for the operator and the simulator alike."""
