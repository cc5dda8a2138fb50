"""What an adapter feeds its watch."""

from __future__ import annotations

from typing import Any

from streamproc import Watch


def recorded(watch: Watch) -> list[dict[str, Any]]:
    """Return a list of the events that the watch will be fed."""
    fed: list[dict[str, Any]] = []
    feed = watch._backend.feed

    def record(event: dict[str, Any]) -> None:
        fed.append(dict(event))
        feed(event)

    watch._backend.feed = record  # type: ignore[method-assign]
    return fed
