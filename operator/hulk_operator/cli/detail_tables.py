"""A plan's details -> tables for people: where the step goes, every layer's place, memory, links, money, advice."""

from collections.abc import Callable, Iterator

from hulk_placement.report.rows import MemoryRow, StageRow, View
from rich.console import RenderableType
from rich.text import Text

from hulk_operator.cli import units
from hulk_operator.cli.table_format import table

Tables = Iterator[RenderableType]

BAR = 24
MOST_ROWS = 12
MOST_STAGES = 64
MOST_NAMES = 4


def details(view: View) -> Tables:
    """Every table that has rows, each after an empty line."""
    for section in _SECTIONS:
        parts = list(section(view))
        yield from ["", *parts] if parts else []


def _step(view: View) -> Tables:
    made = table("THE STEP GOES TO", "TIME", "SHARE", "", "OVER", numbers=("TIME", "SHARE"))
    for row in view.step:
        over = f"{row.source} -> {row.target}" if row.source else ""
        bar = "#" * max(1, round(row.share * BAR))
        made.add_row(row.part, units.duration(row.microseconds), units.percent(row.share), bar, over)
    yield made


def _stages(view: View) -> Tables:
    has_pins = any(row.pins for row in view.stages)
    headings = ("STAGE", "LAYERS", "FIRST", "LAST", "PARAMETERS", "COMPUTES", "WHERE")
    made = table(*headings, *(["PINNED"] if has_pins else []), numbers=("STAGE", "PARAMETERS", "COMPUTES"))
    for row in view.stages[:MOST_STAGES]:
        made.add_row(
            str(row.stage),
            units.span(row.first_layer, row.last_layer),
            row.first_name,
            row.last_name,
            units.count(row.parameters),
            units.percent(row.compute_share),
            _places(row),
            *(["; ".join(row.pins)] if has_pins else []),
        )
    if len(view.stages) > MOST_STAGES:
        made.add_row("...", f"{len(view.stages) - MOST_STAGES} more (-o json has all)")
    yield made
    for row in view.stages[:MOST_STAGES]:
        if len(row.ring) > 1:
            way = " -> ".join(f"{visit.region} x {visit.replicas}" for visit in row.ring)
            yield Text(f"ring of stage {row.stage}: {way} -> back to the first", style="dim")


def _places(row: StageRow) -> str:
    regions: dict[str, list[str]] = {}
    for place in row.places:
        regions.setdefault(place.region, []).append(place.machine)
    return "; ".join(f"{region}: {few(machines)}" for region, machines in regions.items())


def few(names: list[str] | tuple[str, ...]) -> str:
    """
    >>> few(["a", "b", "c", "d", "e", "f"])
    'a, b, c and 3 more'
    """
    if len(names) <= MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[: MOST_NAMES - 1])} and {len(names) - MOST_NAMES + 1} more"


def _memory(view: View) -> Tables:
    parts = ("PARAMETERS", "GRADIENTS", "OPTIMIZER", "ACTIVATIONS", "RECOMPUTED", "BUFFERS", "FRAMEWORK", "RESERVE")
    numbers = (*parts, "TOTAL", "OF", "VERDICT")
    made = table("MEMORY OF ONE ACCELERATOR", "STAGE", *numbers, numbers=("STAGE", *numbers[:-1]))
    for row in view.memory[:MOST_ROWS]:
        states = (row.parameter_bytes, row.gradient_bytes, row.optimizer_bytes)
        others = (row.activation_bytes, row.recompute_bytes, row.buffer_bytes, row.framework_bytes, row.reserve_bytes)
        sums = (row.total_bytes, row.capacity_bytes)
        sizes = (units.size(part) if part else units.ABSENT for part in (*states, *others, *sums))
        made.add_row(few(row.machines), str(row.stage), *sizes, _verdict(row))
    if len(view.memory) > MOST_ROWS:
        made.add_row(f"... {len(view.memory) - MOST_ROWS} more (-o json has all)")
    yield made


def _verdict(row: MemoryRow) -> Text:
    if row.fits is None:
        return Text("size not known", style="yellow")
    return Text("fits") if row.fits else Text(f"{units.size(row.missing_bytes)} missing", style="bold red")


def _links(view: View) -> Tables:
    numbers = ("RTT", "BANDWIDTH", "ONE FLOW", "STAGES SEND", "GRADIENTS SUMMED", "BUSY")
    made = table("LINK", *numbers, "KNOWN", numbers=numbers)
    for row in view.links[:MOST_ROWS]:
        made.add_row(
            f"inside {row.source}" if row.source == row.target else f"{row.source} -> {row.target}",
            units.duration(row.rtt_microseconds),
            units.rate(row.bandwidth_bytes_per_second),
            units.rate(row.flow_bytes_per_second),
            units.size(row.stage_bytes) if row.stage_bytes else units.ABSENT,
            units.size(row.sync_bytes) if row.sync_bytes else units.ABSENT,
            units.ABSENT if row.busy_share is None else units.percent(row.busy_share),
            f"{row.kind}, own wire" if row.own_wire else row.kind,
        )
    if len(view.links) > MOST_ROWS:
        made.add_row(f"... {len(view.links) - MOST_ROWS} more (-o json has all)")
    if view.links:
        yield made


def _price(view: View) -> Tables:
    if view.price is None:
        return
    made = table("COSTS", "A STEP", "SHARE", numbers=("A STEP", "SHARE"))
    for row in view.price.parts[:MOST_ROWS]:
        made.add_row(row.what, f"{row.per_step:.4g}", units.percent(row.per_step / view.price.per_step))
    if len(view.price.parts) > MOST_ROWS:
        made.add_row(f"... {len(view.price.parts) - MOST_ROWS} more (-o json has all)")
    made.add_row("together", f"{view.price.per_step:.4g}", "")
    yield made


def _advice(view: View) -> Tables:
    if view.advice is None:
        return
    again = view.advice.searched_again_microseconds
    if again is not None and again < view.step_microseconds:
        yield Text(f"searched again, nothing changed: {units.duration(again)} a step", style="yellow")
    if not view.advice.rows:
        does = "make it fit" if view.advice.are_to_fit else "save 0.5 % of the step"
        yield Text(f"Of {view.advice.num_tried} single changes none would {does}.", style="dim")
        return
    title = "ONE CHANGE WOULD MAKE IT FIT" if view.advice.are_to_fit else "ONE CHANGE WOULD HELP"
    made = table(title, "STEP", "SAVES", "PLAN", numbers=("STEP", "SAVES"))
    for row in view.advice.rows[:MOST_ROWS]:
        new = "a new one" if row.is_new_plan else "the same"
        made.add_row(row.change, units.duration(row.step_microseconds), units.percent(row.share), new)
    yield made
    yield Text(
        f"{view.advice.num_tried} changes tried one by one; saves: time of a sequence. They do not add up.", style="dim"
    )


_SECTIONS: tuple[Callable[[View], Tables], ...] = (_step, _stages, _memory, _links, _price, _advice)
