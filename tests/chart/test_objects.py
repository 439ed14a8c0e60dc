"""The objects beside the workloads: definitions, network policies, admission policy, monitoring."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from rendering import CHART, EVERY_SWITCH, ONE_NAMESPACE, Manifest, Render, Rendered

RUNBOOKS = Path(__file__).resolve().parents[2] / "docs/reference/runbooks"
DEFINITIONS = {"hulkjobs.hulk.dev", "hulksweeps.hulk.dev", "nodeprofiles.hulk.dev", "hulktopologies.hulk.dev"}


def test_definitions_stay_after_an_uninstall(chart: Rendered) -> None:
    definitions = chart.of("CustomResourceDefinition")
    assert set(definitions) == DEFINITIONS
    for definition in definitions.values():
        assert definition["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_definitions_can_be_left_to_someone_else(render: Render) -> None:
    assert not render("crds.install=false").of("CustomResourceDefinition")


def ports(rules: list[Manifest]) -> set[tuple[str, int]]:
    return {(port["protocol"], port["port"]) for rule in rules for port in rule["ports"]}


def test_the_operator_is_reached_for_metrics_only(chart: Rendered) -> None:
    spec = chart.one("NetworkPolicy", "hulk-operator")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert ports(spec["ingress"]) == {("TCP", 9401)}
    assert ports(spec["egress"]) == {("UDP", 53), ("TCP", 53), ("TCP", 443), ("TCP", 6443), ("TCP", 9400)}
    assert spec["egress"][-1]["to"] == [
        {"namespaceSelector": {}, "podSelector": {"matchExpressions": [{"key": "hulk.dev/job", "operator": "Exists"}]}}
    ]


def test_in_one_namespace_the_operator_reaches_workers_only_there(render: Render) -> None:
    (peer,) = render(ONE_NAMESPACE).one("NetworkPolicy", "hulk-operator")["spec"]["egress"][-1]["to"]
    assert peer["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "research"}}


def test_agents_are_measured_by_agents_only(chart: Rendered) -> None:
    spec = chart.one("NetworkPolicy", "hulk-agent")["spec"]
    agents = [{"podSelector": spec["podSelector"]}]
    measured = [rule for rule in spec["ingress"] if ports([rule]) == {("UDP", 9403), ("TCP", 9404)}]
    assert [rule["from"] for rule in measured] == [agents]
    assert ports([rule for rule in spec["ingress"] if rule not in measured]) == {("TCP", 9402)}
    assert spec["egress"][-1] == {"to": agents, "ports": measured[0]["ports"]}


def test_policies_select_the_pods_they_are_for(chart: Rendered) -> None:
    for name, policy in chart.of("NetworkPolicy").items():
        labels = chart.workloads()[name]["spec"]["template"]["metadata"]["labels"]
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_admission_policy_denies_and_fails_closed(chart: Rendered) -> None:
    policy = chart.one("ValidatingAdmissionPolicy", "hulk-agent")["spec"]
    binding = chart.one("ValidatingAdmissionPolicyBinding", "hulk-agent")["spec"]
    assert policy["failurePolicy"] == "Fail"
    assert binding == {"policyName": "hulk-agent", "validationActions": ["Deny"]}
    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert set(rule["resources"]) == {"nodeprofiles", "nodeprofiles/status"}
    assert "system:serviceaccount:hulk-system:hulk-agent" in policy["matchConditions"][0]["expression"]


def test_without_agents_nothing_of_them_is_left(render: Render) -> None:
    rendered = render("agent.enabled=false", *EVERY_SWITCH)
    assert not [item["kind"] for item in rendered if item["metadata"]["name"] == "hulk-agent"]


def test_a_drain_takes_one_operator_at_a_time_and_one_that_is_not_ready_always(render: Render) -> None:
    rendered = render()
    budget = rendered.one("PodDisruptionBudget", "hulk-operator")["spec"]
    assert (budget["maxUnavailable"], budget["unhealthyPodEvictionPolicy"]) == (1, "AlwaysAllow")
    assert budget["selector"] == rendered.one("Deployment", "hulk-operator")["spec"]["selector"]
    assert not render("operator.podDisruptionBudget.enabled=false").of("PodDisruptionBudget")


@pytest.mark.parametrize("kind", ["PodMonitor", "PrometheusRule"])
def test_what_may_not_fit_a_cluster_is_off(render: Render, kind: str) -> None:
    assert not render().of(kind)
    assert render(*EVERY_SWITCH).of(kind)


def test_monitors_keep_the_jobs_own_namespace_label(render: Render) -> None:
    rendered = render(*EVERY_SWITCH)
    for monitor in rendered.of("PodMonitor").values():
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        assert (endpoint["port"], endpoint["honorLabels"]) == ("metrics", True)
        labels = rendered.workloads()[monitor["metadata"]["name"]]["spec"]["template"]["metadata"]["labels"]
        assert monitor["spec"]["selector"]["matchLabels"].items() <= labels.items()


def test_the_rule_object_is_the_rule_file(render: Render) -> None:
    rules = yaml.safe_load((CHART / "files/rules/hulk.yaml").read_text())
    assert render(*EVERY_SWITCH).one("PrometheusRule", "hulk")["spec"] == rules


def test_published_runbooks_are_linked(render: Render) -> None:
    rendered = render(*EVERY_SWITCH, "metrics.prometheusRule.runbookUrl=https://example.org/runbooks")
    for group in rendered.one("PrometheusRule", "hulk")["spec"]["groups"]:
        for rule in group["rules"]:
            assert rule["annotations"]["runbook_url"] == f"https://example.org/runbooks/{rule['alert']}.md"


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    rules = yaml.safe_load((CHART / "files/rules/hulk.yaml").read_text())
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    assert {page.stem for page in RUNBOOKS.glob("Hulk*.md")} == set(alerts)
    for name, rule in alerts.items():
        assert rule["annotations"]["runbook"] == f"docs/reference/runbooks/{name}.md"


def test_the_dashboard_is_loaded_by_grafanas_sidecar(render: Render) -> None:
    config_map = render(*EVERY_SWITCH).one("ConfigMap", "hulk-dashboard")
    assert config_map["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(config_map["data"]["hulk.json"])["uid"] == "hulk-overview"
    assert "hulk-dashboard" not in render().of("ConfigMap")


def test_every_value_is_explained_in_the_readme() -> None:
    rows = [line.split(" | ") for line in (CHART / "README.md").read_text().splitlines() if line.startswith("| ")][1:]
    assert [row[0] for row in rows if not row[-1].strip(" |")] == []
    explained = {row[0].removeprefix("| ") for row in rows}

    def leaves(value: Any, path: str = "") -> Iterator[str]:
        if path in explained or not isinstance(value, dict):
            yield path
        else:
            for name, child in value.items():
                yield from leaves(child, f"{path}.{name}".lstrip("."))

    assert set(leaves(yaml.safe_load((CHART / "values.yaml").read_text()))) == explained
