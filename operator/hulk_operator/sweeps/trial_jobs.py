"""A trial -> its HulkJob, as the API server wants it."""

from collections.abc import Iterator
from typing import Any

from hulk_operator import names
from hulk_operator.api import HulkSweep
from hulk_operator.api.strict import parse
from hulk_operator.cluster import Object
from hulk_operator.sweeps.trials import OWN_NAME, Trial, fill, trials

LOSS = "hulk_worker_loss"  # which every HulkJob's status tells, to the very last step
MAX_MISTAKES = 3


def owner_reference(sweep: HulkSweep) -> Object:
    """Trials go with their sweep; they never hold up its deletion."""
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.SWEEP_KIND,
        "name": sweep.metadata.name,
        "uid": sweep.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": False,
    }


def metadata(sweep: HulkSweep, name: str, labels: dict[str, str]) -> Object:
    """Of an object that belongs to a sweep."""
    given = sweep.spec.template.metadata
    own = {names.LABEL_SWEEP: sweep.metadata.name, names.LABEL_MANAGED_BY: names.MANAGER}
    annotations = {"annotations": dict(given.annotations)} if given.annotations else {}
    return {
        "name": name,
        "namespace": sweep.namespace,
        "labels": {**given.labels, **own, **labels},
        **annotations,
        "ownerReferences": [owner_reference(sweep)],
    }


def trial_job(sweep: HulkSweep, trial: Trial) -> Object:
    """The HulkJob that runs a trial. ValueError names the field whose value no number can be read from."""
    spec = sweep.spec.template.spec.wire()
    pod = sweep.spec.template.spec.template
    spec["template"] = {**spec["template"], "spec": fill(pod.pod_spec(), {**trial.values, OWN_NAME: trial.name})}
    for entry in sweep.spec.fields:
        _set(spec, entry.path, trial.values[entry.parameter])
    if sweep.spec.objective.metric != LOSS:
        spec["metric"] = sweep.spec.objective.metric
    return {
        "apiVersion": names.API_VERSION,
        "kind": names.JOB_KIND,
        "metadata": metadata(sweep, trial.name, {names.LABEL_TRIAL: str(trial.number)}),
        "spec": spec,
    }


def _set(spec: Object, path: str, text: str) -> None:
    """Set a field; what is a number in a HulkJob is read as one."""
    *parents, last = path.split(".")
    target: Any = spec
    for name in parents:
        target = target.setdefault(name, {})
    target[last] = text if last in ("precision", "optimizer") else _number(path, text)


def _number(path: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path} must be a whole number, and the parameter's value is {text!r}") from None


def job_mistakes(sweep: HulkSweep) -> Iterator[str]:
    """What the API server would refuse of the trials' HulkJobs, the first few, each with its trial."""
    found = 0
    for trial in trials(sweep):
        try:
            parse(trial_job(sweep, trial))
        except ValueError as error:
            yield f"trial {trial.name}: {str(error).splitlines()[0]}"
            found += 1
            if found == MAX_MISTAKES:
                return
