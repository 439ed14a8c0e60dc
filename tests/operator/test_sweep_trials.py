"""A HulkSweep -> its trials and their HulkJobs, and the sentence for each mistake in how they are described."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_operator import names
from hulk_operator.api import HulkJob, HulkSweep
from hulk_operator.api.strict import parse
from hulk_operator.sweeps.trial_jobs import job_mistakes, trial_job
from hulk_operator.sweeps.trials import mistakes, trials
from sweep_cases import JOB_SPEC, document, sweep

EXAMPLES = Path(__file__).parents[2] / "examples"
GRID = {"grid": [{"name": "rate", "values": ["0.1", "0.2"]}, {"name": "width", "values": ["8", "16", "32"]}]}
WIDTH = {"path": "model.transformer.hidden", "parameter": "width"}


def test_a_grid_is_every_value_with_each_of_the_others() -> None:
    found = trials(sweep(parameters=GRID, fields=[WIDTH]))
    assert [trial.name for trial in found] == [f"rates-t{n}" for n in range(6)]
    assert found[0].values == {"rate": "0.1", "width": "8"}
    assert found[4].values == {"rate": "0.2", "width": "16"}


def test_a_trials_job_has_its_values_and_belongs_to_the_sweep() -> None:
    one = sweep(parameters=GRID, fields=[WIDTH], objective={"metric": "accuracy", "goal": "maximize"})
    body = trial_job(one, trials(one)[4])
    job = parse(body)
    assert isinstance(job, HulkJob)
    container = job.spec.template.pod_spec()["containers"][0]
    assert container["args"] == ["--rate=0.2"]
    assert container["env"] == [{"name": "NAME", "value": "rates-t4"}]
    assert job.spec.model.transformer is not None
    assert (job.spec.model.transformer.hidden, job.spec.metric) == (16, "accuracy")
    assert body["metadata"]["labels"] == {
        names.LABEL_SWEEP: "rates",
        names.LABEL_TRIAL: "4",
        names.LABEL_MANAGED_BY: "hulk",
    }
    assert job.metadata.owner_references[0].uid == "s1"


def test_the_loss_needs_no_series_of_its_own() -> None:
    one = sweep()
    assert "metric" not in trial_job(one, trials(one)[0])["spec"]


def test_what_the_template_says_stays_as_it_is() -> None:
    one = sweep()
    spec = trial_job(one, trials(one)[1])["spec"]
    assert spec["checkpoint"]["storage"] == {"url": "s3://bucket/sweep", "regional": []}
    assert spec["training"]["steps"] == 40


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "unknown placeholder": (
        {"parameters": {"list": [{"speed": "1"}]}},
        "$(sweep.rate) in the template names no parameter; there are speed",
    ),
    "unused parameter": (
        {"parameters": {"list": [{"rate": "1", "width": "2"}]}},
        "parameter width is used nowhere: put $(sweep.width) into the PodSpec, or name it in fields",
    ),
    "unknown field's parameter": ({"fields": [WIDTH]}, "fields names the parameter width, which there is not"),
    "value missing": (
        {"parameters": {"list": [{"rate": "1", "width": "2"}, {"rate": "1"}]}, "fields": [WIDTH]},
        "parameters.list[1] has no value for width: every entry needs the same names",
    ),
    "name": ({"parameters": {"list": [{"rate": "1", "a-b": "2"}]}}, "parameter 'a-b': a name has at most 32 letters"),
    "own name": ({"parameters": {"list": [{"rate": "1", "trial": "2"}]}}, "a parameter cannot be called trial"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_mistake_is_told_in_a_sentence(name: str) -> None:
    spec, expected = BAD[name]
    assert any(expected in said for said in mistakes(sweep(**spec)))


def test_a_good_sweep_has_no_mistakes() -> None:
    one = sweep(parameters=GRID, fields=[WIDTH])
    assert [*mistakes(one), *job_mistakes(one)] == []


@pytest.mark.parametrize(
    ("width", "expected"),
    [
        ("7", "trial rates-t1: spec.model.transformer.heads: model.transformer.hidden must be a multiple of heads"),
        (
            "wide",
            "trial rates-t1: model.transformer.hidden must be a whole number, and the parameter's value is 'wide'",
        ),
        ("-8", "trial rates-t1: spec.model.transformer.hidden: Input should be greater than or equal to 1"),
    ],
)
def test_a_value_that_makes_a_bad_job_is_told_before_anything_begins(width: str, expected: str) -> None:
    values = [{"rate": "1", "width": "8"}, {"rate": "1", "width": width}]
    assert list(job_mistakes(sweep(parameters={"list": values}, fields=[WIDTH]))) == [expected]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "grid and list": ({"parameters": {**GRID, "list": [{"a": "1"}]}}, "parameters needs exactly one of grid and list"),
    "nothing": ({"parameters": {}}, "parameters needs exactly one of grid and list"),
    "too many": (
        {"parameters": {"grid": [{"name": n, "values": ["1"] * 11} for n in ("a", "b", "c")]}},
        "parameters.grid has more than 1000 points",
    ),
    "axis twice": (
        {"parameters": {"grid": [{"name": "a", "values": ["1"]}, {"name": "a", "values": ["2"]}]}},
        "Duplicate value: name a",
    ),
    "number": ({"parameters": {"list": [{"rate": 0.1}]}}, "must be quoted text"),
    "too many to share": (
        {"mode": "sharp", "parameters": {"list": [{"rate": str(n)} for n in range(101)]}},
        "mode sharp takes at most 100 trials",
    ),
    "grid too large to share": (
        {"mode": "sharp", "parameters": {"grid": [{"name": n, "values": ["1"] * 11} for n in ("a", "b")]}},
        "mode sharp takes at most 100 trials",
    ),
    "halving of shared devices": ({"mode": "sharp", "halving": {"minSteps": 5}}, "halving is for mode jobs"),
    "halving too late": ({"halving": {"minSteps": 40}}, "halving.minSteps must be below template.spec.training.steps"),
    "eta": ({"halving": {"minSteps": 5, "eta": 1}}, "Input should be greater than or equal to 2"),
    "no trial at once": ({"parallelism": 0}, "Input should be greater than or equal to 1"),
    "metric": ({"objective": {"metric": "a{b}"}}, "String should match pattern"),
    "field": ({"fields": [{"path": "training.steps", "parameter": "rate"}]}, "spec.fields.0.path"),
}
REFUSED_TEMPLATES: dict[str, tuple[dict[str, Any], str]] = {
    "suspended": ({"suspend": True}, "template.spec.suspend must be false; suspend the sweep"),
    "managed elsewhere": ({"managedBy": "kueue.x-k8s.io/multikueue"}, "template.spec.managedBy must be absent"),
    "ttl": ({"runPolicy": {"ttlSecondsAfterFinished": 5}}, "ttlSecondsAfterFinished must be absent"),
    "bad job": ({"workers": {"min": 3, "max": 2}}, "workers.min must be at most workers.max"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_the_schema_refuses_is_refused_in_a_sentence(name: str) -> None:
    spec, expected = REFUSED[name]
    with pytest.raises(ValueError, match=re.escape(expected)):
        parse(document(**spec))


@pytest.mark.parametrize("name", REFUSED_TEMPLATES)
def test_a_template_that_cannot_be_a_trial_is_refused(name: str) -> None:
    job, expected = REFUSED_TEMPLATES[name]
    with pytest.raises(ValueError, match=re.escape(expected)):
        parse(document(job=job))


def test_halving_needs_a_checkpoint_to_go_on_from() -> None:
    without = document(halving={"minSteps": 10})
    without["spec"]["template"]["spec"] = {key: value for key, value in JOB_SPEC.items() if key != "checkpoint"}
    with pytest.raises(ValueError, match=r"halving needs template\.spec\.checkpoint"):
        parse(without)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a" * (names.MAX_SWEEP_NAME_LENGTH + 1), "a HulkSweep's name has at most 45 characters"),
        ("1st", "a HulkSweep's name starts with a letter"),
    ],
)
def test_a_name_that_its_jobs_cannot_have_is_refused(name: str, expected: str) -> None:
    with pytest.raises(ValueError, match=expected):
        parse(document(name))


@pytest.mark.parametrize("name", ["hulksweep", "hulksweep-sharp"])
def test_the_examples_have_no_mistakes(name: str) -> None:
    body = yaml.safe_load((EXAMPLES / f"{name}.yaml").read_text())
    found = parse({**body, "metadata": {**body["metadata"], "uid": "s1"}})
    assert isinstance(found, HulkSweep)
    assert [*mistakes(found), *job_mistakes(found)] == []


def test_derived_names_fit() -> None:
    longest = "s" * names.MAX_SWEEP_NAME_LENGTH
    for name in (names.trial(longest, names.MAX_TRIALS - 1), names.shared_job(longest)):
        assert len(name) <= names.MAX_JOB_NAME_LENGTH
