"""Writes the dashboard into the chart, or with --check fails when the file there is stale."""

import argparse
import json
import sys
from pathlib import Path
from typing import Final

from hulk_operator.dashboards.grafana import dashboard

PATH: Final = Path("charts/hulk/files/dashboards/hulk.json")


def main() -> int:
    """Exit status: 1 when --check finds the file stale."""
    parser = argparse.ArgumentParser(prog="python -m hulk_operator.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, compare")
    check = parser.parse_args().check
    text = json.dumps(dashboard(), indent=2) + "\n"
    if not check:
        PATH.write_text(text)
    elif not PATH.exists() or PATH.read_text() != text:
        print(f"{PATH} is stale: run `make generate` and commit it", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
