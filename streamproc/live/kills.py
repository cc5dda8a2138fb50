"""Kills of users, tenants and sessions in `streamproc up`: each stands until it is cleared."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

import msgspec

from streamproc.errors import InvalidEvent, Problem, shown
from streamproc.fleet.command_events import stop_event
from streamproc.fleet.state import Fleet, new_command
from streamproc.model.fleet_command import encode_command, read_command

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamproc.core.run_state import RunState
    from streamproc.live.store import LiveLog
    from streamproc.model.fleet_command import FleetCommand
    from streamproc.model.wire import OperatorStop

COMMAND: Final = "command:"  # before the scope of a kill, among the accounts in the log
PARTS: Final = ("user", "tenant", "member", "session")


class CommandRequest(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A kill (``STOP``) or its end (``CLEAR``), with the fields of a fleet command."""

    status: Literal["STOP", "CLEAR"]
    scope: str
    by: str = ""
    why: str = ""
    id: str = ""


class Kills:
    """Those that the log holds. A user, tenant or session is killed and cleared as in a fleet of workers."""

    def __init__(self, stored: LiveLog, values: Iterable[bytes]) -> None:
        self._stored = stored
        self._fleet = Fleet()
        for value in values:
            self._fleet.apply(read_command(value))

    def give(self, request: CommandRequest, now_ms: int) -> FleetCommand | None:
        """Store a kill, or lift one, and return the command; None for one that was given before.

        Raises `InvalidEvent` for another scope.
        """
        if request.scope.partition(":")[0] not in PARTS:
            what = f"{shown(request.scope)} is no session, user or tenant"
            raise InvalidEvent((Problem("scope", what, "name one of them, such as session:NAME"),))
        sent = f"{COMMAND}\0{request.id}" if request.id else ""
        if sent and self._stored.knows_id(sent):
            return None
        command = new_command(
            self._fleet, request.status, request.scope, request.by, request.why, command_id=request.id, now_ms=now_ms
        )
        if not self._fleet.apply(command):
            return None
        self._stored.put_account(COMMAND + request.scope, encode_command(command))
        if sent:
            self._stored.note_id(sent, now_ms)
        return command

    @property
    def any(self) -> bool:
        """Whether a kill is in force."""
        return self._fleet.kills

    def of(self, run_id: str, state: RunState) -> FleetCommand | None:
        """Return the command that kills a run; None if there is none."""
        scope = state.scope
        return self._fleet.killing(scope.user, scope.tenant, scope.session or run_id)

    def stop(self, run_id: str, state: RunState | None) -> OperatorStop | None:
        """Return the event that stops a run; None if nothing kills it, or if it is over."""
        if state is None or state.halted >= 0 or state.finished:
            return None
        command = self.of(run_id, state)
        return None if command is None else stop_event(command, run_id, f"{command.id}@{state.offset}")
