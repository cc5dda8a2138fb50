"""The status file: `STATUS TIMESTAMP` in its first line, kept equal to the standing fleet command, both ways.

Tools without Kafka can read it, and an operator who may write it can stop the fleet with an editor. An edit becomes a
command: by the file's owner, with the lines below the first as the reason (lines with a # are the worker's). A command
from elsewhere is written into the file atomically.

An unreadable file is reported once and changes nothing: the standing command stands, and the file is left as it is
until the operator fixes it or a new command arrives. So is a file that another user could have put there
(`guarded_file`): a user who writes the file commands the fleet.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, NamedTuple, cast

from aiokafka.errors import KafkaError

from streamproc.core.decision import Decision
from streamproc.errors import InvalidEvent, InvalidSettings, Problem, Unavailable, shown
from streamproc.fleet import command_events
from streamproc.fleet.issuing import send
from streamproc.fleet.state import Fleet, new_command
from streamproc.model.fleet_command import FLEET, FleetCommand, Status
from streamproc.model.log_time import rfc3339
from streamproc.model.raw_fields import read_time_ms
from streamproc.model.time_range import wall_ms
from streamproc.settings import Settings
from streamproc.worker import guarded_file
from streamproc.worker.fleet_commands import FleetCommands
from streamproc.worker.limits import STATUS_FILE_BYTES_MAX, STATUS_FILE_POLL_S
from streamproc.worker.publishing import Publisher, control_record

log = logging.getLogger(__name__)

ISSUER: Final = "file"  # the key of this name, if there is one, signs the commands that come from the file
FIRST_LINE: Final = re.compile(r"(STOP|PAUSE|CLEAR)\b[ \t]*(.*)", re.IGNORECASE)


class StatusEntry(NamedTuple):
    """The content of a status file: the status, its time (epoch ms; 0: none given), and the reason."""

    status: Status
    at_ms: int
    why: str


def parse(text: str) -> StatusEntry:
    """Parse the content of a status file. Raises `InvalidEvent` if its first line is not a status.

    A STOP must not fail because of its date: an unreadable time counts as none.
    """
    first, _, rest = text.lstrip("\ufeff").partition("\n")
    found = FIRST_LINE.fullmatch(first.strip())
    if found is None:
        remedy = f"write STOP, PAUSE or CLEAR and the time, such as `STOP {rfc3339(0)}`"
        raise InvalidEvent((Problem("first line", f"{shown(first)} is not a status", remedy),))
    at_ms = 0
    with contextlib.suppress(ValueError):
        at_ms = read_time_ms(found[2].strip())
    own = [line.strip() for line in rest.splitlines() if not line.lstrip().startswith("#")]
    return StatusEntry(cast("Status", found[1].upper()), at_ms, " ".join(filter(None, own)))


def render(command: FleetCommand | None, now_ms: int) -> str:
    """Return the content of the file for the standing command."""
    if command is None:
        return f"CLEAR {rfc3339(now_ms)}\n"
    why = f": {' '.join(command.why.split())}" if command.why else ""
    return f"{command.status} {rfc3339(command.order_ms)}\n# by {' '.join(command.by.split()) or 'unknown'}{why}\n"


class StatusFile:
    """Keeps a file and the standing command equal. `send` issues a command, `publish` reports a refused one."""

    def __init__(
        self,
        path: Path,
        fleet: Fleet,
        send: Callable[[FleetCommand], Awaitable[object]],
        publish: Callable[[Decision], Awaitable[object]],
    ) -> None:
        self._path = path
        self._fleet = fleet
        self._send = send
        self._publish = publish
        self._file: guarded_file.FileContent | None = None  # at the last check
        self._seen: str | None = None  # its text that has been acted on
        self._written = ""  # the id of the command that the file shows
        self._first = True
        self._refused = ""  # why the file was refused at the last check
        try:
            guarded_file.check_directory(path)
        except InvalidSettings as problem:
            raise InvalidSettings(f"STREAMPROC_STATUS_FILE: {problem}") from None

    async def run(self, caught_up: asyncio.Event, changed: asyncio.Event) -> None:
        """Keep both equal once all commands are read (`caught_up`). Never returns."""
        logged = ""
        await caught_up.wait()
        while True:
            try:
                await self.sync()
                logged = ""
            except (OSError, KafkaError, Unavailable) as problem:
                what = str(problem)
                if isinstance(problem, OSError):  # which may name a temporary file: another one each time
                    what = f"{self._path}: {problem.strerror or what}; let the worker write there, or unset "
                    what += "STREAMPROC_STATUS_FILE"
                if what != logged:
                    logged = what
                    log.error("the status file cannot be synchronised with the standing command: %s", logged)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATUS_FILE_POLL_S):
                    await changed.wait()
            changed.clear()

    async def sync(self) -> None:
        """Turn an edit of the file into a command; otherwise write the standing command into the file."""
        try:
            await self._sync()
            self._refused = ""
        except InvalidSettings as problem:
            if str(problem) != self._refused:
                self._refused = str(problem)
                await self._refuse(Problem("status file", self._refused))

    async def _sync(self) -> None:
        self._file = await asyncio.to_thread(guarded_file.read, self._path, STATUS_FILE_BYTES_MAX)
        text = None if self._file is None else self._file.text
        standing = self._fleet.command
        if text is not None and text != self._seen:
            entry = await self._entry(text)
            if entry is not None and self._is_command(entry, standing):
                await self._issue(entry)
                self._seen, self._first = text, False
                return
            self._seen = text
            if entry is None:
                self._written = standing.id if standing is not None else self._written  # leave it as it is
        self._first = False
        if text is None or (standing is not None and standing.id != self._written):
            written = render(standing, wall_ms())
            await asyncio.to_thread(guarded_file.replace, self._path, written)
            self._seen = written
            self._written = standing.id if standing is not None else ""

    def _is_command(self, entry: StatusEntry, standing: FleetCommand | None) -> bool:
        """Return whether the file asks for another status. At the start the later of the two wins.

        A CLEAR without a time does not count then: restoring an old file must not lift a stop.
        """
        if entry.status == self._fleet.status:
            return False
        if not self._first or standing is None:
            return True
        touched_ms = 0 if entry.status == "CLEAR" or self._file is None else self._file.changed_at_ms
        return (entry.at_ms or touched_ms) > standing.order_ms

    async def _entry(self, text: str) -> StatusEntry | None:
        try:
            return parse(text)
        except InvalidEvent as problem:
            [what] = problem.problems
            await self._refuse(what)
            return None

    async def _refuse(self, what: Problem) -> None:
        log.error("%s is not readable; the standing command stays: %s", self._path, what)
        await self._publish(command_events.refusal_event(what, str(self._path), wall_ms()))

    async def _issue(self, entry: StatusEntry) -> None:
        by = f"{self._owner()} (file {self._path.name})"
        command = new_command(self._fleet, entry.status, FLEET, by, entry.why)
        log.warning("%s was written into %s by hand", entry.status, self._path)
        await self._send(command)

    def _owner(self) -> str:
        try:
            import pwd  # not on Windows

            return pwd.getpwuid(self._file.owner).pw_name if self._file is not None else "unknown"
        except (ImportError, KeyError):  # a user without a name
            return "unknown"


def status_file_of(settings: Settings, fleet_commands: FleetCommands, publisher: Publisher) -> StatusFile:
    """Return the status file of the settings. Raises `InvalidSettings` if its commands would be refused."""
    fleet_commands.authority.must_sign()

    async def publish(decision: Decision) -> None:
        await publisher.publish(0, [control_record(command_events.ALL.encode(), decision)])

    return StatusFile(
        Path(settings.status_file), fleet_commands.fleet, lambda command: send(settings, command, ISSUER), publish
    )
