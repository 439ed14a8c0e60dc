"""Every rule on one object that its schema alone cannot say, once: CEL for the API server, Python for files.

The two say the same thing side by side. Whoever changes one changes the other; `tests/operator/api_vectors.py` holds
objects that break each rule, and both sides are tested with them. A predicate gets what CEL calls `self`: the object as
Kubernetes sees it (`wire()`), defaults filled in, absent fields left out. Rules that compare an object with what it was
before are made in `schema.change_rules`; a file has no before.
"""

from collections.abc import Callable
from dataclasses import dataclass
from re import fullmatch
from typing import Any, Final

from hulk_operator import names
from hulk_operator.api.base import rule

Predicate = Callable[[Any], bool]
VALIDATIONS: Final = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class Rule:
    """What must hold of `self`, in both languages, and the sentence that the user reads where it does not."""

    cel: str
    holds: Predicate
    message: str
    field_path: str = ""
    reason: str = "FieldValueInvalid"


def _refused(field: str, message: str) -> Rule:
    """A field that Hulk decides."""
    return Rule(
        f"!has(self.{field}) || self.{field} == ''",
        lambda self: not self.get(field),
        message,
        f".{field}",
        "FieldValueForbidden",
    )


def _not_reserved(what: str) -> Rule:
    """A map of labels or annotations."""
    return Rule(
        f"self.all(key, !key.startsWith('{names.RESERVED_PREFIX}'))",
        lambda self: not any(key.startswith(names.RESERVED_PREFIX) for key in self),
        f"{what} under {names.RESERVED_PREFIX} belong to Hulk; remove them",
    )


def _utility_needs(kind: str, message: str) -> Rule:
    """The parameters without which a utility means nothing."""
    return Rule(
        f"!has(self.type) || self.type != '{kind}' || has(self.{kind})",
        lambda self: self["type"] != kind or kind in self,
        message,
        f".{kind}",
        "FieldValueRequired",
    )


_RESERVED_ENV = ", ".join(f"'{name}'" for name in names.RESERVED_ENV)

HULK_JOB = (
    Rule(
        f"self.metadata.name.size() <= {names.MAX_JOB_NAME_LENGTH}",
        lambda self: len(self["metadata"]["name"]) <= names.MAX_JOB_NAME_LENGTH,
        f"a HulkJob's name has at most {names.MAX_JOB_NAME_LENGTH} characters, "
        "because pods are named <job>-<attempt>-<worker> and that must be a host name",
    ),
    Rule(
        f"self.metadata.name.matches('{names.JOB_NAME_PATTERN}')",
        lambda self: fullmatch(names.JOB_NAME_PATTERN, self["metadata"]["name"]) is not None,
        "a HulkJob's name starts with a letter and has only lower-case letters, digits and dashes, "
        "because pods and services are named after it",
    ),
)
HULK_TOPOLOGY = (
    Rule(
        f"self.metadata.name == '{names.TOPOLOGY_NAME}'",
        lambda self: self["metadata"]["name"] == names.TOPOLOGY_NAME,
        f"there is one HulkTopology per cluster and its name is {names.TOPOLOGY_NAME}",
    ),
)
JOB_SPEC = (
    Rule(
        "!has(self.training.globalBatch) || self.training.globalBatch * self.parallelism.?pipeline.orValue(1) * "
        "self.parallelism.?tensor.orValue(1) >= self.workers.min",
        lambda self: (
            "globalBatch" not in self["training"]
            or self["training"]["globalBatch"]
            * self["parallelism"].get("pipeline", 1)
            * self["parallelism"].get("tensor", 1)
            >= self["workers"]["min"]
        ),
        "training.globalBatch must be at least workers.min / (parallelism.pipeline x parallelism.tensor): "
        "every replica needs a sequence",
        ".training.globalBatch",
    ),
    Rule(
        "!has(self.placement.workerNodes) || self.placement.workerNodes.size() == 0 || "
        "(self.placement.workerNodes.size() >= self.workers.min && "
        "self.placement.workerNodes.size() <= self.workers.max)",
        lambda self: (
            not (nodes := self["placement"].get("workerNodes"))
            or self["workers"]["min"] <= len(nodes) <= self["workers"]["max"]
        ),
        "placement.workerNodes names a node per worker: their number must lie between workers.min and workers.max",
        ".placement.workerNodes",
    ),
    Rule(
        "!has(self.sync.local) || self.sync.mode == 'local'",
        lambda self: "local" not in self["sync"] or self["sync"]["mode"] == "local",
        "sync.local is for sync.mode local",
        ".sync.local",
    ),
    Rule(
        "self.sync.compression in ['auto', 'none'] || self.sync.mode != 'ring'",
        lambda self: self["sync"]["compression"] in ("auto", "none") or self["sync"]["mode"] != "ring",
        "sync.compression is of Hulk's own all-reduce; mode ring sends values as they are",
        ".sync.compression",
    ),
    Rule(
        "self.sync.compression != 'int4' || self.sync.mode == 'local'",
        lambda self: self["sync"]["compression"] != "int4" or self["sync"]["mode"] == "local",
        "sync.compression int4 is for sync.mode local",
        ".sync.compression",
    ),
    Rule(
        "self.sync.onRegionLoss == 'restart' || self.sync.mode != 'ring'",
        lambda self: self["sync"]["onRegionLoss"] == "restart" or self["sync"]["mode"] != "ring",
        "sync.onRegionLoss continue needs Hulk's own all-reduce; mode ring cannot go on without a region",
        ".sync.onRegionLoss",
    ),
    Rule(
        "self.parallelism.?data.orValue(1) * self.parallelism.?pipeline.orValue(1) * "
        "self.parallelism.?shard.orValue(1) * self.parallelism.?tensor.orValue(1) <= "
        "self.workers.max * self.workers.acceleratorsPerWorker",
        lambda self: (
            self["parallelism"].get("data", 1)
            * self["parallelism"].get("pipeline", 1)
            * self["parallelism"].get("shard", 1)
            * self["parallelism"].get("tensor", 1)
            <= self["workers"]["max"] * self["workers"]["acceleratorsPerWorker"]
        ),
        "parallelism data x pipeline x shard x tensor needs more accelerators than workers.max x "
        "workers.acceleratorsPerWorker",
        ".parallelism",
    ),
)
PLACEMENT = (
    Rule(
        "!has(self.regions) || !has(self.deniedRegions) || !self.regions.exists(r, r in self.deniedRegions)",
        lambda self: not set(self.get("regions", ())) & set(self.get("deniedRegions", ())),
        "placement.regions and placement.deniedRegions name the same region; a region is either allowed or denied",
        ".deniedRegions",
    ),
    Rule(
        "!has(self.maxPricePerHour) || double(self.maxPricePerHour) > 0.0",
        lambda self: float(self.get("maxPricePerHour", 1)) > 0,
        "placement.maxPricePerHour must be above 0",
        ".maxPricePerHour",
    ),
    Rule(
        "!has(self.workerNodes) || self.workerNodes.size() == 0 || self.objective == 'time'",
        lambda self: not self.get("workerNodes") or self["objective"] == "time",
        "placement.workerNodes and placement.objective exclude each other: named nodes leave nothing to choose",
        ".objective",
    ),
    Rule(
        "!has(self.workerNodes) || self.workerNodes.size() == 0 || self.allowScaleUp == 'none'",
        lambda self: not self.get("workerNodes") or self.get("allowScaleUp", "none") == "none",
        "placement.workerNodes and placement.allowScaleUp exclude each other: no new node would have these names",
        ".allowScaleUp",
    ),
)
LAYER_PIN = (
    Rule(
        "has(self.layers) != has(self.parameters)",
        lambda self: ("layers" in self) != ("parameters" in self),
        "a pin needs exactly one of layers and parameters",
    ),
    Rule(
        "(has(self.regions) && self.regions.size() > 0) || (has(self.nodes) && self.nodes.size() > 0)",
        lambda self: bool(self.get("regions") or self.get("nodes")),
        "a pin needs regions or nodes",
    ),
)
WORKERS = (
    Rule(
        "self.min <= self.max",
        lambda self: self["min"] <= self["max"],
        "workers.min must be at most workers.max",
        ".min",
    ),
)
STORAGE = (
    Rule(
        "has(self.url) != has(self.persistentVolumeClaim)",
        lambda self: ("url" in self) != ("persistentVolumeClaim" in self),
        "checkpoint.storage needs exactly one of url and persistentVolumeClaim",
    ),
    Rule(
        "!has(self.secretName) || has(self.url)",
        lambda self: "secretName" not in self or "url" in self,
        "checkpoint.storage.secretName is for url; a volume claim needs none",
        ".secretName",
    ),
    Rule(
        "!has(self.regional) || self.regional.size() == 0 || has(self.url)",
        lambda self: not self.get("regional") or "url" in self,
        "checkpoint.storage.regional is for stores beside url; a volume claim is one for all regions",
        ".regional",
    ),
)
TRANSFORMER = (
    Rule(
        "self.hidden % self.heads == 0",
        lambda self: self["hidden"] % self["heads"] == 0,
        "model.transformer.hidden must be a multiple of heads",
        ".heads",
    ),
)
MODEL = (
    Rule(
        "[has(self.transformer), has(self.huggingFace), has(self.profile)].filter(form, form).size() == 1",
        lambda self: sum(form in self for form in ("transformer", "huggingFace", "profile")) == 1,
        "model needs exactly one of transformer, huggingFace and profile",
    ),
)
TRAINABLE = (
    Rule(
        "has(self.parameters) != has(self.share)",
        lambda self: ("parameters" in self) != ("share" in self),
        "model.trainable needs exactly one of parameters and share",
    ),
    Rule(
        "!has(self.share) || (double(self.share) > 0.0 && double(self.share) <= 1.0)",
        lambda self: 0 < float(self.get("share", 1)) <= 1,
        "model.trainable.share must be above 0 and at most 1: trainable% divided by 100, such as 0.0052",
        ".share",
    ),
)
TRAINING = (
    Rule(
        "!has(self.microBatch) || !has(self.globalBatch) || self.microBatch <= self.globalBatch",
        lambda self: "globalBatch" not in self or self.get("microBatch", 1) <= self["globalBatch"],
        "training.microBatch must be at most training.globalBatch",
        ".microBatch",
    ),
)
LOCAL_SYNC = (
    Rule(
        "!has(self.outerLearningRate) || double(self.outerLearningRate) > 0.0",
        lambda self: float(self.get("outerLearningRate", 1)) > 0,
        "sync.local.outerLearningRate must be above 0",
        ".outerLearningRate",
    ),
    Rule(
        "!has(self.outerMomentum) || double(self.outerMomentum) < 1.0",
        lambda self: float(self.get("outerMomentum", 0)) < 1,
        "sync.local.outerMomentum must be below 1",
        ".outerMomentum",
    ),
    Rule(
        "!has(self.fragments) || self.fragments <= self.innerSteps",
        lambda self: self.get("fragments", 1) <= self["innerSteps"],
        "sync.local.fragments must be at most innerSteps: each comes together once in a round, after another step",
        ".fragments",
    ),
    Rule(
        "!has(self.delaySteps) || self.delaySteps < self.innerSteps",
        lambda self: self.get("delaySteps", 0) < self["innerSteps"],
        "sync.local.delaySteps must be below innerSteps: a fragment is merged before its next sum begins",
        ".delaySteps",
    ),
)
SIGMOID = (
    Rule(
        "double(self.steepness) > 0.0",
        lambda self: float(self["steepness"]) > 0,
        "utility.sigmoid.steepness must be above 0",
        ".steepness",
    ),
)
DEADLINE = (
    Rule(
        "has(self.at) != has(self.afterSeconds)",
        lambda self: ("at" in self) != ("afterSeconds" in self),
        "utility.deadline needs exactly one of at and afterSeconds",
    ),
    Rule(
        "double(self.lateShare) <= 1.0",
        lambda self: float(self["lateShare"]) <= 1,
        "utility.deadline.lateShare must be at most 1",
        ".lateShare",
    ),
)
UTILITY = (
    Rule(
        "!has(self.weight) || double(self.weight) > 0.0",  # a default is checked before its own parts are filled in
        lambda self: float(self["weight"]) > 0,
        "utility.weight must be above 0",
        ".weight",
    ),
    _utility_needs("sigmoid", "utility.type sigmoid needs utility.sigmoid with steepness and midpoint"),
    Rule(
        "!has(self.type) || self.type != 'energy' || (has(self.energy) && has(self.energy.powerPrice))",
        lambda self: self["type"] != "energy" or "powerPrice" in self.get("energy", {}),
        "utility.type energy needs utility.energy with wattsPerWorker and powerPrice",
        ".energy",
        "FieldValueRequired",
    ),
    _utility_needs("deadline", "utility.type deadline needs utility.deadline with at or afterSeconds"),
)
POD_SPEC = (
    _refused("nodeName", "nodes come from the plan; use spec.placement.workerNodes"),
    _refused("hostname", "host names come from the plan; remove hostname"),
    _refused("subdomain", "the subdomain is the attempt's Service; remove subdomain"),
    _refused("priorityClassName", "set spec.priorityClassName of the HulkJob instead"),
    Rule(
        "!has(self.restartPolicy) || self.restartPolicy in ['', 'Never']",
        lambda self: self.get("restartPolicy", "") in ("", "Never"),
        "restartPolicy must be Never or absent: a gang is started again as a whole",
        ".restartPolicy",
    ),
    Rule(
        "(!has(self.containers[0].restartPolicy) || self.containers[0].restartPolicy in ['', 'Never']) && "
        "(!has(self.containers[0].restartPolicyRules) || self.containers[0].restartPolicyRules.size() == 0)",
        lambda self: (
            self["containers"][0].get("restartPolicy", "") in ("", "Never")
            and not self["containers"][0].get("restartPolicyRules")
        ),
        "the first container's restartPolicy must be Never or absent, and it has no restartPolicyRules: "
        "a gang is started again as a whole",
        ".containers",
    ),
    Rule(
        f"!has(self.containers[0].env) || self.containers[0].env.all(e, !(e.name in [{_RESERVED_ENV}]))",
        lambda self: not any(entry["name"] in names.RESERVED_ENV for entry in self["containers"][0].get("env", ())),
        "the first container sets an environment variable that Hulk sets "
        "(rank and rendezvous variables, HULK_*); remove it",
        ".containers",
    ),
)
LABELS = (_not_reserved("labels"),)
ANNOTATIONS = (_not_reserved("annotations"),)

RULES: Final = (
    *HULK_JOB,
    *HULK_TOPOLOGY,
    *JOB_SPEC,
    *PLACEMENT,
    *LAYER_PIN,
    *WORKERS,
    *STORAGE,
    *TRANSFORMER,
    *MODEL,
    *TRAINABLE,
    *TRAINING,
    *LOCAL_SYNC,
    *SIGMOID,
    *DEADLINE,
    *UTILITY,
    *POD_SPEC,
    *LABELS,
    *ANNOTATIONS,
)
PREDICATES: Final = {entry.cel: entry.holds for entry in RULES}  # a schema carries only the CEL


def validated_by(rules: tuple[Rule, ...]) -> dict[str, Any]:
    """The `json_schema_extra` that puts rules on a type or field."""
    return {VALIDATIONS: [rule(entry.cel, entry.message, entry.field_path, entry.reason) for entry in rules]}
