"""Who may do what: rights as rendered, counted verb by verb."""

from collections.abc import Iterable
from itertools import product

import pytest
from hulk_operator import names
from rendering import EVERY_SWITCH, ONE_NAMESPACE, Manifest, Render, Rendered

READ = {"get", "list", "watch"}
FOLLOW = {"list", "watch"}
CLUSTER_SCOPED = {
    "nodes",
    "priorityclasses",
    "nodeprofiles",
    "nodeprofiles/status",
    "hulktopologies",
    "deviceclasses",
    "resourceslices",
    "resourceflavors",
    "workloadpriorityclasses",
}


def rights(role: Manifest) -> dict[str, set[str]]:
    """Verbs by resource."""
    found: dict[str, set[str]] = {}
    for rule in role["rules"]:
        for resource, verb in product(rule["resources"], rule["verbs"]):
            found.setdefault(resource, set()).add(verb)
    return found


def roles(rendered: Rendered) -> Iterable[Manifest]:
    return [*rendered.of("ClusterRole").values(), *rendered.of("Role").values()]


@pytest.mark.parametrize("settings", [(), EVERY_SWITCH, (ONE_NAMESPACE,)], ids=["default", "all", "one-namespace"])
def test_nobody_has_a_wildcard_or_reads_secrets(render: Render, settings: tuple[str, ...]) -> None:
    for role in roles(render(*settings)):
        for rule in role["rules"]:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], role["metadata"]["name"]
        for rule in role["rules"]:
            if "secrets" in rule["resources"]:
                where, named = role["metadata"].get("namespace"), rule.get("resourceNames")
                own = (where, named) == ("hulk-system", [names.ORDER_SECRET])
                assert set(rule["verbs"]) <= ({"get"} if own else {"create"}), role["metadata"]["name"]
        assert not {"escalate", "bind", "impersonate"} & {verb for rule in role["rules"] for verb in rule["verbs"]}


def test_the_operator_has_what_its_work_needs_and_nothing_else(chart: Rendered) -> None:
    assert rights(chart.one("ClusterRole", "hulk-operator")) == {
        "nodes": FOLLOW,
        "priorityclasses": {"get"},
        "nodeprofiles": READ | {"create", "patch"},
        "nodeprofiles/status": {"patch"},
        "hulktopologies": FOLLOW,
        "hulkjobs": READ | {"create", "patch", "delete"},
        "hulksweeps": FOLLOW,
        "hulksweeps/status": {"patch"},
        "hulkjobs/status": {"patch"},
        "pods": READ | {"create", "patch", "deletecollection"},
        "pods/log": {"get"},
        "configmaps": {"get", "create", "patch", "deletecollection"},
        "services": {"get", "create", "deletecollection"},
        "networkpolicies": {"get", "create", "deletecollection"},
        "secrets": {"create"},
        "events": {"list", "create"},
        "deviceclasses": FOLLOW,
        "resourceslices": FOLLOW,
        "resourceclaims": FOLLOW,
        "resourceclaimtemplates": FOLLOW,
    }


def test_kueues_kinds_are_the_operators_only_where_they_are_asked_for(chart: Rendered, render: Render) -> None:
    default = rights(chart.one("ClusterRole", "hulk-operator"))
    beside = rights(render("kueue.enabled=true").one("ClusterRole", "hulk-operator"))
    assert {kind: verbs for kind, verbs in beside.items() if kind not in default} == {
        "workloads": {"list", "watch", "create", "patch", "delete"},
        "workloads/status": {"patch"},
        "resourceflavors": {"list", "watch"},
        "workloadpriorityclasses": {"get"},
    }
    narrow = render("kueue.enabled=true", ONE_NAMESPACE)
    assert "workloads" in rights(narrow.one("Role", "hulk-operator"))
    assert "workloads" not in rights(narrow.one("ClusterRole", "hulk-operator"))


def test_pod_groups_are_made_only_where_they_are_asked_for(chart: Rendered, render: Render) -> None:
    on = render("podGroups.enabled=true")
    default = rights(chart.one("ClusterRole", "hulk-operator"))
    found = rights(on.one("ClusterRole", "hulk-operator"))
    assert found == {**default, "podgroups": {"get", "create", "deletecollection"}}


def test_only_its_own_lease_and_key_can_be_read_or_changed(chart: Rendered) -> None:
    role = chart.one("Role", "hulk-operator-lease")
    found = {(*rule["resources"], *rule.get("resourceNames", ())): set(rule["verbs"]) for rule in role["rules"]}
    assert found == {
        ("leases",): {"create"},
        ("leases", names.LEASE): {"get", "patch"},
        ("secrets",): {"create"},
        ("secrets", names.ORDER_SECRET): {"get"},
    }
    assert role["metadata"]["namespace"] == "hulk-system"


def test_an_agent_writes_only_the_status_of_profiles(chart: Rendered) -> None:
    assert rights(chart.one("ClusterRole", "hulk-agent")) == {
        "nodeprofiles": {"list", "watch"},
        "nodeprofiles/status": {"patch"},
    }


def test_each_service_account_is_bound_to_its_own_role(chart: Rendered) -> None:
    for binding in [*chart.of("ClusterRoleBinding").values(), *chart.of("RoleBinding").values()]:
        (subject,) = binding["subjects"]
        assert binding["roleRef"]["name"].startswith(subject["name"])
        assert subject["name"] in chart.of("ServiceAccount")
        assert subject["namespace"] == "hulk-system"


def test_one_namespace_leaves_no_write_outside_it(render: Render) -> None:
    rendered = render(ONE_NAMESPACE, "kueue.enabled=true")
    everywhere = rights(rendered.one("ClusterRole", "hulk-operator"))
    there = rendered.one("Role", "hulk-operator")
    assert set(everywhere) == CLUSTER_SCOPED
    assert there["metadata"]["namespace"] == "research"
    assert rendered.one("RoleBinding", "hulk-operator")["metadata"]["namespace"] == "research"
    assert {**everywhere, **rights(there)} == rights(render("kueue.enabled=true").one("ClusterRole", "hulk-operator"))


def test_an_operator_for_one_namespace_sees_its_agents_pods_and_no_others_outside_it(render: Render) -> None:
    rendered = render(ONE_NAMESPACE)
    role, binding = (rendered.one(kind, "hulk-operator-agents") for kind in ("Role", "RoleBinding"))
    assert rights(role) == {"pods": {"list", "watch"}}
    assert {item["metadata"]["namespace"] for item in (role, binding)} == {"hulk-system"}
    assert "hulk-operator-agents" not in render().of("Role")


def test_the_operator_finds_the_agents_pods_by_their_labels(chart: Rendered) -> None:
    labels = chart.one("DaemonSet", "hulk-agent")["spec"]["template"]["metadata"]["labels"]
    assert {f"{key}={value}" for key, value in labels.items()} >= set(names.AGENT_SELECTOR.split(","))


def test_users_roles_join_kubernetes_own(chart: Rendered) -> None:
    prefix = "rbac.authorization.k8s.io/aggregate-to-"
    joined = {
        name: {label.removeprefix(prefix) for label in role["metadata"]["labels"] if label.startswith(prefix)}
        for name, role in chart.of("ClusterRole").items()
    }
    assert joined["hulk-view"] == {"view", "edit", "admin"}
    assert joined["hulk-edit"] == {"edit", "admin"}
    assert rights(chart.one("ClusterRole", "hulk-view")) == {"hulkjobs": READ, "hulksweeps": READ}
    change = {"create", "update", "patch", "delete", "deletecollection"}
    assert rights(chart.one("ClusterRole", "hulk-edit")) == {"hulkjobs": change, "hulksweeps": change}


def test_aggregation_can_be_turned_off(render: Render) -> None:
    assert not {"hulk-view", "hulk-edit"} & set(render("rbac.aggregate=false").of("ClusterRole"))
