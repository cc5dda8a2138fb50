"""How far a command is, for everything that the topics can say about it."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from streamproc.fleet.commands import Command, StopCounts
from streamproc.fleet.issuing import StoredAt
from streamproc.read_model.command_progress import command_progress
from streamproc.read_model.rows import CommandRow, DecisionRow, LiveRun, RefusedRow
from streamproc.web.commands import IssuedCommands
from tests.web.access_app import FewRuns

PLACE = StoredAt("streamproc.commands", 0, 17, 1)
EVENT = StoredAt("streamproc.turns", 3, 40, 1)


def command(verb: str = "halt", scope: str = "run:r", **more: Any) -> Command:
    given = {"sent": True, "place": PLACE, "counted": 3} | more
    return Command(id="o1", verb=verb, scope=scope, by="ada", why="why", at_ms=1, **given)


def row(state: Any = "standing", *, obeyed: int = 0, reason: str = "", **more: Any) -> CommandRow:
    given = {"id": "o1", "scope": "run:r", "status": "STOP", "by": "ada", "why": "why", "at_ms": 1} | more
    return CommandRow(**given, state=state, reason=reason, obeyed_runs=obeyed)


def decision(
    code: str, *, run_id: str = "*", message: str = "", event_id: str = "", body: bytes | None = None
) -> DecisionRow:
    made = json.dumps({"trigger": {"event_id": event_id}}).encode() if body is None else body
    return DecisionRow(
        id="d", run_id=run_id, at_ms=2, code=code, severity="info", action="", message=message, body=made
    )


REFUSED = decision("FLEET002", message=f"A command was refused ({PLACE}): signature: issuer 'page' is unknown.")
ANNOUNCED = decision("FLEET001", event_id="o1")
RESUMED = decision("RESUME", run_id="r", event_id="o1")
HALTED = LiveRun(run_id="r", status="halted", severity="halt")
FINISHED = LiveRun(run_id="r", status="finished", severity="info")
WORKING = LiveRun(run_id="r", status="running", severity="info")
GONE_PAST = LiveRun(run_id="r", status="running", severity="info", partition=3, offset=41)
NOT_YET = LiveRun(run_id="r", status="running", severity="info", partition=3, offset=39)
ELSEWHERE = LiveRun(run_id="r", status="running", severity="info", partition=2, offset=41)
DEAD = RefusedRow(
    partition=0, offset=0, at_ms=2, reason="signature: it is not signed", source_topic=EVENT.topic,
    source_partition=EVENT.partition, source_offset=EVENT.offset,
)  # fmt: skip


@pytest.mark.parametrize(
    ("given", "model", "stage", "said"),
    [
        (command(sent=None), FewRuns(), "sending", "has not confirmed"),
        (command("false-alarm", place=EVENT), FewRuns(), "obeyed", "stored with the run"),
        (command("right", place=EVENT), FewRuns(dead=[DEAD]), "refused", "not signed"),
        (command(sent=False, problem="no broker"), FewRuns(seen=[row()]), "unsent", "no broker"),
        (command(), FewRuns(), "sent", "stored it"),
        (command(), FewRuns(seen=[row(id="another")]), "sent", "stored it"),
        (command(), FewRuns(seen=[row()]), "standing", "no worker knows this run"),
        (command(), FewRuns(seen=[row()], runs={"r": FINISHED}), "obeyed", "It is done: the run has finished."),
        (command(), FewRuns(seen=[row()], runs={"r": WORKING}), "standing", "act on it."),
        (command(), FewRuns(seen=[row()], runs={"r": HALTED}), "obeyed", "halted"),
        (command(), FewRuns(seen=[row(obeyed=1)], runs={"r": WORKING}), "obeyed", "halted"),
        (command(), FewRuns(seen=[row()], runs={"r": HALTED}, decided=[REFUSED]), "refused", "FLEET002"),
        (command(place=PLACE._replace(offset=1)), FewRuns(seen=[row()], decided=[REFUSED]), "standing", ""),
        (command(), FewRuns(seen=[row("refused", reason="at: older")]), "refused", "at: older"),
        (command("stop", "fleet"), FewRuns(seen=[row("replaced")]), "replaced", "later command"),
        (command("stop", "fleet"), FewRuns(seen=[row()]), "standing", "guards act"),
        (command("stop", "fleet"), FewRuns(seen=[row()], decided=[ANNOUNCED]), "obeyed", "workers"),
        (command("stop", "fleet"), FewRuns(seen=[row()], decided=[decision("FLEET001", body=b"[")]), "standing", ""),
        (command("resume", place=EVENT), FewRuns(), "sent", "no worker has answered"),
        (command("resume", place=EVENT), FewRuns(decided=[RESUMED]), "obeyed", "it is decided"),
        (command("resume", place=EVENT), FewRuns(runs={"r": GONE_PAST}), "obeyed", "running, not halted"),
        (command("resume", place=EVENT), FewRuns(runs={"r": NOT_YET}), "sent", "no worker has answered"),
        (command("resume", place=EVENT), FewRuns(runs={"r": ELSEWHERE}), "sent", "no worker has answered"),
        (command("resume", place=EVENT), FewRuns(runs={"r": GONE_PAST}, dead=[DEAD]), "refused", "not signed"),
        (command("resume", place=EVENT._replace(offset=9)), FewRuns(dead=[DEAD]), "sent", "no worker has answered"),
        (command("acknowledge", place=EVENT), FewRuns(runs={"r": GONE_PAST}), "obeyed", "nothing to acknowledge"),
        (command(), FewRuns(decided=[ANNOUNCED], runs={"r": WORKING}), "accepted", "workers act on it"),
        (command(), FewRuns(decided=[ANNOUNCED], runs={"r": HALTED}), "obeyed", "halted"),
        (command(), FewRuns(decided=[decision("FLEET001", event_id="o2")], runs={"r": HALTED}), "sent", "stored"),
    ],
)  # fmt: skip
def test_the_stage_of_an_command(given: Command, model: FewRuns, stage: str, said: str) -> None:
    found = command_progress(given, model)
    assert found.stage == stage
    assert said in found.sentence
    assert found.over == (stage in ("unsent", "replaced", "refused", "obeyed"))


def test_guards_that_never_reported_before_have_time_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run is stopped before its guard has said that it watches; the page said for ever that it does not report."""
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    clock, model = [0.0], FewRuns(seen=[row(scope="user:eve")], decided=[ANNOUNCED])
    placed = IssuedCommands(model, (command("kill", "user:eve"),))  # type: ignore[arg-type]
    for now_s, mute, said in ((0.5, 1, "stopped 1 of 2; 1 does not report"), (9.9, 0, "stopped 2 of 2"), (10, 2, "")):
        clock[0], model.stopped = now_s, StopCounts(expected=2, stopped=2 - mute, mute=mute)
        [(_, found)] = placed.progress()
        assert (found.stage, found.outcome) == ("obeyed", said or "stopped 2 of 2")  # it is over then


@pytest.mark.parametrize(
    ("counts", "said", "stage"),
    [
        (StopCounts(expected=0, stopped=0), "stopped 0 of 0", "obeyed"),
        (StopCounts(expected=3, stopped=3), "stopped 3 of 3", "obeyed"),
        (
            StopCounts(expected=3, stopped=2, silent=1, names=("e1 (box/7)",)),
            "stopped 2 of 3; 1 does not answer: e1 (box/7)", "accepted",
        ),
        (
            StopCounts(expected=12_345, stopped=12_000, silent=45, mute=300, names=("a", "b")),
            "stopped 12\u202f000 of 12\u202f345; 45 do not answer: a, b, …; 300 do not report", "accepted",
        ),
        (StopCounts(expected=3, stopped=2, mute=1), "stopped 2 of 3; 1 does not report", "obeyed"),
        (
            StopCounts(expected=2, stopped=1, unclear=1, names=("a",)),
            "stopped 1 of 2; 1 does not answer, or not report: a", "accepted",
        ),
    ],
)  # fmt: skip
def test_what_has_come_of_an_command_to_many_is_counted(counts: StopCounts, said: str, stage: str) -> None:
    model = FewRuns(seen=[row(scope="user:eve")], decided=[ANNOUNCED], stopped=counts)
    found = command_progress(command("kill", "user:eve"), model)
    assert (found.outcome, found.stage) == (said, stage)
    assert command_progress(command("pause", "fleet"), model).outcome == ""
