"""Metrics of the page, from what its read model knows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from streamproc.metrics import definitions
from streamproc.metrics.readings import Reading


def fleet_readings(
    fleet_status: Callable[[], str | None], saved_usd: Callable[[], Mapping[str, float]]
) -> Iterable[Reading]:
    """Return the standing fleet command, and what halts have saved in USD, by code of their detector.

    `fleet_status` returns None while it is not known. `saved_usd` must not fall: it is a counter, and an estimate. The
    page serves them, with its probes, on `--metrics` only, and never on its own address:

        async with exposing(settings, lambda: fleet_readings(status, saved), missing):
            ...  # serve the page

    where `missing()` returns what keeps the page from being ready, such as ``["reading: 40 %"]``.
    """
    status = fleet_status()
    if status is not None:
        yield from status_readings(status)
    for code, usd in saved_usd().items():
        yield Reading(definitions.SAVED, usd, (code,))


def status_readings(status: str) -> Iterable[Reading]:
    """Return 1 for this fleet status and 0 for the others."""
    for one in definitions.FLEET_STATUSES:
        yield Reading(definitions.FLEET_STATUS, one == status, (one,))
