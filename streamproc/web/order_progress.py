"""How far an order is, by what the topics say: the page trusts what it reads, not what it sent."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from streamproc.fleet.command_events import ALL, ISSUED, REFUSED
from streamproc.read_model.rows import DecisionFilter

if TYPE_CHECKING:
    from streamproc.read_model.rows import CommandRow, DecisionRow
    from streamproc.web.orders import OrderModel, PlacedOrder

Stage = Literal["sending", "unsent", "sent", "standing", "replaced", "refused", "obeyed"]

ENDS: Final = frozenset({"unsent", "replaced", "refused", "obeyed"})
RECENT: Final = 200  # decisions in which the answer to an order is looked for


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderProgress:
    """The last stage that an order has reached, in words, and what has come of it."""

    stage: Stage
    sentence: str
    outcome: str = ""

    @property
    def over(self) -> bool:
        """Whether nothing more is expected."""
        return self.stage in ENDS


def progress(order: PlacedOrder, model: OrderModel) -> OrderProgress:
    """Return how far an order is."""
    if order.sent is None:
        return OrderProgress(stage="sending", sentence="It is being sent: the broker has not confirmed it yet.")
    if not order.sent:
        return OrderProgress(stage="unsent", sentence=f"It was not sent: {order.problem}")
    if not order.place:
        return _of_resume(order, model)
    refusal = _refusal(order.place, model)
    if refusal is not None:
        return OrderProgress(stage="refused", sentence=f"The workers refused it ({REFUSED}): {refusal.message}")
    row = next((row for row in model.commands(standing=False) if row.id == order.id), None)
    if row is None:
        return OrderProgress(stage="sent", sentence="It is sent: the broker has stored it.")
    if row.state == "refused":
        return OrderProgress(stage="refused", sentence=f"It was refused: {row.reason}")
    return _of_run(order, row, model) if order.run_id else _of_many(order, row, model)


def _of_resume(order: PlacedOrder, model: OrderModel) -> OrderProgress:
    found = model.decisions(DecisionFilter(run_id=order.run_id), limit=RECENT)
    if any(_trigger(one).get("event_id") == order.id for one in found):
        return OrderProgress(stage="obeyed", sentence="It is obeyed: the run may go on.")
    return OrderProgress(stage="sent", sentence="It is sent: no worker has answered yet.")


def _of_run(order: PlacedOrder, row: CommandRow, model: OrderModel) -> OrderProgress:
    run = model.run(order.run_id)
    if row.obeyed_runs or (run is not None and run.status == "halted"):
        return OrderProgress(stage="obeyed", sentence="It stands and is obeyed: the run is halted.")
    unknown = "" if run is not None else " No worker knows this run."
    return OrderProgress(stage="standing", sentence=f"It stands: guards and workers act on it.{unknown}")


def _of_many(order: PlacedOrder, row: CommandRow, model: OrderModel) -> OrderProgress:
    outcome = ""
    if order.verb in ("kill", "stop"):
        outcome = f"Working runs when it was given: {order.counted}; now: {model.runs_in_scope(order.scope)}."
    if order.verb == "kill":
        outcome += f" Runs that it has halted: {row.obeyed_runs}."
    if row.state == "replaced":
        sentence = "It was replaced by a later order to the same scope."
        return OrderProgress(stage="replaced", sentence=sentence, outcome=outcome)
    known = model.decisions(DecisionFilter(run_id=ALL, code=ISSUED), limit=RECENT)
    if not any(_trigger(one).get("event_id") == order.id for one in known):
        return OrderProgress(stage="standing", sentence="It stands: guards act on it.", outcome=outcome)
    return OrderProgress(stage="obeyed", sentence="It stands, and the workers act on it, too.", outcome=outcome)


def _refusal(place: str, model: OrderModel) -> DecisionRow | None:
    refused = model.decisions(DecisionFilter(code=REFUSED), limit=RECENT)
    return next((one for one in refused if f"({place})" in one.message), None)


def _trigger(one: DecisionRow) -> dict[str, Any]:
    try:
        found = json.loads(one.body).get("trigger")
    except (ValueError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}
