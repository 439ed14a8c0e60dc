"""`hulk-lab`: the lab's commands, thin over the modules that do the work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from hulk_lab import addons, kwok, node, paths, reset, spec, status, up
from hulk_lab import demo as demonstration
from hulk_lab.builds import everything, images
from hulk_lab.builds.golang import link_programs
from hulk_lab.errors import LabError
from hulk_lab.kube import Kube
from hulk_lab.progress import Progress
from hulk_lab.spec import KwokSpec, LabSpec
from hulk_lab.wan import check, relay

DEFAULT_FILE = paths.REPOSITORY / "lab" / "default.yaml"
_ERRORS = (LabError, ValueError, OSError)

app = typer.Typer(
    help="A real multi-region Kubernetes on this machine.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
console = Console(highlight=False, width=None if sys.stdout.isatty() else 160)
progress = Progress(Console(highlight=False, stderr=True))

LabName = Annotated[str, typer.Option("--lab", help="Labs with two names can be up at once.")]
LabFile = Annotated[Path, typer.Option("--file", "-f", help="What the lab looks like.")]
Source = Annotated[str, typer.Argument(help="Region that sends.")]
Target = Annotated[str, typer.Argument(help="Region that receives.")]
NodeName = Annotated[str, typer.Argument(metavar="NODE")]


@app.command("up")
def up_command(
    lab: LabName = "hulk",
    file: LabFile = DEFAULT_FILE,
    control_plane_only: Annotated[bool, typer.Option(help="No real nodes: a control plane with kwok.")] = False,
    kwok_nodes: Annotated[int, typer.Option(help="Simulated nodes beside (or instead of) the file's.")] = -1,
    kueue: Annotated[bool, typer.Option(help="Kueue's own controller as well; its first build takes long.")] = False,
) -> None:
    """Build what is missing and bring the lab up."""
    _say_where(up.up(read(file, lab, control_plane_only, kwok_nodes, kueue), progress))


def read(file: Path, lab: str, control_plane_only: bool = False, kwok_nodes: int = -1, kueue: bool = False) -> LabSpec:
    """The lab that a file and the command's options describe together."""
    wanted = spec.load(file, lab)
    if control_plane_only:
        wanted = LabSpec(name=lab, kwok=KwokSpec(nodes=max(1, wanted.kwok.nodes)))
    if kwok_nodes >= 0:
        simulated = wanted.kwok.model_copy(update={"nodes": kwok_nodes})
        wanted = LabSpec.model_validate(wanted.model_copy(update={"kwok": simulated}).model_dump())
    return wanted.model_copy(update={"kueue": True}) if kueue else wanted


@app.command()
def down(
    lab: LabName = "hulk",
    everything: Annotated[bool, typer.Option("--all", help="Every lab of this machine, whoever started it.")] = False,
    prefix: Annotated[str, typer.Option(help="Every lab whose name begins so.")] = "",
    keep_logs: Annotated[bool, typer.Option(help="Leave the lab's logs for reading.")] = False,
) -> None:
    """Remove every process, mount, group, namespace, interface and file of the lab, also after a SIGKILL of it."""
    several = [name for name in up.recorded() if name.startswith(prefix)]
    for name in several if everything or prefix else [lab]:
        up.down(name, progress, keep_logs=keep_logs)


@app.command("status")
def status_command(lab: LabName = "hulk") -> None:
    """Show nodes, links and processes as they are now."""
    running = up.find(lab)
    for table in status.tables(running):
        console.print(table)
    _say_where(running)


@app.command("exec", context_settings={"ignore_unknown_options": True})
def exec_command(
    name: NodeName, command: Annotated[list[str], typer.Argument(metavar="-- COMMAND")], lab: LabName = "hulk"
) -> None:
    """Run a command in a node's network and mounts."""
    inside = [str(word) for word in up.find(lab).node(name).inside(*command)]
    os.execvp(inside[0], inside)


@app.command()
def cut(source: Source, target: Target, lab: LabName = "hulk") -> None:
    """Lose every packet from one region to another until `heal`."""
    relay.cut(up.find(lab).net, source, target)


@app.command()
def slow(
    source: Source,
    target: Target,
    mbit_per_s: Annotated[float | None, typer.Option(help="TCP payload rate.")] = None,
    one_way_ms: Annotated[float | None, typer.Option(help="Delay of this direction.")] = None,
    lab: LabName = "hulk",
) -> None:
    """Change the rate or the delay from one region to another until `heal`."""
    relay.slow(up.find(lab).net, source, target, mbit_per_s=mbit_per_s, one_way_ms=one_way_ms)


@app.command()
def heal(source: Source, target: Target, lab: LabName = "hulk") -> None:
    """Give one direction what the lab's file says again."""
    relay.heal(up.find(lab).net, source, target)


@app.command("check")
def check_command(lab: LabName = "hulk") -> None:
    """Compare the WAN with the lab's file by ping and iperf3; fails outside 5 %."""
    report = check.check(up.find(lab).net)
    console.print(check.table(report))
    raise typer.Exit(0 if report.ok else 1)


@app.command("kill-node")
def kill_node(name: NodeName, lab: LabName = "hulk") -> None:
    """What a power cut does to a node: silence on the network, no process left, pods included."""
    node.kill(up.find(lab).node(name))


@app.command("start-node")
def start_node(name: NodeName, lab: LabName = "hulk") -> None:
    """Start a node again; returns when it is Ready."""
    with progress.stage("start node", name):
        node.start(up.find(lab).node(name))


@app.command("reset")
def reset_command(lab: LabName = "hulk") -> None:
    """Heal links and nodes and delete what users made, without taking the lab down."""
    with progress.stage("reset", lab):
        reset.reset(up.find(lab))


@app.command("kwok")
def kwok_command(
    count: Annotated[int, typer.Argument(help="How many; 0 removes all.")],
    regions: int = 4,
    accelerators: int = 16,
    lab: LabName = "hulk",
) -> None:
    """Have this many simulated nodes, beside the real ones."""
    control = up.find(lab).control
    with progress.stage("simulated nodes", str(count)):
        kwok.remove_nodes(control)
        if count:
            kwok.add_nodes(control, KwokSpec(nodes=count, regions=regions, accelerators=accelerators))


@app.command()
def build(kueue: Annotated[bool, typer.Option(help="Kueue as well, which takes long.")] = False) -> None:
    """Only build: programs, wheels, images."""
    everything.build(progress, extra=up.extra_parts(kueue))


@app.command()
def image(
    load: Annotated[bool, typer.Option(help="Also put the image on every node of the lab.")] = False,
    lab: LabName = "hulk",
) -> None:
    """Print the Dockerfile's build context, made from the checkout, for your own `docker build`; needs no root."""
    if load:
        built = everything.build(progress)
        with progress.stage("load image", images.HULK_REFERENCE):
            up.load_images(up.find(lab), built)
    print(images.hulk_context())


@app.command()
def demo(
    lab: LabName = "hulk",
    file: LabFile = DEFAULT_FILE,
    cluster: Annotated[
        Path | None, typer.Option(envvar="KUBECONFIG", help="A cluster of your own instead of the lab.")
    ] = None,
    image: Annotated[str, typer.Option(help="Hulk's image, as nodes of your own cluster name it.")] = (
        images.HULK_REFERENCE
    ),
    picture: Annotated[Path | None, typer.Option(help="Also write what is printed to this file, as SVG.")] = None,
) -> None:
    """Bring the lab up, install Hulk with Helm and train examples/hulkjob.yaml across its regions."""
    story = demonstration.Story()
    if cluster is not None and not cluster.is_relative_to(paths.STATES):
        target = demonstration.Target(Kube(cluster, _own_programs()), image)
    else:
        running = up.up(read(file, lab), progress)
        story.title("The lab is Ready")
        prometheus = addons.prometheus_url(running.net)
        build = images.chosen_archive(running.state, images.HULK_REFERENCE).stem
        target = demonstration.Target(running.kube, images.HULK_REFERENCE, build, running.net, prometheus)
    raise typer.Exit(demonstration.run(target, paths.REPOSITORY, story, picture))


def _own_programs() -> str:
    """The user's kubectl and helm; the lab's where one is missing."""
    folder = paths.CACHE / "programs"
    if not (shutil.which("kubectl") and shutil.which("helm")):
        everything.build(progress, with_nodes=False)
        link_programs(folder)
    return up.program_path(folder)


def _say_where(lab: up.Lab) -> None:
    settings = f"KUBECONFIG={lab.control.kubeconfig} PATH={lab.state / 'bin'}:$PATH"
    console.print(f"lab {lab.spec.name} is up:  export {settings}", soft_wrap=True)


def main() -> None:
    """Entry point: what a user can fix is a sentence, not a traceback."""
    try:
        os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{paths.SYSTEM_PROGRAMS}"
        app()
    except _ERRORS as error:
        console.print(f"[red]hulk-lab:[/red] {error}", soft_wrap=True)
        sys.exit(1)
    except subprocess.CalledProcessError as error:
        words = error.stderr.decode() if isinstance(error.stderr, bytes) else error.stderr
        console.print(f"[red]hulk-lab:[/red] {error}\n{words or ''}", soft_wrap=True, markup=False)
        sys.exit(1)


if __name__ == "__main__":
    main()
