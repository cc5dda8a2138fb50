"""The `fleet.state` control events: of an accepted command, of a refused one, and of records that are not at home."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import xxhash

from streamproc.core.decision import USER_STOP, Decision, Evidence, Trigger
from streamproc.model.controls import Severity
from streamproc.model.fleet_command import FLEET
from streamproc.model.log_time import rfc3339
from streamproc.model.wire import WIRE_VERSION, OperatorStop

if TYPE_CHECKING:
    from streamproc.errors import Problem
    from streamproc.model.fleet_command import FleetCommand

ALL: Final = "*"  # the `run_id` of an event about more than one run
ISSUED: Final = "FLEET001"
REFUSED: Final = "FLEET002"
STRAYS: Final = "FLEET003"

_SEVERITY: Final[dict[str, Severity]] = {"STOP": "halt", "PAUSE": "warn", "CLEAR": "info"}
_ACTION: Final = {"STOP": "halt", "PAUSE": "pause", "CLEAR": None}


def state_event(
    command: FleetCommand, run_id: str = ALL, at_ms: int | None = None, trigger: Trigger | None = None
) -> Decision:
    """Return the control event of a command; with a `run_id`, the reason why that run must stop.

    Without one, the event about a command to one run only says that workers act on it: the halt follows.
    """
    announces = command.part == "run" and run_id == ALL
    stops = command.status == "STOP" and not announces
    message = f"{str(command)[0].upper()}{str(command)[1:]}."
    return Decision(
        id=_identity(command.id, run_id),
        type="fleet.state",
        run_id=run_id,
        code=ISSUED,
        severity="info" if announces else _SEVERITY[command.status],
        message=message,
        tenant=command.tenant or None,
        user=command.user or None,
        halt_reason=USER_STOP if stops else None,
        terminal_status="stopped" if stops else None,
        action=None if announces else _ACTION[command.status],
        suggested_actions=["halt"] if stops else [],
        evidence=Evidence(
            kind="run_stop" if announces else f"fleet_{command.status.lower()}",
            by=command.by or None, reason=command.why or None,
            account=None if command.scope == FLEET else command.scope,
        ),
        trigger=trigger or Trigger(event_id=command.id),
        at=rfc3339(command.at if at_ms is None else at_ms),
    )  # fmt: skip


def stop_event(command: FleetCommand, run_id: str, event_id: str) -> OperatorStop:
    """Return the event by which a command stops a run."""
    killed = "" if command.part == "run" else f"{command.target} is killed"
    reason = ": ".join(filter(None, (killed, command.why)))
    return OperatorStop(w=WIRE_VERSION, run_id=run_id, event_id=event_id, by=command.by, reason=reason)


def refusal_event(problem: Problem, place: str, at_ms: int, trigger: Trigger | None = None) -> Decision:
    """Return the control event of a refused command. `place` is its origin: a record or a file."""
    message = f"A command was refused ({place}): {problem}."
    evidence = Evidence(kind="fleet_refused", reason=str(problem))
    return _warning(REFUSED, _identity(place, f"refused at {at_ms}"), message, evidence, at_ms, trigger)


def strays_event(cause: str, place: str, at_ms: int) -> Decision:
    """Return the control event of records outside of their home partition. `place` is that of the latest one."""
    message = f"Records outside of the home partition of their run are refused, the latest at {place}: {cause}."
    evidence = Evidence(kind="fleet_strays", reason=cause)
    return _warning(STRAYS, _identity(place, f"strays at {at_ms}"), message, evidence, at_ms)


def _warning(
    code: str, id_: str, message: str, evidence: Evidence, at_ms: int, trigger: Trigger | None = None
) -> Decision:
    return Decision(
        id=id_, type="fleet.state", run_id=ALL, code=code, severity="warn", message=message, action="warn",
        evidence=evidence, trigger=trigger, at=rfc3339(at_ms),
    )  # fmt: skip


def _identity(*parts: str) -> str:
    return xxhash.xxh3_128_hexdigest("\0".join(("fleet", *parts)).encode("utf-8", "surrogatepass"))
