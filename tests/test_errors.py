"""The exceptions: one tree, messages with remedies, and a halt that `except Exception` does not catch."""

from __future__ import annotations

import inspect
import pickle

import pytest

from streamproc import errors
from streamproc.errors import (
    Halted,
    InvalidEvent,
    InvalidPolicy,
    Problem,
    StreamprocError,
    TaskEnded,
    UnsafeCycle,
    plural,
    shown,
)
from streamproc.model.controls import ControlEvent
from streamproc.monitor import Monitor

KINDS = [kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, BaseException)]


def a_halt() -> ControlEvent:
    monitor = Monitor()
    return [control for _ in range(3) for control in monitor.feed(run_id="r", node="n", output="again")][-1]


def test_all_errors_but_halted_share_one_base_class() -> None:
    assert len(KINDS) >= 9
    assert [kind for kind in KINDS if not issubclass(kind, StreamprocError)] == [Halted, TaskEnded]


@pytest.mark.parametrize("kind", KINDS)
def test_every_exception_has_a_docstring(kind: type[BaseException]) -> None:
    assert (kind.__doc__ or "").splitlines()[0].endswith(".")


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "__init__" not in vars(kind) and kind is not Halted])
def test_the_docstring_is_the_default_message(kind: type[BaseException]) -> None:
    assert str(kind()) == kind.__doc__
    assert str(kind("what happened")) == "what happened"


def test_except_exception_does_not_catch_a_halt() -> None:
    """Agent loops are full of `except Exception: retry`."""
    assert not issubclass(Halted, Exception)
    halt = Halted("r", a_halt())
    assert str(halt) == f"run r is halted (LOOP001): {a_halt().message}"
    assert str(Halted(a_halt())) == str(Halted(a_halt().run_id, a_halt()))
    again = pickle.loads(pickle.dumps(halt))
    assert (str(again), again.run_id, again.control) == (str(halt), "r", a_halt())
    assert str(Halted("r")) == "run r is halted: it was halted earlier"
    assert str(Halted("r", reason="the fleet stops")) == "run r is halted: the fleet stops"


def test_a_problem_names_place_field_mistake_and_remedy() -> None:
    assert str(Problem("at", "not a time", "send RFC 3339", "a.jsonl:3")) == "a.jsonl:3: at: not a time (send RFC 3339)"
    assert str(Problem("at", "not a time")) == "at: not a time"


def test_all_problems_are_in_the_message() -> None:
    problems = [Problem("a", "is bad"), Problem("b", "is worse")]
    assert str(InvalidEvent(problems)) == "a: is bad; b: is worse"
    assert str(InvalidPolicy(problems)) == "a: is bad\nb: is worse"
    assert InvalidEvent("unreadable").problems == (Problem("event", "unreadable"),)


def test_an_unsafe_cycle_names_all_cycles_and_the_remedy() -> None:
    message = str(UnsafeCycle([["a", "b"], ["c"]]))
    assert "2 cycles without an exit: [a, b]; [c]." in message
    assert "Add an edge" in message


def test_a_problem_can_be_pickled() -> None:
    problem = Problem("a", "is bad")
    assert pickle.loads(pickle.dumps(problem)) == problem


def in_itself() -> list[object]:
    value: list[object] = []
    value.append(value)
    return value


@pytest.mark.parametrize(("value", "text"), [
    ("x", "'x'"), (5, "5"), (None, "None"), (10**5_000, "(int)"), (in_itself(), "[[...]]"),
], ids=["text", "number", "none", "huge", "in itself"])  # fmt: skip
def test_an_invalid_value_is_shown_shortened(value: object, text: str) -> None:
    assert shown(value) == text
    assert len(shown(["x" * 10_000])) < 100


def test_nouns_follow_their_count() -> None:
    assert [plural(count, "run") for count in (0, 1, 2)] == ["0 runs", "1 run", "2 runs"]
    assert plural(2, "retry", "retries") == "2 retries"
