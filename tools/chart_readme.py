"""Writes charts/hulk/README.md from values.yaml and README.md.gotmpl, by helm-docs. `--check` fails when it is stale.

helm-docs is built from its Go module as the lab's programs are, once for a machine.
"""

import subprocess
import sys
from pathlib import Path

from hulk_lab.builds.golang import GO_FOLDER, Part, build

CHART = Path("charts/hulk")
TARGET = CHART / "README.md"
HELM_DOCS = Part("helm-docs", (("github.com/norwoodj/helm-docs/cmd/helm-docs", "helm-docs"),), GO_FOLDER / "helm-docs")


def readme() -> str:
    """The whole page."""
    command = [build(HELM_DOCS) / "helm-docs", f"--chart-search-root={CHART}", "--template-files=README.md.gotmpl"]
    flags = ["--sort-values-order=file", "--dry-run", "--log-level=warning"]
    return subprocess.run([*command, *flags], capture_output=True, text=True, check=True).stdout.rstrip() + "\n"


def main() -> None:
    """Write, or with `--check` compare."""
    text = readme()
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text, encoding="utf-8")
    elif not TARGET.exists() or TARGET.read_text(encoding="utf-8") != text:
        raise SystemExit(f"stale: {TARGET}; run `make generate` and commit it")


if __name__ == "__main__":
    main()
