"""deploy/prometheus: every alert fires when it should and only then, as promtool says, and has a runbook."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.local.prometheus import MISSING, find
from tests.docs.pages import anchors

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "prometheus"
RULES_FILE = FOLDER / "alerts.yaml"
TESTS_FILE = FOLDER / "alerts_test.yaml"
RULES: dict[str, dict[str, Any]] = {
    rule["alert"]: rule for group in yaml.safe_load(RULES_FILE.read_text())["groups"] for rule in group["rules"]
}

LONG = {"as many halts as yesterday, then six times as many"}  # a day of evaluations


@pytest.fixture(scope="module")
def promtool() -> str:
    path = find("promtool")
    if path is None:
        pytest.skip(MISSING)
    return path


def check(promtool: str, *words: str, folder: Path = FOLDER) -> subprocess.CompletedProcess[str]:
    return subprocess.run([promtool, *words], cwd=folder, capture_output=True, text=True, check=False)


def test_the_rules_and_their_tests_pass(promtool: str) -> None:
    checked = check(promtool, "check", "rules", RULES_FILE.name)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = check(promtool, "test", "rules", TESTS_FILE.name)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("expression", ["vector(1) > 2", "vector(1)"], ids=["never", "always"])
def test_an_alert_that_never_or_always_fires_fails_its_tests(promtool: str, expression: str, tmp_path: Path) -> None:
    rules = yaml.safe_load(RULES_FILE.read_text())
    rules["groups"][0]["rules"] = [rule | {"expr": expression} for rule in RULES.values()]
    (tmp_path / RULES_FILE.name).write_text(yaml.safe_dump(rules))
    tests = yaml.safe_load(TESTS_FILE.read_text())
    tests["tests"] = [test for test in tests["tests"] if test["name"] not in LONG]
    (tmp_path / TESTS_FILE.name).write_text(yaml.safe_dump(tests))

    tested = check(promtool, "test", "rules", TESTS_FILE.name, folder=tmp_path)

    failed = re.findall(r"^ *alertname: (\w+), time: \S+ *$", tested.stdout + tested.stderr, re.MULTILINE)
    assert set(failed) == RULES.keys()


@pytest.mark.parametrize("alert", RULES)
def test_an_alert_says_what_happens_what_to_do_and_where_to_read_on(alert: str) -> None:
    rule = RULES[alert]
    assert rule["labels"] == {"severity": rule["labels"]["severity"]}
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert rule["annotations"].keys() == {"summary", "action", "runbook_url"}
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert anchor == alert.lower()
    assert anchor in anchors(ROOT / page)
