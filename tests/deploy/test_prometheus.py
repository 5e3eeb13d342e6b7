"""What Prometheus reads is what the server says, by the repository's configuration and rules."""

from __future__ import annotations

import subprocess

import pytest
import yaml

from tests.deploy.conftest import Watched
from tests.deploy.prometheus_process import CONFIGURATION, INSTALL, INSTALLED, ROOT
from tests.server.test_metrics import SERIES

needs_promtool = pytest.mark.skipif(not INSTALLED, reason=INSTALL)


@needs_promtool
@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "config", "prometheus.yml"),
        ("check", "rules", "alerts.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=" ".join,
)
def test_promtool_is_content(arguments: tuple[str, ...]) -> None:
    result = subprocess.run(
        ["promtool", *arguments], cwd=CONFIGURATION.parent, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout + result.stderr


def test_every_alert_is_tested_both_ways_and_explained() -> None:
    groups = yaml.safe_load((CONFIGURATION.parent / "alerts.yml").read_text())["groups"]
    alerts = {rule["alert"] for group in groups for rule in group["rules"]}
    tests = yaml.safe_load((CONFIGURATION.parent / "alerts_test.yml").read_text())["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts
    manual = (ROOT / "docs" / "operations.md").read_text()
    assert {alert for alert in alerts if f"`{alert}`" not in manual} == set()


@pytest.mark.xdist_group("prometheus")
def test_rules_are_evaluated_and_nothing_fires(watched: Watched) -> None:
    rules = [rule for group in watched.prometheus.ask("rules")["groups"] for rule in group["rules"]]
    assert {rule["health"] for rule in rules} == {"ok"}
    assert {rule["state"] for rule in rules} == {"inactive"}


@pytest.mark.xdist_group("prometheus")
@pytest.mark.parametrize("name", SERIES)
def test_a_series_arrives_with_the_server_s_sum(name: str, watched: Watched) -> None:
    told = watched.snapshot.total(f"formerd_{name}")
    assert watched.prometheus.value(f"sum(formerd_{name})") == told


@pytest.mark.xdist_group("prometheus")
@pytest.mark.parametrize("name", ["requests_total", "step_duration_seconds_count"])
def test_series_were_there_at_zero_before_the_load(name: str, watched: Watched) -> None:
    assert watched.prometheus.value(f"min_over_time(sum(formerd_{name})[5m:1s])") == 0
