"""Requests to the `streamproc up` of this user, over its socket."""

from __future__ import annotations

import http.client
import json
import socket
from typing import TYPE_CHECKING, Any, Final

from streamproc.errors import InvalidEvent, Unavailable

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S: Final = 5.0


class _Connection(http.client.HTTPConnection):
    """A connection to a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("up", timeout=TIMEOUT_S)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(TIMEOUT_S)
        self.sock.connect(str(self._path))


def get(path: Path, what: str) -> Any:
    """Return the answer to a request. Raises `Unavailable` if no process listens at the socket."""
    return _asked(path, "GET", what, None)


def post(path: Path, what: str, body: Any) -> Any:
    """Do the same with a body. Raises `InvalidEvent` as well, if it is refused."""
    return _asked(path, "POST", what, json.dumps(body))


def _asked(path: Path, verb: str, what: str, body: str | None) -> Any:
    connection = _Connection(path)
    try:
        connection.request(verb, what, body)
        answer = connection.getresponse()
        found = json.loads(answer.read())
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Unavailable(f"`streamproc up` does not answer at {path} ({error})") from error
    finally:
        connection.close()
    if answer.status not in (http.client.OK, http.client.ACCEPTED):
        raise InvalidEvent(str(found.get("error")))
    return found
