"""PodGroups over a fake cluster: which pods are bound together, and what is said where the API server has none."""

from hulk_operator import names
from hulk_operator.cluster import NotFound, Object
from hulk_operator.reconcile.recipe import POD_GROUPS, decide, writes
from hulk_operator.reconcile.types import Memory
from hulk_operator.status import holds
from test_reconcile_pass import World, up
from views import LAUNCHED, decision, deploying, full, pod, view

NOT_SERVED = NotFound(404, "NotFound", "the server could not find the requested resource")


def grouping(**spec: object) -> World:
    """An operator that makes PodGroups, and a plan of three workers."""
    world = World(decision(), **spec)
    world.reconciler._pod_groups = True
    return world


def groups(world: World) -> dict[str, int]:
    """Of each PodGroup, how many pods are bound together."""
    found = {name: body for (plural, _, name), body in world.cluster.objects.items() if plural == "podgroups"}
    return {name: body["spec"]["schedulingPolicy"]["gang"]["minCount"] for name, body in found.items()}


def group_of(world: World, pod: str) -> Object | None:
    """What a pod says of its group."""
    found: Object | None = world.cluster.objects["pods", "lab", pod]["spec"].get("schedulingGroup")
    return found


async def test_a_gang_is_a_group_that_is_there_before_its_pods_and_goes_with_the_attempt() -> None:
    world = grouping()
    await world.passes(2)
    assert groups(world) == {"demo-1": 3}
    assert [group_of(world, f"demo-1-{worker}") for worker in range(3)] == [{"podGroupName": "demo-1"}] * 3
    (body,) = (body for (plural, _, _), body in world.cluster.objects.items() if plural == "podgroups")
    assert body["metadata"]["labels"] == names.attempt_labels("demo", 1)
    assert [owner["uid"] for owner in body["metadata"]["ownerReferences"]] == [world.job().metadata.uid]
    written = [write for _, write in world.cluster.writes]
    assert written.index("create podgroups") < written.index("create pods")
    world.pods_become(up)
    await world.passes(2)
    world.end_pods()
    await world.passes(2)
    assert set(world.cluster.writes) >= POD_GROUPS
    assert set(world.cluster.writes) <= set(writes())


async def test_pods_that_stay_keep_their_group_and_the_new_ones_are_a_group_of_their_own() -> None:
    world = grouping(**LAUNCHED)
    await world.passes(3)
    world.pods_become(up)
    await world.passes(2)
    gone = world.cluster.objects.pop(("pods", "lab", "demo-1-1"))
    world.store.pods.delete({**gone, "metadata": {**gone["metadata"], "resourceVersion": "999"}})
    await world.passes()
    world.plans.answer, world.plans.full = decision(2), None
    await world.passes(2)
    assert groups(world)["demo-2"] == 1
    assert [group_of(world, name) for name in ("demo-1-0", "demo-2-1")] == [
        {"podGroupName": "demo-1"},
        {"podGroupName": "demo-2"},
    ]


async def test_nothing_of_it_without_the_switch_and_a_template_keeps_its_own_group() -> None:
    plain = World(decision())
    await plain.passes(2)
    assert (groups(plain), group_of(plain, "demo-1-0")) == ({}, None)
    assert not POD_GROUPS & set(plain.cluster.writes)
    mine = {"podGroupName": "mine"}
    own = grouping(template={"spec": {"containers": [{"name": "w", "image": "i"}], "schedulingGroup": mine}})
    await own.passes(2)
    assert (groups(own), group_of(own, "demo-1-0")) == ({}, mine)


async def test_an_api_server_without_them_is_said_of_the_job() -> None:
    world = grouping()
    world.cluster.refuse = lambda write, _: NOT_SERVED if "podgroups" in write else None
    await world.passes(2)
    status = world.job().status
    assert status.last_failure is not None
    assert status.last_failure.reason == "PodGroupsNotServed"
    assert "scheduling.k8s.io/v1alpha2" in status.last_failure.message
    assert not holds(status, "Deployed")
    assert not [name for plural, _, name in world.cluster.objects if plural == "pods"]
    await world.passes(2)  # what may be left is swept: nothing else stands in the way of the next attempt
    assert world.reconciler.memory["lab/demo"].swept_to == 0


def test_only_the_node_that_does_not_fit_is_avoided_where_the_others_wait_for_it() -> None:
    waits = "0/3 nodes are available: waiting for minCount pods from a gang to be scheduled."
    fits = (
        pod(0, phase="Pending", node="", unschedulable=waits),
        pod(2, phase="Pending", node="", unschedulable=waits),
    )
    full_up = pod(1, phase="Pending", node="", unschedulable="0/3 nodes are available: 1 Insufficient cpu")
    made = decide(view(deploying(since_s=300), full=full(), memory=Memory(swept_to=1), pods=(*fits, full_up)))
    assert [node.name for node in made.view.status.avoided_nodes] == ["node-1"]
    last = made.view.status.last_failure
    assert last is not None
    assert "Insufficient cpu" in last.message
    assert waits not in last.message
