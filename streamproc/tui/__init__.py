"""`streamproc watch --tui`: the fleet in a terminal."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
