"""What the API server refuses is refused in files as well, by the same objects and in the same words."""

import re

import pytest
from api_vectors import BROKEN_NAMES, BROKEN_RULES, BROKEN_SCHEMAS, BROKEN_TOPOLOGIES, GOOD_SPECS, job, topology
from hulk_operator.api import HulkJob
from hulk_operator.api.elsewhere import ELSEWHERE
from hulk_operator.api.rules import RULES, Rule
from hulk_operator.api.schema import fields, structural
from hulk_operator.api.strict import parse

BROKEN = {
    **{name: (job(changes), expected) for name, (changes, expected) in BROKEN_RULES.items()},
    **{name: (job(name=name), expected) for name, expected in BROKEN_NAMES},
    **{f"topology: {name}": broken for name, broken in BROKEN_TOPOLOGIES.items()},
}


def refusal(document: object) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is what is tested
        parse(document)
    return str(caught.value)


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_rule_is_told_in_the_api_servers_words(name: str) -> None:
    document, expected = BROKEN[name]
    assert expected.replace("Invalid value: ", "") in refusal(document)


@pytest.mark.parametrize("name", BROKEN_SCHEMAS)
def test_a_value_that_the_schema_refuses_is_named(name: str) -> None:
    changes, _, field = BROKEN_SCHEMAS[name]
    assert refusal(job(changes)).startswith(f"{field}: ")


@pytest.mark.parametrize("name", GOOD_SPECS)
def test_a_good_spec_is_taken(name: str) -> None:
    assert isinstance(parse(job(GOOD_SPECS[name])), HulkJob)


def test_a_good_topology_is_taken() -> None:
    there = {"source": "a", "target": "b", "rttMicroseconds": 9, "bandwidthBytesPerSecond": 7}
    back = there | {"source": "b", "target": "a"}
    assert parse(topology({"links": [there, back]})) is not None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.message)
def test_every_rule_is_broken_by_some_object(rule: Rule) -> None:
    assert any(rule.message in refusal(document) for document, _ in BROKEN.values())


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("numNodes", "spec.numNodes: unknown field; here it is workers.min and workers.max"),
        ("workers.nproc_per_node", "spec.workers.nproc_per_node: unknown field; here it is workers.accelerators"),
        ("model.loraRank", "spec.model.loraRank: unknown field; here it is model.trainable.share"),
        (
            "training.gradientAccumulationSteps",
            "spec.training.gradientAccumulationSteps: unknown field; Hulk has no such field: it follows from ",
        ),
        ("template.spec.contaners", "spec.template.spec.contaners: unknown field; did you mean containers?"),
        (
            "template.spec.containers.0.imagePulPolicy",
            "spec.template.spec.containers[0].imagePulPolicy: unknown field; did you mean imagePullPolicy?",
        ),
    ],
)
def test_a_field_of_another_project_and_a_typing_error_in_a_pod_are_named(path: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse(job({path: 2}))


@pytest.mark.parametrize(
    ("path", "given", "said"),
    [
        (
            "model.trainable",
            {"share": 0.0052},
            "share: a share as quoted text, above 0 and at most 1: trainable% divided",
        ),
        ("model.trainable", {"share": "0.52%"}, """such as "0.0052", not '0.52%'"""),
        ("model.trainable", {"share": "52"}, "above 0 and at most 1: trainable% divided by 100, such as 0.0052"),
        (
            "placement",
            {"maxPricePerHour": "9 EUR"},
            """maxPricePerHour: a number as quoted text, such as "0.5", not '9""",
        ),
        ("placement", {"maxPricePerHour": 9}, 'maxPricePerHour: must be quoted text: "9"'),
    ],
)
def test_a_number_that_is_to_be_text_is_shown_as_text(path: str, given: object, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse(job({path: given}))


def test_every_name_of_another_project_leads_to_a_field_that_there_is() -> None:
    spec = structural(HulkJob)["properties"]["spec"]
    known = {".".join(field.path).replace("[]", "[0]") for field in fields(spec)}
    first_words = {re.split(r"[ ;:]", field)[0] for field in ELSEWHERE.values()} - {"nothing"}
    assert first_words <= known
