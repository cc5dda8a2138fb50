"""Publisher and listener for code without asyncio: each runs its asyncio counterpart in a background thread.

The threads are daemons. What is still open when the interpreter exits is closed, within the stated time. Threads do not
survive `os.fork`: open publishers and listeners in the child process (a worker's start-up hook), not before forking.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack

from streamproc.client.background import BlockingWrapper
from streamproc.client.guard import NO_PAYER, halts_run
from streamproc.client.listener import HaltListener
from streamproc.client.publisher import TurnPublisher
from streamproc.errors import Undelivered
from streamproc.fleet.signing import command_signer
from streamproc.fleet.standing_halts import halt_to_lift
from streamproc.model.redaction import redact_id
from streamproc.tracing.guard_spans import GuardSpan

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamproc.client.admission.admission import PayerFields
    from streamproc.client.admission.blocking import BlockingAdmission, BlockingPayer, BlockingReservation
    from streamproc.client.admission.reservation import ReserveFields
    from streamproc.client.encoding import Encoded
    from streamproc.client.fields import EventFields, NodeFields, RunStartedFields, TurnFields
    from streamproc.client.guard import GuardRegistry
    from streamproc.client.guard_reports import GuardReports
    from streamproc.client.heartbeat_watch import OnUnwatched
    from streamproc.client.waits import Waits
    from streamproc.errors import Unavailable
    from streamproc.fleet.state import Fleet
    from streamproc.fleet.workers import WatchState
    from streamproc.model.controls import ControlEvent
    from streamproc.model.raw_events import RawEvent
    from streamproc.settings import Settings

__all__ = ["BlockingGuard", "BlockingHaltListener", "BlockingTurnPublisher"]


class BlockingTurnPublisher(BlockingWrapper):
    """`TurnPublisher` for blocking code: the same options, bounds and counters, from any number of threads.

    A call checks and fingerprints in the caller's thread, then returns; a background thread talks to Kafka.
    """

    thread_name = "streamproc turns"
    usage = "with BlockingTurnPublisher() as turns:"

    def __init__(self, brokers: str | None = None, *, settings: Settings | None = None, **options: Any) -> None:
        self._turns = TurnPublisher(brokers, settings=settings, **options)
        super().__init__(self._turns)
        self._queue: deque[Encoded] = deque()
        """Events for the loop's thread."""
        self._collecting = False

    @property
    def delivered(self) -> int:
        """Events that the broker acknowledged."""
        return self._turns.delivered

    @property
    def dropped(self) -> int:
        """Events lost: the buffer was full, the broker refused them, or they were undelivered at closing."""
        return self._turns.dropped

    @property
    def invalid(self) -> int:
        """Events that were invalid."""
        return self._turns.invalid

    @property
    def unknown_fields(self) -> int:
        """Unknown fields in all events together: mostly misspelt ones."""
        return self._turns.unknown_fields

    @property
    def unknown_field_counts(self) -> Mapping[str, int]:
        """How many events had each unknown field, for the first 40 names, such as ``tool_calls.argumets``."""
        return self._turns.unknown_field_counts

    @property
    def waiting(self) -> int:
        """Events that the broker has not acknowledged yet."""
        return self._turns.waiting + len(self._queue)

    @property
    def trouble(self) -> Unavailable | None:
        """Why nothing is being delivered; None while delivery works."""
        return self._turns.trouble

    def turn(self, *, run_id: str, node: str, **fields: Unpack[TurnFields]) -> str:
        """Publish what one node did. Returns the event's id. Raises `InvalidEvent`, as `TurnPublisher` does."""
        return self.send({"type": "turn", "run_id": run_id, "node": node, **fields})

    def run_started(self, *, run_id: str, **fields: Unpack[RunStartedFields]) -> str:
        """Publish the start of a run: graph, budgets, scope. Raises `UnsafeCycle`, as `TurnPublisher` does."""
        return self.send({"type": "run.started", "run_id": run_id, **fields})

    def turn_started(self, *, run_id: str, node: str, **fields: Unpack[EventFields]) -> str:
        """Publish the start of a turn, so a turn that never ends is detected (BUDGET001, STALL007)."""
        return self.send({"type": "turn.started", "run_id": run_id, "node": node, **fields})

    def run_finished(self, *, run_id: str, status: str = "", **fields: Unpack[EventFields]) -> str:
        """Publish that a run ended by itself."""
        return self.send({"type": "run.finished", "run_id": run_id, "status": status, **fields})

    def user_message(self, *, run_id: str, **fields: Unpack[NodeFields]) -> str:
        """Publish that a person wrote a message: streaks that assume no human input start again."""
        return self.send({"type": "user.message", "run_id": run_id, **fields})

    def operator_stop(self, *, run_id: str, by: str = "", reason: str = "", **fields: Unpack[EventFields]) -> str:
        """Publish an operator's command to stop this run."""
        return self.send({"type": "operator.stop", "run_id": run_id, "by": by, "reason": reason, **fields})

    def operator_resume(
        self,
        *,
        run_id: str,
        grant: Mapping[str, Any] | None = None,
        by: str = "",
        reason: str = "",
        halt: str | None = None,
        **fields: Unpack[EventFields],
    ) -> str:
        """Resume a halted run, as `TurnPublisher.operator_resume` does."""
        if halt is None and command_signer(self._turns.settings).required:
            halt = asyncio.run(halt_to_lift(self._turns.settings, redact_id(run_id)))
        own = {"grant": grant, "by": by, "reason": reason, "halt": halt or ""}
        return self.send({"type": "operator.resume", "run_id": run_id, **own, **fields})

    def halt_acknowledged(self, *, run_id: str, by: str = "", reason: str = "", **fields: Unpack[EventFields]) -> str:
        """Acknowledge a run's halt: the operator is handling it, so it is not escalated."""
        return self.send({"type": "halt.acknowledged", "run_id": run_id, "by": by, "reason": reason, **fields})

    def feedback(
        self,
        *,
        run_id: str,
        verdict: Literal["false-alarm", "right"],
        decision: str = "",
        by: str = "",
        reason: str = "",
        **fields: Unpack[EventFields],
    ) -> str:
        """Say whether a run's halt was right. It changes no decision; `streamproc backtest` counts it."""
        own = {"verdict": verdict, "decision": decision, "by": by, "reason": reason}
        return self.send({"type": "feedback", "run_id": run_id, **own, **fields})

    def event(self, kind: str, /, *, run_id: str, **fields: Any) -> str:
        """Publish an event of any type, such as ``task.created``, with its own fields."""
        return self.send({**fields, "type": kind, "run_id": run_id})

    def send(self, event: RawEvent | Mapping[str, Any]) -> str:
        """Publish an event as a mapping, or one that `streamproc.model.raw_events` has parsed already."""
        background = self._started()
        encoded = self._turns.prepare(event)
        if encoded is None:
            return ""
        if self._closed:
            self._turns.admit(encoded)  # counts it as dropped
            return encoded.event_id
        if not self._turns.can_admit(encoded, len(self._queue)):
            background.call(self._wait_for_space(encoded))
        self._queue.append(encoded)
        if not self._collecting:
            self._collecting = True
            background.call_soon(self._collect)
        return encoded.event_id

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until everything published so far is acknowledged (or dropped). Returns False after `timeout_s`."""
        background = self._started()
        return not self.waiting if self._closed else background.call(self._flush(timeout_s))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except Undelivered:
            if error is None:
                raise  # else it would hide the body's own error

    # On the loop's thread.

    def _collect(self) -> None:
        self._collecting = False  # before emptying the queue: a thread that appends from now on schedules another call
        while self._queue:
            self._turns.admit(self._queue.popleft())

    async def _wait_for_space(self, encoded: Encoded) -> None:
        self._collect()
        await self._turns.wait_for_space(encoded)

    async def _flush(self, timeout_s: float) -> bool:
        self._collect()
        return await self._turns.flush(timeout_s)

    async def _close_client(self) -> None:
        self._collect()
        await self._turns.close()


class BlockingGuard:
    """Guards one run in blocking code.

    A thread cannot be interrupted from outside, so `Halted` is raised at the entry, by `check`, `ready` and `sleep`
    inside the body, and at the exit. The entry waits as that of `Guard` does. It is a span as that is.
    """

    def __init__(
        self,
        run_id: str,
        halts: HaltListener,
        registry: GuardRegistry,
        payer: BlockingPayer | None = None,
        *,
        user: str = "",
        tenant: str = "",
        task: str = "",
        agent: str = "",
        on_unwatched: OnUnwatched | None = None,
    ) -> None:
        self.run_id = run_id
        self._halts = halts
        self._waits = halts.waits(run_id, on_unwatched)
        self._registry = registry
        self._payer = payer
        self._scope = user, tenant, task, agent
        self._fired = threading.Event()
        self._span: GuardSpan | None = None

    def check(self) -> None:
        """Raise `Halted` if the run is halted, its user or tenant killed, or the fleet stopped. No I/O."""
        halted = self._halts.error(self.run_id, *self._scope)
        if halted is not None:
            raise halted

    def ready(self, timeout_s: float | None = None) -> bool:
        """Wait as `Guard.ready`; raise `Halted` as `check` does. Call it before a task, a write or a delegation.
        Returns False if the fleet is still paused, or no worker decides, after `timeout_s`."""
        return self._waits.ready_blocking(self.check, timeout_s)

    @property
    def state(self) -> WatchState:
        """Whether workers decide on this run (see `HaltListener.state`)."""
        return self._waits.state

    def reserve(self, **estimate: Unpack[ReserveFields]) -> BlockingReservation:
        """``with guard.reserve(cost_usd="0.05", tokens=4000) as hold:``, as `Guard.reserve`."""
        if self._payer is None:
            raise RuntimeError(NO_PAYER)
        return self._payer.reserve(partial(self._waits.watched_blocking, self.check), **estimate)

    def sleep(self, seconds: float) -> None:
        """Sleep, but raise `Halted` as soon as the run is halted."""
        self.check()
        self._fired.wait(seconds)
        self.check()

    def fire(self) -> None:
        """Check whether the run must stop. (The listener calls this.)"""
        if self._halts.error(self.run_id, *self._scope) is not None:
            self._fired.set()

    def __enter__(self) -> Self:
        self._registry.add(self.run_id, self)
        span = GuardSpan(self.run_id)
        try:
            self.ready()  # entering starts new work
        except BaseException as error:
            self._registry.remove(self.run_id, self)
            span.end(error)
            if halts_run(error, self.run_id):
                self._halts.reports.ended(self.run_id, halted=True)
            raise
        self._span = span
        self._halts.reports.entered(self.run_id)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._registry.remove(self.run_id, self)
        halted = None
        if error is None or isinstance(error, Exception):  # whatever failed: a halted run must not be retried
            halted = self._halts.error(self.run_id, *self._scope)
        if self._span is not None:
            self._span.end(halted or error)
        self._halts.reports.ended(self.run_id, halted=halts_run(error, self.run_id) or halts_run(halted, self.run_id))
        if halted is not None:
            raise halted


class BlockingHaltListener(BlockingWrapper):
    """`HaltListener` for blocking code: the same options, from any number of threads."""

    thread_name = "streamproc halts"
    usage = "with BlockingHaltListener() as halts:"

    def __init__(self, brokers: str | None = None, *, settings: Settings | None = None, **options: Any) -> None:
        self._halts = HaltListener(brokers, settings=settings, **options)
        super().__init__(self._halts)

    @property
    def connected(self) -> bool:
        """Whether the listener receives halts."""
        return self._halts.connected

    @property
    def trouble(self) -> Unavailable | None:
        """Why no halts are received; None while the connection works."""
        return self._halts.trouble

    @property
    def caught_up(self) -> bool:
        """Whether every earlier halt is known."""
        return self._halts.caught_up.is_set()

    @property
    def state(self) -> WatchState:
        """Whether workers decide on what agents do (see `HaltListener.state`)."""
        return self._halts.state

    def state_of(self, run_id: str) -> WatchState:
        """Return the same for the partition that a run belongs to."""
        return self._halts.state_of(run_id)

    def on_state(self, function: Callable[[WatchState], None]) -> Callable[[], None]:
        """Call a function at each change of `state`, in the background thread (see `HaltListener.on_state`)."""
        return self._halts.on_state(function)

    def waits(self, run_id: str, on_unwatched: OnUnwatched | None = None) -> Waits:
        """Return what work on a run waits for, for adapters."""
        return self._halts.waits(run_id, on_unwatched)

    @property
    def fleet(self) -> Fleet:
        """The standing commands: ``fleet.status``, ``fleet.command``."""
        return self._halts.fleet

    def check(self, run_id: str, *, task: str = "", agent: str = "") -> None:
        """Raise `Halted` as `HaltListener.check` does. No I/O; takes well under a microsecond."""
        self._halts.check(run_id, task=task, agent=agent)

    def halted(self, run_id: str) -> ControlEvent | None:
        """Return the decision that halted the run; None if it is not halted (see `HaltListener.halted`)."""
        return self._halts.halted(run_id)

    def on_control(self, function: Callable[[ControlEvent], None]) -> None:
        """Call a function with every control event, in the background thread (see `HaltListener.on_control`)."""
        self._halts.on_control(function)

    @property
    def reports(self) -> GuardReports:
        """Tells people which runs are watched here, and which were stopped (see `HaltListener.reports`)."""
        return self._halts.reports

    def guard(
        self,
        run_id: str,
        admission: BlockingAdmission | None = None,
        *,
        task: str = "",
        agent: str = "",
        on_unwatched: OnUnwatched | None = None,
        **payer: Unpack[PayerFields],
    ) -> BlockingGuard:
        """``with halts.guard(run_id) as guard:`` raises `Halted` at its entry, at ``guard.check()`` and at its exit;
        with a `task` or an `agent` also `TaskEnded` (see `HaltListener.guard`)."""
        paying = None if admission is None else admission.payer(run_id, **payer)
        user, tenant = payer.get("user") or "", payer.get("tenant") or ""
        return BlockingGuard(
            run_id, self._halts, self._halts.guards, paying, user=user, tenant=tenant, task=task, agent=agent,
            on_unwatched=on_unwatched,
        )  # fmt: skip
