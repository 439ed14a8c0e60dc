"""`python -m bench.plans`: see `question`."""

from bench.plans.question import main

main()
