"""Draws the pictures of docs/how-it-works: `python tools/docs_pictures.py` rewrites docs/how-it-works/img.

Every picture brings its own background, so that it is readable on a light and on a dark page. Bars and schedules show
what `hulk plan` and `hulk schedule` print for examples/planner; the others are drawings.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "how-it-works" / "img"
EXAMPLE = ("plan", "-t", "examples/planner/topology.yaml", "-w", "examples/planner/workload.yaml", "-o", "json")
SCHEDULES = {
    "schedule-v.svg": ("--placement", "v", "--devices", "4", "--micro-batches", "8", "--memory", "16"),
    "pipeline-1f1b.svg": ("--placement", "v", "--devices", "4", "--micro-batches", "8", "--mode", "1f1b"),
}
STYLE = """<style>
svg { color-scheme: light dark; font: 13px system-ui, "Liberation Sans", Arial, sans-serif; }
.paper { fill: #ffffff; } text { fill: #1a1d21; } .soft { fill: #565d66; } .edge { stroke: #565d66; fill: none; }
.box { fill: #eef2f6; stroke: #7d8793; } .a { fill: #8fb8f2; } .b { fill: #f0b878; } .c { fill: #7fcfc4; }
.d { fill: #c3aef0; }
.tip { fill: #565d66; } .bad { stroke: #c0392b; fill: none; } .line { stroke: #d5d9de; }
@media (prefers-color-scheme: dark) {
.paper { fill: #1a1d21; } text { fill: #e9ebee; } .soft { fill: #a7aeb8; } .edge { stroke: #a7aeb8; }
.tip { fill: #a7aeb8; }
.box { fill: #2a3038; stroke: #7d8793; } .a { fill: #2f5fa8; } .b { fill: #8f5a1a; } .c { fill: #1f6f66; }
.d { fill: #5b46a0; }
.bad { stroke: #ff7b6b; } .line { stroke: #30363f; } }
</style>
<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">
<path class="tip" d="M0 0 8 4 0 8z"/></marker></defs>"""


@dataclass
class Picture:
    """An SVG of this size whose elements are added one by one."""

    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, anchor: str = "middle", kind: str = "") -> None:
        self.parts.append(f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" class="{kind}">{escape(words)}</text>')

    def box(self, x: float, y: float, width: float, height: float, words: str = "", kind: str = "box") -> None:
        self.parts.append(f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4" class="{kind}"/>')
        lines = words.split("\n")
        for number, line in enumerate(lines):
            self.text(x + width / 2, y + height / 2 + 5 + 16 * (number - (len(lines) - 1) / 2), line)

    def arrow(self, x: float, y: float, to_x: float, to_y: float, words: str = "", kind: str = "edge") -> None:
        self.parts.append(
            f'<path d="M{x:g} {y:g} {to_x:g} {to_y:g}" class="{kind}" stroke-width="1.6" marker-end="url(#tip)"/>'
        )
        if words:
            self.text((x + to_x) / 2, (y + to_y) / 2 - 6, words, kind="soft")

    def svg(self, title: str) -> str:
        head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" role="img">'
        paper = f'<rect class="paper" width="{self.width}" height="{self.height}" rx="6"/>'
        return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, paper, *self.parts, "</svg>", ""])


def step_parts() -> Picture:
    """Where a step goes, as `hulk plan` says of the example."""
    (job,) = json.loads(hulk(*EXAMPLE))["jobs"]
    picture = Picture(760, 130)
    rows = [(row["part"], row["microseconds"]) for row in job["details"]["step"] if row["microseconds"]]
    total, x = sum(us for _, us in rows), 20.0
    for number, ((name, us), kind) in enumerate(zip(rows, "abcd", strict=False)):
        width = 720 * us / total
        picture.box(x, 40, width, 36, kind=kind)
        picture.box(20 + 176 * number, 96, 12, 12, kind=kind)
        picture.text(37 + 176 * number, 107, f"{name} {us / 1000:.0f} ms", "start")
        x += width
    picture.text(20, 26, f"One step of {job['job']}: {total / 1000:.0f} ms predicted", "start")
    return picture


def ring_order() -> Picture:
    """Three regions on a line: the ring in region order, and the one through the hub (profile A, measured)."""
    picture = Picture(760, 250)
    for left, name, seconds in ((0, "region order", "2.43 s"), (380, "through the hub O", "1.56 s")):
        for x, region in ((70, "P"), (190, "O"), (310, "T")):
            picture.box(left + x - 38, 85, 76, 90)
            picture.text(left + x, 78, region)
            for y, number in ((110, 0), (150, 1)):
                picture.box(left + x - 16, y - 12, 32, 24, f"{region}{number}", "a")
        picture.text(left + 190, 28, f"{name}: {seconds}")
    edges = [((70, 122), (70, 138)), ((86, 150), (174, 110)), ((190, 122), (190, 138)), ((206, 150), (294, 110))]
    for (x, y), (to_x, to_y) in [*edges, ((310, 122), (310, 138))]:
        picture.arrow(x, y, to_x, to_y)
    picture.parts.append('<path d="M310 162C310 245 70 245 60 166" class="bad" stroke-width="2"/>')
    picture.text(190, 240, "slow direct link P-T", kind="soft")
    hub = [((70, 98), (176, 98)), ((206, 104), (294, 104)), ((310, 122), (310, 138)), ((294, 156), (206, 156))]
    for (x, y), (to_x, to_y) in [*hub, ((174, 156), (86, 156)), ((70, 138), (70, 122))]:
        picture.arrow(380 + x, y, 380 + to_x, to_y)
    return picture


def layout() -> Picture:
    """Two replicas of four stages over two regions."""
    picture = Picture(760, 250)
    for x, name in ((20, "region eu"), (390, "region us")):
        picture.box(x, 40, 350, 170)
        picture.text(x + 175, 30, name)
    for replica, y in ((0, 60), (1, 140)):
        for stage in range(4):
            x = 40 + 175 * stage + (20 if stage > 1 else 0)
            picture.box(x, y, 130, 50, f"replica {replica}\nstage {stage}", "abcd"[stage])
            if stage:
                picture.arrow(x - (65 if stage == 2 else 45), y + 25, x - 3, y + 25)
    for stage in range(4):
        x = 105 + 175 * stage + (20 if stage > 1 else 0)
        picture.arrow(x - 8, 112, x - 8, 137)
        picture.arrow(x + 8, 138, x + 8, 113)
    picture.text(
        380,
        234,
        "activations cross the slow link once a micro-batch; gradients are summed inside a region",
        kind="soft",
    )
    return picture


def step_timeline() -> Picture:
    """Two stages, two micro-batches, one all-reduce that starts before the last backward block ends."""
    picture = Picture(760, 220)
    rows = {"stage 0": 40, "link": 85, "stage 1": 130, "all-reduce": 175}
    for name, y in rows.items():
        picture.text(95, y + 20, name, "end")
        picture.parts.append(f'<path d="M110 {y + 34}H745" class="line"/>')
    spans = [
        ("stage 0", 0, 60, "F0", "a"), ("stage 0", 60, 60, "F1", "a"), ("link", 60, 50, "", "c"),
        ("link", 120, 50, "", "c"),
        ("stage 1", 110, 60, "F0", "a"), ("stage 1", 170, 100, "B0", "b"), ("stage 1", 270, 60, "F1", "a"),
        ("stage 1", 330, 100, "B1", "b"), ("link", 270, 50, "", "c"), ("link", 430, 50, "", "c"),
        ("stage 0", 320, 100, "B0", "b"), ("stage 0", 480, 100, "B1", "b"),
        ("all-reduce", 430, 90, "stage 1", "d"), ("all-reduce", 540, 90, "stage 0", "d"),
    ]  # fmt: skip
    for row, start, width, words, kind in spans:
        picture.box(115 + start, rows[row], width, 30, words, kind)
    picture.text(110, 24, "F forward, B backward; between them transfers and sums that share links", "start", "soft")
    return picture


def gap() -> Picture:
    """What lies between a bound and a plan."""
    picture = Picture(760, 150)
    picture.box(20, 50, 480, 34, "no plan is faster than this", "a")
    picture.box(500, 50, 180, 34, "gap", "b")
    for x, words in ((500, "bound"), (590, "the best plan lies in here"), (680, "this plan")):
        picture.text(x, 115 if x != 590 else 135, words)
        if x != 590:
            picture.parts.append(f'<path d="M{x} 44V98" class="edge" stroke-width="1.6"/>')
    picture.text(20, 34, "seconds of a step", "start", "soft")
    return picture


def flows() -> Picture:
    """A vector, its lanes, and two flows."""
    picture = Picture(760, 260)
    picture.text(20, 28, "vector of gradients, cut into lanes (one per node of a region) and flows", "start", "soft")
    for lane in range(2):
        picture.box(20 + 360 * lane, 40, 240, 30, f"lane {lane}: flow 1", "a")
        picture.box(260 + 360 * lane, 40, 120, 30, "flow 2", "c")
    for left, name in ((40, "flow 1: sum at the hub"), (420, "flow 2: direct exchange")):
        for x, y, region in ((60, 200, "a"), (150, 120, "b"), (240, 200, "c")):
            picture.box(left + x - 24, y, 48, 30, region, "a" if left == 40 else "c")
        picture.text(left + 150, 100, name)
    for (x, y), (to_x, to_y) in (((100, 198), (172, 152)), ((280, 198), (208, 152))):
        picture.arrow(x, y, to_x, to_y)
        picture.arrow(to_x + 8, to_y + 2, x + 12, y + 2)
    for (x, y), (to_x, to_y) in (((480, 198), (552, 152)), ((660, 198), (588, 152)), ((508, 210), (632, 210))):
        picture.arrow(x, y, to_x, to_y)
    for (x, y), (to_x, to_y) in (((564, 154), (492, 200)), ((600, 154), (672, 200)), ((632, 222), (508, 222))):
        picture.arrow(x, y, to_x, to_y)
    return picture


def shares() -> Picture:
    """The worked example: what each link carries within 0.1833 s."""
    picture = Picture(760, 190)
    rows = [
        ("a to c", 100, 83.3, "exchange 1/6 MB at 2 MB/s: full", "c"),
        ("a to b", 0, 83.3, "sums 5/6 MB: full until here", "a"),
        ("b to a", 50, 83.3, "results 5/6 MB: full", "b"),
    ]
    for number, (name, start, length, words, kind) in enumerate(rows):
        y, start = 40 + 45 * number, 0 if name == "a to c" else start
        picture.text(80, y + 20, name, "end")
        picture.box(90 + 3.4 * start, y, 3.4 * length, 30, words, kind)
    picture.parts.append(f'<path d="M{90 + 3.4 * 183.3:g} 30V170" class="bad" stroke-width="1.6"/>')
    picture.text(90 + 3.4 * 183.3 - 6, 182, "0.1833 s: everything has arrived", "end")
    picture.text(90, 182, "0", kind="soft")
    return picture


def sharp() -> Picture:
    """Two models of two shards on two devices, one after the other and interleaved."""
    picture = Picture(760, 220)
    one = [(device, 2 * turn + device) for device in (0, 1) for turn in range(3)]
    after = [(device, 6 + at) for device, at in one]
    other = [(1 - device, at) for device, at in one]
    for top, name, second in ((30, "model parallel", after), (130, "interleaved", other)):
        picture.text(20, top - 8, name, "start", "soft")
        for device in range(2):
            picture.text(85, top + 20 + 36 * device, f"device {device}", "end")
        for model, spans in (("A", one), ("B", second)):
            for device, at in spans:
                picture.box(95 + 54 * at, top + 2 + 36 * device, 50, 28, model, "a" if model == "A" else "b")
    return picture


def lab() -> Picture:
    """Namespaces, routers and the relay."""
    picture = Picture(760, 280)
    for left, region, nodes in ((20, "a", ("a-0", "a-1")), (410, "b", ("b-0", "b-1"))):
        for number, node in enumerate(nodes):
            picture.box(left + 10 + 165 * number, 70, 145, 56, f"node {node}\nkubelet, containerd", "a")
            picture.arrow(left + 82 + 165 * number, 128, left + 82 + 165 * number, 158)
        picture.box(left, 160, 330, 38, f"router of region {region} (namespace)", "c")
        picture.arrow(left + 165, 200, 330 if region == "a" else 430, 228)
    picture.box(200, 230, 360, 38, "relay: delay, rate and buffer per direction", "b")
    picture.box(20, 12, 720, 34, "etcd, API server, scheduler: own network, beside the WAN")
    return picture


def hulk(*words: str) -> str:
    """What this command of the CLI prints."""
    command = [str(Path(sys.executable).with_name("hulk")), *words]
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout


def schedule(name: str, *words: str) -> None:
    """Draw by `hulk schedule --svg`, with a background."""
    hulk("schedule", *words, "--svg", str(IMAGES / name))
    head, rest = (IMAGES / name).read_text().split("</style>", 1)
    paper = '<rect width="100%" height="100%" rx="6" class="paper"/>'
    colours = ".paper { fill: #fff; } @media (prefers-color-scheme: dark) { .paper { fill: #1a1d21; } }\n"
    (IMAGES / name).write_text(f"{head}{colours}</style>{paper}{rest}")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    for draw in (step_parts, ring_order, layout, step_timeline, gap, flows, shares, sharp, lab):
        title = (draw.__doc__ or "").strip()
        (IMAGES / f"{draw.__name__.replace('_', '-')}.svg").write_text(draw().svg(title))
    for name, words in SCHEDULES.items():
        schedule(name, *words)


if __name__ == "__main__":
    main()
