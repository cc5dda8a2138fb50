"""The judge: the decisions of `Monitor`, kept over restarts, full disks and damaged files."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from streamproc import Monitor
from streamproc.errors import InvalidSettings, Unavailable
from streamproc.fingerprint import fingerprint
from streamproc.live.judge import KEPT_MAX, Judge
from streamproc.live.kills import CommandRequest
from streamproc.live.store import COMMITS_MAX, CONTROL, TURNS, LiveLog
from streamproc.model.controls import ControlEvent
from streamproc.model.raw_events import parse_raw
from streamproc.policy import load_policy
from tests.live.conftest import call

Opened = Callable[..., tuple[Judge, LiveLog]]
START_MS = 1_780_000_000_000
STUCK = [call("ls", "a b"), *[call("cat x", "no such file")] * 5]


def fed(judge: Judge, raws: Sequence[dict[str, Any]], at_ms: int = START_MS) -> list[ControlEvent]:
    return [one for raw in raws for one in judge.feed([fingerprint(parse_raw(raw), local=True)], at_ms)]


def told(decisions: Sequence[ControlEvent]) -> list[tuple[Any, ...]]:
    return [(one.id, one.severity, one.code, one.message, one.trigger and one.trigger.turn) for one in decisions]


def test_it_decides_as_monitor_does(opened: Opened) -> None:
    monitor = Monitor()
    expected = [one for raw in STUCK for one in monitor.feed(raw)]
    found = fed(opened()[0], STUCK)
    assert told(found) == told(expected)
    assert [one.severity for one in found] == ["warn", "halt"]


@pytest.mark.parametrize("before", range(len(STUCK) + 1))
def test_a_restart_at_any_point_changes_no_decision(opened: Opened, before: int) -> None:
    found = told(fed(opened()[0], STUCK[:before]))
    judge, stored = opened()
    found += told(fed(judge, STUCK[before:]))
    monitor = Monitor()
    assert found == told([one for raw in STUCK for one in monitor.feed(raw)])
    assert [record.role for record in stored.records()].count(TURNS) == len(STUCK)
    ids = [record.value for record in stored.records() if record.role == CONTROL]
    assert len(ids) == len(set(ids)) == 2


def test_a_run_stays_halted_over_a_restart_until_it_is_resumed(opened: Opened) -> None:
    fed(opened()[0], STUCK)
    judge, _ = opened()
    halt = judge.halted("r1")
    assert halt is not None
    assert halt.code == "LOOP003"
    [resumed] = fed(judge, [{"type": "operator.resume", "run_id": "r1", "halt": halt.id, "by": "ann"}])
    assert resumed.type == "run.resumed"
    assert judge.halted("r1") is None
    assert opened()[0].halted("r1") is None


def test_a_full_disk_loses_nothing_and_says_so(opened: Opened) -> None:
    judge, stored = opened()
    fed(judge, STUCK[:3])
    pages = stored._db.execute("PRAGMA page_count").fetchone()[0]
    stored._db.execute(f"PRAGMA max_page_count = {pages}")
    big = [call("ls", "x", f"{number}") | {"run_id": f"filler-{number}"} for number in range(400)]
    with pytest.raises(Unavailable, match="make room"):
        judge.feed([fingerprint(parse_raw(raw)) for raw in big], START_MS)
    with pytest.raises(Unavailable):
        judge.feed([fingerprint(parse_raw(raw)) for raw in big], START_MS)
    assert judge.status("filler-0") is None
    stored._db.execute(f"PRAGMA max_page_count = {10 * pages}")
    monitor = Monitor()
    expected = [one for raw in STUCK for one in monitor.feed(raw)]
    assert told(fed(judge, STUCK[3:])) == told(expected)[1:]


def test_the_budget_of_a_session_is_kept_over_a_restart(opened: Opened) -> None:
    policy = {"budgets": {"maxSessionCost": "1.00"}}
    spent = [
        {"run_id": f"r{n}", "node": "main", "session_id": "s", "output": f"words {n}", "usage": {"cost_usd": "0.40"}}
        for n in range(3)
    ]
    fed(opened(policy)[0], spent[:2])
    judge, _ = opened(policy)
    found = fed(judge, spent[2:])
    assert "r2" in {one.run_id for one in found if one.severity == "halt"}
    assert judge.halted("r0") is not None  # runs of the session that are at work are halted, too


def test_a_run_that_falls_silent_is_reported(opened: Opened) -> None:
    judge, stored = opened()
    fed(judge, [call("ls", "a")])
    assert judge.expire(START_MS + 1_000) == []
    due_ms = stored.next_due_ms()
    assert due_ms > START_MS
    found = judge.expire(due_ms)
    assert [(one.code, one.severity) for one in found] == [("STALL007", "warn")]
    assert judge.expire(due_ms) == []


def test_a_deadline_of_a_policy_that_has_changed_is_found_only_once(opened: Opened) -> None:
    judge, stored = opened({"detectors": {"STALL007": {"warn_silence_s": 5}}})
    fed(judge, [call("ls", "a")])
    due_ms = stored.next_due_ms()
    judge, stored = opened()
    assert judge.expire(due_ms) == []
    assert stored.due(due_ms, 9) == []
    assert stored.next_due_ms() > due_ms


def test_a_run_is_as_old_as_its_last_word_not_as_its_last_deadline(opened: Opened) -> None:
    judge, stored = opened()
    fed(judge, [call("ls", "a")])
    assert judge.expire(stored.next_due_ms())
    assert [run.heard_ms for run in stored.runs(9)] == [START_MS]


def test_log_time_never_goes_back(opened: Opened) -> None:
    judge, stored = opened()
    fed(judge, [call("ls", "a")], START_MS)
    fed(judge, [call("ls", "b")], START_MS - 3_600_000)
    judge, stored = opened()
    fed(judge, [call("ls", "c")], START_MS - 7_200_000)
    assert {record.at_ms for record in stored.records()} == {START_MS}


def test_more_runs_than_are_kept_in_memory(opened: Opened) -> None:
    judge, _ = opened()
    fed(judge, [call("cat x", "no")] * 2)
    many = [call("ls", "a") | {"run_id": f"other-{number}"} for number in range(KEPT_MAX + 10)]
    judge.feed([fingerprint(parse_raw(raw)) for raw in many], START_MS)
    [halt] = fed(judge, [call("cat x", "no")])
    assert halt.severity == "halt"


def test_old_runs_are_forgotten_with_their_records(opened: Opened) -> None:
    judge, stored = opened()
    fed(judge, [call("ls", "a")], START_MS)
    fed(judge, [call("ls", "a") | {"run_id": "r2"}], START_MS + 10)
    judge.forget_before(START_MS + 5)
    assert [run.run_id for run in stored.runs(9)] == ["r2"]
    assert {record.run_id for record in stored.records()} == {"r2"}


def test_old_sessions_are_forgotten_with_their_accounts(opened: Opened) -> None:
    policy = {"budgets": {"maxSessionCost": "1.00", "maxUserCostUsdPerDay": "9.00"}}
    judge, stored = opened(policy)
    for number, session in enumerate("ab"):
        spent = {"output": "words", "usage": {"cost_usd": "0.40"}, "user": "ada"}
        fed(judge, [{"run_id": session, "node": "main", "session_id": session, **spent}], START_MS + 10 * number)
    before = set(stored.accounts())
    judge.forget_before(START_MS + 5)
    assert {name for name in before if name.endswith("a") and not name.startswith("user:")}
    for accounts in (set(stored.accounts()), set(opened(policy)[1].accounts())):
        assert {name for name in before - accounts if name.startswith("user:")} == set()
        assert all(name.endswith("a") for name in before - accounts)
        assert not {name for name in accounts if name.endswith("/a") or name == "session:a"}


def test_positions_never_go_back_whatever_is_forgotten(opened: Opened) -> None:
    judge, stored = opened()
    fed(judge, STUCK)
    last = stored.position
    judge.forget_before(START_MS + 5)
    judge, stored = opened()
    fed(judge, [call("ls", "a")])
    assert [record.position for record in stored.records()] == [last + 1]


def test_a_damaged_file_is_moved_aside(log_file: Path, opened: Opened) -> None:
    log_file.write_bytes(b"no database at all" * 1_000)
    judge, stored = opened()
    assert stored.moved is not None
    assert stored.moved.read_bytes().startswith(b"no database")
    assert fed(judge, STUCK)[-1].severity == "halt"


def test_a_file_of_another_version_is_refused(log_file: Path, opened: Opened) -> None:
    db = sqlite3.connect(log_file)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(InvalidSettings, match="another version"):
        opened()
    assert log_file.exists()


def test_others_cannot_read_the_log(log_file: Path, opened: Opened) -> None:
    opened()
    assert log_file.stat().st_mode & 0o077 == 0


def in_the_file(path: Path) -> int:
    """Return how many records the file has without its write-ahead log."""
    copy = path.with_name("copy.db")
    copy.write_bytes(path.read_bytes())
    with closing(sqlite3.connect(copy)) as db:
        try:
            return int(db.execute("SELECT count(*) FROM records").fetchone()[0])
        except sqlite3.DatabaseError:
            return 0


def test_what_is_committed_is_copied_into_the_file_by_another_connection(opened: Opened, log_file: Path) -> None:
    judge, stored = opened()
    behind: list[int] = []
    stored.on_behind = lambda: behind.append(stored.position)
    fed(judge, [call("ls", f"text {n}") for n in range(COMMITS_MAX)])
    assert (len(behind), in_the_file(log_file)) == (1, 0)  # the writer has not waited for the disk

    stored.checkpoint()

    assert in_the_file(log_file) == COMMITS_MAX


def test_a_file_that_is_gone_is_not_made_again_empty(opened: Opened, log_file: Path) -> None:
    stored = opened()[1]
    log_file.unlink()
    with pytest.raises(sqlite3.Error):
        stored.checkpoint()
    assert not log_file.exists()


def test_no_halt_is_lost_however_many_runs_are_known(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.live.judge.KEPT_MAX", 5)
    judge, _ = opened()
    names = [f"r{number}" for number in range(40)]
    stuck = [raw | {"run_id": run_id} for raw in STUCK for run_id in names]
    judge.feed([fingerprint(parse_raw(raw), local=True) for raw in stuck], START_MS)
    assert [run_id for run_id in names if judge.halted(run_id) is None] == []
    again, _ = opened()
    assert [run_id for run_id in names if again.halted(run_id) is None] == []


def test_an_event_that_is_sent_again_changes_nothing_however_many_came_between(opened: Opened) -> None:
    judge, _ = opened()
    turns = [call(f"ls {number}", f"file {number}", f"id-{number}") for number in range(60)]
    assert fed(judge, turns * 2) == []
    judge, stored = opened()
    assert fed(judge, turns) == []
    status = judge.status("r1")
    assert status is not None
    assert status.turns == 60
    assert [one.role for one in stored.records()].count(TURNS) == 60


def test_the_id_of_an_event_from_before_does_not_silence_a_new_execution(opened: Opened) -> None:
    judge, _ = opened()
    begun = [
        {"type": "run.started", "run_id": "r1"},
        *[call("cat x", "no such file", f"id-{number}") for number in range(2)],
    ]
    work = [call(f"ls {number}", f"file {number}", f"work-{number}") for number in range(30)]
    fed(judge, [*begun, *work, {"type": "run.finished", "run_id": "r1"}])
    assert judge.halted("r1") is None
    fed(judge, [*begun, call("cat x", "no such file")])
    assert judge.halted("r1") is not None


def test_an_account_that_memory_has_dropped_is_read_again(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.core.local_accounts.ACCOUNTS_MAX", 4)
    judge, _ = opened({"budgets": {"maxSessionCost": "1.00"}})
    usage = {"usage": {"cost_usd": "0.60"}}
    turns = [
        {"run_id": f"run of {session}", "node": "main", "session_id": session, "output": f"words {number}", **usage}
        for number, session in enumerate(("mine", *(f"other {number}" for number in range(20)), "mine"))
    ]
    halted = {one.run_id for one in fed(judge, turns) if one.severity == "halt"}
    assert halted == {"run of mine"}


Step = tuple[str, int]
STEPS = st.tuples(st.sampled_from(("stuck", "stuck", "new", "start", "finish", "kill", "clear")), st.integers(0, 7))


def lived(batches: list[list[Step]], *, small: bool) -> tuple[list[str], dict[str, bool]]:
    """Let runs take these steps, and return the ids of the decisions and which runs are halted. If `small`, hardly
    anything is kept in memory, and each batch is sent again, as is the first one at the end, after restarts."""
    policy = load_policy({"budgets": {"maxSessionCost": "1.00"}})
    requests = [[request_of(f"{number}.{place}", *step) for place, step in enumerate(batch)]
                for number, batch in enumerate(batches)]  # fmt: skip
    ids: list[str] = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        if small:
            patch.setattr("streamproc.live.judge.KEPT_MAX", 1)
            patch.setattr("streamproc.core.local_accounts.ACCOUNTS_MAX", 1)
        for batch in [*(requests if not small else (one for one in requests for _ in range(2))), *requests[:small]]:
            with closing(LiveLog(Path(folder, "live.db"))) as stored:
                judge = Judge(policy, stored)
                for request in batch:
                    if isinstance(request, CommandRequest):
                        ids += [one.id for one in judge.obey(request, START_MS)]
                events = [one for one in batch if not isinstance(one, CommandRequest)]
                ids += [
                    one.id for one in judge.feed([fingerprint(parse_raw(one), local=True) for one in events], START_MS)
                ]
                halted = {f"r{run}": judge.halted(f"r{run}") is not None for run in range(8)}
    return ids, halted


def request_of(event_id: str, step: str, run: int) -> Any:
    if step in ("kill", "clear"):
        return CommandRequest(status="STOP" if step == "kill" else "CLEAR", scope=f"user:u{run % 2}", id=event_id)
    whose = {"run_id": f"r{run}", "session_id": f"s{run % 3}", "user": f"u{run % 2}", "event_id": event_id}
    if step in ("start", "finish"):
        return {"type": {"start": "run.started", "finish": "run.finished"}[step], **whose}
    answer = "no such file" if step == "stuck" else event_id
    return call(f"cat {answer}", answer) | whose | {"usage": {"cost_usd": "0.12"}}


@given(batches=st.lists(st.lists(STEPS, min_size=1, max_size=30), min_size=1, max_size=6))
def test_no_size_repetition_or_restart_changes_what_is_decided(batches: list[list[Step]]) -> None:
    assert lived(batches, small=True) == lived(batches, small=False)
