"""The state that results from all commands so far, and a command that is newer than those. No I/O."""

from __future__ import annotations

import time
import uuid
from typing import Final

from streamproc.core.scope import short_name
from streamproc.errors import InvalidEvent, Problem
from streamproc.model.fleet_command import (
    BY_MAX,
    FLEET,
    WHY_MAX,
    FleetCommand,
    Status,
    encode_command,
    read_command,
)
from streamproc.model.newest import Newest
from streamproc.model.redaction import redact_text

SCOPES_MAX: Final = 100_000  # users, tenants and runs with a command: about 50 MB; beyond that, the oldest is evicted
IDS_MAX: Final = 10_000  # known command ids: a duplicate is ignored rather than refused as outdated


class Fleet:
    """The standing commands. Any thread may read it; only one thread may change it."""

    def __init__(self) -> None:
        self.command: FleetCommand | None = None
        """The latest command to the whole fleet; None if there never was one."""
        self.users: dict[str, FleetCommand] = {}
        self.tenants: dict[str, FleetCommand] = {}
        self.members: dict[tuple[str, str], FleetCommand] = {}
        self.sessions: dict[str, FleetCommand] = {}
        """The kills in force, by user, by tenant, by user and tenant, and by session."""
        self._latest: dict[str, FleetCommand] = {}
        self._ids: Newest[str, None] = Newest(IDS_MAX)

    @property
    def status(self) -> Status:
        """``CLEAR``, ``PAUSE`` or ``STOP``."""
        return self.command.status if self.command is not None else "CLEAR"

    @property
    def stopped(self) -> bool:
        """Whether all runs must halt now."""
        return self.status == "STOP"

    @property
    def paused(self) -> bool:
        """Whether no new work may start."""
        return self.status == "PAUSE"

    @property
    def kills(self) -> bool:
        """Whether the kill of a user, tenant or session is in force."""
        return bool(self.users or self.tenants or self.members or self.sessions)

    def latest(self, scope: str) -> FleetCommand | None:
        """Return the latest command of a scope."""
        return self._latest.get(scope)

    def stopping(self, user: str = "", tenant: str = "", session: str = "") -> FleetCommand | None:
        """Return the command that stops a run of this user, tenant and session; None if there is none."""
        if self.stopped:
            return self.command
        return self.killing(user, tenant, session)

    def killing(self, user: str, tenant: str, session: str = "") -> FleetCommand | None:
        """Return the command that kills the runs of this user, tenant or session; None if there is none."""
        killed = self.users.get(user) or self.tenants.get(tenant) or self.members.get((user, tenant))
        return killed or (self.sessions.get(short_name(session)) if session else None)

    def apply(self, command: FleetCommand) -> bool:
        """Apply a verified command. Returns False for a duplicate.

        Raises `InvalidEvent` if a newer command of its scope is known: this one is an old record, replayed.
        """
        if command.id in self._ids:
            return False
        known = self._latest.get(command.scope)
        if known is not None and command.superseded_by(known.status, known.order_ms):
            what = f"older than the {known.status} that {known.by or 'an unnamed issuer'} has issued since"
            raise InvalidEvent((Problem("since" if command.since else "at", what, "issue the command again"),))
        self._ids[command.id] = None
        self._latest.pop(command.scope, None)
        self._latest[command.scope] = command
        if len(self._latest) > SCOPES_MAX:
            self._evict(next(scope for scope in self._latest if scope != FLEET))
        if command.part == FLEET:
            self.command = command
        elif command.part != "run":  # the kill of a run acts once; others stand until cleared
            self._lift(command)
            if command.status == "STOP" and command.member:
                self.members[command.user, command.tenant] = command
            elif command.status == "STOP":
                self._kills_of(command)[_key(command)] = command
        return True

    def _lift(self, command: FleetCommand) -> None:
        """Remove the kill of a command's user, tenant, session or member."""
        if command.member:
            self.members.pop((command.user, command.tenant), None)
        else:
            self._kills_of(command).pop(_key(command), None)

    def _kills_of(self, command: FleetCommand) -> dict[str, FleetCommand]:
        return {"user": self.users, "tenant": self.tenants, "session": self.sessions}[command.part]

    def _evict(self, scope: str) -> None:
        gone = self._latest.pop(scope)
        if gone.part != "run":
            self._lift(gone)


def new_command(
    fleet: Fleet, status: Status, scope: str, by: str, why: str, *, command_id: str = "", now_ms: int | None = None
) -> FleetCommand:
    """Make an unsigned command that is newer than all others of its scope, even if another machine's clock is ahead.

    Raises `InvalidEvent` for an invalid scope, or a status that the scope cannot have.
    """
    known = fleet.latest(scope)
    at_ms = int(time.time() * 1000) if now_ms is None else now_ms
    return read_command(
        encode_command(
            FleetCommand(
                w=1,
                id=command_id or str(uuid.uuid4()),
                status=status,
                scope=scope,
                by=redact_text(by, BY_MAX),
                why=redact_text(why, WHY_MAX),
                at=at_ms if known is None else max(at_ms, known.order_ms + 1),
            )
        )
    )


def _key(command: FleetCommand) -> str:
    """Return the name by which the kill of a command is found: that of a session as states of runs hold it."""
    return short_name(command.name) if command.session else command.name
