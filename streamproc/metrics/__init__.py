"""Metrics of a process, and the HTTP address that serves them with the probes."""

from __future__ import annotations

__all__: tuple[str, ...] = ()
