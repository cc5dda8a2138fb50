"""`streamproc watch --tui` in a pseudo-terminal: it starts, quits with q, and leaves the terminal as it was."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import pyte
import pytest

from streamproc.kafka import topics as kafka_topics
from streamproc.settings import Settings
from tests.cli.conftest import ROOT
from tests.tui.test_on_kafka import publish_stuck
from tests.worker.conftest import settings_for
from tests.worker.running import WorkerProcess

COLUMNS, ROWS = 120, 40
ALTERNATE = (b"\x1b[?1049h", b"\x1b[?1049l")  # the screen apart from the shell's, and back
CURSOR = (b"\x1b[?25l", b"\x1b[?25h")
MOUSE = (b"\x1b[?1000h", b"\x1b[?1000l")
PASTE = (b"\x1b[?2004h", b"\x1b[?2004l")


class TerminalSession:
    """A command in a pseudo-terminal of its own, and what it has written there so far."""

    def __init__(self, *arguments: str, **environment: str) -> None:
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.before = termios.tcgetattr(theirs)
        self.theirs = theirs
        self.written = b""
        self.screen = pyte.Screen(COLUMNS, ROWS)
        self._stream = pyte.ByteStream(self.screen)
        kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "streamproc", *arguments],
            env=kept | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"} | environment,
            stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip

    @property
    def lines(self) -> list[str]:
        """The lines on the screen now."""
        return list(self.screen.display)

    def until(self, condition: Callable[[], bool], timeout_s: float = 60) -> None:
        """Read what the command writes until a condition holds."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            assert time.monotonic() < deadline, "\n".join(self.lines)
            self.read(0.1)

    def press(self, keys: bytes) -> None:
        """Type."""
        os.write(self.ours, keys)

    def end(self) -> int:
        """Return the exit code, once the command has ended by itself."""
        self.until(lambda: self.process.poll() is not None)
        while self.read(0):
            pass
        return int(self.process.returncode)

    def read(self, wait_s: float) -> bool:
        """Read once what the command writes; whether it has written anything."""
        if not select.select([self.ours], [], [], wait_s)[0]:
            return False
        part = os.read(self.ours, 1 << 16)
        self.written += part
        self._stream.feed(part)
        return True

    def close(self) -> None:
        """End the command if it still runs."""
        self.process.kill()
        self.process.wait()
        os.close(self.ours)
        os.close(self.theirs)


@pytest.fixture
def deployment(brokers: str, topic_prefix: str, start_worker: Callable[[Settings], WorkerProcess]) -> tuple[str, ...]:
    """Options of a deployment with a worker and a run."""
    settings = settings_for(brokers, topic_prefix, partitions=1)

    async def prepare() -> None:
        await kafka_topics.apply(settings)
        await start_worker(settings).ready()
        await publish_stuck(settings, "nightly-[red]42[/]")

    asyncio.run(prepare())
    return "--brokers", brokers, "--topic-prefix", topic_prefix


@pytest.mark.long
@pytest.mark.parametrize("keys", [b"q", b"\x03"])
def test_it_starts_and_quits_and_the_terminal_is_as_it_was(deployment: tuple[str, ...], keys: bytes) -> None:
    session = TerminalSession("watch", "--tui", *deployment)
    try:
        session.until(lambda: any("nightly-[red]42[/]" in line for line in session.lines))
        session.until(lambda: "live" in session.lines[0])
        assert termios.tcgetattr(session.theirs)[3] != session.before[3]  # no echo, no line editing
        session.press(b"?")
        session.until(lambda: any("choose a run" in line for line in session.lines))
        session.press(b"?")
        session.until(lambda: not any("choose a run" in line for line in session.lines))
        session.press(keys)
        assert session.end() == 0
        for on, off in (ALTERNATE, CURSOR, MOUSE, PASTE):
            assert session.written.rfind(off) > session.written.rfind(on), (on, session.written[-300:])
        assert termios.tcgetattr(session.theirs) == session.before
        assert b"Traceback" not in session.written
    finally:
        session.close()


def test_without_colours_it_writes_none(deployment: tuple[str, ...]) -> None:
    session = TerminalSession("watch", "--tui", *deployment, NO_COLOR="1")
    try:
        session.until(lambda: any("nightly-[red]42[/]" in line for line in session.lines))
        cells = [session.screen.buffer[row][column] for row in range(ROWS) for column in range(COLUMNS)]
        assert {(cell.fg, cell.bg) for cell in cells} == {("default", "default")}
    finally:
        session.close()


@pytest.mark.long
def test_a_broker_that_cannot_be_reached_is_an_error_and_not_a_screen() -> None:
    session = TerminalSession("watch", "--tui", "--brokers", "127.0.0.1:1")
    try:
        assert session.end() == 2
        assert b"127.0.0.1:1" in session.written
        assert ALTERNATE[0] not in session.written
    finally:
        session.close()
