"""Every exception that streamproc raises.

    StreamprocError
    ├── InvalidEvent        a turn or another input that cannot be used
    ├── InvalidPolicy       a policy file with mistakes: all of them, each with its place
    ├── InvalidGraph        a workflow graph that cannot be read
    │   └── UnsafeCycle     a cycle that nothing can leave
    ├── InvalidSettings     an environment variable or option that cannot be used
    ├── Unavailable         a broker or store that cannot be reached
    ├── Refused             a run, session, user or tenant that cannot pay for what was asked
    ├── AlreadySettled      a reservation whose id belongs to work that has been paid for
    └── Undelivered         events that the publisher could not hand over in time
    Halted                  (a BaseException) the circuit breaker stopped this run

A class's docstring is its default message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from datetime import datetime

    from streamproc.model.controls import ControlEvent


class StreamprocError(Exception):
    """Something in streamproc went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or self.__class__.__doc__ or "")


@dataclass(frozen=True, slots=True)
class Problem:
    """One mistake: where it stands (`place`, such as ``policy.yaml:12``), the `field`, what is wrong, what to do."""

    field: str
    what: str
    remedy: str = ""
    place: str = ""

    def __str__(self) -> str:
        where = f"{self.place}: " if self.place else ""
        remedy = f" ({self.remedy})" if self.remedy else ""
        return f"{where}{self.field}: {self.what}{remedy}"


def shown(value: object, limit: int = 60) -> str:
    """A bad value for a message: short, whatever it is."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits; a structure too deep to be written
        return f"({type(value).__name__})"
    return text if len(text) <= limit else f"{text[: limit - 3]}… ({type(value).__name__}, {len(text)} characters)"


class InvalidEvent(StreamprocError):
    """This event cannot be used."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = (
            (Problem("event", problems),) if isinstance(problems, str) else tuple(problems)
        )
        super().__init__("; ".join(str(problem) for problem in self.problems))


class InvalidPolicy(StreamprocError):
    """This policy has mistakes."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


CYCLE_NODES_SHOWN: Final = 20  # of one cycle in a message: whoever wrote the graph knows it by fewer
LEAVE_A_CYCLE: Final = "Add an edge from each to a node that ends the run, or mark a node of it as terminal"


def named_cycle(nodes: Sequence[str], limit: int = CYCLE_NODES_SHOWN) -> str:
    """The nodes of a cycle for a message, however many there are."""
    shown = ", ".join(nodes[:limit])
    return f"[{shown}]" if len(nodes) <= limit else f"[{shown}, … ({len(nodes)} nodes)]"


class InvalidGraph(StreamprocError, ValueError):
    """This workflow graph cannot be read."""


class UnsafeCycle(InvalidGraph):
    """This workflow graph has a cycle that nothing can leave.

    `cycles` has all of them with all their nodes; the message names all of them, each by its first nodes.
    """

    def __init__(self, cycles: Sequence[Sequence[str]]) -> None:
        self.cycles = tuple(tuple(cycle) for cycle in cycles)
        listed = "; ".join(named_cycle(cycle) for cycle in self.cycles)
        super().__init__(f"GRAPH001: {len(self.cycles)} cycle(s) without a way out: {listed}. {LEAVE_A_CYCLE}")


class InvalidSettings(StreamprocError):
    """A setting cannot be used."""


class Unavailable(StreamprocError):
    """A service that is needed cannot be reached."""


class AccessDenied(Unavailable):
    """A broker is there, and does not let us in, or does not let us do this."""

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        """What the broker does."""
        self.remedy = remedy
        """Which setting or right to mend."""
        super().__init__(f"{what}: {remedy}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.what, self.remedy)


class Refused(StreamprocError):
    """A run, a session, a user or a tenant cannot pay for this."""

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
        """``run``, ``session``, ``user`` or ``tenant``: the first of them that cannot pay."""
        self.name = name
        """Which one: its id."""
        self.period = period
        """What the limit is for: ``total``, or an ``hour``, ``day`` or ``month`` of UTC."""
        self.unit = unit
        """``micro_usd`` or ``tokens``: of `asked`, `limit`, `spent`, `held` and `left`."""
        self.asked = asked
        self.limit = limit
        self.spent = spent
        """What was settled in this period."""
        self.held = held
        """What others have reserved and may give back."""
        self.left = max(0, limit - spent - held)
        self.renews_at = renews_at
        """When the period ends and another begins; None for ``total``."""
        super().__init__(self._sentence())

    def _sentence(self) -> str:
        amounts = (self.asked, self.left, self.limit, self.held)
        asked, left, limit, held = (
            f"{Decimal(amount) / 1_000_000} USD" if self.unit == "micro_usd" else f"{amount} tokens"
            for amount in amounts
        )
        of = "in total" if self.period == "total" else f"this {self.period}"
        renews = f"; it renews at {self.renews_at:%Y-%m-%dT%H:%M:%SZ}" if self.renews_at else ""
        return (
            f"{asked} were asked for, and {self.level} {self.name} has {left} left of the {limit} that it may spend "
            f"{of} ({held} are reserved){renews}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _refused, (self.__dict__,)


def _refused(fields: dict[str, Any]) -> Refused:
    """A `Refused` that came from another process."""
    return Refused(**{name: value for name, value in fields.items() if name != "left"})


class AlreadySettled(StreamprocError):
    """This reservation has been settled: use another id for other work."""


class Undelivered(StreamprocError):
    """Some events were not handed to the broker in time."""


class Halted(BaseException):
    """The circuit breaker halted this run.

    It derives from `BaseException`, as `asyncio.CancelledError` does: agent loops are full of
    ``except Exception: retry``, and a halt must not be retried.
    """

    def __init__(self, run_id: str, control: ControlEvent | None = None, reason: str = "") -> None:
        self.run_id = run_id
        self.control = control
        message = control.message if control is not None else reason or "it was halted earlier"
        super().__init__(f"run {run_id} is halted: {message}")
