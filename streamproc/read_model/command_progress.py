"""What the topics say about a command, as read: page and terminal trust what they read, not what they sent."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from streamproc.fleet.command_events import ALL, ISSUED, REFUSED
from streamproc.fleet.commands import CommandFacts, CommandProgress, progress_of
from streamproc.read_model.rows import DecisionFilter

if TYPE_CHECKING:
    from streamproc.fleet.commands import Command
    from streamproc.fleet.issuing import StoredAt
    from streamproc.read_model.model import ReadModel
    from streamproc.read_model.rows import DecisionRow

RECENT: Final = 200  # decisions in which the answer to a command is looked for


def command_progress(command: Command, model: ReadModel) -> CommandProgress:
    """Return how far a command is."""
    return progress_of(command, _facts(command, command.place, model) if command.place is not None else CommandFacts())


def _facts(command: Command, place: StoredAt, model: ReadModel) -> CommandFacts:
    run = model.run(command.run_id) if command.run_id else None
    about = model.decisions(DecisionFilter(run_id=command.run_id or ALL), limit=RECENT)
    named = next((one for one in about if cause_of(one) == command.id and one.code != ISSUED), None)
    decision = named.message or "it is decided" if named is not None else ""
    status = run.status if run is not None else ""
    if command.rule.event:
        applied = run is not None and run.partition == place.partition and run.offset >= place.offset
        return CommandFacts(refused=_dead(place, model), decision=decision, applied=applied, run_status=status)
    row = next((row for row in model.commands(standing=False) if row.id == command.id), None)
    announced = model.decisions(DecisionFilter(run_id=ALL, code=ISSUED), limit=RECENT)
    refusals = model.decisions(DecisionFilter(code=REFUSED), limit=RECENT)
    refusal = next((f"{REFUSED}: {one.message}" for one in refusals if f"({place})" in one.message), "")
    state = row.state if row is not None else ""
    if row is not None and row.obeyed_runs:
        decision = decision or "the run is halted"
    return CommandFacts(
        refused=refusal or (row.reason if row is not None and state == "refused" else ""),
        standing=state == "standing", replaced=state == "replaced",
        accepted=any(cause_of(one) == command.id for one in announced),
        decision=decision if command.run_id else "", run_status=status,
        stops=model.stops(command.scope, place.at_ms) if command.stops else None,
    )  # fmt: skip


def _dead(place: StoredAt, model: ReadModel) -> str:
    at = place.topic, place.partition, place.offset
    dead = (
        one for one in model.refused(limit=RECENT) if at == (one.source_topic, one.source_partition, one.source_offset)
    )
    return next((one.reason for one in dead), "")


def body_of(decision: DecisionRow) -> dict[str, Any]:
    """Return the JSON of a decision; empty if it is none."""
    try:
        body = json.loads(decision.body)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def cause_of(decision: DecisionRow) -> str:
    """Return the id of the event that caused a decision; empty if it is not known."""
    trigger = body_of(decision).get("trigger")
    return str(trigger.get("event_id", "")) if isinstance(trigger, dict) else ""
