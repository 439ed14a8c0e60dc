"""Several models on shared devices: SHARP beside other ways, real on small devices, and simulated as published."""
