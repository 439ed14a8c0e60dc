"""`python -m bench.gnn.training`: makes the weights of the planner's value network again."""

from __future__ import annotations

import argparse
from pathlib import Path

from bench.gnn.training.train import train


def main() -> None:
    """Train on synthetic clusters, and write the weights."""
    parser = argparse.ArgumentParser(prog="python -m bench.gnn.training", description=main.__doc__)
    parser.add_argument("--seed", type=int, default=0, help="what problems are drawn by")
    parser.add_argument("--problems", type=int, default=600, help="how many are drawn, 20 at least")
    parser.add_argument("--workers", type=int, default=2, help="processes that search them")
    parser.add_argument("--out", type=Path, default=Path("weights"), help="where the weights are written")
    options = parser.parse_args()
    if options.problems < 20 or options.workers < 1:
        parser.error(f"{options.problems} problems must be >= 20, and {options.workers} workers >= 1")
    train(options.seed, options.problems, options.out, options.workers, tell=print)


if __name__ == "__main__":
    main()
