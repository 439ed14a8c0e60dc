"""A real API server takes HulkSweeps, fills in their defaults, and refuses what the rules refuse, in the same words."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from hulk_operator.api import HulkSweep
from hulk_operator.cluster import HULK_SWEEPS, ApiCluster, ApiResource, Invalid, connect
from served_kinds import serve_kinds
from sweep_cases import document
from test_sweep_trials import REFUSED, REFUSED_TEMPLATES

pytestmark = pytest.mark.controlplane

NAMESPACES = ApiResource("", "v1", "namespaces", "Namespace", False)
NAMESPACE = "sweep-rules"
# What the schema alone refuses, the API server tells in words of its own.
OF_RULES = {
    name for name, (_, said) in REFUSED.items() if not said.startswith(("Input", "String", "must be quoted", "spec."))
}


@pytest_asyncio.fixture
async def cluster(control_plane: Path) -> AsyncIterator[ApiCluster]:
    """The API server with this checkout's CRDs and an empty namespace."""
    connected = await connect(str(control_plane))
    try:
        await serve_kinds(connected, control_plane)
        space = {"metadata": {"name": NAMESPACE}}
        await connected.apply(NAMESPACES, NAMESPACE, None, space, field_manager="test")
        await connected.delete_all(HULK_SWEEPS, NAMESPACE, labels="")
        yield connected
        await connected.delete_all(HULK_SWEEPS, NAMESPACE, labels="")
    finally:
        await connected.close()


def body(name: str = "rates", job: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    found = document(name, job, **spec)
    return {**found, "metadata": {"name": name, "namespace": NAMESPACE}}


async def test_a_good_sweep_is_taken_and_its_defaults_filled_in(cluster: ApiCluster) -> None:
    created = HulkSweep.model_validate(await cluster.create(HULK_SWEEPS, body(halving={"minSteps": 10})))
    assert (created.spec.mode, created.spec.objective.metric, created.spec.objective.goal) == (
        "jobs",
        "hulk_worker_loss",
        "minimize",
    )
    assert created.spec.halving is not None
    assert (created.spec.halving.eta, created.spec.template.spec.run_policy.backoff_limit) == (3, 3)


@pytest.mark.parametrize("name", sorted(OF_RULES))
async def test_a_bad_sweep_is_refused_with_a_sentence(cluster: ApiCluster, name: str) -> None:
    spec, expected = REFUSED[name]
    with pytest.raises(Invalid) as caught:
        await cluster.create(HULK_SWEEPS, body(**spec))
    assert expected.partition(": name ")[0] in caught.value.message


@pytest.mark.parametrize("name", REFUSED_TEMPLATES)
async def test_a_template_that_is_no_trials_is_refused(cluster: ApiCluster, name: str) -> None:
    job, expected = REFUSED_TEMPLATES[name]
    with pytest.raises(Invalid) as caught:
        await cluster.create(HULK_SWEEPS, body(job=job))
    assert expected in caught.value.message


async def test_only_suspend_and_parallelism_change(cluster: ApiCluster) -> None:
    await cluster.create(HULK_SWEEPS, body())
    changed = await cluster.patch(
        HULK_SWEEPS, "rates", NAMESPACE, {"spec": {"suspend": True, "parallelism": 7}}, subresource=None
    )
    assert (changed["spec"]["suspend"], changed["spec"]["parallelism"]) == (True, 7)
    for change in (
        {"objective": {"goal": "maximize"}},
        {"parameters": {"list": [{"rate": "9"}]}},
        {"template": {"spec": {"training": {"steps": 50}}}},
        {"halving": {"minSteps": 5}},
    ):
        with pytest.raises(Invalid, match="cannot change; make a new sweep"):
            await cluster.patch(HULK_SWEEPS, "rates", NAMESPACE, {"spec": change})


async def test_the_longest_sweep_stays_within_the_cost_of_its_rules(cluster: ApiCluster) -> None:
    values = [{f"p{n}": "v" * 200 for n in range(16)} for _ in range(300)]
    created = await cluster.create(HULK_SWEEPS, body(parameters={"list": values}))
    assert len(created["spec"]["parameters"]["list"]) == 300
