"""Writes docs/reference/metrics.md, or with --check fails when the file there is stale."""

import argparse
import sys
from pathlib import Path
from typing import Final

from hulk_operator.metrics.reference import page

PATH: Final = Path("docs/reference/metrics.md")


def main() -> int:
    """Exit status: 1 when --check finds the file stale."""
    parser = argparse.ArgumentParser(prog="python -m hulk_operator.metrics", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    if not check:
        PATH.write_text(page())
    elif not PATH.exists() or PATH.read_text() != page():
        sys.stderr.write(f"{PATH} is stale: run `make generate` and commit it\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
