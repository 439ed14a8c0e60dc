"""A plan as the bytes that every pod reads: gzip JSON, camelCase keys, a version first.

`encode` is deterministic (same plan, same bytes), `decode` gives back what the bytes hold. `plan-v1.schema.json` beside
this module is the JSON schema; the runtime has its own reader and shares only a golden file with this module.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from hulk_placement import pipeline_wire
from hulk_placement.collective.document import as_document, from_document
from hulk_placement.collective.plan import CollectivePlan
from hulk_placement.cost.gloo import AT_A_TIME
from hulk_placement.model import Transformer
from hulk_placement.plan import Layout, Plan, Prediction, WorkerSlot
from hulk_placement.sync import DILOCO, Rounds
from hulk_placement.workload import Workload

VERSION = 1
SEALED_VERSION = 2
"""Of plans whose bytes between regions are to be encrypted: a runtime that does not know how must not read them."""
MESH_VERSION = 3
"""Of plans whose replicas are several ranks a stage, sealed or not: what trains whole models must not read them."""
READABLE = (VERSION, SEALED_VERSION, MESH_VERSION)

MAX_BYTES = 16 << 20
"""Of unpacked JSON, far above any plan: what is read may not be what was written."""


@dataclass(frozen=True, slots=True)
class Meta:
    """What a pod must know beside the plan.

    `gradient_bytes` of a rank, 0 where that is not known; `interface`: the network interface that the links were
    measured over, None where pods may choose. `rounds` is of plans with inner steps; their fragments and delay are the
    plan's. `nearest_stores`: regions that write checkpoints to the store of another one, and that one.
    """

    operator_version: str
    global_batch: int
    precision: str
    optimizer: str
    steps: int
    shape: Transformer | None
    gradient_bytes: int = 0
    interface: str | None = None
    rounds: Rounds = DILOCO
    nearest_stores: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, workload: Workload, *, operator_version: str, steps: int, interface: str | None = None) -> Meta:
        """The meta of a workload's plan."""
        return cls(
            operator_version,
            workload.global_batch,
            workload.precision,
            workload.optimizer,
            steps,
            workload.model.shape,
            workload.model.gradient_bytes,
            interface,
            replace(workload.sync.rounds, fragments=1, delay_steps=0, any_precision=False),
        )


def document(plan: Plan, meta: Meta) -> dict[str, Any]:
    """The plan as JSON values, with the digest of everything else in it under `digest`."""
    body: dict[str, Any] = {
        "version": version_of(plan),
        "operatorVersion": meta.operator_version,
        "job": plan.key,
        "attempt": plan.attempt,
        **_layout_to_wire(plan.layout),
        "algorithm": plan.algorithm,
        "workers": [
            {"node": slot.machine, "region": slot.region, "accelerators": slot.num_accelerators}
            for slot in plan.workers
        ],
        "shares": list(plan.shares),
        "training": {
            "globalBatch": meta.global_batch,
            "microBatch": plan.micro_batch,
            "precision": meta.precision,
            "optimizer": meta.optimizer,
            "steps": meta.steps,
        },
        "model": None if meta.shape is None else _shape_to_wire(meta.shape),
        "numBuckets": plan.num_buckets,
        "prediction": {
            "stepSeconds": plan.prediction.step_s,
            "computeSeconds": plan.prediction.compute_s,
            "communicationSeconds": plan.prediction.communication_s,
            **({"bubbleSeconds": plan.prediction.bubble_s} if plan.layout.pipeline > 1 else {}),
            "calibrated": plan.prediction.calibrated,
        },
        "preflight": not plan.prediction.calibrated,
        **_collective_to_wire(plan, meta.rounds),
        **pipeline_wire.to_wire(plan),
        **_transport_to_wire(plan, meta),
        **({"nearestStores": [list(pair) for pair in meta.nearest_stores]} if meta.nearest_stores else {}),
    }
    return {**body, "digest": hashlib.sha256(_canonical(body)).hexdigest()}


def version_of(plan: Plan) -> int:
    """What the plan's reader must know."""
    if plan.layout.width > 1:
        return MESH_VERSION
    return VERSION if plan.collective is None or plan.collective.encryption == "none" else SEALED_VERSION


def mesh_of(layout: Layout) -> list[tuple[str, int]]:
    """A DeviceMesh's dimensions, by torch's usual names, in the order in which ranks run: the last one fastest.

    >>> mesh_of(Layout(data=2, tensor=2, shard=4))
    [('dp_replicate', 2), ('pp', 1), ('dp_shard', 4), ('tp', 2)]
    """
    return [("dp_replicate", layout.data), ("pp", layout.pipeline), ("dp_shard", layout.shard), ("tp", layout.tensor)]


def _layout_to_wire(layout: Layout) -> dict[str, Any]:
    """Degrees; where a stage of a replica is several ranks, also the mesh that these make."""
    degrees = {"data": layout.data, "pipeline": layout.pipeline, "tensor": layout.tensor}
    if layout.width == 1:
        return {"layout": degrees}
    return {"layout": {**degrees, "shard": layout.shard}, "mesh": [list(each) for each in mesh_of(layout)]}


def _layout_from_wire(layout: Mapping[str, int]) -> Layout:
    return Layout(layout["data"], layout["pipeline"], layout["tensor"], layout.get("shard", 1))


def _collective_to_wire(plan: Plan, rounds: Rounds) -> dict[str, Any]:
    """The keys that only some plans have: flows of Hulk's own all-reduce, and how often the replicas come together."""
    body: dict[str, Any] = {} if plan.collective is None else {"collective": as_document(plan.collective)}
    if plan.inner_steps is not None:
        planned = rounds.planned(plan.fragments, plan.delay_steps)
        body["sync"] = {"mode": "local", "innerSteps": plan.inner_steps, **_rounds_to_wire(planned)}
    return body


_STREAMING = {"fragments": "fragments", "delaySteps": "delay_steps"}
_OUTER = {"outerLearningRate": "outer_learning_rate", "outerMomentum": "outer_momentum", "warmupSteps": "warmup_steps"}
_ROUNDS = _OUTER | _STREAMING
_UNSAID = Rounds(0.7, 0.9)
"""What a plan means that says nothing, to any runtime."""


def _rounds_to_wire(rounds: Rounds) -> dict[str, Any]:
    """What is not as where nothing is said."""
    found = {key: getattr(rounds, name) for key, name in _ROUNDS.items()}
    return {key: value for key, value in found.items() if value != getattr(_UNSAID, _ROUNDS[key])}


def _rounds_from_wire(sync: Mapping[str, Any]) -> dict[str, Any]:
    """What of a plan is about its inner steps."""
    if sync.get("mode") != "local":
        return {}
    found = {name: sync[key] for key, name in _STREAMING.items() if key in sync}
    return {"inner_steps": sync["innerSteps"], **found}


def _outer_from_wire(sync: Mapping[str, Any]) -> Rounds:
    if sync.get("mode") != "local":
        return DILOCO
    return replace(_UNSAID, **{_OUTER[key]: value for key, value in sync.items() if key in _OUTER})


def _transport_to_wire(plan: Plan, meta: Meta) -> dict[str, Any]:
    """What the prediction assumes of the transport beside algorithm, order and number of buckets."""
    if not meta.gradient_bytes:
        return {}
    at_a_time = AT_A_TIME if plan.algorithm == "ring" else 1
    return {
        "transport": {
            "interface": meta.interface,
            "bucketBytes": math.ceil(meta.gradient_bytes / plan.num_buckets),
            "bucketsAtATime": min(at_a_time, plan.num_buckets),
            "gradientBytes": meta.gradient_bytes,
        }
    }


def encode(plan: Plan, meta: Meta) -> bytes:
    """The plan's wire form: the same bytes for the same plan, below 900 KiB at 1,000 workers."""
    return gzip.compress(_canonical(document(plan, meta)), mtime=0)


def decode(blob: bytes, expected: str | None = None) -> tuple[Plan, Meta]:
    """The plan and meta in `encode`'s bytes.

    ValueError for anything else: another version, other content than the digest in it (or the `expected` one) says,
    damaged bytes. What the wire does not carry (per-rank compute, bottleneck, memory, gap, reasons) is empty, zero or
    None.
    """
    try:
        body = json.loads(_unpacked(blob))
        if type(body.get("version")) is not int or body["version"] not in READABLE:  # JSON's true would pass for 1
            raise ValueError(f"plan of wire version {body.get('version')}; this reads {', '.join(map(str, READABLE))}")
        digest = body.pop("digest")
        if digest != hashlib.sha256(_canonical(body)).hexdigest():
            raise ValueError(
                f"plan {body['job']} attempt {body['attempt']}: the digest {digest} is not of this content"
            )
        if expected not in (None, digest):
            raise ValueError(f"plan {body['job']} attempt {body['attempt']}: digest {digest}, expected {expected}")
        _require_consistent(body)
        return _plan_from_wire(body), _meta_from_wire(body)
    except (AttributeError, KeyError, RecursionError, TypeError, zlib.error) as error:
        raise ValueError(f"{len(blob)} bytes are no plan: {error!r}") from error


def _require_consistent(body: dict[str, Any]) -> None:
    """What the runtime refuses, nobody else reads either. Unknown keys are left to later versions."""
    accelerators, layout = [worker["accelerators"] for worker in body["workers"]], body["layout"]
    degrees = layout["data"] * layout["pipeline"] * layout["tensor"] * layout.get("shard", 1)
    if min(accelerators, default=0) < 1 or degrees != sum(accelerators):
        raise ValueError(f"plan {body['job']}: layout of {degrees} ranks for workers of {accelerators} accelerators")
    if sum(body["shares"]) != body["training"]["globalBatch"]:
        raise ValueError(f"plan {body['job']}: shares {body['shares']} of batch {body['training']['globalBatch']}")


def _unpacked(blob: bytes) -> bytes:
    stream = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)  # gzip's framing
    text = stream.decompress(blob, MAX_BYTES)
    if not stream.eof:
        raise ValueError(f"{len(blob)} bytes are no plan: cut off, or more than {MAX_BYTES} bytes unpacked")
    return text


def _canonical(body: dict[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), sort_keys=True).encode()


def _shape_to_wire(shape: Transformer) -> dict[str, int]:
    return {
        "layers": shape.layers,
        "hidden": shape.hidden,
        "heads": shape.heads,
        "sequenceLength": shape.sequence_length,
        "vocabulary": shape.vocabulary,
        "feedForward": shape.mlp_width,
    }


def _shape_from_wire(model: dict[str, int]) -> Transformer:
    return Transformer(
        layers=model["layers"],
        hidden=model["hidden"],
        heads=model["heads"],
        sequence_length=model["sequenceLength"],
        vocabulary=model["vocabulary"],
        feed_forward=model["feedForward"],
    )


def _plan_from_wire(body: dict[str, Any]) -> Plan:
    prediction = body["prediction"]
    return Plan(
        key=body["job"],
        attempt=body["attempt"],
        workers=tuple(WorkerSlot(w["node"], w["region"], w["accelerators"]) for w in body["workers"]),
        shares=tuple(body["shares"]),
        micro_batch=body["training"]["microBatch"],
        num_buckets=body["numBuckets"],
        prediction=Prediction(
            step_s=prediction["stepSeconds"],
            compute_s=prediction["computeSeconds"],
            communication_s=prediction["communicationSeconds"],
            bottleneck=None,
            rank_compute_s=(),
            memory_bytes=0,
            calibrated=prediction["calibrated"],
            bubble_s=prediction.get("bubbleSeconds", 0.0),
        ),
        layout=_layout_from_wire(body["layout"]),
        algorithm=body["algorithm"],
        collective=_collective_from_wire(body),
        **_rounds_from_wire(body.get("sync", {})),
        **pipeline_wire.from_wire(body),
    )


def _collective_from_wire(body: dict[str, Any]) -> CollectivePlan | None:
    if "collective" not in body:
        return None
    regions = list(dict.fromkeys(worker["region"] for worker in body["workers"]))
    if body["collective"]["regions"] != regions:
        raise ValueError(f"plan {body['job']}: flows over {body['collective']['regions']}, workers in {regions}")
    region_of_rank = [worker["region"] for worker in body["workers"] for _ in range(worker["accelerators"])]
    return from_document(body["collective"], region_of_rank)


def _meta_from_wire(body: dict[str, Any]) -> Meta:
    training = body["training"]
    return Meta(
        operator_version=body["operatorVersion"],
        global_batch=training["globalBatch"],
        precision=training["precision"],
        optimizer=training["optimizer"],
        steps=training["steps"],
        shape=None if body["model"] is None else _shape_from_wire(body["model"]),
        gradient_bytes=body.get("transport", {}).get("gradientBytes", 0),
        interface=body.get("transport", {}).get("interface"),
        rounds=_outer_from_wire(body.get("sync", {})),
        nearest_stores=tuple((region, other) for region, other in body.get("nearestStores", ())),
    )
