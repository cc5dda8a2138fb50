"""The address that `--metrics` names."""

from __future__ import annotations

from typing import Final

from streamproc.errors import InvalidSettings
from streamproc.settings import PORT_MAX, read_address

OPTION: Final = "--metrics (STREAMPROC_METRICS)"


def metrics_address(text: str) -> tuple[str, int]:
    """Return ``HOST:PORT`` as a pair. Raises `InvalidSettings`."""
    return read_address(text, OPTION, "127.0.0.1:9464")


def address_of_worker(text: str, number: int, count: int) -> str:
    """Return the address of one of several workers, which are numbered from 1: the first has the port as given, each
    other one the next port. A port of 0 stays: each takes a free one. Raises `InvalidSettings`."""
    if not text:
        return ""
    host, port = metrics_address(text)
    if port and port + count - 1 > PORT_MAX:
        raise InvalidSettings(f"{OPTION} {text}: {count} workers need {count} ports: name one up to "
                              f"{PORT_MAX - count + 1}")  # fmt: skip
    return f"{f'[{host}]' if ':' in host else host}:{port + number - 1 if port else 0}"
