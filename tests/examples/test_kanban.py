"""The Kanban example: another board by configuration alone."""

from __future__ import annotations

from tests.examples.playing import ROOT, chapter, scanned

NAME = "kanban"
EXPECTED = {
    "shop/honest": [],
    "shop/straight-to-done": [("TASK004", "warn", "C3")],
    "shop/no-demo": [("TASK004", "warn", "C4")],
    "shop/nobodys-card": [("TASK004", "warn", "C5")],
    "shop/ping-pong": [("TASK001", "warn", "C6"), ("TASK001", "warn", "C6")],
    "shop/too-many": [("TASK003", "warn", None)],
    "shop/two-empty-sprints": [("STALL005", "warn", "C10"), ("STALL006", "halt", None)],
}


def test_each_story_is_reported_by_the_teams_own_rules() -> None:
    found = {
        run: [(one.code, one.severity, one.task_id) for one in reported] for run, reported in scanned(NAME).items()
    }
    assert found == EXPECTED


def test_the_script_prints_the_decisions_of_the_scan() -> None:
    for run_id, reported in scanned(NAME).items():
        said = [line for line in chapter(NAME, run_id) if line.startswith("    ") and line[4] != " "]
        assert said == [f"    {one.code} {one.type}: {one.message}" for one in reported]


def test_the_card_without_a_demo_went_back_to_work() -> None:
    [refused] = scanned(NAME)["shop/no-demo"]
    assert (refused.evidence.guard, refused.evidence.missing, refused.evidence.last_valid) == (
        "review",
        ["demo"],
        "DOING",
    )


def test_the_board_needs_no_code() -> None:
    names = {path.name for path in (ROOT / "examples" / NAME).iterdir() if not path.name.startswith("__")}
    assert names == {"README.md", "policy.yaml", "run.py", "turns.jsonl"}
