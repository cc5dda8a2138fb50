"""What a report says: facts about recorded runs, on the samples of the package and on small logs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

from streamproc.policy import load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source, open_logs
from streamproc.report import FleetReport, RunReport, html_of, json_of, markdown_of, report_of
from streamproc.report.writing import fleet_report
from tests.importers import reading
from tests.importers.test_claude_code import SESSION, Session
from tests.report.runs import LOOPING, ROOT, SAMPLES, START, call, looping, recorded, turn, written


def of(path: Path, run_id: str = "loop", policy: object = None) -> RunReport:
    found = report_of(recorded(path, policy=policy), run_id, policy)
    assert isinstance(found, RunReport)
    return found


def test_a_recorded_run_says_when_it_began_was_warned_and_was_halted() -> None:
    report = of(SAMPLES, LOOPING)

    assert report.state == "halted"
    assert report.code == "LOOP003"
    assert (report.began.turn, report.halted.turn, report.turns_total) == (7, 10, 40)
    assert report.halted.place == "line 11"
    assert (report.before.turns, report.during.turns, report.after.turns) == (7, 4, 29)
    assert report.before.tokens + report.during.tokens + report.after.tokens == report.total.tokens
    assert [one.turn for one in report.occurrences] == [7, 9, 10]
    assert [one.match for one in report.occurrences] == ["first", "same", "same"]


def test_reports_decide_as_a_scan_does() -> None:
    recording = recorded(SAMPLES)
    scanned = list(Scan([Source(SAMPLES)], load_policy()))

    ids = {one.id for history in recording.histories.values() for one in history.decisions}
    assert ids == {one.id for one in scanned}


def test_a_turn_is_new_or_repeats_as_the_engine_saw_it(tmp_path: Path) -> None:
    report = of(written(tmp_path, looping()))

    kinds = [one.kind for one in report.turns]
    assert kinds[:6] == ["new"] * 6
    assert set(kinds[6:]) == {"repeat"}


def test_an_error_is_shown_as_one_and_talk_between_calls_as_talk(tmp_path: Path) -> None:
    failing = turn(1, tool_calls=[{"name": "bash", "args": {"command": "make"}, "error": "no rule"}])
    report = of(
        written(tmp_path, [call(0, "ls", "a b"), failing, turn(2, output="I will try again."), call(3, "ls -l", "c")])
    )

    assert [one.kind for one in report.turns] == ["new", "error", "narration", "new"]
    assert "no rule" in report.first_error.text


def test_a_message_between_nodes_becomes_something_new_once_the_next_node_is_known(tmp_path: Path) -> None:
    events = [
        call(0, "ls", "a b"),
        turn(1, output="The bug is in sort.py."),
        turn(2, node="reviewer", output="Fix it."),
    ]
    report = of(written(tmp_path, events))

    assert report.turns[1].kind == "new"


def test_a_task_that_was_rejected_three_times_shows_the_reports_and_the_choices(tmp_path: Path) -> None:
    """Seed 004: "present full rejection history (all 3 rejection reports) to user with options"."""
    rejected = {"type": "task.verdict", "run_id": "loop", "task_id": "T1", "verdict": "REJECTED", "validator": "qa"}
    log = written(tmp_path, [rejected | {"at": START + n, "reason": f"criterion {n}"} for n in range(3)])
    advice = [one.text for one in of(log, policy="tickets").todo]
    assert advice[0] == "Read the rejections of T1: qa: criterion 0; qa: criterion 1; qa: criterion 2"
    assert advice[1:4] == ["Force-approve T1", "Cancel T1", "Reassign T1"]


def test_what_the_loop_cost_and_an_estimate_of_the_rest_of_the_budget(tmp_path: Path) -> None:
    report = of(written(tmp_path, looping(budget=50)))

    assert report.before.cost_usd_micro == 50_000
    assert report.during.cost_usd_micro == 30_000
    assert report.during.tokens == 3_000
    assert report.estimate.budget == "maxSteps"
    assert report.estimate.spend.turns == 50 - 8
    assert report.estimate.spend.cost_usd_micro == 420_000
    assert [(one.name, one.used, one.limit) for one in report.budgets] == [("maxSteps", 8, 50)]


def test_a_run_that_a_budget_ended_gets_no_estimate(tmp_path: Path) -> None:
    events = [{"type": "run.started", "run_id": "loop", "budgets": {"maxSteps": 3, "maxRuntimeMs": 10_000_000}}]
    events += [call(n, f"cat {n}", f"text {n}") for n in range(5)]
    report = of(written(tmp_path, events))

    assert report.code == "BUDGET004"
    assert report.estimate is None


def test_a_cycle_of_nodes_is_shown_as_it_was_at_the_halt() -> None:
    folder = ROOT / "examples" / "loop_safety"
    report = of(folder / "turns.jsonl", "bugfix/same-tests", str(folder / "policy.yaml"))

    assert report.ring.nodes == ("coder", "verifier")
    assert f"Loop {report.ring.iterations}/8" == report.badge
    assert {(one.source, one.target) for one in report.ring.edges} == {("coder", "verifier"), ("verifier", "coder")}
    assert [(one.failing, one.best) for one in report.trend] == [(7, 7), (4, 4), (2, 2), (2, 2), (2, 2), (2, 2), (2, 2)]
    assert {one.what for one in report.occurrences} == {"tests"}
    assert [one.match for one in report.occurrences] == ["first", "same", "same"]


def test_values_of_the_policy_have_their_lines(tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text(
        "name: mine\nbudgets:\n  steps: 100\nworkflows:\n  nightly:\n    detectors:\n      LOOP003:\n        halt: 4\n"
    )
    report = of(written(tmp_path, looping()), policy=str(policy))

    places = {one.name: (one.value, one.place) for one in report.policy_values}
    assert places["LOOP003.halt"] == ("4", f"{policy}:8")
    assert places["maxSteps"] == ("100", f"{policy}:3")
    value, place = places["LOOP003.warn"]
    assert value == "2"
    assert place.startswith("preset standard:")
    number = int(place.rpartition(":")[2])
    preset = (ROOT / "streamproc" / "policy" / "presets" / "standard.yaml").read_text().splitlines()
    assert preset[number - 1].strip().startswith("warn: 2")


def test_detectors_that_saw_something_and_reported_nothing_are_listed() -> None:
    report = of(SAMPLES, LOOPING)

    codes = {one.code for one in report.others}
    assert "STALL007" in codes
    assert not codes & {one.code for one in report.decisions}
    assert all(one.events > 0 for one in report.others)


def test_secrets_are_redacted(tmp_path: Path) -> None:
    secret = "ghp_" + "a1B2" * 9
    report = of(
        written(tmp_path, [call(n, f"curl -H 'Authorization: Bearer {secret}'", f"token={secret}") for n in range(4)])
    )

    assert report.content
    assert secret not in json_of(report)
    assert "redacted" in json_of(report)


def test_a_log_with_fingerprints_only_says_so(tmp_path: Path) -> None:
    recording = recorded(written(tmp_path, looping()))
    history = recording.histories["loop"]
    history.drop_texts()
    history.has_content = False
    report = report_of(recording, "loop")

    assert isinstance(report, RunReport)
    assert any("include_content" in note for note in report.notes)
    assert [one.match for one in report.occurrences] == ["first", "same", "same"]


def test_long_runs_leave_turns_out_and_keep_those_that_matter(tmp_path: Path) -> None:
    recording = recorded(written(tmp_path, looping(before=3_000, after=2_000)))
    report = report_of(recording, "loop")

    assert isinstance(report, RunReport)
    assert len(report.turns) <= 240
    listed = {one.turn for one in report.turns}
    assert {0, 3_000, 3_001, 3_002, 5_002} <= listed
    assert report.turns_total == 5_003
    assert all(one.calls for one in report.turns if one.turn in (0, 3_000, 3_002))


def test_a_run_id_that_is_used_again_is_about_the_last_run(tmp_path: Path) -> None:
    events = [
        turn(0, output="one"),
        {"type": "run.finished", "run_id": "loop"},
        {"type": "run.started", "run_id": "loop"},
    ]
    report = of(written(tmp_path, [*events, turn(1, output="two"), turn(2, output="three")]))

    assert report.turns_total == 2
    assert any("used again" in note for note in report.notes)


def test_all_runs_are_listed_with_the_stuck_ones_first(tmp_path: Path) -> None:
    events = (
        looping("later", after=2) + looping("worst", after=9) + [turn(n, "fine", output=f"step {n}") for n in range(4)]
    )
    report = report_of(recorded(written(tmp_path, events)))

    assert isinstance(report, FleetReport)
    assert [(one.run_id, one.state) for one in report.runs] == [
        ("worst", "halted"), ("later", "halted"), ("fine", "unremarkable"),
    ]  # fmt: skip
    assert report.runs[0].after_onset.turns == 12
    assert report.after_onset.cost_usd_micro == 170_000
    assert [(one.code, one.runs_halted) for one in report.detectors if one.runs_halted] == [("LOOP003", 2)]
    assert [one.run_id for one in report.reports] == ["worst", "later"]


def test_a_report_of_one_run_in_a_log_of_one_is_about_that_run(tmp_path: Path) -> None:
    assert isinstance(report_of(recorded(written(tmp_path, looping()))), RunReport)


def test_the_report_of_scanned_files_is_the_same() -> None:
    policy = load_policy()
    report = fleet_report([Source(SAMPLES)], policy)

    assert report.halted == 10
    assert report.runs_total == 40


def test_json_can_be_read_again(tmp_path: Path) -> None:
    report = of(written(tmp_path, looping()))

    assert msgspec.json.decode(json_of(report), type=RunReport) == report
    assert json.loads(json_of(report, "2026-01-02T00:00:00Z"))["dated"] == "2026-01-02T00:00:00Z"


def test_an_unknown_run_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        report_of(recorded(written(tmp_path, looping())), "other")


def test_times_are_those_of_the_log(tmp_path: Path) -> None:
    report = of(written(tmp_path, looping()))

    assert report.first_at == START
    assert report.halted.at == START + 70_000


def test_the_headline_of_all_runs_says_one_thing_only(tmp_path: Path) -> None:
    def headline(events: list[dict[str, object]]) -> str:
        return fleet_report([Source(written(tmp_path, events))], load_policy()).sentence

    fine = [turn(n, "fine", output=f"step {n}") for n in range(4)]
    warned = looping("warned")[:8]
    assert headline(fine) == "No run was halted; no detector had anything to report."
    assert headline(warned + fine) == "No run was halted; 1 of 2 runs got warnings."
    assert headline(looping("halted") + warned).startswith("1 of 2 runs was halted, 1 more got warnings. Wasted after")


def test_all_runs_show_what_was_wasted_in_readable_numbers(tmp_path: Path) -> None:
    events = [event | {"usage": {"total_tokens": 500_000}} for event in looping("h", after=1)]
    report = fleet_report([Source(written(tmp_path, events))], load_policy())
    assert re.search(r"Wasted after the loops began: \d turns, 2\.0 M tokens", report.sentence)
    assert '<td class="number">2.0 M</td>' in html_of(report)
    assert "| 2.0 M |" in markdown_of(report)


def test_sessions_are_named_in_the_report_of_all_runs_and_in_their_own(tmp_path: Path) -> None:
    session = Session(cwd="/home/me/shop").asks("Fix the login.")
    for n in range(5):
        session.runs(f"c{n}", "ls", "a")
    reading.written(tmp_path / f"{SESSION}.jsonl", session.rows)
    report = fleet_report(open_logs([str(tmp_path)])[0], load_policy())
    assert [one.name for one in report.runs] == [report.reports[0].name] == ['"Fix the login.", shop']
    assert "Fix the login." in html_of(report)
    assert "Fix the login." in markdown_of(report)


def test_a_report_says_that_a_halted_run_was_resumed(tmp_path: Path) -> None:
    resume = {"type": "operator.resume", "run_id": "loop", "by": "ada", "reason": "second try"}
    recording = recorded(written(tmp_path, [*looping(after=0), resume, turn(20), turn(21)]))
    made = markdown_of(report_of(recording, "loop"))
    assert "- Resumed after turn 7: Resumed by ada: second try." in made
    assert "Ends as" not in made
    assert "Resumed after turn 7" in re.sub(r"<[^>]+>", "", html_of(report_of(recording, "loop")))
