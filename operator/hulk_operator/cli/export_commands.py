"""`hulk export kueue|volcano`: the cluster's regions, zones and nodes for another scheduler, as YAML for kubectl."""

from collections.abc import Callable, Sequence
from typing import Annotated

import typer
import yaml

from hulk_operator import names
from hulk_operator.cli import exported_topology
from hulk_operator.cli.cluster_reads import Target, cluster_of
from hulk_operator.cli.exported_topology import Place, RoundTrips, kueue_objects, volcano_objects
from hulk_operator.cli.inventory import inventory
from hulk_operator.cli.options import HELP, PLAIN, Context, Kubeconfig, run
from hulk_operator.cluster import Object
from hulk_operator.inputs.node import region

export_app = typer.Typer(context_settings=HELP, no_args_is_help=True, **PLAIN)
Resource = Annotated[str, typer.Option(help="Resource that counts accelerators.")]
Objects = Callable[[Sequence[Place]], list[Object]]


@export_app.command("kueue")
def kueue(resource: Resource = names.DEFAULT_RESOURCE, kubeconfig: Kubeconfig = None, context: Context = None) -> None:
    """Print Kueue's Topology (region, zone, node) and a ResourceFlavor for each region."""
    _print(resource, Target(kubeconfig, context), kueue_objects)


@export_app.command("volcano")
def volcano(
    resource: Resource = names.DEFAULT_RESOURCE, kubeconfig: Kubeconfig = None, context: Context = None
) -> None:
    """Print Volcano's HyperNodes: zones, regions of zones, all regions."""
    _print(resource, Target(kubeconfig, context), volcano_objects)


def _print(resource: str, target: Target, objects: Objects) -> None:
    found, round_trips = run(_read(resource, target))
    print(page(found, round_trips, resource, objects), end="")


def page(found: Sequence[Place], round_trips: RoundTrips, resource: str, objects: Objects) -> str:
    """The objects for `kubectl apply -f -`; what to do before is in comments."""
    comments = [f"# {line}" for line in exported_topology.summary(found, resource)]
    if commands := list(exported_topology.lacking(found, round_trips)):
        comments += ["# These nodes lack labels, and without them they are in no domain:"]
        comments += [f"#   {command}" for command in commands]
    return "\n".join([*comments, yaml.safe_dump_all(objects(found), sort_keys=False)])


async def _read(resource: str, target: Target) -> tuple[tuple[Place, ...], RoundTrips]:
    """The nodes that offer the resource, and the median round trips that were measured between them."""
    from hulk_operator.probing.link_validation import current

    async with cluster_of(target) as cluster:
        seen = await inventory(cluster)
    nodes = seen.room.nodes
    known = current(seen.accepted.links, {name: region(node) for name, node in nodes.items()})
    round_trips = {link.pair: link.rtt_s for link in known if link.rtt_s is not None}
    return exported_topology.places(nodes, resource), round_trips
