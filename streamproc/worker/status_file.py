"""A file with `STATUS TIMESTAMP` in its first line, kept equal to the standing order, both ways.

Tools that know nothing of Kafka look at it, and a person who can write it can stop the fleet with an editor. What a
person writes becomes an order: by the file's owner, with the lines below as the reason (those with a # are ours). An
order from elsewhere is written into the file, in one step, so that nobody reads half of it.

What cannot be read is told once, and changes nothing: the standing order stands, and the file is left as it is until
somebody mends it, or a new order comes.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from aiokafka.errors import KafkaError

from streamproc.errors import InvalidEvent, InvalidSettings, Problem, Unavailable, shown
from streamproc.fleet import command_events
from streamproc.fleet.issuing import new_command, send
from streamproc.model.fleet_command import FLEET, FleetCommand, Status
from streamproc.model.log_time import rfc3339
from streamproc.model.raw_fields import read_time_ms
from streamproc.worker.limits import STATUS_FILE_BYTES_MAX, STATUS_FILE_POLL_S
from streamproc.worker.publishing import control_record

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from streamproc.core.decision import Decision
    from streamproc.fleet.state import Fleet
    from streamproc.settings import Settings
    from streamproc.worker.fleet_commands import FleetCommands
    from streamproc.worker.publishing import Publisher

log = logging.getLogger(__name__)

ISSUER: Final = "file"  # the key that signs what a person writes into the file, where there is one of this name
FIRST_LINE: Final = re.compile(r"(STOP|PAUSE|CLEAR)\b[ \t]*(.*)", re.IGNORECASE)


class StatusEntry(NamedTuple):
    """What a file says: the status, since when (epoch ms; 0: it does not say), and why."""

    status: Status
    at_ms: int
    why: str


def parse(text: str) -> StatusEntry:
    """Read a file's content. Raises `InvalidEvent` where its first line is no status.

    A STOP must not fail on its date: a time that cannot be read counts as none.
    """
    first, _, rest = text.lstrip("\ufeff").partition("\n")
    found = FIRST_LINE.fullmatch(first.strip())
    if found is None:
        remedy = f"write STOP, PAUSE or CLEAR and the time, such as `STOP {rfc3339(0)}`"
        raise InvalidEvent((Problem("first line", f"{shown(first)} is no status", remedy),))
    at_ms = 0
    with contextlib.suppress(ValueError):
        at_ms = read_time_ms(found[2].strip())
    own = [line.strip() for line in rest.splitlines() if not line.lstrip().startswith("#")]
    return StatusEntry(cast("Status", found[1].upper()), at_ms, " ".join(filter(None, own)))


def render(order: FleetCommand | None, now_ms: int) -> str:
    """What a file says of the standing order."""
    if order is None:
        return f"CLEAR {rfc3339(now_ms)}\n"
    why = f": {' '.join(order.why.split())}" if order.why else ""
    return f"{order.status} {rfc3339(order.at)}\n# by {' '.join(order.by.split()) or 'somebody'}{why}\n"


class StatusFile:
    """Keeps a file and the standing order equal. `send` gives an order, `tell` tells people what went wrong."""

    def __init__(
        self,
        path: Path,
        fleet: Fleet,
        send: Callable[[FleetCommand], Awaitable[object]],
        tell: Callable[[Decision], Awaitable[object]],
    ) -> None:
        self._path = path
        self._fleet = fleet
        self._send = send
        self._tell = tell
        self._seen: str | None = None  # what was in the file when it was looked at last
        self._written = ""  # the id of the order that the file shows
        self._first = True
        if not path.parent.is_dir():
            raise InvalidSettings(f"STREAMPROC_STATUS_FILE: there is no directory {path.parent}: make it")

    async def run(self, caught_up: asyncio.Event, changed: asyncio.Event) -> None:
        """For ever: look at the file, and at the orders once all are known (`caught_up`)."""
        problem_told = ""
        await caught_up.wait()
        while True:
            try:
                await self.sync()
                problem_told = ""
            except (OSError, KafkaError, Unavailable) as problem:
                if str(problem) != problem_told:
                    problem_told = str(problem)
                    log.error("the status file and the orders cannot be made equal: %s", problem_told)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(STATUS_FILE_POLL_S):
                    await changed.wait()
            changed.clear()

    async def sync(self) -> None:
        """Take in what a person has written, else write what was ordered."""
        text = await asyncio.to_thread(self._read)
        standing = self._fleet.order
        if text is not None and text != self._seen:
            entry = await self._entry(text)
            if entry is not None and self._is_order(entry, standing):
                await self._give(entry)
                self._seen, self._first = text, False
                return
            self._seen = text
            if entry is None:
                self._written = standing.id if standing is not None else self._written  # leave it as it is
        self._first = False
        if text is None or (standing is not None and standing.id != self._written):
            await asyncio.to_thread(self._write, render(standing, _now_ms()))
            self._written = standing.id if standing is not None else ""

    def _is_order(self, entry: StatusEntry, standing: FleetCommand | None) -> bool:
        """Whether a person wants something else than what stands. At the start the later one of the two is right.

        A CLEAR without a time is no order then: whoever lays an old file out again must not lift a stop by it.
        """
        if entry.status == self._fleet.status:
            return False
        if not self._first or standing is None:
            return True
        touched_ms = 0 if entry.status == "CLEAR" else int(self._path.stat().st_mtime * 1000)
        return (entry.at_ms or touched_ms) > standing.at

    async def _entry(self, text: str) -> StatusEntry | None:
        try:
            return parse(text)
        except InvalidEvent as problem:
            [what] = problem.problems
            log.error("%s cannot be read, so nothing changes: %s", self._path, what)
            await self._tell(command_events.refusal_event(what, str(self._path), _now_ms()))
            return None

    async def _give(self, entry: StatusEntry) -> None:
        by = f"{self._owner()} (file {self._path.name})"
        order = new_command(self._fleet, entry.status, FLEET, by, entry.why)
        log.warning("a person has written %s into %s", entry.status, self._path)
        await self._send(order)

    def _owner(self) -> str:
        try:
            return self._path.owner()
        except (OSError, KeyError, NotImplementedError):  # a user without a name; Windows
            return "somebody"

    def _read(self) -> str | None:
        try:
            with self._path.open("rb") as file:
                return file.read(STATUS_FILE_BYTES_MAX).decode("utf-8", "replace")
        except FileNotFoundError:
            return None

    def _write(self, text: str) -> None:
        """In one step; whoever could write the old file can write the new one."""
        draft = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        with contextlib.suppress(OSError):
            old = self._path.stat()
            draft.chmod(old.st_mode & 0o777)
            os.chown(draft, old.st_uid, old.st_gid)
        draft.replace(self._path)
        self._seen = text


def _now_ms() -> int:
    return int(time.time() * 1000)


def status_file_of(settings: Settings, orders: FleetCommands, publisher: Publisher) -> StatusFile:
    """The status file that the settings name. Raises `InvalidSettings` where its orders would not count."""
    orders.authority.must_sign()

    async def tell(decision: Decision) -> None:
        await publisher.tell(0, [control_record(command_events.ALL.encode(), decision)])

    return StatusFile(Path(settings.status_file), orders.fleet, lambda order: send(settings, order, ISSUER), tell)
