"""How far an order is, for everything that the topics can say about it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamproc.read_model.rows import CommandRow, DecisionRow, LiveRun
from streamproc.web.order_progress import progress, sentence
from streamproc.web.orders import PlacedOrder
from tests.web.access_app import FewRuns

PLACE = "streamproc.commands[0]@17"


def order(verb: str = "halt", scope: str = "run:r", **more: Any) -> PlacedOrder:
    given = {"sent": True, "place": PLACE, "counted": 3} | more
    return PlacedOrder(id="o1", verb=verb, scope=scope, by="ada", why="why", at_ms=1, **given)


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


@pytest.mark.parametrize(
    ("given", "model", "stage", "said"),
    [
        (order(sent=None), FewRuns(), "sending", "has not confirmed"),
        (order(sent=False, problem="no broker"), FewRuns(seen=[row()]), "unsent", "no broker"),
        (order(), FewRuns(), "sent", "stored it"),
        (order(), FewRuns(seen=[row(id="another")]), "sent", "stored it"),
        (order(), FewRuns(seen=[row()]), "standing", "no worker knows this run"),
        (order(), FewRuns(seen=[row()], runs={"r": FINISHED}), "obeyed", "It is obeyed: the run has finished."),
        (order(), FewRuns(seen=[row()], runs={"r": WORKING}), "standing", "act on it."),
        (order(), FewRuns(seen=[row()], runs={"r": HALTED}), "obeyed", "halted"),
        (order(), FewRuns(seen=[row(obeyed=1)], runs={"r": WORKING}), "obeyed", "halted"),
        (order(), FewRuns(seen=[row()], runs={"r": HALTED}, decided=[REFUSED]), "refused", "FLEET002"),
        (order(place="streamproc.commands[0]@1"), FewRuns(seen=[row()], decided=[REFUSED]), "standing", ""),
        (order(), FewRuns(seen=[row("refused", reason="at: older")]), "refused", "at: older"),
        (order("stop", "fleet"), FewRuns(seen=[row("replaced")]), "replaced", "later order"),
        (order("stop", "fleet"), FewRuns(seen=[row()]), "standing", "guards act"),
        (order("stop", "fleet"), FewRuns(seen=[row()], decided=[ANNOUNCED]), "obeyed", "workers"),
        (order("stop", "fleet"), FewRuns(seen=[row()], decided=[decision("FLEET001", body=b"[")]), "standing", ""),
        (order("resume", place=""), FewRuns(), "sent", "no worker has answered"),
        (order("resume", place=""), FewRuns(decided=[RESUMED]), "obeyed", "go on"),
    ],
)  # fmt: skip
def test_the_stage_of_an_order(given: PlacedOrder, model: FewRuns, stage: str, said: str) -> None:
    found = progress(given, model)
    assert found.stage == stage
    assert said in sentence(found)
    assert found.over == (stage in ("unsent", "replaced", "refused", "obeyed"))


def test_what_has_come_of_an_order_to_many_is_counted() -> None:
    model = FewRuns({"user:eve": 1}, seen=[row(scope="user:eve", obeyed=2)])
    found = progress(order("kill", "user:eve"), model)
    assert found.outcome == "Working runs when it was given: 3; now: 1. Runs that it has halted: 2."
    assert progress(order("pause", "fleet"), FewRuns(seen=[row()])).outcome == ""
