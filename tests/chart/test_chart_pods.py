"""The two workloads: hardened, probed, told what they need."""

import pytest
from rendering import EVERY_SWITCH, NAMESPACE, ONE_NAMESPACE, HelmRefusedError, Manifest, Render, Rendered

NAMES = ("hulk-operator", "hulk-agent")


def pod(rendered: Rendered, name: str) -> Manifest:
    spec: Manifest = rendered.workloads()[name]["spec"]["template"]["spec"]
    return spec


def environment(rendered: Rendered, name: str) -> Manifest:
    (container,) = pod(rendered, name)["containers"]
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


@pytest.mark.parametrize("settings", [(), EVERY_SWITCH], ids=["default", "all"])
def test_every_pod_meets_the_restricted_standard(render: Render, settings: tuple[str, ...]) -> None:
    pods = render(*settings).pod_specs()
    assert set(pods) == {*NAMES, "hulk-test"}
    for spec in pods.values():
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        kinds = {kind for volume in spec.get("volumes", ()) for kind in set(volume) - {"name"}}
        assert kinds <= {"emptyDir", "configMap"}
        for container in spec["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }
            assert not any("hostPort" in port for port in container.get("ports", ()))


def test_the_operator_is_told_of_pod_groups(chart: Rendered, render: Render) -> None:
    assert "HULK_POD_GROUPS" not in environment(chart, "hulk-operator")
    assert environment(render("podGroups.enabled=true"), "hulk-operator")["HULK_POD_GROUPS"] == "true"


@pytest.mark.parametrize(("name", "port"), [("hulk-operator", 9401), ("hulk-agent", 9402)])
def test_probes_ask_the_metrics_port(chart: Rendered, name: str, port: int) -> None:
    (container,) = pod(chart, name)["containers"]
    ports = {item["name"]: item["containerPort"] for item in container["ports"]}
    assert ports["metrics"] == port
    for probe in ("startupProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}


def test_one_operator_stands_by_and_an_upgrade_takes_none_away_before_another_is_ready(render: Render) -> None:
    spec = render().one("Deployment", "hulk-operator")["spec"]
    rolling = {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": 1}}
    assert (spec["replicas"], spec["strategy"]) == (2, rolling)
    assert render("operator.replicas=1").one("Deployment", "hulk-operator")["spec"]["replicas"] == 1


def test_the_operator_is_reached_by_every_family_that_the_cluster_has(chart: Rendered) -> None:
    assert chart.one("Service", "hulk-operator")["spec"]["ipFamilyPolicy"] == "PreferDualStack"


def test_the_agent_knows_its_node_and_opens_its_ports(chart: Rendered) -> None:
    seen = environment(chart, "hulk-agent")
    assert seen["NODE_NAME"] == {"fieldRef": {"fieldPath": "spec.nodeName"}}
    assert seen["POD_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    assert seen["POD_IPS"] == {"fieldRef": {"fieldPath": "status.podIPs"}}
    ports = {(item["containerPort"], item["protocol"]) for item in pod(chart, "hulk-agent")["containers"][0]["ports"]}
    assert ports == {(9402, "TCP"), (9403, "UDP"), (9404, "TCP")}


def test_the_agent_runs_where_it_is_told(render: Render) -> None:
    rendered = render("agent.nodeSelector.pool=gpu", "agent.tolerations[0].operator=Exists")
    assert pod(rendered, "hulk-agent")["nodeSelector"] == {"pool": "gpu"}
    assert pod(rendered, "hulk-agent")["tolerations"] == [{"operator": "Exists"}]


def test_only_single_namespace_mode_names_a_namespace(render: Render) -> None:
    assert "HULK_NAMESPACE" not in environment(render(), "hulk-operator")
    assert environment(render(ONE_NAMESPACE), "hulk-operator")["HULK_NAMESPACE"] == "research"


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), "hulk:0.1.0"),
        (("image.repository=registry.example/hulk", "image.tag=1.2"), "registry.example/hulk:1.2"),
        (("image.tag=1.2", f"image.digest=sha256:{'0' * 64}"), f"hulk@sha256:{'0' * 64}"),
    ],
    ids=["default", "tag", "digest"],
)
def test_all_run_one_image(render: Render, settings: tuple[str, ...], expected: str) -> None:
    pods = render(*settings).pod_specs()
    assert {name: spec["containers"][0]["image"] for name, spec in pods.items()} == dict.fromkeys(pods, expected)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        (("agent.image.repository=agent",), "agent:0.1.0"),
        (("agent.image.repository=agent", "image.tag=1.2"), "agent:1.2"),
        (("agent.image.repository=agent", f"image.digest=sha256:{'0' * 64}"), "agent:0.1.0"),
        (("agent.image.tag=1.3", f"image.digest=sha256:{'0' * 64}"), "hulk:1.3"),
        ((f"agent.image.digest=sha256:{'1' * 64}", f"image.digest=sha256:{'0' * 64}"), f"hulk@sha256:{'1' * 64}"),
    ],
    ids=["repository", "tag of image", "digest of another repository", "tag", "digest"],
)
def test_the_agent_may_run_an_image_of_its_own(render: Render, settings: tuple[str, ...], expected: str) -> None:
    rendered = render(*settings)
    assert pod(rendered, "hulk-agent")["containers"][0]["image"] == expected
    assert pod(rendered, "hulk-operator")["containers"][0]["image"] != expected


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ((), "hulk:0.1.0"),
        (
            ("image.repository=registry.example/hulk", f"image.digest=sha256:{'0' * 64}"),
            f"registry.example/hulk@sha256:{'0' * 64}",
        ),
        (("image.repository=operator", "agent.image.repository=agent", "agent.image.tag=1.3"), "agent:1.3"),
        ((f"agent.image.digest=sha256:{'1' * 64}", "instrumentation.image.tag=1.4"), "hulk:1.4"),
        (("image.tag=1.2", "agent.image.repository=agent", "instrumentation.image.repository=small"), "small:1.2"),
        ((f"instrumentation.image.digest=sha256:{'2' * 64}",), f"hulk@sha256:{'2' * 64}"),
    ],
    ids=["default", "image", "agent", "tag", "repository", "digest"],
)
def test_jobs_copy_the_all_reduce_from_the_agents_image_or_one_of_its_own(
    render: Render, settings: tuple[str, ...], expected: str
) -> None:
    (operator,) = pod(render(*settings, "image.pullPolicy=Always"), "hulk-operator")["containers"]
    environment = {entry["name"]: entry.get("value") for entry in operator["env"]}
    assert environment["HULK_INSTRUMENTATION_IMAGE"] == expected
    assert environment["HULK_INSTRUMENTATION_PULL_POLICY"] == "Always"


def test_priority_and_pull_secrets_reach_both(render: Render) -> None:
    rendered = render("operator.priorityClassName=high", "agent.priorityClassName=higher", "image.pullSecrets[0]=login")
    assert [pod(rendered, name)["priorityClassName"] for name in NAMES] == ["high", "higher"]
    assert all(pod(rendered, name)["imagePullSecrets"] == [{"name": "login"}] for name in NAMES)


def test_scrape_annotations_are_a_switch(render: Render) -> None:
    for name, port in (("hulk-operator", "9401"), ("hulk-agent", "9402")):
        metadata = {
            on: render(f"metrics.annotations={on}").workloads()[name]["spec"]["template"]["metadata"]
            for on in ("true", "false")
        }
        assert metadata["true"]["annotations"]["prometheus.io/port"] == port
        assert "prometheus.io/scrape" not in metadata["false"]["annotations"]


@pytest.mark.parametrize(
    "setting",
    [
        "no=1",
        "image.no=1",
        "operator.no=1",
        "operator.resources.no=1",
        "operator.extraEnv[0].no=1",
        "operator.serviceAccount.no=1",
        "operator.topologySpreadConstraints[0].no=1",
        "agent.no=1",
        "agent.tolerations[0].no=1",
        "crds.no=true",
        "scope.no=1",
        "rbac.no=true",
        "admissionPolicy.no=true",
        "networkPolicy.no=true",
        "metrics.no=true",
        "metrics.podMonitor.no=true",
        "metrics.prometheusRule.no=true",
        "grafana.no=true",
    ],
)
def test_unknown_values_are_refused_by_name(render: Render, setting: str) -> None:
    with pytest.raises(HelmRefusedError, match=r"additional properties? 'no' not allowed|Additional property no is"):
        render(setting)


@pytest.mark.parametrize("namespace", [NAMESPACE, "kube-system"])
def test_jobs_have_no_namespace_of_the_operator_or_the_cluster(render: Render, namespace: str) -> None:
    """The policy would refuse each of their pods."""
    with pytest.raises(HelmRefusedError, match=f"scope.namespace: {namespace} is the release's namespace or"):
        render(f"scope.namespace={namespace}")
    assert render(f"scope.namespace={namespace}", "admissionPolicy.enabled=false")


@pytest.mark.parametrize(
    "setting",
    [
        "image.pullPolicy=Sometimes",
        "scope.namespace=Not_A_Name",
        "agent.enabled=1",
        "operator.replicas=-1",
        "operator.logFormat=xml",
        "agent.logLevel=loud",
        "networkPolicy.prometheusNamespaces[0]=a\\,b",
        "networkPolicy.prometheusNamespaces[0]=",
        "networkPolicy.apiServerPorts[0]=0",
    ],
)
def test_bad_values_are_refused(render: Render, setting: str) -> None:
    with pytest.raises(HelmRefusedError, match="values don't meet the specifications of the schema"):
        render(setting)
