"""Kills of sessions, users and tenants in `streamproc up`: no run of theirs goes on, and no other is touched."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from streamproc.errors import InvalidEvent, Unavailable
from streamproc.fingerprint import fingerprint
from streamproc.live.judge import Judge
from streamproc.live.kills import CommandRequest
from streamproc.live.store import CONTROL, LiveLog
from streamproc.model.controls import ControlEvent
from streamproc.model.raw_events import parse_raw
from streamproc.policy import load_policy

Opened = Callable[..., tuple[Judge, LiveLog]]
START_MS = 1_780_000_000_000


def feed(judge: Judge, run_id: str, **fields: Any) -> list[ControlEvent]:
    raw = {"run_id": run_id, **({"node": "agent", "output": "looks"} if "type" not in fields else {}), **fields}
    return judge.feed([fingerprint(parse_raw(raw), local=True)], START_MS)


def born(judge: Judge, run_id: str, session: str, parent: str = "", **fields: Any) -> list[ControlEvent]:
    whose = {"parent_run_id": parent} if parent else {}
    return feed(judge, run_id, type="run.started", session_id=session, **whose, **fields)


def give(judge: Judge, status: Any, scope: str, **fields: str) -> list[ControlEvent]:
    request = CommandRequest(status=status, scope=scope, **({"by": "ada", "why": "it starts agents"} | fields))
    return judge.obey(request, START_MS)


def test_a_kill_halts_the_runs_of_a_session_and_those_that_are_born_later(opened: Opened) -> None:
    judge, stored = opened()
    for run_id, session in (("root", "s"), ("child", "s"), ("other", "t")):
        born(judge, run_id, session, "root" if run_id == "child" else "")

    found = give(judge, "STOP", "session:s")

    assert (found[0].run_id, found[0].code) == ("*", "FLEET001")
    assert {one.run_id for one in found if one.severity == "halt"} == {"*", "root", "child"}
    assert {one.code for one in found if one.severity == "halt" and one.run_id != "*"} == {"OPERATOR001"}
    assert "session s is killed: it starts agents" in found[-1].message
    assert [one.code for one in born(judge, "late", "s")] == ["OPERATOR001"]
    born(judge, "grandchild", "s", "child")
    runs = ("root", "child", "late", "grandchild", "other")
    assert [run_id for run_id in runs if judge.halted(run_id) is None] == ["other"]
    assert judge.spawn_refusal("t", "other", "", 0, START_MS) == ""
    assert "killed" in judge.spawn_refusal("s", "root", "", 0, START_MS)
    assert next(one.run_id for one in stored.records() if one.role == CONTROL) == "*"


def test_it_holds_over_a_restart_until_it_is_cleared(opened: Opened) -> None:
    born(opened()[0], "root", "s")
    give(opened()[0], "STOP", "session:s")
    judge, _ = opened()
    assert born(judge, "late", "s")[-1].severity == "halt"

    assert give(judge, "CLEAR", "session:s")[0].severity == "info"

    judge, _ = opened()
    assert born(judge, "later", "s") == []
    assert judge.halted("later") is None
    assert judge.halted("root") is not None  # resume it


def test_a_run_that_was_resumed_is_stopped_again_while_its_session_is_killed(opened: Opened) -> None:
    judge, _ = opened()
    born(judge, "root", "s")
    give(judge, "STOP", "session:s")
    halt = judge.halted("root")
    assert halt is not None
    feed(judge, "root", type="operator.resume", halt=halt.id, by="ann")
    assert judge.halted("root") is not None
    assert "`streamproc clear`" in judge.way_on("root")
    give(judge, "CLEAR", "session:s")
    assert judge.way_on("root") == "Send another prompt to go on."


@pytest.mark.parametrize(
    ("scope", "stopped"),
    [
        ("user:bob", {"acme-bob", "zeta-bob"}), ("tenant:acme", {"acme-bob", "acme-eve"}),
        ("member:acme/bob", {"acme-bob"}), ("session:nightly", {"acme-eve"}), ("session:zeta-bob", {"zeta-bob"}),
    ],
)  # fmt: skip
def test_users_and_tenants_are_killed_as_in_a_fleet(opened: Opened, scope: str, stopped: set[str]) -> None:
    judge, _ = opened()
    for tenant, user in (("acme", "bob"), ("acme", "eve"), ("zeta", "bob")):
        session = {"session_id": "nightly"} if user == "eve" else {}
        feed(judge, f"{tenant}-{user}", type="run.started", tenant=tenant, user=user, **session)

    found = give(judge, "STOP", scope)

    assert {one.run_id for one in found if one.severity == "halt"} - {"*"} == stopped


def test_a_run_that_is_over_is_left_alone(opened: Opened) -> None:
    judge, _ = opened()
    born(judge, "done", "s")
    feed(judge, "done", type="run.finished", status="completed")
    assert [one.run_id for one in give(judge, "STOP", "session:s")] == ["*"]


def test_a_command_that_comes_twice_counts_once(opened: Opened) -> None:
    judge, _ = opened()
    born(judge, "root", "s")
    assert len(give(judge, "STOP", "session:s", id="c1")) == 2
    assert give(judge, "STOP", "session:s", id="c1") == []


@pytest.mark.parametrize("scope", ["fleet", "run:r1", "session:", "", "planet:mars"])
def test_other_scopes_are_refused_and_change_nothing(opened: Opened, scope: str) -> None:
    judge, stored = opened()
    with pytest.raises(InvalidEvent):
        give(judge, "STOP", scope)
    assert list(stored.records()) == []
    assert born(judge, "root", "s") == []


def test_a_log_that_cannot_be_written_kills_nothing(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    judge, stored = opened()
    born(judge, "root", "s")

    def full(*_: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(stored, "put_run", full)
        with pytest.raises(Unavailable, match="make room"):
            give(judge, "STOP", "session:s")
    assert feed(judge, "root") == []
    assert judge.halted("root") is None


EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("event"), st.sampled_from("abcdef"), st.sampled_from("xyz")),
        st.tuples(st.sampled_from(["STOP", "CLEAR"]), st.sampled_from("xyz"), st.just("")),
        st.tuples(st.just("restart"), st.just(""), st.just("")),
    ),
    max_size=30,
)


@settings(max_examples=60)
@given(events=EVENTS)
def test_no_run_of_a_killed_session_goes_on_and_no_other_is_halted(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[str, str, str]]
) -> None:
    path = tmp_path_factory.mktemp("log") / "live.db"
    judge = Judge(load_policy("standard"), LiveLog(path))
    session_of: dict[str, str] = {}
    killed: set[str] = set()
    expected: set[str] = set()
    for kind, name, session in events:
        if kind == "restart":
            judge = Judge(load_policy("standard"), LiveLog(path))
        elif kind == "event":
            born(judge, name, session_of.setdefault(name, session))
        else:
            give(judge, kind, f"session:{name}")
            (killed.add if kind == "STOP" else killed.discard)(name)
        expected |= {run_id for run_id, own in session_of.items() if own in killed}
        assert {run_id for run_id in session_of if judge.halted(run_id) is not None} == expected


def test_deadlines_of_killed_runs_are_gone(opened: Opened) -> None:
    judge, stored = opened()
    born(judge, "root", "s")
    give(judge, "STOP", "session:s")
    assert judge.expire(START_MS + 86_400_000) == []
    assert stored.next_due_ms() == 0


def test_a_command_that_is_sent_again_after_a_restart_changes_nothing(opened: Opened) -> None:
    judge, _ = opened()
    born(judge, "root", "s")
    give(judge, "CLEAR", "session:s", id="c1")
    give(judge, "STOP", "session:s", id="s2")
    judge, _ = opened()
    assert give(judge, "CLEAR", "session:s", id="c1") == []
    assert born(judge, "late", "s")[-1].severity == "halt"


def test_a_kill_halts_all_runs_however_many_there_are(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamproc.live.judge.KEPT_MAX", 5)
    judge, _ = opened()
    names = [f"r{number}" for number in range(40)]
    for run_id in names:
        feed(judge, run_id, user="ada")
    give(judge, "STOP", "user:ada")
    assert [run_id for run_id in names if judge.halted(run_id) is None] == []
    again, _ = opened()
    assert [run_id for run_id in names if again.halted(run_id) is None] == []
