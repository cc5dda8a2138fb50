"""What is told of an order: a `fleet.state` control event, and who must stop because of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import xxhash

from streamproc.core.decision import USER_STOP, Decision, Evidence, Trigger
from streamproc.model.log_time import rfc3339

if TYPE_CHECKING:
    from streamproc.errors import Problem
    from streamproc.model.fleet_command import FleetCommand

ALL: Final = "*"  # the `run_id` of what is about more than one run
ORDERED: Final = "FLEET001"
REFUSED: Final = "FLEET002"

_SEVERITY: Final = {"STOP": "halt", "PAUSE": "warn", "CLEAR": "info"}
_ACTION: Final = {"STOP": "halt", "PAUSE": "pause", "CLEAR": None}


def state_event(
    order: FleetCommand, run_id: str = ALL, at_ms: int | None = None, trigger: Trigger | None = None
) -> Decision:
    """The control event of an order; for one run (`run_id`), the reason why it must stop."""
    stops = order.status == "STOP"
    message = f"{str(order)[0].upper()}{str(order)[1:]}."
    return Decision(
        id=_identity(order.id, run_id),
        type="fleet.state",
        run_id=run_id,
        code=ORDERED,
        severity=_SEVERITY[order.status],
        message=message,
        tenant=order.name if order.part == "tenant" else None,
        user=order.name if order.part == "user" else None,
        halt_reason=USER_STOP if stops else None,
        terminal_status="stopped" if stops else None,
        action=_ACTION[order.status],
        suggested_actions=["halt"] if stops else [],
        evidence=Evidence(kind=f"fleet_{order.status.lower()}", by=order.by or None, reason=order.why or None),
        trigger=trigger or Trigger(event_id=order.id),
        at=rfc3339(order.at if at_ms is None else at_ms),
    )


def refusal_event(problem: Problem, place: str, at_ms: int, trigger: Trigger | None = None) -> Decision:
    """The control event of an order that does not count. `place` is where it stands: a record, a file."""
    return Decision(
        id=_identity(place, f"refused at {at_ms}"),
        type="fleet.state",
        run_id=ALL,
        code=REFUSED,
        severity="warn",
        message=f"An order was refused ({place}): {problem}.",
        action="warn",
        evidence=Evidence(kind="fleet_refused", reason=str(problem)),
        trigger=trigger,
        at=rfc3339(at_ms),
    )


def _identity(*parts: str) -> str:
    return xxhash.xxh3_128_hexdigest("\0".join(("fleet", *parts)).encode("utf-8", "surrogatepass"))
