"""A fleet command: stop, pause or clear a scope. One record of the commands topic.

The record key is the scope, so compaction keeps the latest command of each scope.
"""

from __future__ import annotations

import re
from typing import Annotated, Final, Literal

import msgspec

from streamproc.errors import InvalidEvent, Problem, shown

Status = Literal["STOP", "PAUSE", "CLEAR"]

FLEET: Final = "fleet"
COMMAND_BYTES_MAX: Final = 8_192  # a command takes about 300 bytes; a larger record is not a command
BY_MAX: Final = 128  # characters, as for every other name of a scope
WHY_MAX: Final = 500  # characters: every message about the command contains it

MEMBER: Final = "member"  # a user of one tenant
SCOPE: Final = r"^(fleet$|user:.|tenant:.|session:.|member:[^/]+/[^/]+$|run:.)"
SCOPE_MAX: Final = 800  # characters: a user and a tenant of 128 each, with their separators escaped

SHOWN_MAX: Final = 200  # characters of an unusable value that an error shows
REMEDY: Final = "issue commands with `streamproc stop-all`, `pause-all`, `clear` and `kill`"


def member_scope(user: str, tenant: str) -> str:
    """Return the scope of a user of one tenant."""
    return f"{MEMBER}:{_escape(tenant)}/{_escape(user)}"


def _escape(name: str) -> str:
    return name.replace("%", "%25").replace("/", "%2F")


def _unescape(name: str) -> str:
    return name.replace("%2F", "/").replace("%25", "%")


class FleetCommand(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True):
    """A command to a scope: the fleet, a user, a tenant, a member (``member:TENANT/USER``: the user of one tenant), a
    session or a run.

    `at` is the issuer's clock in epoch milliseconds; `issuer` names the key of `signature` (hex). `since` is the `at`
    of the command that this one issues again; 0 if it is a new one.
    """

    w: Annotated[int, msgspec.Meta(ge=1, le=1)]
    id: Annotated[str, msgspec.Meta(min_length=1, max_length=256)]
    status: Status
    scope: Annotated[str, msgspec.Meta(min_length=1, max_length=SCOPE_MAX, pattern=SCOPE)]
    at: Annotated[int, msgspec.Meta(ge=0, le=2**53)]
    since: Annotated[int, msgspec.Meta(ge=0, le=2**53)] = 0
    by: Annotated[str, msgspec.Meta(max_length=BY_MAX)] = ""
    why: Annotated[str, msgspec.Meta(max_length=WHY_MAX)] = ""
    issuer: Annotated[str, msgspec.Meta(max_length=BY_MAX)] = ""
    signature: Annotated[str, msgspec.Meta(max_length=128)] = ""

    @property
    def order_ms(self) -> int:
        """The time that orders the commands of a scope: when this one was issued for the first time."""
        return self.since or self.at

    def superseded_by(self, status: str, order_ms: int) -> bool:
        """Return whether a known command of the scope, with this status and time, is newer than this one.

        Of two commands with one time the later record stands, unless it only issues another one again.
        """
        return self.order_ms < order_ms or (bool(self.since) and self.order_ms == order_ms and self.status != status)

    @property
    def part(self) -> str:
        """The kind of scope: ``fleet``, ``user``, ``tenant``, ``member``, ``session`` or ``run``."""
        return self.scope.partition(":")[0]

    @property
    def name(self) -> str:
        """The name of the user, tenant, session or run, or ``TENANT/USER`` of a member; empty for the fleet."""
        return self.scope.partition(":")[2]

    @property
    def member(self) -> bool:
        """Whether the command is about the user of one tenant."""
        return self.part == MEMBER

    @property
    def user(self) -> str:
        """The user whose runs the command is about; empty for any."""
        return self.name if self.part == "user" else _unescape(self.name.partition("/")[2]) if self.member else ""

    @property
    def tenant(self) -> str:
        """The tenant whose runs the command is about; empty for any."""
        return self.name if self.part == "tenant" else _unescape(self.name.partition("/")[0]) if self.member else ""

    @property
    def session(self) -> str:
        """The session whose runs the command is about; empty for any."""
        return self.name if self.part == "session" else ""

    @property
    def target(self) -> str:
        """Whom the command is about, for people."""
        if self.member:
            return f"user {self.user} of tenant {self.tenant}"
        return "the fleet" if self.part == FLEET else f"{self.part} {self.name}"

    def __str__(self) -> str:
        what = {"STOP": "stopped", "PAUSE": "paused", "CLEAR": "cleared"}[self.status]
        by, why = " ".join(self.by.split()), " ".join(self.why.split())
        return f"{' '.join(self.target.split())} is {what} by {by or 'an unnamed operator'}{': ' if why else ''}{why}"


_KILLED: Final = re.compile(r"(?:(user|tenant|session) (\S+)|user (\S+) of tenant (\S+)) is killed\b")


def lifting(reason: str) -> str:
    """Return the command that lifts the kill which a run's halt gives as its `reason`; empty for other reasons. The run
    is halted again after a resume, as long as the kill stands."""
    killed = _KILLED.match(reason)
    if killed is None:
        return ""
    part, name, user, tenant = killed.groups()
    return f"streamproc clear --{part} {name}" if part else f"streamproc clear --user {user} --tenant {tenant}"


_decoder: Final = msgspec.json.Decoder(FleetCommand)
encode_command: Final = msgspec.json.Encoder().encode


def read_command(value: bytes | None, key: bytes | None = None) -> FleetCommand:
    """Read a command from its record. With a `key`, the key must be the command's scope. Raises `InvalidEvent`."""
    if not value or len(value) > COMMAND_BYTES_MAX:
        what = "the record has no value" if not value else f"{len(value)} bytes, more than {COMMAND_BYTES_MAX}"
        raise InvalidEvent((Problem("command", what, REMEDY),))
    try:
        command = _decoder.decode(value)
        scope = command.scope.encode()
    except (ValueError, RecursionError) as problem:  # msgspec's errors are ValueErrors; so are lone surrogates
        raise InvalidEvent((Problem("command", str(problem)[:SHOWN_MAX], REMEDY),)) from None
    if command.since > command.at:
        what = f"{command.since} is later than `at`, {command.at}"
        raise InvalidEvent((Problem("since", what, "set it to the `at` of the command that is issued again"),))
    if command.status == "PAUSE" and command.part != FLEET:
        remedy = "pause the fleet, or kill the runs that must stop"
        raise InvalidEvent(
            (Problem("status", f"only the fleet can be paused, not {command.scope[:SHOWN_MAX]}", remedy),)
        )
    if command.status == "CLEAR" and command.part == "run":
        raise InvalidEvent((Problem("status", "a run cannot be cleared", "resume it with `streamproc resume RUN`"),))
    if key is not None and key != scope:
        what = f"{shown(key)}, but the command's scope is {command.scope[:SHOWN_MAX]!r}"
        raise InvalidEvent((Problem("key", what, "set the record key to the scope"),))
    return command
