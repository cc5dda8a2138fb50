"""Readiness: wait until broker, topics and the group's coordinator are there, before each run of the worker.

A worker that starts before its broker waits for it and logs that, instead of crashing and restarting in a loop.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING, NamedTuple

from aiokafka.errors import GroupCoordinatorNotAvailableError

from streamproc.errors import InvalidSettings, Unavailable
from streamproc.kafka import topics
from streamproc.kafka.topic_drift import UNKNOWN
from streamproc.worker.limits import RETRY_FIRST_S, RETRY_MAX_S

if TYPE_CHECKING:
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

NEEDED = ("turns", "control", "runs", "commands", "spend", "dead-letter")


class Ready(NamedTuple):
    """Facts about the cluster: partitions by topic, the largest dead letter (key and value), and whether the turns
    topic has `LogAppendTime` (`live`) or the times of an imported log."""

    partitions: dict[str, int]
    dead_letter_bytes: int
    live: bool = True


class Patience:
    """Growing pauses between attempts, and a time limit (None: no limit)."""

    def __init__(self, give_up_after_s: float | None) -> None:
        self._until = None if give_up_after_s is None else time.monotonic() + give_up_after_s
        self._pause_s = RETRY_FIRST_S

    def next_pause_s(self, problem: Exception) -> float:
        """Return how long to wait now; raise the problem once the time limit is reached."""
        pause_s, self._pause_s = self._pause_s, min(RETRY_MAX_S, self._pause_s * 2)
        if self._until is None:
            return pause_s
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise problem
        return min(pause_s, left_s)


async def wait_until_ready(settings: Settings, give_up_after_s: float | None) -> Ready:
    """Wait until the broker answers, every topic that the worker needs exists, and its group has a coordinator.

    Raises `Unavailable` after `give_up_after_s`, and `InvalidSettings` if numbers of partitions do not match.
    """
    patience = Patience(give_up_after_s)
    logged = ""
    while True:
        try:
            return await _ready(settings)
        except Unavailable as problem:
            pause_s = patience.next_pause_s(problem)
            if str(problem) != logged:
                logged = str(problem)
                log.warning("%s. Trying until it does", logged)
            await asyncio.sleep(pause_s)


async def _ready(settings: Settings) -> Ready:
    found = await topics.partitions(settings)
    changelogs = [topics.changelog_topic(settings), topics.accounts_topic(settings)]
    needed = [*(settings.topic(name) for name in NEEDED), *changelogs]
    missing = [name for name in needed if name not in found]
    if missing:
        raise Unavailable(
            f"missing on {settings.brokers}: {', '.join(missing)}: run `streamproc topics apply` "
            "(or this user may not see them: `streamproc topics acls`)"
        )
    turns = settings.topic("turns")
    holds = ("the states of running runs", "the accounts of spend", "the statements of spend")
    for other, what in zip((*changelogs, settings.topic("spend")), holds, strict=True):
        if found[turns] > found[other]:
            raise InvalidSettings(
                f"{turns} has {found[turns]} partitions and {other} has {found[other]}: partitions were added, so "
                "runs have other homes: create topics under a new prefix (STREAMPROC_TOPIC_PREFIX), or delete "
                f"{other} ({what}) and run `streamproc topics apply` to start from nothing"
            )
        if found[turns] != found[other]:
            raise InvalidSettings(
                f"{turns} has {found[turns]} partitions and {other} has {found[other]}; they must be equal: "
                f"delete {other} ({what}) and run `streamproc topics apply`"
            )
    bytes_max, clock = await _as_found(settings)
    await _check_coordinator(settings)
    return Ready(found, bytes_max, live=clock == "LogAppendTime")


async def _check_coordinator(settings: Settings) -> None:
    """Raise `Unavailable` until the group has a coordinator. A new cluster first creates its topic of offsets, and
    aiokafka would log that as an error."""
    async with topics.administering(settings) as admin:
        try:
            await admin.find_coordinator(settings.worker_group)
        except GroupCoordinatorNotAvailableError:
            raise Unavailable(
                f"{settings.brokers} has no coordinator for the group {settings.worker_group} yet; a new cluster takes "
                "some seconds"
            ) from None


async def _as_found(settings: Settings) -> tuple[int, str]:
    """Return the size limit of a dead letter and the timestamp type of the turns topic; log settings that differ."""
    bytes_max, clock = topics.dead_letter_bytes_max(settings), str(settings.timestamp_type)
    for drift in (await topics.check(settings)).drift:
        if drift.danger:
            log.error("%s; until you change it, %s", drift, drift.danger)
        elif drift.setting not in topics.SHAPE:
            log.warning("%s", drift)
        if drift.found == UNKNOWN:  # this user may not describe topics: rely on the settings
            continue
        if drift.topic == settings.topic("dead-letter") and drift.setting == "max.message.bytes":
            bytes_max = min(bytes_max, int(drift.found))
        if drift.topic == settings.topic("turns") and drift.setting == "message.timestamp.type":
            clock = drift.found
    return max(0, bytes_max - topics.ENVELOPE_BYTES), clock
