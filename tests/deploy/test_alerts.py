"""deploy/prometheus: every alert fires when it should and only then, as promtool says, and has a runbook."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.deploy.conftest import Promtool
from tests.deploy.expressions import FOLDER, RULES
from tests.docs.pages import anchors

ROOT = Path(__file__).parents[2]
RULES_FILE = FOLDER / "alerts.yaml"
TESTS_FILE = FOLDER / "alerts_test.yaml"

LONG = {"as many halts as yesterday, then six times as many"}  # a day of evaluations


def test_the_rules_and_their_tests_pass(promtool: Promtool) -> None:
    checked = promtool("check", "rules", RULES_FILE.name)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    tested = promtool("test", "rules", TESTS_FILE.name)
    assert tested.returncode == 0, tested.stdout + tested.stderr


@pytest.mark.parametrize("expression", ["vector(1) > 2", "vector(1)"], ids=["never", "always"])
def test_an_alert_that_never_or_always_fires_fails_its_tests(
    promtool: Promtool, expression: str, tmp_path: Path
) -> None:
    rules = yaml.safe_load(RULES_FILE.read_text())
    rules["groups"][0]["rules"] = [rule | {"expr": expression} for rule in RULES.values()]
    (tmp_path / RULES_FILE.name).write_text(yaml.safe_dump(rules))
    tests = yaml.safe_load(TESTS_FILE.read_text())
    tests["tests"] = [test for test in tests["tests"] if test["name"] not in LONG]
    (tmp_path / TESTS_FILE.name).write_text(yaml.safe_dump(tests))

    tested = promtool("test", "rules", TESTS_FILE.name, folder=tmp_path)

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
