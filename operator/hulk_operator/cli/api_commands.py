"""`hulk crds` and `hulk version`: what this program brings along."""

from rich.text import Text

import hulk_operator
from hulk_operator import names
from hulk_operator.cli.options import Format
from hulk_operator.cli.output import Output, emit


def crds() -> None:
    """Print the CustomResourceDefinitions, for `kubectl apply --server-side -f -`."""
    from hulk_operator.api.crds import crds as all_crds
    from hulk_operator.api.generate import to_yaml

    print("---\n".join(to_yaml(crd) for crd in all_crds()), end="")


def version(output: Format = Output.TABLE) -> None:
    """Print the version of this program and of the API it knows."""
    found = {"version": hulk_operator.version(), "api": names.API_VERSION}
    emit(found, Text(f"hulk {found['version']} ({found['api']})"), output)
