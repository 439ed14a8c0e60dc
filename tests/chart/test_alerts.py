"""promtool runs the alerts' own tests, and every alert must have one in which it fires."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from rendering import CHART

RULES = CHART / "files/rules/hulk.yaml"
TESTS = Path(__file__).with_name("alerts_test.yaml")


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.fail("promtool is missing (Debian package prometheus): run `make tools`", pytrace=False)
    return found


def test_rules_are_valid(promtool: str) -> None:
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_alerts_fire_when_they_should(promtool: str) -> None:
    done = subprocess.run([promtool, "test", "rules", TESTS], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_seen_firing_and_quiet() -> None:
    rules = yaml.safe_load(RULES.read_text())
    alerts = {rule["alert"] for group in rules["groups"] for rule in group["rules"]}
    checks = [check for test in yaml.safe_load(TESTS.read_text())["tests"] for check in test["alert_rule_test"]]
    assert {check["alertname"] for check in checks if check["exp_alerts"]} == alerts
    assert {check["alertname"] for check in checks if not check["exp_alerts"]} == alerts
