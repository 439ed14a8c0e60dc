"""The pipelines of a plan in numbers: when each cell's last backward pass ends, how long it computes, what it holds.

A plan becomes the arrays that searches evaluate (`closed_form`), and the same compiled functions time it; so what a
search went by is what the prediction says. The micro-batches of one replica are taken to be of equal size, its share
over their number.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import chain, pairwise

import numpy as np

from hulk_placement.accelerators.framework_memory import framework_memory
from hulk_placement.cost.blocking import blocking_ends
from hulk_placement.cost.closed_form.arrays import Cache, Floats, Layout, Setting
from hulk_placement.cost.closed_form.evaluate import memory_bytes, time_replicas
from hulk_placement.cost.closed_form.setting import Ground, Option
from hulk_placement.cost.closed_form.shares import filled, num_batches
from hulk_placement.cost.closed_form.sync import tied_seconds
from hulk_placement.cost.memory import in_flight, of_plan
from hulk_placement.cost.sharding import around
from hulk_placement.cost.simulation.outcome import simulate_step
from hulk_placement.cost.simulation.replicas import replica_of
from hulk_placement.cost.simulation.step import Place, Step, Way
from hulk_placement.cost.simulation.ways import Ways
from hulk_placement.cost.ties import ties
from hulk_placement.cost.wires import for_stages, for_ties, is_nccl_between_stages
from hulk_placement.plan import Plan
from hulk_placement.topology import Link, Pair, Topology
from hulk_placement.training_memory import Overhead
from hulk_placement.workload import Workload


@dataclass(frozen=True, slots=True)
class Pipelines:
    """All pipelines of a plan, beside each other on their links; D replicas, P stages, seconds and bytes.

    `tied_s`: how much longer a step is for gradients of parameters that stages share. `held_s`: how much later all has
    been computed because sends that block hold their receivers, too. `memory_DP`: of one accelerator of each cell.
    `backward_DP`: seconds of each cell's last backward pass, with what it computes anew.
    """

    ends_DP: Floats
    compute_DP: Floats
    backward_DP: Floats
    memory_DP: Floats
    tied_s: float
    held_s: float = 0.0

    @property
    def ready_P(self) -> Floats:
        """When each stage's gradients are ready on all replicas."""
        ready: Floats = self.ends_DP.max(axis=0)
        return ready

    @property
    def common_backward_s(self) -> float:
        """Seconds at the end of computing in which all first stages are in their last backward pass, or through it."""
        compute_s, last_s = self.compute_DP[:, 0], self.backward_DP[:, 0]
        return float((compute_s.max() - compute_s + last_s).min())


def time_pipelines(plan: Plan, workload: Workload, topology: Topology, free_links: bool = False) -> Pipelines:
    """Time a plan's pipelines; KeyError when it names a machine that the topology lacks.

    With `free_links` as if what stages send each other were there at once.
    """
    setting, layout = arrays_of(plan, workload, topology)
    at_ties = _arrays_of(plan, workload, for_ties(plan, workload, topology))[0] if topology.goes_by_size else setting
    timed = _without_links(setting) if free_links else setting
    alike_D = _alike(plan, layout)
    if plan.schedule == "explicit":
        ends_DP = _in_own_order(plan, timed, layout, stage_ways(plan, workload, topology), free_links)
    else:
        ends_DP = _in_known_order(timed, layout)
    unheld_s = float(ends_DP.max())
    if plan.layout.pipeline > 1 and not (plan.overlap or free_links):  # what blocks knows nothing of cold windows
        ends_DP = np.maximum(ends_DP, _blocking(plan, setting, layout, stage_ways(plan, workload, topology), alike_D))
    shares_D = np.array(plan.shares) / plan.cell_batch
    filled_D = np.array([filled(setting, layout, replica) for replica in range(plan.layout.data)])
    return Pipelines(
        ends_DP=ends_DP,
        compute_DP=_seconds(setting, layout, forward=1 + setting.recompute) * shares_D[:, None],
        backward_DP=_seconds(setting, layout, forward=int(setting.recompute)) * filled_D[:, None],
        memory_DP=_memory(plan, setting, layout, _overheads(plan, workload, topology)),
        tied_s=tied_seconds(setting, at_ties, layout),
        held_s=float(ends_DP.max()) - unheld_s,
    )


def arrays_of(plan: Plan, workload: Workload, topology: Topology) -> tuple[Setting, Layout]:
    """A plan as the arrays of the closed form; KeyError when it names a machine that the topology lacks.

    The machines are those of the plan in the order in which ranks first name them. A schedule that the closed form does
    not know counts as gpipe. Links of which nothing is known have the price of an unknown link, whether the workload
    allows them or not: only searches must keep off them.
    """
    return _arrays_of(plan, workload, for_stages(plan, workload, topology))


def _arrays_of(plan: Plan, workload: Workload, seen: Topology) -> tuple[Setting, Layout]:
    """Over links as a transport sees them."""
    names = list(dict.fromkeys(plan.rank_machines))
    transport = "nccl" if is_nccl_between_stages(plan, workload) else "gloo"
    allowing = replace(of_plan(plan, workload), allow_unknown_links=True, stage_transport=transport)
    machines = [seen.machine(name) for name in names]
    ground = Ground.of(allowing, seen, machines, _own_pairs(plan, workload, seen), _around(plan, seen))
    schedule = "gpipe" if plan.schedule == "explicit" else plan.schedule
    degrees = plan.layout
    cuts = plan.stages if degrees.shard > 1 else (0,)
    option = Option(plan.micro_batch, degrees.tensor, schedule, plan.recompute, plan.overlap, degrees.shard, cuts)
    setting = ground.setting(option)
    return setting, _layout(plan, setting, names, len(workload.model.layers), len(ground.regions))


def _around(plan: Plan, topology: Topology) -> dict[str, Link]:
    """By machine, what its shard groups send over: the slowest one's, where it has several."""
    found: dict[str, Link] = {}
    width, tensor, ranks = plan.layout.width, plan.layout.tensor, plan.rank_machines
    if plan.layout.shard > 1:
        for group in {ranks[first : first + width : tensor] for first in range(0, len(ranks), width)}:
            link = around(topology, group, tensor)
            for machine in group:
                known = found.setdefault(machine, link)
                if link.bandwidth_bytes_per_s < known.bandwidth_bytes_per_s:
                    found[machine] = link
    return found


def _own_pairs(plan: Plan, workload: Workload, topology: Topology) -> list[Pair]:
    """The machine pairs with a link of their own that stages of one replica send over; others are as regions say."""
    cells, num_stages = plan.rank_machines[:: plan.layout.width], plan.layout.pipeline
    rows = (cells[first : first + num_stages] for first in range(0, len(cells), num_stages))
    joined = {*chain.from_iterable(map(pairwise, rows)), *(tie.group.machines for tie in ties(plan, workload))}
    return [pair for a, b in joined for pair in ((a, b), (b, a)) if topology.has_own_link(*pair)]


def _in_known_order(setting: Setting, layout: Layout) -> Floats:
    """When the cells of a schedule that the closed form knows end."""
    num_replicas, num_stages = layout.machine_DP.shape
    cache = Cache(num_replicas, num_stages, len(setting.uplink_R), len(setting.kind_M))
    time_replicas(setting, layout, cache)
    return cache.ends_DP


def stage_ways(plan: Plan, workload: Workload, topology: Topology) -> Ways:
    """The ways between a plan's stages, by their transport."""
    nccl = workload.nccl if is_nccl_between_stages(plan, workload) else None
    return Ways(for_stages(plan, workload, topology), nccl)


def _in_own_order(plan: Plan, setting: Setting, layout: Layout, ways: Ways, free_links: bool) -> Floats:
    """When the cells of a schedule given block by block end: no closed form has that, the simulation does."""
    replicas = [replica_of(plan, number, setting, layout, ways) for number in range(plan.layout.data)]
    if free_links:
        at_once = Way((ways.number(Place("inside machine", ("",)), math.inf),), 1.0, 0.0)
        replicas = [replace(replica, ways=((at_once, at_once),) * len(replica.ways)) for replica in replicas]
    return simulate_step(Step(ways.resources, tuple(replicas), overlap=plan.overlap)).ends_DP


def _blocking(plan: Plan, setting: Setting, layout: Layout, ways: Ways, alike_D: list[int]) -> Floats:
    """When the cells end where a send holds both of its stages."""
    rows = {number: blocking_ends(replica_of(plan, number, setting, layout, ways)) for number in set(alike_D)}
    return np.array([rows[number] for number in alike_D])


def _layout(plan: Plan, setting: Setting, names: list[str], num_layers: int, num_regions: int) -> Layout:
    """Each cell is as slow as the slowest of its machines, which wait for one another layer by layer."""
    number = {name: machine for machine, name in enumerate(names)}
    machine_CW = np.array([number[name] for name in plan.rank_machines]).reshape(-1, plan.layout.width)
    seconds_M = (setting.forward_KJ[:, -1] + setting.backward_KJ[:, -1])[setting.kind_M]
    machine_C = machine_CW[np.arange(len(machine_CW)), seconds_M[machine_CW].argmax(axis=1)]
    return Layout(
        machine_DP=machine_C.reshape(plan.layout.data, plan.layout.pipeline),
        first_P=np.array([*plan.stages, num_layers]),
        shares_D=np.array(plan.shares),
        tour_W=np.arange(num_regions),
    )


def _alike(plan: Plan, layout: Layout) -> list[int]:
    """Of each replica the first one on the same machines with the same share; itself where each has its own order."""
    if plan.schedule == "explicit":
        return list(range(plan.layout.data))
    first: dict[tuple[int, ...], int] = {}
    rows = zip(plan.shares, layout.machine_DP.tolist(), strict=True)
    return [first.setdefault((share, *machines), replica) for replica, (share, machines) in enumerate(rows)]


def _without_links(setting: Setting) -> Setting:
    """Stages send nothing, and wait for no latency."""
    return setting._replace(
        output_L=setting.output_L * 0,
        latency_QQ=setting.latency_QQ * 0,
        inside_latency_K=setting.inside_latency_K * 0,
    )


def _seconds(setting: Setting, layout: Layout, forward: int) -> Floats:
    """Seconds of one whole micro-batch on each cell: so many forward passes, and the backward pass."""
    seconds_KJ = forward * setting.forward_KJ + setting.backward_KJ
    kind_DP = setting.kind_M[layout.machine_DP]
    found: Floats = seconds_KJ[kind_DP, layout.first_P[1:]] - seconds_KJ[kind_DP, layout.first_P[:-1]]
    return found


def _overheads(plan: Plan, workload: Workload, topology: Topology) -> dict[str, Overhead]:
    """What the framework takes, by the names of machines."""
    products = {name: topology.machine(name).product for name in plan.rank_machines}
    layout, algorithm = plan.layout, plan.algorithm
    known = {
        kind: workload.overhead(framework_memory(kind), layout.tensor, algorithm, layout.shard)
        for kind in set(products.values())
    }
    return {name: known[product] for name, product in products.items()}


def _memory(plan: Plan, setting: Setting, layout: Layout, overheads: dict[str, Overhead]) -> Floats:
    """Of each cell; most are alike."""
    (num_replicas, num_stages), first_P = layout.machine_DP.shape, layout.first_P
    known: dict[tuple[int, int, Overhead], float] = {}

    def of_cell(replica: int, stage: int) -> float:
        own_order = plan.schedule == "explicit"
        num = in_flight(plan, replica, stage) if own_order else num_batches(setting, layout, replica)
        key = num, stage, overheads[plan.machine(replica, stage)]
        if key not in known:
            held = memory_bytes(setting, first_P[stage], first_P[stage + 1], stage, num_stages, num)
            known[key] = key[2].total(held)
        return known[key]

    return np.array([[of_cell(replica, stage) for stage in range(num_stages)] for replica in range(num_replicas)])
