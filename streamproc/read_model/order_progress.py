"""How far an order is, by what the topics say: page and terminal trust what they read, not what they sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from streamproc.fleet.command_events import ALL, ISSUED, REFUSED
from streamproc.read_model.rows import DecisionFilter

if TYPE_CHECKING:
    from streamproc.read_model.rows import CommandRow, DecisionRow, LiveRun

Stage = Literal["sending", "unsent", "sent", "standing", "replaced", "refused", "obeyed"]

ENDS: Final = frozenset({"unsent", "replaced", "refused", "obeyed"})
RECENT: Final = 200  # decisions in which the answer to an order is looked for


class OrderModel(Protocol):
    """What orders ask of the read model."""

    def runs_in_scope(self, scope: str) -> int:
        """Return the number of working runs that an order to this scope hits."""

    def run(self, run_id: str) -> LiveRun | None:
        """Return a run."""

    def commands(self, *, standing: bool) -> tuple[CommandRow, ...]:
        """Return the commands that were seen."""

    def decisions(self, filter_: DecisionFilter, /, *, limit: int = 200) -> tuple[DecisionRow, ...]:
        """Return decisions, the newest first."""


class SentOrder(Protocol):
    """An order that the broker has stored."""

    @property
    def id(self) -> str:
        """The id of its command, or of its event."""

    @property
    def verb(self) -> str:
        """What it says, such as halt."""

    @property
    def scope(self) -> str:
        """Whom it is about: ``run:ID``, ``user:ID``, ``fleet`` …"""

    @property
    def counted(self) -> int:
        """The number of working runs that it was said to hit."""

    @property
    def place(self) -> str:
        """Where its command is, such as ``streamproc.commands[0]@17``; empty for an event of a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderProgress:
    """The last stage that an order has reached, why, and what has come of it. Texts may quote people."""

    stage: Stage
    note: str
    outcome: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more is expected."""
        return self.stage in ENDS


def order_progress(order: SentOrder, model: OrderModel) -> OrderProgress:
    """Return how far an order is that was sent."""
    if not order.place:
        return _of_event(order, model)
    if (refusal := _refusal(order.place, model)) is not None:
        return OrderProgress(stage="refused", note=f"{REFUSED}: {refusal.message}")
    row = next((row for row in model.commands(standing=False) if row.id == order.id), None)
    if row is None:
        return OrderProgress(stage="sent", note="the broker has stored it")
    if row.state == "refused":
        return OrderProgress(stage="refused", note=row.reason)
    return _of_run(order, row, model) if order.scope.startswith("run:") else _of_many(order, row, model)


def _of_event(order: SentOrder, model: OrderModel) -> OrderProgress:
    found = model.decisions(DecisionFilter(run_id=order.scope.removeprefix("run:")), limit=RECENT)
    decision = next((one for one in found if cause_of(one) == order.id), None)
    if decision is None:
        return OrderProgress(stage="sent", note="no worker has answered yet")
    return OrderProgress(stage="obeyed", note=decision.message or "the run may go on")


def _of_run(order: SentOrder, row: CommandRow, model: OrderModel) -> OrderProgress:
    run = model.run(order.scope.removeprefix("run:"))
    if row.obeyed_runs or (run is not None and run.status == "halted"):
        return OrderProgress(stage="obeyed", note="the run is halted")
    if run is not None and run.status == "finished":
        return OrderProgress(stage="obeyed", note="the run has finished")
    unknown = "" if run is not None else ", and no worker knows this run"
    return OrderProgress(stage="standing", note=f"guards and workers act on it{unknown}")


def _of_many(order: SentOrder, row: CommandRow, model: OrderModel) -> OrderProgress:
    outcome = ""
    if order.verb in ("kill", "stop"):
        outcome = f"Working runs when it was given: {order.counted}; now: {model.runs_in_scope(order.scope)}."
    if order.verb == "kill":
        outcome += f" Runs that it has halted: {row.obeyed_runs}."
    if row.state == "replaced":
        return OrderProgress(stage="replaced", note="by a later order to the same scope", outcome=outcome)
    known = model.decisions(DecisionFilter(run_id=ALL, code=ISSUED), limit=RECENT)
    if any(cause_of(one) == order.id for one in known):
        return OrderProgress(stage="obeyed", note="the workers act on it, too", outcome=outcome)
    return OrderProgress(stage="standing", note="guards act on it", outcome=outcome)


def _refusal(place: str, model: OrderModel) -> DecisionRow | None:
    refused = model.decisions(DecisionFilter(code=REFUSED), limit=RECENT)
    return next((one for one in refused if f"({place})" in one.message), None)


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
