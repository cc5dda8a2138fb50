"""What long-lived Kafka clients share: reconnecting, backoff, broker probes, and partition look-ups."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Final

from aiokafka.errors import KafkaConnectionError, KafkaError

from streamproc.errors import Unavailable
from streamproc.kafka import retry_log
from streamproc.kafka.access import as_access_denied
from streamproc.kafka.log_limit import LogLimit
from streamproc.kafka.options import connection_options
from streamproc.kafka.topics import broker_unavailable, describe
from streamproc.kafka.vendor import network_client
from streamproc.settings import Settings, load_settings

log = logging.getLogger(__name__)

BACKOFF_FIRST_S: Final = 0.1  # a restarted broker is back within seconds: retry quickly at first
BACKOFF_MAX_S: Final = 5.0
REQUEST_TIMEOUT_MS: Final = 15_000  # a healthy broker answers in milliseconds; aiokafka's default is 40 s
CONNECT_TIMEOUT_S: Final = 20.0
PROBE_EVERY_S: Final = 2.0
PROBE_TIMEOUT_S: Final = 20.0

STILL_AWAY_EVERY_S: Final = 60.0

EXPECTED: Final = (KafkaError, OSError, TimeoutError, Unavailable)  # failures of brokers and networks


class Reconnect(Exception):
    """Raised by a session to reconnect at once: no backoff, no failure reported."""


class Outage:
    """Logs that a connection is lost, once a minute that it still is, and that it is back.

    `purpose` says what the connection is for, `lost` and `back` what its loss and its return mean.
    """

    def __init__(
        self, log: logging.Logger, purpose: str, lost: str, back: str, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.log = log
        self.purpose = purpose
        self.trouble: Unavailable | None = None
        """Why there is no connection; None while it works."""
        self._lost, self._back = lost, back
        self._clock = clock
        self._limited = LogLimit(log, clock)  # a connection that comes and goes would log without end
        self._since_s = self._logged_s = 0.0

    def lost(self, problem: Unavailable) -> None:
        """Note a failed attempt to connect, or the loss of a connection."""
        retry_log.note_outage()
        now_s = self._clock()
        if self.trouble is None:
            self._since_s = self._logged_s = now_s
            self._limited(logging.WARNING, self._lost, "%s; reconnecting: %s", self._lost, problem)
        elif now_s - self._logged_s >= STILL_AWAY_EVERY_S:
            self._logged_s = now_s
            minutes = round((now_s - self._since_s) / 60)
            self.log.warning("%s (for %d min); still reconnecting: %s", self._lost, minutes, problem)
        self.trouble = problem

    def over(self, details: str = "") -> None:
        """Note that the connection works."""
        if self.trouble is not None:
            self.trouble = None
            self._limited(logging.WARNING, self._back, "%s%s", self._back, details)


class Backoff:
    """The wait before the next attempt: doubling, capped, and jittered so that a fleet does not reconnect at once."""

    def __init__(self) -> None:
        self._next_s = BACKOFF_FIRST_S

    def reset(self) -> None:
        """Start again from the shortest wait: the last attempt succeeded."""
        self._next_s = BACKOFF_FIRST_S

    def next_s(self) -> float:
        """Return the seconds to wait now, and double the next wait."""
        wait_s = self._next_s * random.uniform(0.5, 1.0)
        self._next_s = min(BACKOFF_MAX_S, self._next_s * 2)
        return wait_s


async def reconnecting(
    session: Callable[[Backoff], Coroutine[Any, Any, None]],
    failed: Callable[[Exception], None],
    *,
    purpose: str,
    stop: asyncio.Event | None = None,
) -> None:
    """Run `session` again and again, with backoff in between, until cancelled or until `stop` is set.

    A session opens one connection, resets the backoff once the connection works, and runs until it fails. `failed`
    receives every error, so it decides what to log once per outage. An error that no broker or network explains is
    also logged with its traceback, under `purpose` ("delivering turns"). `Reconnect` skips backoff and `failed`.
    """
    backoff = Backoff()
    stopped = asyncio.Event() if stop is None else stop
    while not stopped.is_set():
        try:
            with retry_log.ours():
                await run_in_own_task(session(backoff))
        except Reconnect:
            continue
        except Exception as error:  # whatever it is: the client must keep trying
            if not isinstance(error, EXPECTED):
                log.error("unexpected error while %s; reconnecting", purpose, exc_info=error)
            failed(error)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(stopped.wait(), backoff.next_s())


async def run_until_one_ends(*coroutines: Coroutine[Any, Any, None]) -> None:
    """Run until one coroutine ends, cancel the others, and raise its error.

    A TaskGroup of Python 3.11 leaves its own task counted as cancelled when a child fails.
    """
    tasks = [asyncio.create_task(coroutine) for coroutine in coroutines]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        _raise_error_of(task)


async def run_in_own_task(coroutine: Coroutine[Any, Any, None], timeout_s: float | None = None) -> None:
    """Run a coroutine in a task of its own, so that a cancellation inside it does not cancel the caller.

    When aiokafka awaits a task that it cancelled itself, the cancellation propagates and looks like the caller's;
    here it becomes a `ConnectionError`. Raises `TimeoutError` after `timeout_s`.
    """
    task = asyncio.create_task(coroutine)
    try:
        done, _ = await asyncio.wait([task], timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait([task])
        if task.done() and not task.cancelled():
            task.exception()  # retrieved even if the caller is being cancelled: else asyncio logs it at exit
    if not done:
        raise TimeoutError(f"took more than {timeout_s} s")
    _raise_error_of(task)


def _raise_error_of(task: asyncio.Task[None]) -> None:
    if task.cancelled():
        raise ConnectionError("the Kafka client cancelled one of its own tasks")
    task.result()


async def probe_brokers(client: Any, answered: Callable[[], None] = lambda: None) -> None:
    """Ask for metadata at intervals, call `answered` at each answer; raise `Unavailable` as soon as no broker answers.

    aiokafka handles the loss of one broker among several. A client that has lost all of them retries the last known
    addresses for ever and logs every attempt; a new session starts from the bootstrap servers and logs once.
    """
    while True:
        await asyncio.sleep(PROBE_EVERY_S)
        async with asyncio.timeout(PROBE_TIMEOUT_S):
            # A broker closes a connection whose login has expired (`connections.max.reauth.ms`) on its next use,
            # so the first request may fail: ask twice.
            if not (await client.force_metadata_update() or await client.force_metadata_update()):
                raise Unavailable("no broker answers any more")
        answered()


async def abandon(consumer: Any, timeout_s: float) -> None:
    """Close a consumer within a short time. Its errors do not matter any more."""
    for closing in (consumer.stop(), network_client(consumer).close()):  # `stop` may fail before it closes its client
        with contextlib.suppress(Exception):
            await run_in_own_task(closing, timeout_s)


def as_unavailable(settings: Settings, error: Exception) -> Unavailable:
    """Return the error to show to the user: `Unavailable` with the broker's address and, if known, the remedy."""
    if isinstance(error, Unavailable):
        return error
    denied = as_access_denied(settings, error)
    if denied is not None:
        return denied
    if isinstance(error, (KafkaConnectionError, OSError, TimeoutError)):
        return broker_unavailable(settings, error)
    return Unavailable(f"broker at {settings.brokers}: {type(error).__name__}: {error}")


async def find_partitions(
    client: Any, settings: Settings, topics: Iterable[str], optional: Iterable[str] = (), remedy: str = ""
) -> dict[str, list[int]]:
    """Return the partitions of topics, by full name: of all `topics`, and of those of the `optional` ones that exist.

    Raises `Unavailable` that names all missing topics, and the `remedy`. No topic is created, as a request of aiokafka
    would do at a broker with ``auto.create.topics.enable``, with wrong settings.
    """
    topics = list(topics)
    described = await describe(client, [*topics, *optional])
    found = {
        name: sorted(partition["partition"] for partition in topic["partitions"])
        for name, topic in described.items()
        if topic["error_code"] == 0
    }
    missing = [name for name in topics if not found.get(name)]
    if missing:
        raise Unavailable(
            f"the broker at {settings.brokers} has no topic {', '.join(missing)}, or this user is not allowed to see "
            + (remedy or "it (`streamproc topics acls`): run `streamproc topics apply`, or set STREAMPROC_TOPIC_PREFIX")
        )
    return {name: partitions for name, partitions in found.items() if partitions}


def client_settings(brokers: str | None, settings: Settings | None) -> Settings:
    """Return the settings of a client: the given ones, else those of the environment; `brokers` overrides both.

    Raises `InvalidSettings` if they cannot be used, so a missing certificate is an error in the constructor and not
    a connection that never succeeds.
    """
    if settings is None:
        settings = load_settings(brokers=brokers)
    elif brokers is not None:
        settings = settings.model_copy(update={"brokers": brokers})
    connection_options(settings)
    return settings
