"""`streamproc page`: the fleet in a browser."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
