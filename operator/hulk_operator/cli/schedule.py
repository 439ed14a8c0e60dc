"""`hulk schedule`: finds in which order devices compute the blocks of a pipeline, and draws it."""

from pathlib import Path
from typing import Annotated

import typer
from hulk_placement.report.schedule import html as pages
from hulk_placement.schedule.found import DEFAULT_S
from hulk_placement.schedule.search import MODES

from hulk_operator.cli.gantt import schedule_table
from hulk_operator.cli.output import Output, emit, note
from hulk_operator.cli.schedule_search import OPTIMAL, SEARCHED, Search, Shaped, scheduled


def schedule(
    placement: Annotated[
        str, typer.Option("-p", "--placement", help="v, interleaved, wave, x, m, nn, k, or a file of kind Placement.")
    ],
    micro_batches: Annotated[int, typer.Option("-n", "--micro-batches", help="How many there are.")],
    devices: Annotated[
        int | None, typer.Option(help="Of a ready-made placement. Default: 4.", show_default=False)
    ] = None,
    memory: Annotated[
        str | None,
        typer.Option(help="What each device has, or all of them with commas (8,16,16,8). Default: no limit."),
    ] = None,
    forward_span: Annotated[
        float | None, typer.Option(help="Of a ready-made placement's forward blocks. Default: 1.", show_default=False)
    ] = None,
    backward_span: Annotated[
        float | None, typer.Option(help="Of its backward blocks. Default: 3.", show_default=False)
    ] = None,
    links: Annotated[Path | None, typer.Option(help="Links between devices: kind Links.")] = None,
    forward_only: Annotated[bool, typer.Option("--forward-only", help="Leave backward blocks out.")] = False,
    split_weights: Annotated[
        bool, typer.Option("--split-weights", help="Compute gradients of weights in blocks of their own, half as long.")
    ] = False,
    mode: Annotated[str, typer.Option(help=f"How: {', '.join(MODES)}.")] = SEARCHED,
    time_optimal: Annotated[
        bool, typer.Option("--time-optimal", help="The shortest of all, for few micro-batches: --mode optimal.")
    ] = False,
    seconds: Annotated[float, typer.Option(help="For the search.")] = DEFAULT_S,
    seed: Annotated[int, typer.Option(help="What the search draws by.")] = 0,
    html: Annotated[Path | None, typer.Option(help="Write a page that shows the schedule to this file.")] = None,
    svg: Annotated[Path | None, typer.Option(help="Write the drawing alone to this file.")] = None,
    output: Annotated[
        Output, typer.Option("-o", "--output", help="table for people, json or yaml for programs.")
    ] = Output.TABLE,
) -> None:
    """Find the order in which devices compute the blocks of a pipeline, and draw it: nothing is run."""
    shaped = Shaped(placement, devices, forward_span, backward_span, links, forward_only, split_weights)
    if time_optimal and mode not in (SEARCHED, OPTIMAL):
        raise ValueError(f"--time-optimal is --mode {OPTIMAL}: it does not go with --mode {mode}")
    view = scheduled(shaped, Search(micro_batches, memory, seconds, seed, OPTIMAL if time_optimal else mode))
    for path, text in ((html, pages.page), (svg, pages.svg)):
        if path is not None:
            path.write_text(text(view), encoding="utf-8")
            note(f"wrote {path}")
    emit(view.model_dump(mode="json"), schedule_table(view), output)
