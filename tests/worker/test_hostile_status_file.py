"""The status file in a directory that others write: no other file is read or overwritten, and no command is forged.

Tests with files of another user run as root, which can make such files; `make test` in a container does.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from streamproc.errors import InvalidSettings
from streamproc.worker import guarded_file
from tests.worker.test_status_file import NOON_MS, Mirror

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

STRANGER = 12_345  # a user id
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can make the other user's file")


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A directory that everyone may write, as /tmp: with the sticky bit."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


def link(path: Path) -> None:
    target = path.parents[1] / "target"
    target.write_text("STOP\n")
    path.symlink_to(target)


def dangling_link(path: Path) -> None:
    path.symlink_to(path.parents[1] / "nothing")


def hard_link(path: Path) -> None:
    target = path.parents[1] / "target"
    target.write_text("STOP\n")
    path.hardlink_to(target)


def fifo(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


def unix_socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(path))


def writable_by_all(path: Path) -> None:
    path.write_text("STOP\n")
    path.chmod(0o666)


def of_another_user(path: Path) -> None:
    path.write_text("STOP\n")
    os.chown(path, STRANGER, -1)


KINDS = [
    (link, "is not a regular file: delete it"), (dangling_link, "is not a regular file: delete it"),
    (hard_link, "has a second name elsewhere"), (fifo, "is not a regular file: delete it"),
    (folder, "is not a regular file: delete it"), (unix_socket, "is not a regular file: delete it"),
    (writable_by_all, "can be written by any user: run `chmod o-w` on it"),
    pytest.param(of_another_user, f"belongs to user {STRANGER}", marks=as_root),
]  # fmt: skip


@pytest.mark.parametrize(("make", "why"), KINDS)
def test_a_planted_file_commands_nothing_and_is_reported_once(
    make: Callable[[Path], None], why: str, shared: Path
) -> None:
    make(shared / "STOP_ALL")
    mirror = Mirror(shared / "STOP_ALL")
    mirror.command("PAUSE")

    for _ in range(3):
        asyncio.run(mirror.file.sync())

    assert mirror.issued == []
    [event] = mirror.published
    assert (event.code, event.severity) == ("FLEET002", "warn")
    assert why in event.message
    assert [path.name for path in shared.iterdir()] == ["STOP_ALL"]


@pytest.mark.parametrize(("make", "why"), KINDS)
def test_a_planted_file_is_not_written_through(make: Callable[[Path], None], why: str, shared: Path) -> None:
    """Also if it appears between reading and writing."""
    path = shared / "STOP_ALL"
    make(path)
    before = path.lstat()

    with pytest.raises(InvalidSettings, match="STOP_ALL") as refused:
        guarded_file.replace(path, "CLEAR\n")

    assert why in str(refused.value)
    assert (path.lstat().st_ino, path.lstat().st_mode) == (before.st_ino, before.st_mode)
    assert not (shared.parent / "nothing").exists()
    target = shared.parent / "target"
    assert not target.exists() or target.read_text() == "STOP\n"


async def test_the_file_is_used_again_once_it_is_replaced_by_a_proper_one(shared: Path) -> None:
    path = shared / "STOP_ALL"
    link(path)
    mirror = Mirror(path)
    await mirror.file.sync()

    path.unlink()
    await mirror.file.sync()
    assert path.read_text().startswith("CLEAR ")
    path.write_text("STOP\n")
    await mirror.file.sync()

    assert [command.status for command in mirror.issued] == ["STOP"]


async def test_a_link_at_the_old_name_of_the_draft_is_not_followed(shared: Path) -> None:
    """A root worker overwrote the target: the name of its draft was the process id."""
    target = shared.parent / "target"
    target.write_text("precious")
    for name in (f".STOP_ALL.{os.getpid()}", ".STOP_ALL", "STOP_ALL.tmp"):
        (shared / name).symlink_to(target)
    mirror = Mirror(shared / "STOP_ALL")
    mirror.command("STOP")

    await mirror.file.sync()

    assert target.read_text() == "precious"
    assert (shared / "STOP_ALL").read_text().startswith("STOP 2026")


def test_a_draft_has_another_name_each_time_and_cannot_be_opened_by_others(
    shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[str, int, int]] = []
    real = os.open

    def watched(path: object, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        descriptor = real(path, flags, mode, dir_fd=dir_fd)  # type: ignore[arg-type]
        if flags & os.O_CREAT:
            seen.append((str(path), flags, os.fstat(descriptor).st_mode & 0o777))
        return descriptor

    monkeypatch.setattr(os, "open", watched)
    for number in range(3):
        guarded_file.replace(shared / "STOP_ALL", f"STOP {number}\n")

    assert len({name for name, _, _ in seen}) == 3
    assert all(flags & os.O_EXCL and flags & os.O_NOFOLLOW and mode == 0o600 for _, flags, mode in seen)
    assert (shared / "STOP_ALL").stat().st_mode & 0o777 == 0o644


def test_a_directory_swapped_during_the_write_gets_nothing(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The swap happens right after the draft is created, at the worst moment."""
    elsewhere = shared.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "STOP_ALL").write_text("precious")
    real = os.fchmod

    def swap(descriptor: int, mode: int) -> None:
        shared.rename(shared.parent / "moved")
        shared.symlink_to(elsewhere)
        real(descriptor, mode)

    monkeypatch.setattr(os, "fchmod", swap)
    guarded_file.replace(shared / "STOP_ALL", "STOP\n")

    assert (elsewhere / "STOP_ALL").read_text() == "precious"
    assert [path.name for path in elsewhere.iterdir()] == ["STOP_ALL"]
    assert (shared.parent / "moved" / "STOP_ALL").read_text() == "STOP\n"


def test_a_failed_write_leaves_no_draft(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        guarded_file.replace(shared / "STOP_ALL", "STOP\n")

    assert list(shared.iterdir()) == []


async def test_a_failed_write_commands_nothing(shared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The old text in the file must not count as an edit."""
    mirror = Mirror(shared / "STOP_ALL")
    await mirror.file.sync()
    mirror.command("STOP", NOON_MS)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            await mirror.file.sync()
    await mirror.file.sync()

    assert mirror.issued == []
    assert (shared / "STOP_ALL").read_text().startswith("STOP 2026")


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o775])
def test_a_directory_in_which_any_user_can_replace_files_is_refused_at_the_start(shared: Path, mode: int) -> None:
    shared.chmod(mode)
    if mode != 0o777:
        Mirror(shared / "STOP_ALL")
        return
    with pytest.raises(InvalidSettings, match=r"STREAMPROC_STATUS_FILE: any user can replace files in .*chmod o-w"):
        Mirror(shared / "STOP_ALL")


def test_a_directory_that_becomes_writable_for_all_is_reported(shared: Path) -> None:
    mirror = Mirror(shared / "STOP_ALL")
    asyncio.run(mirror.file.sync())
    shared.chmod(0o777)
    (shared / "STOP_ALL").write_text("STOP\n")

    asyncio.run(mirror.file.sync())

    assert mirror.issued == []
    assert "any user can replace files" in mirror.published[0].message


@as_root
@pytest.mark.parametrize("owners", [(STRANGER, STRANGER), (STRANGER, 0), (0, 0)])
async def test_a_file_of_the_directorys_owner_or_of_root_is_accepted(shared: Path, owners: tuple[int, int]) -> None:
    directory, file = owners
    os.chown(shared, directory, -1)
    path = shared / "STOP_ALL"
    path.write_text("STOP\n")
    os.chown(path, file, -1)
    path.chmod(0o640)
    mirror = Mirror(path)

    await mirror.file.sync()
    assert [command.status for command in mirror.issued] == ["STOP"]
    mirror.command("CLEAR", NOON_MS)
    mirror.command("PAUSE", NOON_MS + 1)
    await mirror.file.sync()

    assert path.read_text().startswith("PAUSE")
    assert (path.stat().st_uid, path.stat().st_mode & 0o777) == (file, 0o640)


def test_the_directory_may_be_behind_a_link_of_the_system(shared: Path) -> None:
    """As /var/run is on most systems."""
    (shared.parent / "run").symlink_to(shared)
    guarded_file.replace(shared.parent / "run" / "STOP_ALL", "STOP\n")
    assert guarded_file.read(shared.parent / "run" / "STOP_ALL", 100) is not None
