"""Scripts that know nothing of Hulk, over the emulated WAN: as they are, and instrumented."""
