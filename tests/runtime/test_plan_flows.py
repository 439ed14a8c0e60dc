"""The flows of Hulk's own all-reduce, from the plan's bytes to what the collective runs."""

import gzip
import json
from pathlib import Path

import pytest
from hulk_runtime.errors import PlanError
from hulk_runtime.plan import wire
from hulk_runtime.plan.flows import Uplink

GOLDEN = Path(__file__).resolve().parents[1] / "placement" / "golden" / "plan-wan-v1.json"


def golden():
    return wire.decode(gzip.compress(GOLDEN.read_bytes()))


def test_the_planners_golden_flows_are_what_the_collective_runs():
    plan = golden()
    assert plan.algorithm == "wan"
    assert plan.inner_steps == 20
    assert plan.collective is not None
    flows = plan.collective_plan()
    assert flows.num_ranks == plan.num_ranks
    assert flows.regions == ((0, 1), (2, 3), (4, 5))
    assert set(flows.without) == {0, 1, 2}
    for found, written in zip(flows.classes, plan.collective.classes, strict=True):
        assert sum(flow.share for flow in found.flows) == pytest.approx(1)
        assert found.max_bytes == written.max_bytes
        assert written.predicted_seconds >= written.bound_seconds
    assert {flow.regions for flow in flows.without[1][0].flows} == {frozenset({0, 2})}


def test_uplinks_are_read_and_may_be_absent(encode_plan):
    """Null is no limit. An operator that knows nothing of uplinks wrote none."""
    assert golden().collective_plan().uplinks == {}
    capped = wire.decode(
        changed(encode_plan, lambda body: body["collective"].update(uplinks=[[0, 6_000_000, 5_000_000], [2, None, 7]]))
    )
    assert capped.collective_plan().uplinks == {0: Uplink(6e6, 5e6), 2: Uplink(ingress_bytes_per_s=7.0)}
    older = wire.decode(changed(encode_plan, lambda body: body["collective"].pop("uplinks")))
    assert older.collective_plan().uplinks == {}


@pytest.mark.parametrize(
    ("written", "encrypted"), [({"encryption": "wan"}, True), ({"encryption": "none"}, False), ({}, True)]
)
def test_bytes_between_regions_are_encrypted_unless_the_plan_says_otherwise(encode_plan, written, encrypted):
    """An operator that knows nothing of it writes nothing: all ranks read the same plan, and can."""

    def write(body):
        del body["collective"]["encryption"]
        body["collective"].update(written)

    flows = wire.decode(changed(encode_plan, write)).collective_plan()
    assert flows.is_encrypted(1, 2) is encrypted
    assert not flows.is_encrypted(0, 1), "they are in one region"


def changed(encode_plan, change):
    """The golden plan after `change` of its JSON object, its digest right."""
    body = json.loads(GOLDEN.read_text())
    del body["digest"]
    change(body)
    return encode_plan({**body, "digest": wire.digest_of(body)})


def first_flow(body):
    return body["collective"]["classes"][0]["flows"][0]


def some_alternative(body):
    return next(found["alternatives"][0] for found in body["collective"]["classes"] if found["alternatives"])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("wan without flows", lambda body: body.pop("collective")),
        ("ring with flows", lambda body: body.update(algorithm="ring")),
        ("other regions", lambda body: body["collective"].update(regions=["P", "O", "X"])),
        ("a link of no rate", lambda body: body["collective"]["links"].append([0, 1, 0, 0.1])),
        ("half of the vector", lambda body: first_flow(body).update(share=first_flow(body)["share"] / 2)),
        ("a region left out", lambda body: first_flow(body).update(exchange=[0], reduce=[[1, 0]], broadcast=[[1, 0]])),
        (
            "a cycle",
            lambda body: first_flow(body).update(exchange=[0], reduce=[[1, 2], [2, 1]], broadcast=[[1, 0], [2, 0]]),
        ),
        ("an uplink of another region", lambda body: body["collective"].update(uplinks=[[3, 10, 10]])),
        ("an uplink that carries nothing", lambda body: body["collective"].update(uplinks=[[0, 0, None]])),
        ("a link twice", lambda body: body["collective"]["links"].append([0, 1, 5, 0.1])),
        ("a link to itself", lambda body: body["collective"]["links"].append([1, 1, 5, 0.1])),
        ("a link of another region", lambda body: body["collective"]["links"].append([9, 1, 5, 0.1])),
        ("a link of any rate", lambda body: body["collective"]["links"][0].__setitem__(2, float("inf"))),
        ("a link that brings nothing", lambda body: body["collective"]["links"][0].__setitem__(3, float("inf"))),
        ("a slow link of other regions", lambda body: some_alternative(body).update(slow=[9, 9])),
        ("a region cut off twice", lambda body: body["collective"]["without"].append(body["collective"]["without"][0])),
        ("predicted before it begins", lambda body: body["collective"]["classes"][0].update(predictedSeconds=-1)),
        ("another way to encrypt", lambda body: body["collective"].update(encryption="tls")),
        ("falling sizes", lambda body: body["collective"]["classes"].reverse()),
    ],
)
def test_flows_that_do_not_sum_all_to_all_are_refused(encode_plan, name, change):
    with pytest.raises(PlanError):
        wire.decode(changed(encode_plan, change))
