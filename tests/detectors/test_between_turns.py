"""STALL009 to 011, LOOP014, ERROR006 and CLAIM001: what must never be halted, and what must always be."""

from __future__ import annotations

from itertools import count
from random import Random
from typing import Any

from hypothesis import given, settings, strategies as st

from streamproc.core.detector_memory import MEMORY_BYTES
from streamproc.detectors.base import RawTurn, call, said
from streamproc.detectors.compaction_thrash import compacted
from streamproc.detectors.open_findings import reviewed
from streamproc.detectors.sent_on_again import sent_on
from streamproc.detectors.unfinished_answer import ended
from tests.feeding import Feed

CODES = {"STALL009", "STALL010", "STALL011", "LOOP014", "ERROR006", "CLAIM001"}
MANY = settings(deadline=None, max_examples=60)
BETWEEN: list[RawTurn] = [
    compacted(), compacted(trigger="manual"), compacted(node="agent", before_tokens=90_000, after_tokens=80_000),
    sent_on("Run the tests."), sent_on("Write the docs."), sent_on(None), {"type": "user.message"},
]  # fmt: skip
ROUNDS = [reviewed("A", "B"), reviewed("A"), reviewed("B", "C"), reviewed(), reviewed("D", severity="low")]
TURNS: list[RawTurn] = [
    *ROUNDS, ended("max_tokens", "half a text"), ended("end_turn"), ended("malformed", "x"), said("agent", "Done."),
    call("read", {"file": "a"}, "text"), {"node": "qa", "tests": {"failed": ["a"], "passed": 8, "total": 9}},
    {"node": "agent", "usage": {"input_tokens": 90_000}, "output": "x"},
]  # fmt: skip
ENDS: list[RawTurn] = [{"type": "run.finished", "status": status} for status in ("success", "completed", "failed", "")]


def found(events: list[RawTurn], severity: str = "halt") -> list[tuple[str, int]]:
    """Return the decisions of these detectors on one run: code, and the event that caused it."""
    feed = Feed()
    identified = [{**raw, "event_id": f"e{number}"} for number, raw in enumerate(events)]
    decisions = [(number, one) for number, raw in enumerate(identified) for one in feed.raw(raw)]
    assert not feed.engine.faults
    return [(one.code, number) for number, one in decisions if one.code in CODES and one.severity == severity]


def new_result(numbers: count[int]) -> RawTurn:
    number = next(numbers)
    return call("read", {"file": f"{number}.py"}, f"what is in file {number}")


@given(st.lists(st.sampled_from(BETWEEN), max_size=40))
@MANY
def test_with_a_new_result_before_each_event_nothing_is_halted(between: list[RawTurn]) -> None:
    numbers = count()
    assert found([one for event in between for one in (new_result(numbers), event)]) == []


@given(st.lists(st.sampled_from([*BETWEEN, *ROUNDS, ended("end_turn")]), max_size=40))
@MANY
def test_a_person_who_speaks_after_each_event_keeps_all_of_it_going(events: list[RawTurn]) -> None:
    assert found([one for event in events for one in (event, {"type": "user.message"})]) == []


@given(st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=1, max_size=20))
@MANY
def test_a_review_that_resolves_something_each_round_is_never_halted(rounds: list[list[int]]) -> None:
    """Each round resolves all findings of the one before, however many new ones it has."""
    events = [reviewed(*(f"{number}-{one}" for one in set(found_))) for number, found_ in enumerate(rounds)]
    assert found(events) == []


@given(
    st.integers(1, 120), st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3)), max_size=16),
    st.randoms(use_true_random=False),
)  # fmt: skip
@MANY
def test_a_review_of_any_size_that_resolves_something_for_good_each_round_is_never_halted(
    first: int, rounds: list[tuple[int, int]], random: Random
) -> None:
    numbers = count()
    still_open = [f"F{next(numbers)}" for _ in range(first)]
    events = [reviewed(*still_open)]
    for resolved, new in rounds:
        random.shuffle(still_open)
        still_open = [*still_open[resolved:], *(f"F{next(numbers)}" for _ in range(new))]
        events.append(reviewed(*still_open))
    assert found(events) == []


@given(st.integers(1, 40), st.integers(6, 9))
@MANY
def test_as_many_findings_of_one_rule_as_before_are_halted_at_the_sixth_round(size: int, rounds: int) -> None:
    assert found([reviewed(*["unused-import"] * size)] * rounds)[:1] == [("STALL011", 5)]


@given(st.lists(st.sampled_from(["A", "B", "C"]), min_size=1, max_size=3, unique=True), st.integers(0, 4))
@MANY
def test_the_same_findings_are_halted_at_the_sixth_round_whatever_is_minor(same: list[str], minor: int) -> None:
    events = [
        {"node": "reviewer", "findings": [
            *({"id": one, "severity": "high"} for one in same),
            *({"id": f"nit {number}-{one}", "severity": "nit"} for one in range(minor)),
        ]}
        for number in range(6)
    ]  # fmt: skip
    assert found(events) == [("STALL011", 5)]


@given(st.integers(3, 9), st.sampled_from(["a", "b"]))
@MANY
def test_the_same_reason_without_work_is_halted_at_the_third_time(times: int, reason: str) -> None:
    events = [call("read", {"file": "a"}, "text"), *[sent_on(reason)] * times]
    assert found(events) == [("LOOP014", 3)]


def test_a_text_that_is_cut_off_for_ever_is_warned_of_and_never_halted() -> None:
    events = [ended("max_tokens", f"Part {number} of a long text about {number * 7}.") for number in range(60)]
    assert (found(events), found(events, "warn")) == ([], [("ERROR006", 2)])


def test_a_claim_never_halts_and_is_doubted_once() -> None:
    for end in ENDS:
        assert found([said("agent", "Done."), end, end]) == []
    assert found([said("agent", "Done."), ENDS[0], ENDS[0]], "warn") == [("CLAIM001", 1)]


@given(st.lists(st.sampled_from([*BETWEEN, *TURNS, *ENDS]), max_size=120))
@MANY
def test_what_they_remember_is_small_and_the_same_after_a_restart(events: list[RawTurn]) -> None:
    feed, again = Feed(), Feed()
    for number, raw in enumerate(events):
        one: dict[str, Any] = {**raw, "event_id": f"e{number}"}
        again.restart()
        assert [d.id for d in feed.raw(one)] == [d.id for d in again.raw(one)]
    assert feed.stored == again.stored
    assert not feed.engine.faults
    plugins = feed.state.cold.plugins
    assert all(len(raw) <= MEMORY_BYTES for raw in plugins.values())
    assert sum(len(raw) for code, raw in plugins.items() if code in CODES) <= MEMORY_BYTES
