"""The agent's pure parts: orders in, links out, and the settings of its pod."""

import pytest
from hulk_runtime.agent import orders, results, settings
from hulk_runtime.agent.iperf import Transfer
from hulk_runtime.agent.orders import Address, BandwidthOrder, Orders, RttOrder
from hulk_runtime.agent.results import MAX_LINKS, Measured
from hulk_runtime.agent.rtt_window import Rtt

RTT_ROW = {"id": 1, "kind": "rtt", "role": "client", "target": "b", "address": "10.0.0.2", "port": 9403}
BANDWIDTH_ROW = {
    "id": 2,
    "kind": "bandwidth",
    "role": "server",
    "target": "c",
    "address": "10.0.0.3",
    "port": 9404,
    "streams": 4,
    "seconds": 3,
    "maxBytes": 1000,
    "notBefore": "1970-01-01T00:01:00Z",
}


def test_orders_as_the_api_server_returns_them() -> None:
    spec = {"measurementId": 2, "measurements": [RTT_ROW, BANDWIDTH_ROW]}
    assert orders.parse(spec) == Orders(
        rtt=(RttOrder("b", Address("10.0.0.2", 9403)),),
        bandwidth=(BandwidthOrder(2, "server", "c", Address("10.0.0.3", 9404), 4, 3, 1000, 60.0),),
    )


@pytest.mark.parametrize(
    "spec",
    [{}, {"measurements": []}, {"measurements": [{**RTT_ROW, "kind": "jitter"}, {**BANDWIDTH_ROW, "role": "relay"}]}],
)
def test_what_a_later_version_orders_is_left_out(spec: dict[str, object]) -> None:
    assert orders.parse(spec) == Orders()


def test_links_survive_a_restart_through_the_status() -> None:
    links = {
        "both": Measured(Rtt(100, 200, 60, 1000.0), Transfer(5_000, 4), 900.0),
        "echo": Measured(Rtt(7, 9, 5, 1000.0)),
        "transfer": Measured(None, Transfer(6_000, 1), 800.0),
    }
    status = results.status(links, 12, Address("10.0.0.1", 9403))
    assert status["lastId"] == 12
    assert status["echo"] == {"address": "10.0.0.1", "port": 9403}
    assert results.read(status["links"]) == links
    assert status["keepsWindows"] is False
    assert results.status(links, 12, Address("10.0.0.1", 9403), keeps_windows=True)["keepsWindows"] is True


def test_links_under_load_are_the_operators() -> None:
    assert results.read([{"target": "b", "underLoad": True, "time": "1970-01-01T00:01:00Z"}]) == {}


def test_a_new_figure_leaves_the_other_alone() -> None:
    links = results.with_transfer({}, "b", Transfer(10, 1), 50.0)
    links = results.with_rtts(links, {"b": Rtt(1, 2, 3, 60.0)})
    assert links == {"b": Measured(Rtt(1, 2, 3, 60.0), Transfer(10, 1), 50.0)}
    assert results.with_transfer(links, "b", Transfer(20, 1), 70.0)["b"].rtt == Rtt(1, 2, 3, 60.0)


def test_the_oldest_links_make_room_and_no_other_is_forgotten() -> None:
    links = {f"n{index:03}": Measured(Rtt(1, 1, 5, 1000.0 + index)) for index in range(MAX_LINKS + 1)}
    kept = results.kept(links)
    assert len(kept) == MAX_LINKS
    assert "n000" not in kept
    year_old = {"used by a job": Measured(Rtt(1, 1, 5, 1000.0)), "new": Measured(Rtt(1, 1, 5, 31_536_000.0))}
    assert results.kept(year_old) == year_old


def test_settings_of_a_pod() -> None:
    environment = {
        "NODE_NAME": "node-a",
        "POD_IP": "10.0.0.1",
        "KUBERNETES_SERVICE_HOST": "fd00::1",
        "KUBERNETES_SERVICE_PORT": "443",
    }
    found = settings.from_environment(environment)
    assert (found.node, found.host, found.api_server) == ("node-a", "10.0.0.1", "https://[fd00::1]:443")
    assert (found.http_port, found.echo_port) == (9402, 9403)
    assert found.hosts == ("10.0.0.1",)
    both = settings.from_environment({**environment, "POD_IPS": "10.0.0.1,fd00::7"})
    assert both.hosts == ("10.0.0.1", "fd00::7")
    assert (both.host_towards("fd00::9"), both.host_towards("10.0.0.9")) == ("fd00::7", "10.0.0.1")
    with pytest.raises(ValueError, match="has no NODE_NAME"):
        settings.from_environment({**environment, "NODE_NAME": ""})
