"""`Watch`: the one object between an agent framework and the engine, in this process or on Kafka.

An adapter calls `turn` when a step has ended and `check` before the next one begins, so that a stopped run loses no
result and a resumed one repeats no step. A fault of ours never breaks the agent: it is counted and logged.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import uuid
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from streamproc.errors import Halted, ProviderUnavailable, StreamprocError
from streamproc.integrations._instances import Instances
from streamproc.integrations.backends import MonitorBackend
from streamproc.model.call_errors import call_fields
from streamproc.model.newest import Newest
from streamproc.tracing.guard_spans import record_halt

if TYPE_CHECKING:
    from streamproc.client.waits import Waits
    from streamproc.integrations.kafka_backend import KafkaBackend
    from streamproc.model.controls import ControlEvent, RunStatus
    from streamproc.monitor import Monitor

log = logging.getLogger("streamproc.integrations")

RUNS_MAX: Final = 10_000  # runs whose last node and unsent usage are remembered
SUMMED: Final = ("input_tokens", "output_tokens", "cached_tokens", "cache_write_tokens", "total_tokens", "duration_ms")

TASK_MAX: Final = 128  # characters of the id of a task

_current: ContextVar[Run | None] = ContextVar("streamproc_run", default=None)
_task: ContextVar[str] = ContextVar("streamproc_task", default="")


class Run(NamedTuple):
    """The run of this context, as `Watch.run` sets it."""

    run_id: str
    scope: Mapping[str, Any]


@dataclass(slots=True)
class _Known:
    """What is remembered of a run between two turns."""

    node: str = ""
    usage: dict[str, dict[str, Any]] = field(default_factory=dict)  # by node, until its next turn
    scope: Mapping[str, Any] = field(default_factory=dict)  # not yet sent


class Watch:
    """Watches the runs of a framework, and stops them.

    ``Watch()`` is a `Monitor` in this process, or the workers on Kafka where ``STREAMPROC_BROKERS`` is set or `brokers`
    is given. `on_halt` and `on_warn` are for adapters: ``end`` stops by the framework's own means where it has one,
    ``tell`` gives the sentence of a warning to the model once. With ``fail="closed"`` a fault of ours is raised; by
    default it is logged and counted in `faults`, and the agent goes on. With ``on_unwatched="pause"`` an agent begins
    no step while no worker decides on its run or Kafka does not answer; by default it goes on
    (`STREAMPROC_ON_UNWATCHED`). With ``on_provider="wait"`` adapters of clients make no call of a model while the
    breaker of its provider is open, with ``"raise"`` they raise `ProviderUnavailable`; by default they only report how
    calls end.

    All methods may be called from any thread, and block no longer than fingerprinting a turn takes, except in such
    waits. On Kafka, all watches of a process that have the same settings share one connection. After `os.fork`, a child
    process connects by itself at its first turn, and knows until then which runs were halted when it was forked.
    """

    def __init__(
        self,
        monitor: Monitor | None = None,
        *,
        brokers: str | None = None,
        on_halt: Literal["raise", "end"] = "raise",
        on_warn: Literal["ignore", "tell"] = "ignore",
        fail: Literal["open", "closed"] = "open",
        on_unwatched: Literal["continue", "pause"] | None = None,
        on_provider: Literal["report", "wait", "raise"] = "report",
    ) -> None:
        self.on_provider = on_provider
        self.on_halt = on_halt
        self.on_warn = on_warn
        self.fail = fail
        self.faults = 0
        """Faults of ours that the agents were spared; the first of each kind is logged."""
        self.last_fault: Exception | None = None
        self._lock = threading.Lock()
        self._runs: Newest[str, _Known] = Newest(RUNS_MAX)
        self._logged: set[type[Exception]] = set()
        self.instances = Instances()
        """Names of the agents at work that report to this watch, by one adapter or by several."""
        self._backend: MonitorBackend | KafkaBackend
        if monitor is None and (brokers or os.environ.get("STREAMPROC_BROKERS")):
            from streamproc.integrations.kafka_backend import KafkaBackend  # takes the Kafka client with it

            self._backend = KafkaBackend(brokers, on_unwatched, self._warned)
        else:
            self._backend = MonitorBackend(monitor, self._warned)

    # What happened.

    def started(self, run_id: str, **fields: Any) -> None:
        """Report that a run starts: its graph, budgets and scope (see ``run.started``). A graph with an unsafe cycle
        raises `UnsafeCycle`."""
        with sparing(self, but=StreamprocError):  # what cannot be used is the caller's to fix
            self._backend.feed({"type": "run.started", "run_id": run_id, **fields})

    def turn(self, run_id: str, node: str, **fields: Any) -> None:
        """Report what a node did (the fields of a raw turn; `from_` for ``from``).

        The sender of a turn is the node of the turn before, unless `from_` says otherwise; ``from_=None`` names none.
        Equal answers are no repeats if their `request` differs, or their task (`task`).
        """
        with sparing(self):
            if "from_" in fields:
                sender = fields.pop("from_")
            else:
                sender = self._known(run_id).node
            if sender and sender != node:
                fields["from"] = sender
            usage = self._known(run_id).usage.pop(node, None)
            if usage is not None:
                fields["usage"] = _added(usage, fields.get("usage") or {})
            self._known(run_id).node = node
            if (task := _task.get()) and "task_id" not in fields:
                fields["task_id"] = task
            self._backend.feed({"type": "turn", "run_id": run_id, "node": node, **fields})

    def spent(self, run_id: str, node: str, **usage: Any) -> None:
        """Report tokens, cost or time (the fields of ``usage``) of a node's model call; sent with its next turn."""
        with sparing(self):
            known = self._known(run_id).usage
            known[node] = _added(known.get(node, {}), usage)

    def person(self, run_id: str, **fields: Any) -> None:
        """Report that a person wrote a message or approved a step: streaks start again."""
        with sparing(self):
            self._backend.feed({"type": "user.message", "run_id": run_id, **fields})

    def compacted(self, run_id: str, **fields: Any) -> None:
        """Report that the context of an agent was compacted (`trigger`, `before_tokens`, `after_tokens`, `node`)."""
        with sparing(self):
            self._backend.feed({"type": "context.compacted", "run_id": run_id, **fields})

    def continued(self, run_id: str, reason: str = "", **fields: Any) -> None:
        """Report that a run was about to stop and was sent on, `by` a hook or a gate, for a `reason`."""
        with sparing(self):
            self._backend.feed({"type": "run.continued", "run_id": run_id, "reason": reason, **fields})

    def finished(self, run_id: str, status: str = "") -> None:
        """Report that a run ended by itself."""
        with sparing(self):
            self._backend.feed({"type": "run.finished", "run_id": run_id, "status": status})
        with sparing(self), self._lock:
            self._runs.pop(run_id, None)

    # What to do.

    def check(self, run_id: str) -> None:
        """Raise `Halted` if the run must stop, and within `task` also `TaskEnded` if that task has ended. No I/O; takes
        below a microsecond, after the `wait`.

        Where OpenTelemetry records a span, the halt is an event of it (``streamproc.halt``).
        """
        self.wait(run_id)
        try:
            if task := _task.get():
                self._backend.check(run_id, task)
            else:
                self._backend.check(run_id)
        except Halted as halt:
            self._record(halt.control, str(halt))
            raise
        except Exception as problem:  # noqa: BLE001  # such as an id that is no text
            self.fault(problem)

    def wait(self, run_id: str) -> None:
        """Wait while no step of the run may begin, with ``on_unwatched="pause"``; a halted run waits no longer.

        In a thread with a running event loop this does nothing, as it would stop everything there: await `waited`.
        """
        waits = self._waits(run_id)
        if waits is not None and not _in_event_loop():
            with sparing(self), suppress(Halted):  # `check` and `halted` say so
                waits.watched_blocking(lambda: self._backend.check(run_id))

    async def waited(self, run_id: str) -> None:
        """Do the same in an event loop."""
        waits = self._waits(run_id)
        if waits is not None:
            with sparing(self), suppress(Halted):
                await waits.watched(lambda: self._backend.check(run_id))

    def _waits(self, run_id: str) -> Waits | None:
        with sparing(self):
            return self._backend.waits(run_id)
        return None

    def enter(self, run_id: str, name: str) -> str:
        """Wait until a provider and model may be called, as `on_provider` says; return the id of a permit for `called`.

        In a thread with a running event loop it does not wait: await `entered`.
        """
        if self.on_provider == "report" or not name or (self.on_provider == "wait" and _in_event_loop()):
            return ""
        with sparing(self, but=ProviderUnavailable):
            return self._backend.enter(name, run_id, str(uuid.uuid4()), wait=self.on_provider == "wait")
        return ""

    async def entered(self, run_id: str, name: str) -> str:
        """Do the same in an event loop."""
        if self.on_provider == "report" or not name:
            return ""
        with sparing(self, but=ProviderUnavailable):
            return await self._backend.enter_async(name, run_id, str(uuid.uuid4()), wait=self.on_provider == "wait")
        return ""

    def called(self, run_id: str, name: str, error: BaseException | None = None, *, permit: str = "") -> None:
        """Report how a call of a provider and model ended; an `error` that says nothing about it is none."""
        with sparing(self):
            fields = {} if error is None else call_fields(error)
            if name and (error is None or fields.get("status") or fields.get("retryable")):
                self._backend.called({"run_id": run_id, "model": name, "permit": permit, **fields})

    def halted(self, run_id: str) -> ControlEvent | None:
        """Return the decision that halted a run; None if it may go on. With ``on_halt="end"`` this is where adapters
        stop a run, so the halt is an event of the current span, as of `check`."""
        halt = None
        with sparing(self):
            halt = self._backend.halted(run_id)
        if halt is not None and self.on_halt == "end":
            self._record(halt, halt.message)
        return halt

    def warning(self, run_id: str) -> ControlEvent | None:
        """Return the newest warning about a run that was not returned before; None if there is none."""
        with sparing(self):
            return self._backend.warning(run_id)
        return None

    def status(self, run_id: str) -> RunStatus | None:
        """Return the status of a run; None if it is not known. Raises `StreamprocError` on Kafka, where
        ``streamproc status`` has it."""
        return self._backend.status(run_id)

    def resume(self, run_id: str, *, by: str = "", reason: str = "", grant: Mapping[str, Any] | None = None) -> None:
        """Let a halted run go on; `grant` adds to its budgets, such as ``{"maxSteps": 50}``. Raises `StreamprocError`
        on Kafka, where ``streamproc resume`` does it."""
        self._backend.resume(run_id, by=by, reason=reason, **({"grant": dict(grant)} if grant else {}))

    def nudge(self, run_id: str) -> str:
        """Return the sentence of a new warning for the model, if `on_warn` is ``tell``; else an empty text."""
        warning = self.warning(run_id) if self.on_warn == "tell" else None
        return "" if warning is None else warning.message

    # Which run.

    @contextmanager
    def run(self, run_id: str | None = None, **scope: Any) -> Iterator[Run]:
        """``with watch.run("r7", user="ada"):`` sets the run of this context, its tasks and its threads.

        Without an id it gets a new one. The scope (workflow, user, tenant, session_id, budgets …) goes with its start.
        One within another run is its child: it starts in the same session, with that run as its `parent_run_id`.
        """
        run_id, outer = run_id or str(uuid.uuid4()), _current.get()
        if outer is not None and outer.run_id != run_id:
            session = outer.scope.get("session_id") or outer.run_id
            scope = {"session_id": session, "parent_run_id": outer.run_id, **scope}
        run = Run(run_id, scope)
        if scope:
            self.started(run.run_id, **scope)
        token = _current.set(run)
        try:
            yield run
        finally:
            _current.reset(token)

    @contextmanager
    def task(self, task: object) -> Iterator[None]:
        """``with watch.task("item 7"):`` says what the turns of this context are about (their ``task_id``).

        The same answers and calls for another task are no repeats: use it in loops over items that no adapter can see.
        Of a longer text than the id of a task may be, only a digest is reported. If a rule ends the task, the next step
        in this context raises `TaskEnded`; work on other tasks of the run goes on.
        """
        name = str(task)
        if len(name) > TASK_MAX:
            name = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        token = _task.set(name)
        try:
            yield
        finally:
            _task.reset(token)

    def owns(self, what: Hashable, owner: object) -> bool:
        """Return whether an adapter reports this agent, call or answer: the first one that asks, of all that report to
        the same engine. A framework that has the same adapter twice, or an adapter within another, counts once."""
        with sparing(self):
            return self._backend.reporters().owns(what, owner)
        return True

    def run_id(self, given: str | None = None, framework: str | None = None) -> str:
        """Return the id of the run at hand: the `given` one, else that of `run`, else what the framework calls it,
        else a new one. An adapter asks once for each call of the framework."""
        if given:
            return given
        current = _current.get()
        if current is not None:
            return current.run_id
        return framework or str(uuid.uuid4())

    def flush(self, timeout_s: float = 5.0) -> bool:
        """Wait until the turns reported so far are acknowledged by Kafka; False after `timeout_s`."""
        return self._backend.flush(timeout_s)

    def close(self) -> None:
        """Deliver what is under way. On Kafka, the last open `Watch` of the same settings disconnects this process."""
        self._backend.close()

    def _warned(self, control: ControlEvent) -> None:
        if control.run_id in self._runs:  # on Kafka, those of other processes are heard as well
            log.warning("run %s: %s (%s)", control.run_id, control.message, control.code)

    def fault(self, problem: Exception) -> None:
        """Count a fault of an adapter or of ours, and log the first of its kind; raise it if `fail` is ``closed``."""
        self._count(problem, "a step was not watched, and the agent goes on")
        if self.fail == "closed":
            raise problem

    def _count(self, problem: Exception, what: str) -> None:
        self.faults += 1
        self.last_fault = problem
        if type(problem) not in self._logged:
            self._logged.add(type(problem))
            log.warning("%s: %s", what, problem, exc_info=problem)

    def _record(self, control: ControlEvent | None, message: str) -> None:
        try:
            record_halt(control, message if control is None else control.message)
        except Exception as problem:  # noqa: BLE001  # of a tracer; the halt is not lost with it, also if fail is "closed"
            self._count(problem, "a halt is missing in its span")

    def _known(self, run_id: str) -> _Known:
        with self._lock:
            known = self._runs.get(run_id)
            if known is None:
                known = self._runs[run_id] = _Known()
            return known


class sparing:  # noqa: N801  # reads as the statement that it is: `with sparing(watch):`
    """Report what fails inside to `watch`, so that it never reaches the agent. `Halted` passes, and so does `but`."""

    __slots__ = ("_but", "_watch")

    def __init__(self, watch: Watch, but: type[Exception] | tuple[()] = ()) -> None:
        self._watch = watch
        self._but = but

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, problem: BaseException | None, trace: object) -> bool:
        if not isinstance(problem, Exception) or isinstance(problem, self._but):
            return False
        self._watch.fault(problem)
        return True


def _in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return two usages as one: numbers are summed, and of other fields the later one counts."""
    total = {**one, **{name: value for name, value in other.items() if value is not None}}
    for name in SUMMED:
        if one.get(name) is not None and other.get(name) is not None:
            total[name] = one[name] + other[name]
    if one.get("cost_usd") is not None and other.get("cost_usd") is not None:
        from decimal import Decimal

        total["cost_usd"] = str(Decimal(str(one["cost_usd"])) + Decimal(str(other["cost_usd"])))
    return total


__all__ = ["Halted", "Run", "Watch"]
