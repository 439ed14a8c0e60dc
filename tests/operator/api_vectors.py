"""Objects that the API refuses, and some that it takes: the API server and `strict.parse` are tested with the same."""

from collections.abc import Mapping
from typing import Any

from hulk_operator import names

NAMESPACE = "api-rules"
ENV_A = [{"name": "A", "value": "1"}]
CONTAINER = "template.spec.containers.0"


def job(changes: Mapping[str, Any] | None = None, name: str = "good") -> dict[str, Any]:
    """A valid HulkJob with fields replaced by dotted path; None removes one."""
    body: dict[str, Any] = {
        "apiVersion": names.API_VERSION,
        "kind": "HulkJob",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {
            "workers": {"min": 2, "max": 4},
            "model": {"transformer": {"layers": 2, "hidden": 64, "heads": 4, "sequenceLength": 32, "vocabulary": 256}},
            "training": {"globalBatch": 8, "steps": 10},
            "checkpoint": {"storage": {"url": "s3://checkpoints/good"}},
            "template": {"spec": {"containers": [{"name": "worker", "image": "hulk:0.1.0", "env": ENV_A}]}},
        },
    }
    for path, value in (changes or {}).items():
        put(body["spec"], path.split("."), value)
    return body


def put(target: Any, path: list[str], value: Any) -> None:
    """Set the field at a path in nested maps and lists; None removes it."""
    *parents, last = path
    for name in parents:
        target = target[int(name)] if isinstance(target, list) else target.setdefault(name, {})
    if value is None:
        del target[last]
    else:
        target[last] = value


def topology(spec: Mapping[str, Any] | None = None, name: str = names.TOPOLOGY_NAME) -> dict[str, Any]:
    """A HulkTopology."""
    identity = {"apiVersion": names.API_VERSION, "kind": "HulkTopology", "metadata": {"name": name}}
    return {**identity, "spec": dict(spec or {})}


# What `job` changes, and what both sides say.
BROKEN_RULES: dict[str, tuple[dict[str, Any], str]] = {
    "min above max": ({"workers.min": 5}, "spec.workers.min: Invalid value: workers.min must be at most workers.max"),
    "two models": (
        {"model.profile": {"configMap": "a", "key": "b"}},
        "model needs exactly one of transformer, huggingFace and profile",
    ),
    "trained in no way": ({"model.trainable": {}}, "model.trainable needs exactly one of parameters and share"),
    "trained in two ways": (
        {"model.trainable": {"parameters": ["lm_head"], "share": "0.5"}},
        "model.trainable needs exactly one of parameters and share",
    ),
    "none of it trained": ({"model.trainable": {"share": "0"}}, "share must be above 0 and at most 1"),
    "more than all trained": ({"model.trainable": {"share": "1.01"}}, "share must be above 0 and at most 1"),
    "no model": ({"model": {}}, "model needs exactly one of transformer, huggingFace and profile"),
    "heads": ({"model.transformer.heads": 5}, "model.transformer.hidden must be a multiple of heads"),
    "batch": ({"training.globalBatch": 1}, "training.globalBatch must be at least workers.min"),
    "batch of stages": (
        {"training.globalBatch": 1, "workers.min": 3, "parallelism": {"pipeline": 2}},
        "training.globalBatch must be at least workers.min / (parallelism.pipeline x parallelism.tensor): every",
    ),
    "micro-batch": ({"training.microBatch": 9}, "training.microBatch must be at most training.globalBatch"),
    "parallelism": ({"parallelism": {"pipeline": 3, "tensor": 2}}, "needs more accelerators than workers.max x"),
    "shards": ({"parallelism": {"shard": 1024}}, "needs more accelerators than workers.max x"),
    "local without mode": ({"sync": {"local": {"innerSteps": 5}}}, "sync.local is for sync.mode local"),
    "no outer step": (
        {"sync": {"mode": "local", "local": {"outerLearningRate": "0"}}},
        "sync.local.outerLearningRate must be above 0",
    ),
    "momentum for ever": (
        {"sync": {"mode": "local", "local": {"outerMomentum": "1"}}},
        "sync.local.outerMomentum must be below 1",
    ),
    "fragments without a step": (
        {"sync": {"mode": "local", "local": {"innerSteps": 2, "fragments": 3}}},
        "sync.local.fragments must be at most innerSteps",
    ),
    "merged after the next": (
        {"sync": {"mode": "local", "local": {"innerSteps": 2, "delaySteps": 2}}},
        "sync.local.delaySteps must be below innerSteps",
    ),
    "four bits of every gradient": ({"sync": {"compression": "int4"}}, "sync.compression int4 is for sync.mode local"),
    "compressed ring": ({"sync": {"mode": "ring", "compression": "bf16"}}, "mode ring sends values as they are"),
    "ring without a region": (
        {"sync": {"mode": "ring", "onRegionLoss": "continue"}},
        "mode ring cannot go on without a region",
    ),
    "nodes of workers": (
        {"placement": {"workerNodes": ["a"]}},
        "placement.workerNodes names a node per worker: their number must lie between workers.min and workers.max",
    ),
    "nodes of workers for money": (
        {"placement": {"workerNodes": ["a", "b"], "objective": "throughputPerMoney"}},
        "placement.workerNodes and placement.objective exclude each other",
    ),
    "nodes of workers beside new ones": (
        {"placement": {"workerNodes": ["a", "b"], "allowScaleUp": "placeholders"}},
        "placement.workerNodes and placement.allowScaleUp exclude each other",
    ),
    "allowed and denied": (
        {"placement": {"regions": ["a", "b"], "deniedRegions": ["c", "b"]}},
        "placement.regions and placement.deniedRegions name the same region",
    ),
    "for nothing": ({"placement": {"maxPricePerHour": "0.0"}}, "placement.maxPricePerHour must be above 0"),
    "pin of nothing": (
        {"placement": {"pins": [{"regions": ["a"]}]}},
        "a pin needs exactly one of layers and parameters",
    ),
    "pin of both": (
        {"placement": {"pins": [{"layers": "0", "parameters": "*", "nodes": ["a"]}]}},
        "a pin needs exactly one of layers and parameters",
    ),
    "pin to nowhere": ({"placement": {"pins": [{"layers": "0-3"}]}}, "a pin needs regions or nodes"),
    "region twice": ({"placement": {"regions": ["a", "a"]}}, "Duplicate value"),
    "sigmoid without parameters": (
        {"utility": {"type": "sigmoid"}},
        "utility.type sigmoid needs utility.sigmoid with steepness and midpoint",
    ),
    "flat sigmoid": (
        {"utility": {"type": "sigmoid", "sigmoid": {"steepness": "0.0", "midpoint": 5}}},
        "utility.sigmoid.steepness must be above 0",
    ),
    "energy without watts": ({"utility": {"type": "energy"}}, "utility.type energy needs utility.energy with watts"),
    "energy without a price": (
        {"utility": {"type": "energy", "energy": {"wattsPerWorker": 300}}},
        "utility.type energy needs utility.energy with wattsPerWorker and powerPrice",
    ),
    "deadline without a time": (
        {"utility": {"type": "deadline"}},
        "utility.type deadline needs utility.deadline with at or afterSeconds",
    ),
    "two deadlines": (
        {"utility": {"type": "deadline", "deadline": {"at": "2030-01-02T03:04:05Z", "afterSeconds": 5}}},
        "utility.deadline needs exactly one of at and afterSeconds",
    ),
    "worth more when late": (
        {"utility": {"type": "deadline", "deadline": {"afterSeconds": 5, "lateShare": "1.5"}}},
        "utility.deadline.lateShare must be at most 1",
    ),
    "worth nothing": ({"utility": {"weight": "0"}}, "utility.weight must be above 0"),
    "two storages": (
        {"checkpoint.storage.persistentVolumeClaim": "a"},
        "checkpoint.storage needs exactly one of url and persistentVolumeClaim",
    ),
    "no storage": ({"checkpoint.storage": {}}, "checkpoint.storage needs exactly one of url and persistentVolumeClaim"),
    "secret of a claim": (
        {"checkpoint.storage": {"persistentVolumeClaim": "a", "secretName": "b"}},
        "checkpoint.storage.secretName is for url",
    ),
    "stores beside a claim": (
        {"checkpoint.storage": {"persistentVolumeClaim": "a", "regional": [{"region": "eu", "url": "s3://eu"}]}},
        "checkpoint.storage.regional is for stores beside url",
    ),
    "nodeName": ({"template.spec.nodeName": "n"}, "nodes come from the plan; use spec.placement.workerNodes"),
    "hostname": ({"template.spec.hostname": "h"}, "host names come from the plan"),
    "subdomain": ({"template.spec.subdomain": "s"}, "the subdomain is the attempt's Service"),
    "priority in template": (
        {"template.spec.priorityClassName": "p"},
        "set spec.priorityClassName of the HulkJob instead",
    ),
    "restartPolicy": ({"template.spec.restartPolicy": "Always"}, "restartPolicy must be Never or absent"),
    "worker's restartPolicy": (
        {f"{CONTAINER}.restartPolicy": "Always"},
        "the first container's restartPolicy must be Never or absent",
    ),
    "worker's restartPolicyRules": (
        {f"{CONTAINER}.restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [1]}}]},
        "it has no restartPolicyRules",
    ),
    "label": ({"template.metadata.labels": {"hulk.dev/job": "x"}}, "labels under hulk.dev/ belong to Hulk"),
    "annotation": (
        {"template.metadata.annotations": {"hulk.dev/x": "x"}},
        "annotations under hulk.dev/ belong to Hulk",
    ),
    "environment": (
        {f"{CONTAINER}.env": [{"name": "RANK", "value": "0"}]},
        "sets an environment variable that Hulk sets",
    ),
}

BROKEN_NAMES = [
    ("a" * (names.MAX_JOB_NAME_LENGTH + 1), "a HulkJob's name has at most 52 characters"),
    ("1st", "a HulkJob's name starts with a letter"),
    ("with.dot", "only lower-case letters, digits and dashes"),
]

LINK = {"source": "a", "target": "b", "rttMicroseconds": 9, "bandwidthBytesPerSecond": 7}
BROKEN_TOPOLOGIES: dict[str, tuple[dict[str, Any], str]] = {
    "name": (topology(name="mine"), "its name is cluster"),
    "link twice": (topology({"links": [LINK, LINK | {"rttMicroseconds": 8}]}), "spec.links[1]: Duplicate value"),
    "node twice": (topology({"nodes": [{"name": "a", "region": "r"}] * 2}), "spec.nodes[1]: Duplicate value"),
}

# What `job` changes, what the API server says, and the field that `strict.parse` names (in pydantic's words).
BROKEN_SCHEMAS: dict[str, tuple[dict[str, Any], str, str]] = {
    "file URL": (
        {"checkpoint.storage.url": "file:///tmp/a"},
        "spec.checkpoint.storage.url in body should match",
        "spec.checkpoint.storage.url",
    ),
    "no workers": ({"workers.min": 0}, "spec.workers.min: Invalid value: 0", "spec.workers.min"),
    "too many workers": ({"workers.max": 5000}, "should be less than or equal to 4096", "spec.workers.max"),
    "no max": ({"workers.max": None}, "spec.workers.max: Required value", "spec.workers.max"),
    "hierarchical": (
        {"sync": {"mode": "hierarchical"}},
        'supported values: "auto", "ring", "wan", "local"',
        "spec.sync.mode",
    ),
    "objective": (
        {"placement": {"objective": "money"}},
        'supported values: "time", "throughputPerMoney"',
        "spec.placement.objective",
    ),
    "layers of a pin": (
        {"placement": {"pins": [{"layers": "0 to 3", "regions": ["a"]}]}},
        "spec.placement.pins[0].layers in body should match",
        "spec.placement.pins.0.layers",
    ),
    "price": (
        {"placement": {"maxPricePerHour": "-1"}},
        "spec.placement.maxPricePerHour in body should match",
        "spec.placement.maxPricePerHour",
    ),
    "utility": (
        {"utility": {"type": "linear"}},
        'supported values: "throughput", "sqrt", "sigmoid", "proportional", "energy", "deadline"',
        "spec.utility.type",
    ),
    "weight": (
        {"utility": {"weight": "-1"}},
        "spec.utility.weight in body should match",
        "spec.utility.weight",
    ),
    "precision": ({"training.precision": "fp8"}, 'supported values: "fp32", "bf16", "fp16"', "spec.training.precision"),
    "steps as text": (
        {"training.steps": "ten"},
        "spec.training.steps in body must be of type integer",
        "spec.training.steps",
    ),
    "resource name": (
        {"workers.resourceName": "cpu"},
        "spec.workers.resourceName in body should match",
        "spec.workers.resourceName",
    ),
    "no scheme": (
        {"checkpoint.storage.url": "bucket"},
        "spec.checkpoint.storage.url in body should match",
        "spec.checkpoint.storage.url",
    ),
    "no containers": (
        {"template.spec.containers": []},
        "should have at least 1 items",
        "spec.template.spec.containers",
    ),
    "negative limit": (
        {"runPolicy": {"backoffLimit": -1}},
        "spec.runPolicy.backoffLimit",
        "spec.runPolicy.backoffLimit",
    ),
    "negative ttl": (
        {"runPolicy": {"ttlSecondsAfterFinished": -1}},
        "spec.runPolicy.ttlSecondsAfterFinished",
        "spec.runPolicy.ttlSecondsAfterFinished",
    ),
    "number as text": (
        {"training.steps": "10"},
        "spec.training.steps in body must be of type integer",
        "spec.training.steps",
    ),
}

GOOD_SPECS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "never restarted": {"template.spec.restartPolicy": "Never", f"{CONTAINER}.restartPolicy": "Never"},
    "sidecar that is restarted": {
        "template.spec.containers": [{"name": "w"}, {"name": "s", "restartPolicy": "Always"}]
    },
    "another scheduler": {"template.spec.schedulerName": "volcano"},
    "what tools write": {"template.metadata": {"creationTimestamp": None, "labels": {"team": "a"}}},
    "numbers as quantities": {f"{CONTAINER}.resources": {"limits": {"cpu": 2, "memory": "1Gi"}}},
    "own labels": {"template.metadata.labels": {"team": "a", "example.com/hulk.dev": "b"}},
    "named nodes": {"placement": {"workerNodes": ["a", "a", "b"]}},
    "pinned layers": {
        "placement": {
            "pins": [{"layers": "0-5,8", "regions": ["a"]}, {"parameters": "*.embed*", "nodes": ["n-1", "n-2"]}],
            "deniedRegions": ["b"],
        }
    },
    "no network policy": {"networkPolicy": {"enabled": False}},
    "rules of a network policy": {
        "networkPolicy.ingress": [{"ports": [{"port": 22}, {"port": "debug"}], "from": [{"podSelector": {}}]}]
    },
    "for money": {"placement": {"objective": "throughputPerMoney", "maxPricePerHour": "12.50"}},
    "shares": {"training.shares": "planned"},
    "nothing of the model": {"model": None, "training": None},
    "a model, nothing of its training": {"training": None},
    "hugging face": {"model": {"huggingFace": {"configMap": "a", "key": "config.json"}}},
    "a length of its own, adapters": {"model.sequenceLength": 16, "model.trainable": {"share": "0.006"}},
    "frozen but for parts": {"model.trainable": {"parameters": ["lm_head", "*.q_proj.weight"]}},
    "volume claim": {"checkpoint.storage": {"persistentVolumeClaim": "a"}},
    "no checkpoint": {"checkpoint": None},
    "local": {"sync": {"mode": "local"}},
    "stages, one replica's sequence for two workers": {"training.globalBatch": 1, "parallelism": {"pipeline": 2}},
    "local for so many steps": {"sync": {"mode": "local", "local": {"innerSteps": 500}}},
    "fragments in turn": {
        "sync": {
            "mode": "local",
            "local": {
                "innerSteps": 60,
                "outerLearningRate": "0.4",
                "outerMomentum": "0",
                "fragments": 60,
                "delaySteps": 59,
            },
        }
    },
    "fragments left to the planner": {"sync": {"mode": "local", "local": {"delaySteps": 0}, "compression": "int4"}},
    "a ring, nothing said of compression": {"sync": {"mode": "ring", "compression": "auto"}},
    "not encrypted": {"sync": {"encryption": "none"}},
    "compressed, without a region": {"sync": {"compression": "int8", "onRegionLoss": "continue"}},
    "worth by a sigmoid": {"utility": {"type": "sigmoid", "sigmoid": {"steepness": "0.001", "midpoint": 3000}}},
    "worth less its energy": {
        "utility": {"type": "energy", "weight": "2.5", "energy": {"wattsPerWorker": 300, "powerPrice": "0.0001"}}
    },
    "worth by a moment": {"utility": {"type": "deadline", "deadline": {"afterSeconds": 3600}}},
    "worth with joules": {"utility": {"type": "sqrt", "energy": {"wattsPerWorker": 300}}},
    "proportional": {"utility": {"type": "proportional", "proportional": {"scale": 100}}},
    "sidecar with RANK": {
        "template.spec.containers": [{"name": "w"}, {"name": "s", "env": [{"name": "RANK", "value": "0"}]}]
    },
}
