"""`HaltListener`: receives halts, and cancels the work of halted runs."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Unpack

from streamproc.client.background import AsyncClient
from streamproc.client.command_handler import CommandHandler
from streamproc.client.control_consumer import ControlConsumer
from streamproc.client.dispatcher import Dispatcher
from streamproc.client.guard import Guard, GuardRegistry
from streamproc.client.guard_reports import GuardReports
from streamproc.client.halts import HALTED_MAX, Halts, control_of, halted_error
from streamproc.client.heartbeat_watch import HeartbeatWatch, check_on_unwatched
from streamproc.client.providers import ProviderGate
from streamproc.client.subscription import Callback, Subscription
from streamproc.client.verification import RecordVerifier
from streamproc.client.waits import Waits
from streamproc.errors import InvalidSettings, Unavailable, plural
from streamproc.fleet.record_signing import record_signer
from streamproc.fleet.signing import command_signer
from streamproc.kafka.session import client_settings
from streamproc.model.redaction import redact_id

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamproc.client.admission.admission import Admission, PayerFields
    from streamproc.client.heartbeat_watch import OnUnwatched
    from streamproc.client.providers import ProviderPermit
    from streamproc.errors import Halted
    from streamproc.fleet.workers import WatchState
    from streamproc.model.controls import ControlEvent
    from streamproc.model.provider_state import ProviderState
    from streamproc.settings import Settings

log = logging.getLogger(__name__)

START_TIMEOUT_S = 10.0
SUBSCRIPTION_MAX = 10_000  # control events buffered for a slow reader: about 20 MB


class BaseHaltListener:
    """What `HaltListener` and its blocking counterpart share: options, queries, and the reading of topics."""

    def __init__(
        self,
        brokers: str | None = None,
        *,
        settings: Settings | None = None,
        wait: bool = True,
        start_timeout_s: float = START_TIMEOUT_S,
        halted_max: int = HALTED_MAX,
        report: bool | None = None,
        on_unwatched: OnUnwatched | None = None,
    ) -> None:
        self.settings = client_settings(brokers, settings)
        self.on_unwatched = check_on_unwatched(on_unwatched or self.settings.on_unwatched)
        """What guards do while no worker decides, unless they say otherwise."""
        self.reports = GuardReports(self.settings, enabled=self.settings.guard_reports if report is None else report)
        """Tells people which runs are watched here, and which were stopped; off with ``report=False``."""
        self._caught_up = asyncio.Event()
        self._closed = False
        self._wait = wait
        self._start_timeout_s = start_timeout_s
        self._halts = Halts(halted_max)
        self._runs = self._halts.runs
        self.guards = GuardRegistry()
        """The guards of each run, including those of threads."""
        self._subscriptions: set[Subscription] = set()
        signer = command_signer(self.settings)
        self.command_handler = CommandHandler(self._halts, self.guards, signer)
        """Applies commands; guards, including those of threads, wait on it during a pause."""
        self.fleet = self.command_handler.fleet
        """The standing commands: ``fleet.status``, ``fleet.command``."""
        self.gate = ProviderGate(self.settings, self.command_handler)
        """Lets calls of models through, as the breakers of their providers say."""
        self.dispatcher = Dispatcher(
            self._halts, self.guards, self._caught_up, self._subscriptions, self.command_handler, self.gate
        )
        """Applies received records. Tests feed it records directly."""
        self._verifier = RecordVerifier(record_signer(self.settings), signer)
        self.watch = HeartbeatWatch(self.settings, self.command_handler.wake, self.gate.heard)
        """Hears whether workers decide."""
        self._consumer = ControlConsumer(self.settings, self.dispatcher, self._verifier, self.watch)
        self._task: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None

    # Queries.

    def check(self, run_id: str, *, task: str = "", agent: str = "") -> None:
        """Raise `Halted` if the run is halted, or the fleet stopped; `TaskEnded` if this task of it has ended, or one
        that this agent owns.

        No I/O; takes well under a microsecond; callable from any thread.
        """
        if (
            run_id in self._runs
            or self.fleet.stopped
            or self.fleet.sessions
            or redact_id(run_id) in self._runs
            or task
            or agent
        ):
            halted = self.error(run_id, task=task, agent=agent)
            if halted is not None:
                raise halted

    def error(
        self, run_id: str, user: str = "", tenant: str = "", task: str = "", agent: str = "", session: str = ""
    ) -> Halted | None:
        """Return why a run (of this user, tenant and session), or work on this task or of this agent, must stop; None
        if it may continue. Callable from any thread."""
        run_id = self._sent(run_id)
        if run_id in self._runs:
            return halted_error(run_id, self._runs.get(run_id))
        scope = redact_id(user), redact_id(tenant), redact_id(session)
        stopped = self.command_handler.halted(run_id, *scope)
        if stopped is None and (task or agent):
            return self._halts.ends.error(run_id, {task, redact_id(task)}, {agent, redact_id(agent)})
        return stopped

    def halted(self, run_id: str) -> ControlEvent | None:
        """Return the decision that halted the run; None if it is not halted.

        For a run halted long ago, when many were halted since, only the fact is kept: this returns None and `check`
        still raises.
        """
        return control_of(self._runs.get(self._sent(run_id)))

    def _sent(self, run_id: str) -> str:
        """Return the id under which a run is known: as it is from publishers of raw turns, redacted from others."""
        return run_id if run_id in self._runs else redact_id(run_id)

    @property
    def state(self) -> WatchState:
        """Whether workers decide on what agents do: ``watching``, ``unwatched`` since `since_ms`, ``disconnected`` for
        `for_s`, or ``unknown``: no worker was heard yet, as in the first seconds. Callable from any thread."""
        return self.watch.state

    def state_of(self, run_id: str) -> WatchState:
        """Return the same for the partition that a run belongs to: one may be unwatched while others are not."""
        return self.watch.state_of(redact_id(run_id))

    def on_state(self, function: Callable[[WatchState], None]) -> Callable[[], None]:
        """Call a function whenever the name of `state` changes, in this listener's thread: it must not block. What it
        raises is logged. Call what is returned to end that."""
        return self.watch.on_state(function)

    def waits(self, run_id: str, on_unwatched: OnUnwatched | None = None) -> Waits:
        """Return what work on a run waits for, for guards and adapters."""
        option = check_on_unwatched(on_unwatched or self.on_unwatched)
        return Waits(self.command_handler, self.watch, run_id, option)

    def on_control(self, function: Callable[[ControlEvent], None]) -> Subscription:
        """Call a function with every control event from now on, in this listener's thread: it must not block, nor
        raise. Close what is returned to end that."""
        callback = Callback(function, self._subscriptions.discard)
        self._subscriptions.add(callback)
        return callback

    def providers(self) -> list[ProviderState]:
        """Return the states of the breakers of providers that hold calls back now. Callable from any thread."""
        return self.gate.states.standing()

    def _check_of(self, run_id: str) -> Callable[[], None]:
        return (lambda: self.check(run_id)) if run_id else (lambda: None)

    @property
    def connected(self) -> bool:
        """Whether the listener receives halts."""
        return self._consumer.follower.connected

    @property
    def trouble(self) -> Unavailable | None:
        """Why no halts are received; None while the connection works."""
        return self._consumer.follower.trouble

    @property
    def halted_runs(self) -> int:
        """Number of runs known to be halted."""
        return len(self._runs)

    @property
    def forgotten(self) -> int:
        """Halted runs that were evicted because `halted_max` others were halted after them."""
        return self._halts.forgotten

    @property
    def skipped(self) -> int:
        """Records that could not be read."""
        return self._consumer.skipped

    @property
    def unverified(self) -> int:
        """Records that were ignored because no worker has signed them, or no operator the resume in them."""
        return self._verifier.refused

    def _halted_by(self, payer: PayerFields, task: str, agent: str) -> Callable[[str], Halted | None]:
        """Return what tells a guard why its run must stop. Raises `InvalidSettings` for the settings of a shadow."""
        if self.settings.shadow:
            raise InvalidSettings(
                f"STREAMPROC_SHADOW is {self.settings.shadow}: a guard must follow the real workers; unset it here"
            )
        user, tenant, session = payer.get("user") or "", payer.get("tenant") or "", payer.get("session") or ""
        return partial(self.error, user=user, tenant=tenant, task=task, agent=agent, session=session)

    # Opening and closing, on the loop's thread.

    async def _start(self) -> None:
        if self._task is not None:
            raise RuntimeError("a HaltListener can be started only once: create a new one")
        self._task = asyncio.create_task(self._consumer.run(), name="streamproc halts")
        self._looking = asyncio.create_task(self.watch.run(), name="streamproc watch")
        self.reports.start()
        self.gate.reports.start()
        if not self._wait:
            return
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await self._caught_up.wait()
        except TimeoutError:
            await self._close()
            what = f"halts could not be read from {self.settings.brokers} within {self._start_timeout_s:g} s"
            why = f": {self.trouble}" if self.trouble else ": no answer"
            raise Unavailable(what + why) from self.trouble
        except BaseException:
            await self._close()
            raise

    async def _close(self) -> None:
        self._closed = True
        if self._task is None:
            return
        tasks = [task for task in (self._task, self._looking) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        self.gate.close()
        self.watch.close()  # and wakes those who wait
        await self.reports.close()
        await self.gate.reports.close()
        for subscription in tuple(self._subscriptions):
            subscription.close()
        if len(self.guards):
            log.warning(
                "the listener was closed with %s still guarded: these guards receive no more halts",
                plural(len(self.guards), "run"),
            )


class HaltListener(BaseHaltListener, AsyncClient):
    """Receives halts. Use it as ``async with HaltListener() as halts:``.

    Opening reads the compacted topics `commands` and `runs` to their ends, so the standing commands (`fleet`) and
    earlier halts are known. If that takes longer than `start_timeout_s`, it raises `Unavailable`. With ``wait=False``
    opening returns at once and reading continues in the background: until `caught_up` is set, **no halt is known and
    no run is stopped** (it fails open).

    If the broker becomes unavailable later, known halts stay in force, one warning is logged, `connected` is False, and
    the listener retries until the broker is back.

    `state` says whether workers decide at all. While none does, or the broker does not answer, nothing is halted. By
    default guards continue; with ``on_unwatched="pause"`` they wait then, at their entry, at `ready` and before they
    reserve, until a worker decides again. Running bodies are not cancelled. A state that is ``unknown``, as where
    workers are of an earlier version, pauses nothing.
    """

    @property
    def caught_up(self) -> asyncio.Event:
        """Set once every earlier halt is known."""
        return self._caught_up

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def guard(
        self,
        run_id: str,
        admission: Admission | None = None,
        *,
        task: str = "",
        agent: str = "",
        on_unwatched: OnUnwatched | None = None,
        **payer: Unpack[PayerFields],
    ) -> Guard:
        """``async with halts.guard(run_id):`` cancels its body when the run is halted, then raises `Halted`.

        If the run is halted already, it raises before the body starts. Threads that the body started are not stopped.
        With a `task` or an `agent` it is cancelled, too, when that task of the run has ended, or a task that the agent
        owns, while the run goes on; it raises `TaskEnded` then, and refuses new work until the task is resumed.
        With a `user`, `tenant` or `session` the guard reacts at once when they are killed; otherwise when a worker has
        halted the run. With an `admission` the guard can `reserve`; they and `limits` name the payer.
        `on_unwatched` counts instead of that of the listener.
        Raises `InvalidSettings` for the settings of a shadow, whose halts stop nothing.
        """
        halted = self._halted_by(payer, task, agent)
        paying = None if admission is None else admission.payer(run_id, **payer)
        waits = self.waits(run_id, on_unwatched)
        return Guard(run_id, self.guards, halted, paying, waits, self.reports, self.gate)

    async def provider(
        self, name: str, *, run_id: str = "", wait: bool = True, timeout_s: float | None = None, retry: bool = False
    ) -> ProviderPermit:
        """Wait until this provider and model (``anthropic/claude-sonnet-4-5``) may be called, as its breaker says.

        While it is closed, and where no worker says otherwise, this returns at once. With ``wait=False``, and after
        `timeout_s`, it raises `ProviderUnavailable`, which says why and when to try again. When the breaker closes,
        those who waited go at random moments. A `retry` also waits while the fleet's budget of retries is used up.
        With a `run_id` it raises `Halted` as soon as that run must stop.
        """
        check = self._check_of(run_id)
        return await self.gate.enter(name, run_id, check, wait=wait, timeout_s=timeout_s, retry=retry)

    def subscribe(self, buffer_max: int = SUBSCRIPTION_MAX, *, unverified: bool = False) -> Subscription:
        """Receive every control event from now on, warnings included: ``async for control in halts.subscribe():``.

        If workers sign their records, events without a valid signature are left out; with `unverified` they are
        delivered as `UnverifiedControlEvent`.
        """
        subscription = Subscription(buffer_max, self._subscriptions.discard, unverified=unverified)
        self._subscriptions.add(subscription)
        return subscription

    async def start(self) -> None:
        """Start listening. Raises `Unavailable` (unless ``wait=False``) if the broker or its topics are missing."""
        await self._start()

    async def close(self) -> None:
        """Stop listening. The known halts can still be queried."""
        await self._close()
