"""The four kinds as whole objects, and how each looks to Kubernetes (plural, scope, printer columns)."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from hulk_operator import names
from hulk_operator.api import rules, sweep_rules
from hulk_operator.api.base import Resource
from hulk_operator.api.hulkjob import HulkJobSpec
from hulk_operator.api.hulksweep import HulkSweepSpec, HulkSweepStatus
from hulk_operator.api.hulktopology import HulkTopologySpec
from hulk_operator.api.meta import ObjectMeta
from hulk_operator.api.nodeprofile import NodeProfileSpec, NodeProfileStatus
from hulk_operator.api.rules import validated_by
from hulk_operator.api.status import HulkJobStatus


class HulkJob(Resource):
    """Trains one model on accelerators in one or several regions."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.HULK_JOB))

    api_version: Literal["hulk.dev/v1alpha1"] = names.API_VERSION
    kind: Literal["HulkJob"] = names.JOB_KIND
    metadata: ObjectMeta
    spec: Annotated[HulkJobSpec, Field(description="What the user wants.")]
    status: Annotated[HulkJobStatus, Field(description="What Hulk sees and did.")] = HulkJobStatus()

    @property
    def namespace(self) -> str:
        """A file without one means `default`."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return names.key(self.namespace, self.metadata.name)

    @property
    def queue(self) -> str:
        """Kueue's LocalQueue that decides when it runs; empty: none does."""
        return self.metadata.labels.get(names.LABEL_QUEUE, "")


class HulkSweep(Resource):
    """Tries variations of one HulkJob, and says which is best."""

    model_config = ConfigDict(json_schema_extra=validated_by(sweep_rules.HULK_SWEEP))

    api_version: Literal["hulk.dev/v1alpha1"] = names.API_VERSION
    kind: Literal["HulkSweep"] = names.SWEEP_KIND
    metadata: ObjectMeta
    spec: Annotated[HulkSweepSpec, Field(description="What is tried.")]
    status: Annotated[HulkSweepStatus, Field(description="What came of it.")] = HulkSweepStatus()

    @property
    def namespace(self) -> str:
        """A file without one means `default`."""
        return self.metadata.namespace or "default"

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return names.key(self.namespace, self.metadata.name)


class NodeProfile(Resource):
    """What was measured on one node; named after the node and owned by it."""

    api_version: Literal["hulk.dev/v1alpha1"] = names.API_VERSION
    kind: Literal["NodeProfile"] = names.PROFILE_KIND
    metadata: ObjectMeta
    spec: Annotated[NodeProfileSpec, Field(description="What to measure next.")] = NodeProfileSpec()
    status: Annotated[NodeProfileStatus, Field(description="What was measured.")] = NodeProfileStatus()


class HulkTopology(Resource):
    """What cannot be measured about the cluster's regions; only the one named `cluster` is read."""

    model_config = ConfigDict(json_schema_extra=validated_by(rules.HULK_TOPOLOGY))

    api_version: Literal["hulk.dev/v1alpha1"] = names.API_VERSION
    kind: Literal["HulkTopology"] = names.TOPOLOGY_KIND
    metadata: ObjectMeta
    spec: Annotated[HulkTopologySpec, Field(description="What is declared.")] = HulkTopologySpec()


@dataclass(frozen=True, slots=True)
class Kind:
    """How one kind looks to Kubernetes."""

    model: type[Resource]
    plural: str
    short: str
    namespaced: bool
    columns: tuple[dict[str, Any], ...]

    @property
    def name(self) -> str:
        """The kind, such as `HulkJob`."""
        return self.model.__name__

    @property
    def crd_name(self) -> str:
        """Name of the CustomResourceDefinition."""
        return f"{self.plural}.{names.GROUP}"


def _column(name: str, kind: str, path: str, description: str, *, wide: bool = False) -> dict[str, Any]:
    column = {"name": name, "type": kind, "jsonPath": path, "description": description}
    return column | ({"priority": 1} if wide else {})


_AGE = _column("Age", "date", ".metadata.creationTimestamp", "Time since creation.")

KINDS: tuple[Kind, ...] = (
    Kind(
        HulkJob,
        names.JOB_PLURAL,
        names.JOB_SHORT,
        True,
        (
            _column("Phase", "string", ".status.phase", "Where the job is."),
            _column("Attempt", "integer", ".status.attempt", "Last attempt."),
            _column("Workers", "integer", ".status.plan.numWorkers", "Workers of the plan."),
            _column("Step", "integer", ".status.observed.step", "Last completed step."),
            _column("Predicted", "string", ".status.prediction.stepTime", "Predicted step."),
            _column("Observed", "string", ".status.observed.stepTime", "Observed step."),
            _column("Queue", "integer", ".status.queue.position", "Place in the queue.", wide=True),
            _column("Loss", "string", ".status.observed.loss", "Training loss.", wide=True),
            _column("Error", "string", ".status.observed.relativeError", "Relative error.", wide=True),
            _column("Failures", "integer", ".status.failures", "Failures that count.", wide=True),
            _column("Reason", "string", ".status.conditions[?(@.type=='Planned')].reason", "Planning.", wide=True),
            _AGE,
        ),
    ),
    Kind(
        HulkSweep,
        names.SWEEP_PLURAL,
        names.SWEEP_SHORT,
        True,
        (
            _column("Phase", "string", ".status.phase", "Where the sweep is."),
            _column("Trials", "integer", ".status.trials.total", "All trials."),
            _column("Running", "integer", ".status.trials.running", "Trials that run."),
            _column("Succeeded", "integer", ".status.trials.succeeded", "Trials that ended well."),
            _column("Stopped", "integer", ".status.trials.stopped", "Trials that halving ended."),
            _column("Failed", "integer", ".status.trials.failed", "Trials that failed."),
            _column("Best", "string", ".status.best.name", "The best trial so far."),
            _column("Metric", "string", ".status.best.metric", "Its metric."),
            _column("Mode", "string", ".spec.mode", "How trials run.", wide=True),
            _column("Reason", "string", ".status.conditions[?(@.type=='Valid')].message", "What is wrong.", wide=True),
            _AGE,
        ),
    ),
    Kind(
        NodeProfile,
        names.PROFILE_PLURAL,
        names.PROFILE_SHORT,
        False,
        (
            _column("Ordered", "integer", ".spec.measurementId", "Last measurement ordered."),
            _column("Done", "integer", ".status.lastId", "Last measurement done."),
            _column("Echo", "string", ".status.echo.address", "Where the agent answers."),
            _column("Agent", "string", ".status.agentVersion", "Version of the agent."),
            _AGE,
        ),
    ),
    Kind(HulkTopology, names.TOPOLOGY_PLURAL, names.TOPOLOGY_SHORT, False, (_AGE,)),
)
