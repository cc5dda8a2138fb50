"""Where `streamproc up` keeps its files, and who may read them: this user only."""

from __future__ import annotations

import os
import sys
import tempfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamproc.errors import InvalidSettings

MACHINE: Final = (Path("/etc/streamproc"), Path("/Library/Application Support/streamproc"))  # on Linux, on macOS
SOCKET_BYTES_MAX: Final = 100  # of the path of a unix socket: macOS has 104, Linux 108


@dataclass(frozen=True, slots=True)
class LivePlaces:
    """The files of one `streamproc up`."""

    folder: Path

    @property
    def log(self) -> Path:
        """The database with turns, decisions and states."""
        return self.folder / "live.db"

    @property
    def lock(self) -> Path:
        """Held by the process that writes the database."""
        return self.folder / "up.lock"

    @property
    def faults(self) -> Path:
        """A line for each hook that was not answered: the time, the CLI, and why."""
        return self.folder / "unprotected.log"

    @property
    def observing(self) -> Path:
        """There while sessions are only observed."""
        return self.folder / "observe"

    @property
    def token(self) -> Path:
        """The token of the port on loopback."""
        return self.folder / "token"

    @property
    def observes(self) -> bool:
        """Whether sessions are only observed, by choice of this user or of the administrator of this machine."""
        return self.observing.exists() or machine().observing.exists()

    @property
    def settings(self) -> Path:
        """Settings of the process, as ``STREAMPROC_ENV_FILE`` names them elsewhere, of this user or else of this
        machine: what a hook starts has no others, because projects choose the environment of a CLI."""
        own = self.folder / "settings.env"
        return own if own.exists() else machine().folder / own.name

    @property
    def notified(self) -> Path:
        """The position in the log before which everybody is notified."""
        return self.folder / "notified"

    @property
    def output(self) -> Path:
        """What a process that a hook has started prints."""
        return self.folder / "up.log"

    @property
    def socket(self) -> Path:
        """Where it listens; in the folder for temporary files if the path would be too long for a socket."""
        path = self.folder / "up.sock"
        if len(os.fsencode(path)) <= SOCKET_BYTES_MAX:
            return path
        number = zlib.crc32(os.fsencode(path))
        return Path(tempfile.gettempdir()) / f"streamproc-{os.getuid()}-{number:08x}" / "up.sock"

    def make(self) -> None:
        """Create the folders, for this user only. Raises `InvalidSettings` where that cannot be done."""
        for folder in {self.folder, self.socket.parent}:
            try:
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                found = folder.stat()
            except OSError as error:
                raise InvalidSettings(f"{folder}: cannot keep files there ({error.strerror}): set --data") from None
            if found.st_uid != os.getuid():
                raise InvalidSettings(f"{folder} belongs to another user: set --data to a folder of your own")
            if found.st_mode & 0o077:
                folder.chmod(0o700)


def machine() -> LivePlaces:
    """Return the places that are the same for all users of this machine: only `observing` and `settings` are used."""
    return LivePlaces(MACHINE[sys.platform == "darwin"])


def places(folder: str = "") -> LivePlaces:
    """Return the places: those in `folder`, else in ``STREAMPROC_HOME``, else in the user's data folder."""
    if sys.platform == "win32":
        raise InvalidSettings("`streamproc up` needs Linux or macOS: use it in WSL on Windows")
    named = folder or os.environ.get("STREAMPROC_HOME", "")
    if named:
        return LivePlaces(Path(named).expanduser().absolute())
    if sys.platform == "darwin":
        return LivePlaces(Path.home() / "Library" / "Application Support" / "streamproc")
    return LivePlaces(Path(os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share") / "streamproc")
