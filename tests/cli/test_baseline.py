"""`streamproc baseline` prints a part of a policy whose limits come from the measured runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamproc.policy import load_policy
from tests.feeding import reported
from tests.laws.traces import START_MS


def runs(workflow: str, seconds: list[int], cost: str | None = None) -> list[dict[str, Any]]:
    usage = {} if cost is None else {"usage": {"cost_usd": cost}}
    scope = {"workflow": workflow} if workflow else {}
    return [
        {"run_id": f"{workflow}-{number}", "node": "a", "at": START_MS + moment, **scope, **usage}
        for number, took_s in enumerate(seconds)
        for moment in (0, took_s * 1000)
    ]


@pytest.fixture
def measured(run, tmp_path: Path) -> Any:
    """Return a function that measures runs and returns the printed lines."""

    def measure(*raws: dict[str, Any]) -> str:
        file = tmp_path / "runs.jsonl"
        file.write_text("".join(json.dumps(raw) + "\n" for raw in raws))
        result = run("baseline", file)
        assert result.exit_code == 0
        return result.stdout

    return measure


def test_each_workflow_gets_the_p99_of_its_own_runs(measured) -> None:
    text = measured(*runs("review", list(range(1, 201)), "0.02"), *runs('deploy "x"', [7_000]))
    assert "BUDGET006: { p99_s: 198, p99_multiple: 3 } # runs measured: 200\n" in text
    assert "BUDGET011: { usual_micro_usd_per_turn: 20000 } # median; turns measured: 400" in text
    assert "p99_s: 7000, p99_multiple: 3 } # runs measured: 1; too few for a p99, so this is the longest run" in text
    assert "BUDGET011: {} # no turn has a cost" in text


def test_the_printed_lines_are_a_policy_that_halts_runs(measured, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: mine\n" + measured(*runs("review", [100] * 120, "0.01"), *runs("", [50], "3.00")))
    mine = load_policy(policy)

    slow = [raw | {"at": START_MS + n * 20_000} for n, raw in enumerate(runs("review", [0] * 9))]
    assert reported(slow[:15], mine) == []
    assert reported([*slow, slow[-1] | {"at": START_MS + 300_000}], mine)[0][:2] == ("BUDGET006", "halt")
    dear = runs("review", [1] * 4, "0.20")
    assert reported([raw | {"run_id": "r", "output": f"{n}"} for n, raw in enumerate(dear)], mine)[0] == (
        "BUDGET011", "warn", 6,
    )  # fmt: skip
    assert mine.effective()["detectors"]["BUDGET006"] == {"p99_s": 50, "p99_multiple": 3}


@pytest.mark.parametrize(
    "workflow", ['a\n"b" \\c: {d}\n#e', "\x07\u0085\u2028\ufeff", "\U000e0101\U0001f600", "- *a", "~"]
)
def test_a_workflow_of_any_name_has_its_limits_in_the_printed_policy(workflow: str, measured, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: mine\n" + measured(*runs(workflow, [7_000])), "utf-8")
    assert load_policy(policy).effective(workflow)["detectors"]["BUDGET006"]["p99_s"] == 7_000


def test_measurements_beyond_a_policys_limits_become_those_limits(measured, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: mine\n" + measured(*runs("", [2_000_000_000], "5000")))
    limits = load_policy(policy).effective()["detectors"]
    assert limits["BUDGET006"]["p99_s"] == limits["BUDGET011"]["usual_micro_usd_per_turn"] == 1_000_000_000


def test_runs_without_times_and_costs_give_no_limits(measured) -> None:
    text = measured({"run_id": "r", "node": "a"})
    assert text == "detectors:\n  BUDGET006: {} # no run has times\n  BUDGET011: {} # no turn has a cost\n"
