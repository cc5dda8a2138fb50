"""Reads and replaces one small file in a directory that other users may write, without being led to another file.

A worker may run as root, and other users may be allowed to write the directory. Links are not followed, a FIFO does not
block, a file of a foreign user is refused, and every step refers to one open directory, so that a directory that is
swapped in between changes nothing.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from streamproc.errors import InvalidSettings

NEW_MODE: Final = 0o644  # other tools read the file; who may write it is the operator's choice


class FileContent(NamedTuple):
    """The text of a file, its owner (user id), and the time of its last change (epoch ms)."""

    text: str
    owner: int
    changed_at_ms: int


def check_directory(path: Path) -> None:
    """Raise `InvalidSettings` if a file has no directory, or one in which any user can replace files."""
    with _directory(path):
        return


def read(path: Path, bytes_max: int) -> FileContent | None:
    """Return the beginning of a file; None if there is none.

    Raises `InvalidSettings` if another user could have put the file there, and `OSError`.
    """
    with _directory(path) as directory:
        # Without blocking: opening a FIFO waits for a writer.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(path.name, flags, dir_fd=directory)
        except FileNotFoundError:
            return None
        except OSError as problem:
            if problem.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):  # a link; BSD's word for it; a socket
                raise _refused(path, "is not a regular file", "delete it") from None
            raise
        try:
            found = os.fstat(descriptor)
            _check_file(path, found, os.fstat(directory))
            with open(descriptor, "rb", closefd=False) as file:
                text = file.read(bytes_max).decode("utf-8", "replace")
            return FileContent(text, found.st_uid, found.st_mtime_ns // 10**6)
        finally:
            os.close(descriptor)


def replace(path: Path, text: str) -> None:
    """Replace a file atomically; the new one has the owner and the mode of the old one.

    Raises `InvalidSettings` if another user could have put the old one there, and `OSError`.
    """
    with _directory(path) as directory:
        old: os.stat_result | None = None
        with contextlib.suppress(FileNotFoundError):
            old = os.stat(path.name, dir_fd=directory, follow_symlinks=False)
        if old is not None:
            _check_file(path, old, os.fstat(directory))
        draft = f".{path.name}.{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(draft, flags, 0o600, dir_fd=directory)
        try:
            with open(descriptor, "w", encoding="utf-8") as file:  # noqa: PTH123  # of a descriptor
                file.write(text)
                if old is not None:
                    with contextlib.suppress(OSError):  # only root may give files away
                        os.fchown(descriptor, old.st_uid, old.st_gid)
                os.fchmod(descriptor, NEW_MODE if old is None else old.st_mode & 0o777)
            os.replace(draft, path.name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(draft, dir_fd=directory)
            raise


@contextlib.contextmanager
def _directory(path: Path) -> Iterator[int]:
    """Open the directory of a file, which may be behind links of the system, such as ``/var/run``."""
    try:
        descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        raise InvalidSettings(f"there is no directory {path.parent}: create it") from None
    try:
        mode = os.fstat(descriptor).st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise InvalidSettings(
                f"any user can replace files in {path.parent}: run `chmod o-w` on it, or choose another directory"
            )
        yield descriptor
    finally:
        os.close(descriptor)


def _check_file(path: Path, file: os.stat_result, directory: os.stat_result) -> None:
    """Refuse what another user could have put there.

    The directory's owner can replace the file in any case, so that owner's file is accepted.
    """
    if not stat.S_ISREG(file.st_mode):
        raise _refused(path, "is not a regular file", "delete it")
    if file.st_uid not in (os.geteuid(), 0, directory.st_uid):
        raise _refused(
            path,
            f"belongs to user {file.st_uid}, who is neither the worker's user, nor root, nor the directory's owner",
            "delete it, or change its owner",
        )
    if file.st_mode & stat.S_IWOTH:
        raise _refused(path, "can be written by any user", "run `chmod o-w` on it")
    if file.st_nlink > 1:
        raise _refused(path, "has a second name elsewhere (a hard link)", "delete it")


def _refused(path: Path, why: str, remedy: str) -> InvalidSettings:
    return InvalidSettings(f"{path} {why}: {remedy}")
