"""`HaltListener`: knows which runs are halted, and cancels their work."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from streamproc.client.command_handler import CommandHandler
from streamproc.client.control_consumer import ControlConsumer
from streamproc.client.guard import Guard, Register
from streamproc.client.halts import HALTED_MAX, Halts, control_of, halted_error
from streamproc.client.subscription import Subscription
from streamproc.errors import Unavailable
from streamproc.fleet.signing import authority_of
from streamproc.kafka.session import client_settings
from streamproc.model.controls import read_control

if TYPE_CHECKING:
    from collections.abc import Iterable

    from streamproc.client.admission.admission import Admission, PayerFields
    from streamproc.client.halts import ControlNews, StatusNews
    from streamproc.errors import Halted
    from streamproc.model.controls import ControlEvent
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

SUBSCRIPTION_MAX = 10_000  # control events that wait for a slow reader: about 20 MB


class HaltListener:
    """Hears of halted runs. Use it as ``async with HaltListener() as halts:``.

    Opening reads the compacted topics `commands` and `runs` to their ends, so standing orders (`fleet`) and runs that
    were halted earlier are known; that takes up to `start_timeout_s`, then `Unavailable` is raised. With
    ``wait=False`` opening returns at once and reading goes on in the background: until `caught_up` is set, **no halt
    is known and no run is stopped** (it fails open).

    When the broker leaves later, what is known to be halted stays so, one warning is logged, `connected` is False,
    and the connection is tried again until it is back.
    """

    def __init__(
        self,
        brokers: str | None = None,
        *,
        settings: Settings | None = None,
        wait: bool = True,
        start_timeout_s: float = 10.0,
        halted_max: int = HALTED_MAX,
    ) -> None:
        self.settings = client_settings(brokers, settings)
        self.caught_up = asyncio.Event()
        """Set once every earlier halt is known."""
        self._wait = wait
        self._start_timeout_s = start_timeout_s
        self._halts = Halts(halted_max)
        self._runs = self._halts.runs
        self.register = Register()
        """Who guards which run; the blocking twin's guards are in it, too."""
        self._subscriptions: set[Subscription] = set()
        self.obedience = CommandHandler(self._halts, self.register, authority_of(self.settings))
        """Who must stop or wait because of an order; the blocking twin's guards ask it, too."""
        self.fleet = self.obedience.fleet
        """The standing orders: ``fleet.status``, ``fleet.order``."""
        self.hearing = Dispatcher(self._halts, self.register, self.caught_up, self._subscriptions, self.obedience)
        """Takes in what was heard; tests put records in here."""
        self._feed = ControlConsumer(self.settings, self.hearing)
        self._task: asyncio.Task[None] | None = None

    # Asking.

    def check(self, run_id: str) -> None:
        """Raise `Halted` if the run is halted, or the fleet stopped. No I/O; well under a microsecond. From any
        thread."""
        if run_id in self._runs or self.fleet.stopped:
            halted = self.error(run_id)
            if halted is not None:
                raise halted

    def error(self, run_id: str, user: str = "", tenant: str = "") -> Halted | None:
        """Why a run (of this user and tenant) must stop; None where it may go on. From any thread."""
        if run_id in self._runs:
            return halted_error(run_id, self._runs.get(run_id))
        return self.obedience.halted(run_id, user, tenant)

    def halted(self, run_id: str) -> ControlEvent | None:
        """The decision that halted the run; None where it is not halted (or was halted so long ago, and so many
        after it, that only the fact is kept: `check` still raises)."""
        return control_of(self._runs.get(run_id))

    def guard(self, run_id: str, admission: Admission | None = None, **payer: Unpack[PayerFields]) -> Guard:
        """``async with halts.guard(run_id):`` cancels its body when the run is halted, then raises `Halted`.

        A run that is halted already raises before the body begins. Threads that the body started are not stopped.
        With a `user` or `tenant` it obeys at once when they are killed; else when a worker has halted the run.
        With an `admission` the guard can `reserve`; `session`, `user`, `tenant` and `limits` say who pays.
        """
        paying = None if admission is None else admission.payer(run_id, **payer)
        user, tenant = payer.get("user") or "", payer.get("tenant") or ""
        return Guard(run_id, self.register, partial(self.error, user=user, tenant=tenant), paying, self.obedience.wait)

    def subscribe(self, buffer_max: int = SUBSCRIPTION_MAX) -> Subscription:
        """Every control event from now on, warnings too: ``async for control in halts.subscribe():``."""
        subscription = Subscription(buffer_max, self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    @property
    def connected(self) -> bool:
        """Whether halts are being heard."""
        return self._feed.connected

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is being heard; None while all is well."""
        return self._feed.trouble

    @property
    def halted_runs(self) -> int:
        """How many runs are known to be halted."""
        return len(self._runs)

    @property
    def forgotten(self) -> int:
        """Halted runs that were forgotten because `halted_max` others were halted after them."""
        return self._halts.forgotten

    @property
    def skipped(self) -> int:
        """Records that could not be read."""
        return self._feed.skipped

    # Opening and closing.

    async def start(self) -> None:
        """Begin to listen. Raises `Unavailable` (unless ``wait=False``) where the broker or its topics are away."""
        if self._task is not None:
            raise RuntimeError("a HaltListener is started once: make a new one")
        self._task = asyncio.create_task(self._feed.run(), name="streamproc halts")
        if not self._wait:
            return
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self.caught_up.wait()
        except TimeoutError:
            await self.close()
            what = f"halts could not be read from {self.settings.brokers} within {self._start_timeout_s:g} s"
            why = f": {self.trouble}" if self.trouble else ": no answer came"
            raise Unavailable(what + why) from self.trouble
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """Stop listening. What is known to be halted can still be asked for."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.wait([self._task])
        for subscription in tuple(self._subscriptions):
            subscription.close()
        if len(self.register):
            log.warning(
                "the listener was closed under %d guarded run(s): their guards are deaf now", len(self.register)
            )

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


class Dispatcher:
    """What is done with what the feed hears: halts are noted, guards fired, subscribers told."""

    def __init__(
        self,
        halts: Halts,
        register: Register,
        caught_up: asyncio.Event,
        told: set[Subscription],
        obedience: CommandHandler,
    ) -> None:
        self._halts = halts
        self._obedience = obedience
        self._register = register
        self._caught_up = caught_up
        self._told = told

    def snapshot(self, statuses: Iterable[StatusNews]) -> None:
        """Take in the latest statuses: now every earlier halt is known."""
        for news in statuses:
            self.status(news)
        self._caught_up.set()

    def status(self, news: StatusNews) -> None:
        """Take in a record of the `runs` topic."""
        if self._halts.status(news):
            self._register.fire(news.run_id)

    def control(self, news: ControlNews, value: bytes) -> None:
        """Take in a record of the `control` topic."""
        if not self._halts.is_new(news.id):
            return
        if self._halts.control(news):
            self._register.fire(news.run_id)
        if self._told:
            control = read_control(value)
            for subscription in tuple(self._told):
                subscription.offer(control)

    def order(self, key: bytes | None, value: bytes | None, at_ms: int) -> None:
        """Take in a record of the `commands` topic."""
        self._obedience.hear(key, value, at_ms)

    def is_halted(self, run_id: str) -> bool:
        """Whether this run is known to be halted."""
        return run_id in self._halts.runs
