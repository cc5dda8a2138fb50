"""Every exception that streamproc raises.

    StreamprocError
    ├── InvalidEvent        a turn or another input that cannot be used
    ├── InvalidPolicy       a policy file with mistakes: all of them, each with its place
    ├── InvalidGraph        a workflow graph that cannot be read
    │   └── UnsafeCycle     a cycle that nothing can leave
    ├── InvalidSettings     an environment variable or option that cannot be used
    ├── Unavailable         a broker or store that cannot be reached
    └── Undelivered         events that the publisher could not hand over in time
    Halted                  (a BaseException) the circuit breaker stopped this run

A class's docstring is its default message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from streamproc.controls import ControlEvent


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
