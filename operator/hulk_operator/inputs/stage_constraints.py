"""What a job's stages, shards and tensor ranks ask of its other wishes, and how many workers they make.

A stage is one accelerator, or as many as share its layers and divide its parameters, and the replicas of a stage sum
its gradients by torch's own ring in every step: that is what the runtime carries out in this version.
"""

import math
import re
from collections.abc import Iterator
from typing import Final

from hulk_placement.model import Model
from hulk_placement.sync import Sync
from hulk_placement.words import counted

from hulk_operator.api import HulkJobSpec
from hulk_operator.inputs.placement_constraints import UnusableJobError

RING: Final = Sync("ring")
_TRAINS_STAGES: Final = re.compile(r"(?:^|\s)-m\s+hulk_runtime\.examples\.gpt(?:\s|$)")
"""A command that runs a program which is known to train by a plan's stages."""


_OWN: Final = re.compile(r"(?:^|\s)-m\s+hulk_runtime\.examples\.")
"""A command that runs a program of Hulk's own training loop."""


def width(spec: HulkJobSpec) -> int:
    """Ranks of each stage of a replica that are asked for."""
    return (spec.parallelism.shard or 1) * (spec.parallelism.tensor or 1)


def runs_training_loop(spec: HulkJobSpec) -> bool:
    """Whether the command runs a program of Hulk's own training loop, which weighs shares and carries out layouts."""
    return _OWN.search(first_command(spec)) is not None


def may_have_shards(spec: HulkJobSpec) -> bool:
    """Whether shards may be planned although nobody asked for them, where a whole model has no place.

    Local SGD is of whole models, and so is what goes on without a region in Hulk's own loop.
    """
    asked, goes_on = spec.parallelism, spec.sync.on_region_loss != "restart" and runs_training_loop(spec)
    is_open = asked.shard is None and asked.data is None and asked.pipeline is None
    return is_open and not goes_on and spec.sync.mode != "local" and not spec.placement.worker_nodes


def refuse_beside_stages(spec: HulkJobSpec, model: Model) -> None:
    """UnusableJobError for a wish that the stages asked for exclude."""
    num_stages = spec.parallelism.pipeline or 1
    if num_stages == 1:
        return
    if not model.is_counted:
        raise _unsupported(
            f"The job asks for pipeline {num_stages} without spec.model: stages are made of the layers that it says"
        )
    if num_stages > model.num_layers:
        raise _unsupported(f"The job asks for pipeline {num_stages}, and its model has {model.num_layers} layers")
    for wish, why in _excluded(spec):
        raise _unsupported(f"The job asks for pipeline {num_stages} and {wish}, which exclude each other: {why}")


def refuse_beside_width(spec: HulkJobSpec) -> None:
    """UnusableJobError for a wish that shards and tensor ranks exclude in Hulk's own training loop.

    What a script makes of them is its own.
    """
    if width(spec) == 1 or not runs_training_loop(spec):
        return
    asked, sync = spec.parallelism, spec.sync
    wishes = (
        (sync.mode == "local", "sync.mode local", "its replicas of several ranks come together in every step"),
        (
            sync.on_region_loss != "restart",
            f"sync.onRegionLoss {sync.on_region_loss}",
            "it goes on without a region only where each rank holds the whole model",
        ),
    )
    for is_asked, wish, why in wishes:
        if is_asked:
            raise _unsupported(
                f"The job asks for shard {asked.shard or 1}, tensor {asked.tensor or 1} and {wish}, which exclude each "
                f"other in Hulk's own training loop: {why}"
            )


def may_have_stages(spec: HulkJobSpec) -> bool:
    """Whether stages may be planned although nobody asked for them, where a whole model has no place."""
    asked = spec.parallelism
    is_open = asked.pipeline is None and asked.data is None and (asked.shard or 1) == 1
    return is_open and _TRAINS_STAGES.search(first_command(spec)) is not None and not any(_excluded(spec))


def num_workers(spec: HulkJobSpec) -> tuple[int, int]:
    """Fewest and most workers: of whole replicas, or exactly those of `parallelism.data` where it is given."""
    workers, data, num_stages = spec.workers, spec.parallelism.data, spec.parallelism.pipeline or 1
    replica = num_stages * width(spec)
    if data is None:
        each = replica // math.gcd(replica, workers.accelerators_per_worker)
        fewest, most = -(-workers.min // each) * each, workers.max // each * each
        if fewest > most:
            raise _unsupported(
                f"The job asks for {_degrees(spec)}: no number of workers from workers.min {workers.min} to "
                f"workers.max {workers.max} is a multiple of {each}"
            )
        return fewest, most
    num_ranks, what = data * replica, _degrees(spec)
    num, rest = divmod(num_ranks, workers.accelerators_per_worker)
    if rest or not workers.min <= num <= workers.max:
        raise _unsupported(
            f"The job asks for {what}, which is {num_ranks} / {workers.accelerators_per_worker} workers: it must be a "
            f"whole number from workers.min {workers.min} to workers.max {workers.max}"
        )
    return num, num


def _degrees(spec: HulkJobSpec) -> str:
    """Those that make up the ranks, in words: data, and the others where they are above 1."""
    asked = spec.parallelism
    degrees = {"data": asked.data or 0, "pipeline": asked.pipeline or 1, "shard": asked.shard or 1}
    degrees |= {"tensor": asked.tensor or 1}
    return " and ".join(f"{name} {num}" for name, num in degrees.items() if num > (name != "data"))


def first_command(spec: HulkJobSpec) -> str:
    """What the worker's container runs, as one line."""
    first = spec.template.pod_spec()["containers"][0]
    return " ".join([*(first.get("command") or ()), *(first.get("args") or ())])


def _excluded(spec: HulkJobSpec) -> Iterator[tuple[str, str]]:
    """Wishes that no job with stages can have, and why."""
    sync, num_accelerators = spec.sync, spec.workers.accelerators_per_worker
    ring = "the replicas of a stage sum its gradients by torch's own ring"
    if sync.mode in ("wan", "local"):
        yield f"sync.mode {sync.mode}", f"{ring} in every step (mode auto or ring)"
    if sync.compression not in ("auto", "none"):
        yield f"sync.compression {sync.compression}", f"{ring}, which sends values as they are"
    if sync.on_region_loss != "restart":
        yield f"sync.onRegionLoss {sync.on_region_loss}", f"{ring}, which cannot go on without a region"
    if spec.training.precision == "fp16":
        yield "training.precision fp16", "gradients of all stages would need one scale; bf16 and fp32 need none"
    if width(spec) % num_accelerators:
        yield (
            f"workers.acceleratorsPerWorker {num_accelerators}",
            f"a stage of a replica is one worker or several, and has {counted(width(spec), 'accelerator')}",
        )
    if spec.placement.worker_nodes:
        yield (
            "placement.workerNodes",
            "which worker has which stage is for the plan to say; placement.pins binds layers",
        )


def _unsupported(sentence: str) -> UnusableJobError:
    return UnusableJobError("UnsupportedLayout", f"{sentence}.")
