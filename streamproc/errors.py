"""Every exception that streamproc raises.

    StreamprocError
    ├── InvalidEvent        a turn or another input event is invalid
    ├── InvalidPolicy       a policy file has mistakes; the error lists all of them with their places
    ├── InvalidGraph        a workflow graph cannot be read
    │   └── UnsafeCycle     a workflow graph has a cycle without an exit
    ├── InvalidSettings     an environment variable or option is invalid
    ├── Unavailable         a broker or store cannot be reached
    │   ├── AccessDenied    a broker rejects the login or lacks a right for this client
    │   └── ProviderUnavailable   the breaker of a model's provider is not closed
    ├── Refused             a run, session, user or tenant lacks budget for a reservation
    ├── AlreadySettled      the id of a reservation belongs to work that is settled
    └── Undelivered         the publisher could not deliver all events in time
    Halted                  (a BaseException) the circuit breaker stopped this run

A class's docstring is its default message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from streamproc.model.escaping import escape

if TYPE_CHECKING:
    from datetime import datetime

    from streamproc.model.controls import ControlEvent
    from streamproc.model.provider_state import ProviderState


class StreamprocError(Exception):
    """Something in streamproc went wrong."""

    def __init__(self, message: str | None = None) -> None:
        # It may quote untrusted text. Line breaks separate the mistakes of a list.
        super().__init__(escape(message or self.__class__.__doc__ or "", keep="\n"))


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: its `place` (such as ``policy.yaml:12``) and `column` there (from 1; 0: not known), the `field`,
    what is wrong, and the remedy."""

    field: str
    what: str
    remedy: str = ""
    place: str = ""
    column: int = 0

    @property
    def line(self) -> int | None:
        """The line in `place`, from 1; None if it has none."""
        number = self.place.rpartition(":")[2]
        return int(number) if self.column and number.isdigit() else None

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return escape(f"{where}{self.field}: {self.what}{remedy}")


def shown(value: object, limit: int = 60) -> str:
    """Return a short text of any invalid value, without secrets, for a message. Reads only the start of a large one."""
    from streamproc.model.redaction import READ_PER_SHOWN, redact_text  # its patterns take milliseconds to compile

    if isinstance(value, (str, bytes)) and len(value) > limit:
        head = repr(value[: limit * READ_PER_SHOWN])
        return f"{redact_text(head, limit - 3)}… ({type(value).__name__}, {len(value)} characters)"
    if isinstance(value, (list, tuple, dict)) and len(value) > limit:
        start = dict(islice(value.items(), limit)) if isinstance(value, dict) else list(value[:limit])
        return f"{shown(start, limit).partition('… (')[0]}… ({type(value).__name__}, {len(value)} items)"
    try:
        text = escape(repr(value))
    except (ValueError, RecursionError):  # an integer of thousands of digits; a structure that is nested too deeply
        return f"({type(value).__name__})"
    if len(text) <= limit:
        return redact_text(text)
    return f"{redact_text(text, limit - 3)}… ({type(value).__name__}, {len(text)} characters)"


class InvalidEvent(StreamprocError, ValueError):
    """This event is invalid."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem("event", problems),) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("; ".join(str(problem) for problem in self.problems))


class InvalidPolicy(StreamprocError, ValueError):
    """This policy has mistakes."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


CYCLE_NODES_SHOWN: Final = 20  # of one cycle in a message: enough to find it in the graph
LEAVE_A_CYCLE: Final = "Add an edge from each to a node that ends the run, or mark a node of it as terminal"


def plural(count: int, noun: str, nouns: str = "") -> str:
    """Return a count with its noun: ``1 run``, ``2 runs``."""
    return f"{count} {noun if count == 1 else nouns or f'{noun}s'}"


def named_cycle(nodes: Sequence[str], limit: int = CYCLE_NODES_SHOWN) -> str:
    """Return the nodes of a cycle for a message, shortened to `limit`."""
    shown = ", ".join(map(escape, nodes[:limit]))
    return f"[{shown}]" if len(nodes) <= limit else f"[{shown}, … ({len(nodes)} nodes)]"


class InvalidGraph(StreamprocError, ValueError):
    """This workflow graph cannot be read."""


class UnsafeCycle(InvalidGraph):
    """This workflow graph has a cycle without an exit.

    `cycles` has every such cycle with all its nodes; the message names each by its first nodes.
    """

    def __init__(self, cycles: Sequence[Sequence[str]]) -> None:
        self.cycles = tuple(tuple(cycle) for cycle in cycles)
        listed = "; ".join(named_cycle(cycle) for cycle in self.cycles)
        super().__init__(f"GRAPH001: {plural(len(self.cycles), 'cycle')} without an exit: {listed}. {LEAVE_A_CYCLE}")


class InvalidSettings(StreamprocError):
    """A setting is invalid."""


class Unavailable(StreamprocError):
    """A required service cannot be reached."""


class AccessDenied(Unavailable):
    """A broker rejects this client's login, or the client lacks a right."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        """What the broker rejects."""
        self.remedy = remedy
        """Which setting or right to fix."""
        super().__init__(f"{what}: {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.remedy)


class ProviderUnavailable(Unavailable):
    """The breaker of a provider and model is not closed, or the fleet's budget of retries is used up."""

    def __init__(
        self, provider: str, reason: str, retry_at: datetime, retry_after_s: float, state: ProviderState | None = None
    ) -> None:
        self.provider = provider
        """Provider and model, as the caller named them."""
        self.reason = reason
        self.retry_at = retry_at
        """When the next calls may be let through (UTC): not before."""
        self.retry_after_s = retry_after_s
        """The same, in seconds from when this was raised."""
        self.state = state
        """The whole state of the breaker."""
        super().__init__(f"{reason}; try again at {retry_at:%Y-%m-%dT%H:%M:%SZ}, in {retry_after_s:g} s")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.provider, self.reason, self.retry_at, self.retry_after_s, self.state)


class StatesOfAnotherVersion(StreamprocError):
    """A worker found states of runs that another version of streamproc wrote, and that this one cannot read."""

    def __init__(self, partition: int, runs: int, example: bytes) -> None:
        super().__init__(
            f"another version of streamproc wrote the states of {plural(runs, 'run')} in partition {partition}, such "
            f"as {shown(example.decode('utf-8', 'replace'))}, and this version cannot read them: it stops, as their "
            "halts would be lifted and their budgets forgotten. Start the version that wrote them, or a later one"
        )


class SpawnRefused(StreamprocError):
    """A session may not have another run now."""

    def __init__(self, session: str, run_id: str, budget: str, used: int, limit: int) -> None:
        self.session = session
        self.run_id = run_id
        """The run that was not started."""
        self.budget = budget
        """The limit, such as ``maxSessionRuns``."""
        self.used = used
        """What there would be with the run."""
        self.limit = limit
        super().__init__(f"session {session} may not start run {run_id}: it would be {used} of {limit} ({budget})")


class Refused(StreamprocError):
    """A run, session, user or tenant lacks budget for this."""

    def __init__(
        self,
        level: str,
        name: str,
        period: str,
        unit: str,
        *,
        asked: int,
        limit: int,
        spent: int,
        held: int,
        renews_at: datetime | None = None,
    ) -> None:
        self.level = level
        """``run``, ``session``, ``user`` or ``tenant``: the first of them that lacks budget."""
        self.name = name
        """Its id."""
        self.period = period
        """The period of the limit: ``total``, or an ``hour``, ``day`` or ``month`` in UTC."""
        self.unit = unit
        """``micro_usd`` or ``tokens``: the unit of `asked`, `limit`, `spent`, `held` and `left`."""
        self.asked = asked
        self.limit = limit
        self.spent = spent
        """The amount settled in this period."""
        self.held = held
        """The amount that open reservations hold, part of which may be returned."""
        self.left = max(0, limit - spent - held)
        self.renews_at = renews_at
        """When the next period starts; None for ``total``."""
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        amounts = (self.asked, self.left, self.limit, self.held)
        asked, left, limit, held = (
            f"{Decimal(amount) / 1_000_000} USD" if self.unit == "micro_usd" else f"{amount} tokens"
            for amount in amounts
        )
        of = "in total" if self.period == "total" else f"this {self.period}"
        renews = f"; the limit renews at {self.renews_at:%Y-%m-%dT%H:%M:%SZ}" if self.renews_at else ""
        whose = f"{self.level} {escape(self.name)}"
        return (
            f"a reservation of {asked} was refused: {whose} has {left} left of the {limit} limit {of} "
            f"({held} reserved by others){renews}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _refused, (self.__dict__,)


def _refused(fields: dict[str, Any]) -> Refused:
    """Rebuild a `Refused` from another process."""
    return Refused(**{name: value for name, value in fields.items() if name != "left"})


class AlreadySettled(StreamprocError):
    """This reservation is settled already: use another id for other work."""


class Undelivered(StreamprocError):
    """Some events were not delivered to the broker in time."""


class Halted(BaseException):
    """The circuit breaker halted this run.

    It derives from `BaseException`, as `asyncio.CancelledError` does: agent loops are full of
    ``except Exception: retry``, and a halt must not be retried.

    ``Halted(control)`` is enough where the control event is known.
    """

    def __init__(self, run_id: str | ControlEvent, control: ControlEvent | None = None, reason: str = "") -> None:
        if not isinstance(run_id, str):
            control = run_id
            run_id = control.run_id
        self.run_id = run_id
        self.control = control
        message = control.message if control is not None else reason or "it was halted earlier"
        code = f" ({escape(control.code)})" if control is not None else ""
        super().__init__(f"run {escape(run_id)} is halted{code}: {escape(message)}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _halted, (self.run_id, self.control, self.args)


class TaskEnded(Halted):
    """A task of a run has ended, or the task that an agent owns; the run goes on.

    `halts.guard(run_id, task=…)` and `halts.guard(run_id, agent=…)` raise it. ``except Halted`` catches it, too.
    """

    def __init__(self, run_id: str, task: str, control: ControlEvent | None = None, reason: str = "") -> None:
        super().__init__(run_id, control, reason)
        self.task = task
        code = f" ({escape(control.code)})" if control is not None else ""
        why = control.message if control is not None else reason or "it has ended"
        self.args = (f"task {escape(task)} of run {escape(run_id)} has ended{code}: {escape(why)}",)

    def __reduce__(self) -> tuple[Any, ...]:
        return _task_ended, (self.run_id, self.task, self.control, self.args)


def _task_ended(run_id: str, task: str, control: ControlEvent | None, args: tuple[str, ...]) -> TaskEnded:
    """Rebuild a `TaskEnded` from another process."""
    ended = TaskEnded(run_id, task, control)
    ended.args = args
    return ended


def _halted(run_id: str, control: ControlEvent | None, args: tuple[str, ...]) -> Halted:
    """Rebuild a `Halted` from another process."""
    halted = Halted(run_id, control)
    halted.args = args
    return halted
