"""What an adapter feeds its watch."""

from __future__ import annotations

from typing import Any

import pytest

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


def fed_by(watch: Watch) -> list[dict[str, Any]]:
    """Return a list of the events that the watch will be fed, and let no engine judge them."""
    fed: list[dict[str, Any]] = []
    watch._backend.feed = fed.append  # type: ignore[method-assign]
    return fed


def break_down(watch: Watch, monkeypatch: pytest.MonkeyPatch, *also: str) -> None:
    """Let what adapters ask of the watch fail."""
    for name in ("turn", "spent", "nudge", "check", "halted", *also):
        monkeypatch.setattr(watch, name, lambda *_, **__: 1 / 0)
