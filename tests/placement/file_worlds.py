"""Random topologies, workloads and plans, for the round trip through every document."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hulk_placement.files.links import UNKNOWN
from hulk_placement.layer_pins import LayerPin
from hulk_placement.model import (
    OPTIMIZER_BYTES_PER_PARAMETER,
    PRECISIONS,
    Layer,
    LayerTimes,
    Model,
    TimesRow,
    Transformer,
)
from hulk_placement.nccl import Nccl
from hulk_placement.plan import ALGORITHMS, NOT_PREDICTED, Layout, Plan, WorkerSlot
from hulk_placement.sync import COMPRESSIONS, ENCRYPTIONS, ON_REGION_LOSS, Sync
from hulk_placement.topology import Link, LinkKind, Machine, Pair, Topology
from hulk_placement.training_memory import SHARDED, TrainingMemory
from hulk_placement.workload import OBJECTIVES, SHARES, STAGE_TRANSPORTS, Workload
from hypothesis import strategies as st

NAMES = st.text(st.sampled_from("abz09-. é:#'"), min_size=1, max_size=4).filter(lambda name: name == name.strip())
FIGURES = st.floats(min_value=1e-9, max_value=1e18, allow_subnormal=False)
SPEEDS = st.floats(min_value=1, max_value=1e21)
PRICES = st.floats(min_value=0, max_value=1e6)
KINDS = st.sampled_from([kind for kind in LinkKind if kind is not LinkKind.UNKNOWN])
LINKS = st.one_of(
    st.just(UNKNOWN),
    st.builds(
        Link,
        rtt_s=FIGURES,
        bandwidth_bytes_per_s=FIGURES,
        num_streams=st.integers(1, 64),
        age_s=PRICES,
        kind=KINDS,
        flow_bytes_per_s=st.none() | FIGURES,
    ),
    st.builds(
        lambda link, points: replace(link, by_size=tuple(sorted(points.items()))),
        st.builds(Link, rtt_s=st.floats(1e-9, 1.0), bandwidth_bytes_per_s=FIGURES, kind=KINDS),
        st.dictionaries(st.floats(1.0, 1e18), st.floats(1e-9, 1.0), min_size=1, max_size=3),
    ),
)
MACHINE_LINKS = st.one_of(
    LINKS, st.builds(Link, rtt_s=FIGURES, bandwidth_bytes_per_s=FIGURES, kind=KINDS, own_wire=st.just(True))
)
INSIDE = st.builds(Link, FIGURES, FIGURES, kind=st.just(LinkKind.DECLARED))


@st.composite
def directed(draw: st.DrawFn, links: st.SearchStrategy[dict[Pair, Link]]) -> dict[Pair, Link]:
    """Some of the pairs whose way back is there too get a latency each way."""
    found = draw(links)
    for (a, b), link in found.items():
        back = found.get((b, a))
        if a >= b or back is None or link.by_size or back.by_size:  # whose messages take longer than their latency
            continue
        if LinkKind.UNKNOWN not in (link.kind, back.kind) and draw(st.booleans()):
            there_s, back_s = draw(FIGURES), draw(FIGURES)
            if there_s != back_s:
                found[a, b] = replace(link, rtt_s=there_s + back_s, one_way_s=there_s)
                found[b, a] = replace(back, rtt_s=there_s + back_s, one_way_s=back_s)
    return found


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Up to six machines in up to three regions, whose names may be those of machines."""
    regions = draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    names = draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))
    machines = tuple(
        draw(
            st.builds(
                Machine,
                name=st.just(name),
                region=st.sampled_from(regions),
                zone=st.just("") | NAMES,
                num_accelerators=st.integers(0, 16),
                product=st.just("unknown") | NAMES,
                memory_bytes=st.integers(0, 2**53),
                flops_per_s=st.none() | SPEEDS,
                memory_bandwidth_bytes_per_s=st.just(0.0) | FIGURES,
                inside=st.none() | INSIDE,
                price_per_hour=PRICES,
                keeps_windows=st.booleans(),
                nic_bytes_per_s=st.none() | FIGURES,
            )
        )
        for name in names
    )
    used = sorted({machine.region for machine in machines})
    pairs: Any = st.tuples(st.sampled_from(used), st.sampled_from(used))
    of_nodes = st.tuples(st.sampled_from(names), st.sampled_from(names)).filter(lambda pair: pair[0] != pair[1])
    return Topology(
        machines,
        node_links=draw(directed(st.dictionaries(of_nodes, MACHINE_LINKS, max_size=6))) if len(names) > 1 else {},
        region_links=draw(directed(st.dictionaries(pairs, LINKS, max_size=6))),
        uplinks=draw(st.dictionaries(st.sampled_from(used), FIGURES)),
        egress_price_per_gb=draw(st.dictionaries(pairs, PRICES, max_size=4)),
    )


DIGITS = st.integers(1, 2**40)
SECONDS = st.floats(min_value=0, max_value=1e6, allow_subnormal=False)


@st.composite
def models(draw: st.DrawFn) -> Model:
    """Measured or counted layers, the last of which may be tied to the first."""
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    kept = st.integers(0, 2**40)
    layers = [
        Layer(name, draw(DIGITS), draw(FIGURES), draw(FIGURES), draw(kept), draw(kept), 0, draw(kept), draw(kept))
        for name in names
    ]
    if len(layers) > 1 and draw(st.booleans()):
        tied = draw(st.integers(1, layers[0].num_parameters))
        layers[-1] = replace(layers[-1], tied_to=0, tied_parameters=tied)
    seconds = st.lists(SECONDS, min_size=len(layers), max_size=len(layers)).map(tuple)
    backward = seconds.map(lambda some: (1.0 - some[0] / 2e6, *some[1:]))  # some layer takes longer than 0 s
    rows = st.builds(TimesRow, NAMES, st.integers(1, 8), st.integers(1, 8), seconds, backward)
    keys = {"unique_by": lambda row: (row.product, row.tensor, row.micro_batch)}
    times = draw(st.none() | st.lists(rows, min_size=1, max_size=3, **keys).map(lambda some: LayerTimes(tuple(some))))
    return Model(tuple(layers), times=times, num_heads=draw(st.none() | st.integers(1, 64)))


SHAPES = st.builds(
    Transformer,
    layers=st.integers(1, 4),
    hidden=st.sampled_from([8, 16]),
    heads=st.sampled_from([1, 2, 4]),
    sequence_length=st.integers(1, 64),
    vocabulary=st.integers(1, 64),
    feed_forward=st.integers(0, 64),
)
SYNCS = st.one_of(
    st.builds(
        Sync,
        st.sampled_from(["auto", "wan"]),
        compression=st.sampled_from(COMPRESSIONS),
        fixed_shares=st.booleans(),
        encryption=st.sampled_from(ENCRYPTIONS),
    ),
    st.builds(Sync, st.just("local"), inner_steps=st.integers(1, 99), on_region_loss=st.sampled_from(ON_REGION_LOSS)),
    st.just(Sync("ring")),
)


_BYTES = st.none() | st.floats(0, 1e6)
MEMORIES = st.builds(
    TrainingMemory,
    weight_bytes=_BYTES,
    gradient_bytes=_BYTES,
    optimizer_bytes=_BYTES,
    bucket_bytes=_BYTES,
    sharded=st.sampled_from(SHARDED),
    is_sequence_parallel=st.booleans(),
    activation_shares=st.dictionaries(st.integers(1, 64), st.floats(0.01, 1), max_size=2).map(
        lambda shares: tuple(shares.items())
    ),
    framework_bytes=st.none() | st.integers(0, 1 << 40).map(float),
    reserve_share=st.none() | st.floats(0, 1),
)

NCCLS = st.builds(
    Nccl,
    num_channels=st.integers(1, 64),
    buffer_bytes=st.integers(1 << 10, 1 << 30),
    num_sockets=st.integers(1, 64),
    window_bytes=st.integers(1 << 10, 1 << 30),
    algorithm=st.sampled_from([None, "ring", "tree"]),
    protocol=st.sampled_from([None, "Simple", "LL", "LL128"]),
)


@st.composite
def workloads(draw: st.DrawFn, topology: Topology) -> Workload:
    """A workload without contradictions on some of the topology's machines."""
    chosen = draw(st.lists(st.sampled_from(topology.machines), min_size=1, unique_by=lambda machine: machine.name))
    precision = draw(st.sampled_from(PRECISIONS))
    model = draw(models() | SHAPES.map(lambda shape: Model.of(shape, precision)))
    each = draw(st.integers(1, 4))
    fewest = draw(st.integers(1, 4))
    batch = draw(st.integers(1, 1000))
    layers = st.lists(st.integers(0, model.num_layers - 1), min_size=1, unique=True).map(
        lambda some: tuple(sorted(some))
    )
    names = [machine.name for machine in chosen]
    speeds = draw(st.dictionaries(st.sampled_from(names), SPEEDS))
    is_priced = all(machine.price_per_hour for machine in chosen)
    return Workload(
        key=draw(NAMES),
        model=model,
        global_batch=batch,
        candidates={machine.name: machine.num_accelerators // each for machine in chosen},
        min_workers=fewest,
        max_workers=draw(st.integers(fewest, 99)),
        accelerators_per_worker=each,
        priority=draw(st.integers(-9, 9)),
        micro_batch=draw(st.none() | st.integers(1, batch)),
        precision=precision,
        optimizer=draw(st.sampled_from(tuple(OPTIMIZER_BYTES_PER_PARAMETER))),
        data=None,
        pipeline=draw(st.sampled_from([None, 1])),
        tensor=None,
        shares=draw(st.sampled_from(SHARES)),
        recompute=draw(st.sampled_from([None, True, False])),
        objective=draw(st.sampled_from(OBJECTIVES)) if is_priced else "time",
        max_price_per_hour=draw(st.none() | st.floats(1e8, 1e18)) if is_priced else None,
        allow_unknown_links=draw(st.booleans()),
        layer_pins=draw(
            st.lists(st.builds(LayerPin, layers, machines=st.just((chosen[0].name,))), max_size=2).map(tuple)
        ),
        regions=draw(st.sampled_from([(), tuple(dict.fromkeys(machine.region for machine in chosen))])),
        flops_per_s=speeds,
        likely_flops_per_s={name: draw(SPEEDS) for name in list(speeds)[1:]},
        measured_micro_batch={name: draw(st.integers(1, 64)) for name in list(speeds)[:1]},
        sync=draw(SYNCS),
        memory=draw(MEMORIES),
        stage_transport=draw(st.sampled_from([None, *STAGE_TRANSPORTS])),
        nccl=draw(NCCLS),
        optimizer_s=draw(st.none() | SECONDS),
        step_overhead_s=draw(SECONDS),
        end_collectives=draw(st.integers(0, 9)),
    )


MODEL = Model.of_totals(1000, 1e9, 100)


@st.composite
def plans(draw: st.DrawFn) -> tuple[Plan, Workload, Topology]:
    """A plan that fits a workload and a topology, which are drawn around it."""
    layout = Layout(draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.integers(1, 3)))
    names = draw(st.lists(NAMES, min_size=1, max_size=4, unique=True))
    topology = Topology(tuple(Machine(name, "eu", num_accelerators=27) for name in names))
    cells = [draw(st.sampled_from(names)) for _ in range(layout.data * layout.pipeline)]
    joined = draw(st.booleans()) and len(set(cells)) == 1
    workers = [WorkerSlot(name, "eu", layout.tensor) for name in cells]
    num_layers = draw(st.integers(layout.pipeline, 8))
    later = draw(st.permutations(range(1, num_layers)))[: layout.pipeline - 1]
    micro_batch, num_micro_batches = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    is_explicit = draw(st.booleans())
    passes = tuple((kind, number) for kind in "FB" for number in range(num_micro_batches))
    shares = [micro_batch * (num_micro_batches if is_explicit else draw(st.integers(1, 5))) for _ in range(layout.data)]
    order = st.permutations(range(layout.data)).map(tuple)
    model = replace(MODEL, layers=tuple(replace(MODEL.layers[0], name=f"layers.{n}") for n in range(num_layers)))
    plan = Plan(
        key=draw(NAMES),
        attempt=draw(st.integers(1, 9)),
        workers=(WorkerSlot(cells[0], "eu", layout.num_ranks),) if joined else tuple(workers),
        shares=tuple(shares),
        micro_batch=micro_batch,
        num_buckets=draw(st.integers(1, 4)),
        prediction=NOT_PREDICTED,
        layout=layout,
        algorithm=draw(st.sampled_from([name for name in ALGORITHMS if name != "wan"])),
        inner_steps=draw(st.none() | st.integers(1, 9)),
        stages=(0, *sorted(later)),
        schedule="explicit" if is_explicit else draw(st.sampled_from(["1f1b", "gpipe"])),
        rings=draw(st.just(()) | st.tuples(*[order] * layout.pipeline)),
        overlap=draw(st.booleans()),
        recompute=draw(st.booleans()),
        blocks=(passes,) * layout.pipeline if is_explicit else (),
    )
    job = Workload(plan.key, model, sum(shares), dict.fromkeys(names, 27), 1, 27, pipeline=None, tensor=None)
    return plan, job, topology
