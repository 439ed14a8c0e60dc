"""Values that YAML could take for something else, and keys that a user and Hulk both set."""

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hulk_lab.builds.golang import KUBERNETES_VERSION
from hulk_operator.handlers.settings import Settings, from_environment
from hulk_operator.probing import Budget
from rendering import CHART, Manifest, Rendered

From = Callable[..., Rendered]
SWITCHES: dict[str, Any] = {
    "metrics": {"annotations": True, "podMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}},
    "grafana": {"dashboard": True},
    "crds": {"install": False},  # a megabyte, which takes seconds to read
}


class OnceLoader(yaml.SafeLoader):
    """Refuses a key that is there twice, of which YAML readers silently take one."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key) for key, _ in node.value]  # type: ignore[no-untyped-call]
        assert len(keys) == len(set(keys)), f"twice in {node.start_mark}: {keys}"
        return super().construct_mapping(node, deep)


@pytest.fixture
def rendered(helm: Path, tmp_path: Path) -> From:
    """rendered(values, release="hulk"): the chart with a file of values, release name and namespace being the same."""

    def render(values: dict[str, Any], release: str = "hulk") -> Rendered:
        path = tmp_path / "values.yaml"
        path.write_text(yaml.safe_dump(merged(SWITCHES, values)))
        command = [helm, "template", release, CHART, "-n", release, "--kube-version", KUBERNETES_VERSION, "-f", path]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        return Rendered(item for item in yaml.load_all(done.stdout, OnceLoader) if item)

    return render


def merged(under: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    both = {key: merged(under[key], over[key]) for key in under.keys() & over.keys() if isinstance(over[key], dict)}
    return {**under, **over, **both}


def texts(item: Any, field: str = "") -> Iterator[tuple[str, Any]]:
    """Every value of an object that Kubernetes wants as text, with its field."""
    for key, value in item.items() if isinstance(item, dict) else ():
        if key in ("namespace", "priorityClassName", "interval") or field in ("labels", "matchLabels", "annotations"):
            yield key, value
        yield from texts(value, key)
    for entry in item if isinstance(item, list) else ():
        yield from texts(entry, field)


def test_measuring_costs_what_the_values_say(rendered: From) -> None:
    """Helm reads numbers as floating point, and would write a large one as 2e+10."""
    assert probing(rendered({})) == Budget()
    values = {"maxTests": 0, "bytesPerTest": 1_000_000, "bytesPerHour": 123_456_789_012, "refreshSeconds": 60}
    assert probing(rendered({"probing": values})) == Budget(
        max_tests=0, max_bytes=1_000_000, bytes_per_hour=123_456_789_012, refresh_s=60
    )


def test_namespaces_have_what_the_values_say(rendered: From) -> None:
    values = {
        "quotas": {"research": 1_000_000, "2024": 0},
        "shares": {"research": 2.5},
        "settleSeconds": 7,
        "policy": "drf",
    }
    found = settings(rendered({"queue": values})).fleet
    assert (found.quotas, found.shares, found.settle_s) == (values["quotas"], values["shares"], 7)
    assert found.policy == "drf"
    assert settings(rendered({})).fleet == Settings("operator").fleet


def test_the_planners_process_is_kept_for_as_long_as_the_values_say(rendered: From) -> None:
    assert settings(rendered({"operator": {"plannerIdleSeconds": 7}})).planner_idle_s == 7
    assert settings(rendered({})) == Settings("operator")


def test_prometheus_reaches_workers_from_where_the_values_say(rendered: From) -> None:
    values = {"networkPolicy": {"prometheusNamespaces": ["monitoring", "2024"]}}
    assert settings(rendered(values)).prometheus_namespaces == ("monitoring", "2024")
    assert settings(rendered({})).prometheus_namespaces == ()


def test_a_log_level_is_read_where_it_is_written_and_starts_no_pod_anew(rendered: From) -> None:
    plain = rendered({})
    found = rendered({"operator": {"logLevel": "debug"}, "agent": {"logLevel": "error"}})
    levels = found.one("ConfigMap", "hulk-log-levels")["data"]
    assert levels == {"operator": "debug", "agent": "error"}
    assert found.workloads() == plain.workloads()
    for name in ("hulk-operator", "hulk-agent"):
        pod = found.workloads()[name]["spec"]["template"]["spec"]
        (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "log")
        (mount,) = (mount for mount in pod["containers"][0]["volumeMounts"] if mount["name"] == "log")
        (item,) = volume["configMap"]["items"]
        assert (volume["configMap"]["name"], f"hulk-{item['key']}") == ("hulk-log-levels", name)
        seen = {variable["name"]: variable.get("value") for variable in environment(found, name)}
        assert seen["HULK_LOG_LEVEL_FILE"] == f"{mount['mountPath']}/{item['path']}"


def test_each_of_both_logs_as_its_value_says(rendered: From) -> None:
    found = rendered({"agent": {"logFormat": "json"}})
    for name, expected in (("hulk-operator", "text"), ("hulk-agent", "json")):
        assert {"name": "HULK_LOG_FORMAT", "value": expected} in environment(found, name)


def probing(found: Rendered) -> Budget:
    return settings(found).probing


def settings(found: Rendered) -> Settings:
    (container,) = found.one("Deployment", "hulk-operator")["spec"]["template"]["spec"]["containers"]
    environment = {entry["name"]: entry.get("value", "") for entry in container["env"]}
    return from_environment(environment, "operator")


@pytest.mark.parametrize("word", ["2024", "true", "null"])
def test_a_text_that_looks_like_something_else_stays_a_text(rendered: From, word: str) -> None:
    component = {"priorityClassName": word}
    values = {
        "scope": {"namespace": word},
        "operator": component,
        "agent": component,
        "image": {"pullSecrets": [word]},
        "grafana": {"namespace": word},
    }
    found = rendered(values, release="7")
    assert {kind["kind"] for kind in found} >= {"PodMonitor", "PrometheusRule", "ConfigMap", "Role"}
    for item in found:
        assert [entry for entry in texts(item) if not isinstance(entry[1], str)] == []
    for workload in found.workloads().values():
        pod = workload["spec"]["template"]["spec"]
        assert pod["imagePullSecrets"] == [{"name": word}]
        assert pod["priorityClassName"] == word
    (container,) = found.one("Deployment", "hulk-operator")["spec"]["template"]["spec"]["containers"]
    assert {"name": "HULK_NAMESPACE", "value": word} in container["env"]


def test_a_key_that_hulk_sets_as_well_is_there_once_and_is_hulks(rendered: From) -> None:
    label, port = "app.kubernetes.io/name", "prometheus.io/port"
    given = {"podLabels": {label: "mine", "team": "a"}, "podAnnotations": {port: "1", "note": "b"}}
    labels = {"labels": {label: "mine", "team": "a"}}
    values = {
        "operator": given,
        "agent": given,
        "grafana": labels,
        "metrics": {"podMonitor": labels, "prometheusRule": labels},
    }
    found = rendered(values)
    for name, own in (("hulk-operator", "9401"), ("hulk-agent", "9402")):
        metadata: Manifest = found.workloads()[name]["spec"]["template"]["metadata"]
        assert (metadata["labels"][label], metadata["labels"]["team"]) == ("hulk", "a")
        assert (metadata["annotations"][port], metadata["annotations"]["note"]) == (own, "b")
    shown = [*found.of("PodMonitor").values(), found.one("PrometheusRule", "hulk")]
    for item in (*shown, found.one("ConfigMap", "hulk-dashboard")):
        assert (item["metadata"]["labels"][label], item["metadata"]["labels"]["team"]) == ("hulk", "a")


def test_a_variable_of_a_users_comes_after_hulks(rendered: From) -> None:
    mine = [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}]
    found = rendered({"operator": {"extraEnv": mine}, "agent": {"extraEnv": mine}})
    plain = rendered({})
    for name in ("hulk-operator", "hulk-agent"):
        assert environment(found, name) == environment(plain, name) + mine


@pytest.mark.parametrize(
    ("component", "name"),
    [("operator", "HULK_METRICS_PORT"), ("operator", "PYTHONDONTWRITEBYTECODE"), ("agent", "NODE_NAME")],
)
def test_a_variable_that_hulk_sets_is_refused(rendered: From, component: str, name: str) -> None:
    values = {component: {"extraEnv": [{"name": "OTHER", "value": "1"}, {"name": name, "value": "1"}]}}
    with pytest.raises(subprocess.CalledProcessError) as refused:
        rendered(values)
    assert f"{component}.extraEnv: {name} is set by the chart" in refused.value.stderr


def environment(found: Rendered, name: str) -> list[dict[str, Any]]:
    (container,) = found.workloads()[name]["spec"]["template"]["spec"]["containers"]
    variables: list[dict[str, Any]] = container["env"]
    return variables


def test_service_accounts_carry_what_a_cloud_binds_rights_by(rendered: From) -> None:
    role = {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/hulk", "on": "true"}
    found = rendered({"operator": {"serviceAccount": {"annotations": role}}}).of("ServiceAccount")
    assert found["hulk-operator"]["metadata"]["annotations"] == role
    assert "annotations" not in found["hulk-agent"]["metadata"]
    found = rendered({"agent": {"serviceAccount": {"annotations": role}}}).of("ServiceAccount")
    assert found["hulk-agent"]["metadata"]["annotations"] == role


def test_operators_are_spread_as_the_values_say(rendered: From) -> None:
    def spread(values: dict[str, Any]) -> list[dict[str, Any]]:
        found = rendered({"operator": values}).one("Deployment", "hulk-operator")["spec"]
        constraints: list[dict[str, Any]] = found["template"]["spec"].get("topologySpreadConstraints", [])
        return constraints

    own = {"matchLabels": rendered({}).one("Deployment", "hulk-operator")["spec"]["selector"]["matchLabels"]}
    (default,) = spread({})
    assert (default["topologyKey"], default["whenUnsatisfiable"]) == ("kubernetes.io/hostname", "ScheduleAnyway")
    assert default["labelSelector"] == own
    zone = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    mine = zone | {"labelSelector": {"matchExpressions": [{"key": "team", "operator": "Exists"}]}}
    assert spread({"topologySpreadConstraints": [zone, mine]}) == [zone | {"labelSelector": own}, mine]
    assert spread({"topologySpreadConstraints": []}) == []
