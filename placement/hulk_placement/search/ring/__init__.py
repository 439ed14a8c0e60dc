"""The order of a ring: exact over regions, exact over machines where small, improved by local search elsewhere."""
