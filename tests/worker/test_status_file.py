"""The status file, read and written, without a broker."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from streamproc.errors import InvalidEvent, InvalidSettings
from streamproc.fleet.issuing import restatement
from streamproc.fleet.state import Fleet, new_command
from streamproc.model.controls import ControlEvent
from streamproc.model.fleet_command import FleetCommand, Status
from streamproc.worker import guarded_file
from streamproc.worker.status_file import StatusEntry, StatusFile, parse, render

NOON_MS = 1_769_860_800_000


@pytest.mark.parametrize(("text", "entry"), [
    ("STOP 2026-01-31T12:00:00Z\n", StatusEntry("STOP", NOON_MS, "")),
    ("PAUSE 2026-01-31T12:00:00Z", StatusEntry("PAUSE", NOON_MS, "")), ("clear\n", StatusEntry("CLEAR", 0, "")),
    ("  STOP  \r\nbecause\r\n", StatusEntry("STOP", 0, "because")), ("\ufeffSTOP\n", StatusEntry("STOP", 0, "")),
    ("STOP yesterday\n", StatusEntry("STOP", 0, "")),
    ("STOP\n# by ada: an old reason\nthe deployment\nis broken\n", StatusEntry("STOP", 0, "the deployment is broken")),
])  # fmt: skip
def test_a_status_is_read_in_every_accepted_form(text: str, entry: StatusEntry) -> None:
    assert parse(text) == entry


@pytest.mark.parametrize("text", ["", "\n", "HALT", "STOPPED", "# STOP", "please STOP", "\x00\x01"])
def test_an_invalid_status_is_refused_with_a_remedy(text: str) -> None:
    with pytest.raises(InvalidEvent, match="is not a status") as refused:
        parse(text)
    assert "write STOP, PAUSE or CLEAR" in refused.value.problems[0].remedy


def test_a_rendered_status_parses_to_the_same_status() -> None:
    command = new_command(Fleet(), "STOP", "fleet", "ada\n", "two\nlines\nCLEAR", now_ms=NOON_MS)
    assert render(command, 0) == "STOP 2026-01-31T12:00:00.000Z\n# by ada: two lines CLEAR\n"
    assert parse(render(command, 0)) == StatusEntry("STOP", NOON_MS, "")
    assert parse(render(None, NOON_MS)) == StatusEntry("CLEAR", NOON_MS, "")


class Mirror:
    """A status file with the commands and events that result from edits."""

    def __init__(self, path: Path) -> None:
        self.fleet = Fleet()
        self.issued: list[FleetCommand] = []
        self.published: list[ControlEvent] = []
        self.file = StatusFile(path, self.fleet, self._issued, self._published)

    def command(self, status: Status, at_ms: int = NOON_MS) -> None:
        """Apply a command that was issued elsewhere."""
        self.fleet.apply(new_command(self.fleet, status, "fleet", "ada", "", now_ms=at_ms))

    async def _issued(self, command: FleetCommand) -> None:
        self.issued.append(command)

    async def _published(self, decision: ControlEvent) -> None:
        self.published.append(decision)


@pytest.mark.parametrize(
    ("written", "stands", "given", "left"),
    [
        # The file was edited while no worker ran.
        ("STOP 2026-01-31T13:00:00Z", "CLEAR", ["STOP"], "STOP 2026-01-31T13"),
        ("CLEAR 2026-01-31T13:00:00Z", "STOP", ["CLEAR"], "CLEAR 2026-01-31T13"),
        ("STOP", "CLEAR", ["STOP"], "STOP"),
        # A command was issued while no worker ran.
        ("STOP 2026-01-31T11:00:00Z", "CLEAR", [], "CLEAR 2026-01-31T12"),
        # A file was laid out again.
        ("CLEAR", "STOP", [], "STOP 2026-01-31T12"),
    ],
)
async def test_at_the_start_the_later_of_file_and_command_wins(
    tmp_path: Path, written: str, stands: Status, given: list[str], left: str
) -> None:
    path = tmp_path / "STOP_ALL"
    path.write_text(f"{written}\n")
    mirror = Mirror(path)
    mirror.command(stands)

    await mirror.file.sync()

    assert [command.status for command in mirror.issued] == given
    assert path.read_text().startswith(left)


async def test_an_edit_is_later_than_a_command_that_was_only_issued_again_after_it(tmp_path: Path) -> None:
    path = tmp_path / "STOP_ALL"
    path.write_text("STOP 2026-01-31T13:00:00Z\n")
    mirror = Mirror(path)
    mirror.command("CLEAR")
    clear = mirror.fleet.command
    assert clear is not None
    again = restatement(clear, NOON_MS + 2 * 3_600_000)
    assert mirror.fleet.apply(again)
    assert render(again, 0).startswith("CLEAR 2026-01-31T12:00:00.000Z\n")

    await mirror.file.sync()

    assert [command.status for command in mirror.issued] == ["STOP"]


async def test_an_edit_of_the_file_is_issued_once(tmp_path: Path) -> None:
    path = tmp_path / "STOP_ALL"
    mirror = Mirror(path)
    await mirror.file.sync()
    assert path.read_text().startswith("CLEAR ")

    path.write_text("STOP\nthe deployment is broken\n")
    for _ in range(3):
        await mirror.file.sync()
    [command] = mirror.issued
    assert (command.status, command.scope, command.why) == ("STOP", "fleet", "the deployment is broken")
    assert command.by.endswith("(file STOP_ALL)")

    mirror.fleet.apply(command)
    await mirror.file.sync()
    assert path.read_text().startswith("STOP 20")
    path.write_text(path.read_text().replace("STOP 20", "CLEAR 20"))
    await mirror.file.sync()
    assert [command.status for command in mirror.issued] == ["STOP", "CLEAR"]


async def test_an_unreadable_file_changes_nothing_and_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "STOP_ALL"
    mirror = Mirror(path)
    mirror.command("PAUSE")
    path.write_text("HALT everything\n")
    for _ in range(3):
        await mirror.file.sync()

    [event] = mirror.published
    assert (event.code, event.type, event.severity) == ("FLEET002", "fleet.state", "warn")
    assert "is not a status" in event.message
    assert (mirror.issued, path.read_text()) == ([], "HALT everything\n")

    mirror.command("STOP", NOON_MS + 1)
    await mirror.file.sync()
    assert path.read_text().startswith("STOP 2026")


def test_the_file_keeps_its_rights_and_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "STOP_ALL"
    path.write_text("CLEAR\n")
    path.chmod(0o664)
    mirror = Mirror(path)
    mirror.command("PAUSE")

    asyncio.run(mirror.file.sync())

    assert path.read_text().startswith("PAUSE 2026")
    assert path.stat().st_mode & 0o777 == 0o664
    assert [entry.name for entry in tmp_path.iterdir()] == ["STOP_ALL"]


async def test_a_file_that_cannot_be_written_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    tried: list[int] = []

    def refuse(path: Path, _: str) -> None:
        tried.append(1)
        raise PermissionError(13, "Permission denied", f"{path}.{len(tried)}")  # a temporary file beside it

    monkeypatch.setattr(guarded_file, "replace", refuse)
    mirror, ready, changed = Mirror(tmp_path / "STOP_ALL"), asyncio.Event(), asyncio.Event()
    ready.set()
    running = asyncio.ensure_future(mirror.file.run(ready, changed))
    while len(tried) < 4:
        changed.set()
        await asyncio.sleep(0.01)
    running.cancel()
    [line] = [one.getMessage() for one in caplog.records]
    assert line.endswith(
        f"{tmp_path}/STOP_ALL: Permission denied; let the worker write there, or unset STREAMPROC_STATUS_FILE"
    )


def test_a_missing_directory_is_reported_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match="there is no directory"):
        Mirror(tmp_path / "nowhere" / "STOP_ALL")
