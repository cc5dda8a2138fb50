"""Novelty, periods and polls: what a run keeps of them, and for how long."""

from __future__ import annotations

import pytest

from streamproc.core.signals.calls import CALLS_MAX
from streamproc.core.signals.novelty import SEEN_MAX, Novelty
from streamproc.core.signals.periods import ARTIFACTS, NO_STREAM, PERIOD_MAX, STATEMENTS, STEPS, Streams, loop_tag
from tests.feeding import Raw, halts, reported

START_MS = 1_767_225_600_000


def poll(answer: str, minute: int | None = None) -> Raw:
    turn = {"node": "agent", "tool_calls": [{"name": "poll", "args": {}, "result": answer}]}
    return turn if minute is None else turn | {"at": START_MS + minute * 60_000}


def other(n: int) -> Raw:
    return {"node": "agent", "tool_calls": [{"name": "read", "args": n, "result": f"text {n}"}]}


def pushed(stream: int, tags: str, streams: Streams | None = None) -> list[tuple[int, int]]:
    """Return the periods that are found: the length of each, and the element that completed it."""
    streams = streams or Streams()
    found = [(n, streams.push(stream, ord(tag), n)) for n, tag in enumerate(tags)]
    return [(period.length, n) for n, period in found if period is not None]


# News.


def test_a_thing_is_new_once() -> None:
    novelty = Novelty(Streams())
    assert [novelty.remember(tag) for tag in (1, 2, 1, 3, 2)] == [True, True, False, True, False]


def test_tags_that_keep_coming_back_are_kept() -> None:
    novelty = Novelty(Streams())
    novelty.remember(1)
    for tag in range(2, 2 + 3 * SEEN_MAX):
        novelty.remember(tag)
        assert not novelty.remember(1)
    assert len(novelty.seen) == SEEN_MAX
    assert novelty.remember(2)


# Periods.


@pytest.mark.parametrize("length", range(2, PERIOD_MAX + 1))
def test_every_period_is_found_when_its_second_round_is_complete(length: int) -> None:
    block = "abcdefghijklmnop"[:length]
    found = pushed(STATEMENTS, block * 3)
    assert found[0] == (length, 2 * length - 1)
    assert {period for period, _ in found} == {length}


def test_a_longer_period_is_not_found() -> None:
    assert pushed(STATEMENTS, "abcdefghijklmnopq" * 4) == []


def test_one_repeated_tag_is_not_a_period() -> None:
    assert pushed(STATEMENTS, "a" * 40) == []
    assert pushed(STATEMENTS, "ab" + "a" * 40) == []


def test_the_shortest_period_is_found() -> None:
    assert pushed(STATEMENTS, "abababab")[-1] == (2, 7)
    assert pushed(STATEMENTS, "aabaab")[-1] == (3, 5)


def test_one_other_tag_ends_a_period() -> None:
    assert pushed(STATEMENTS, "abaxbab") == []


@pytest.mark.parametrize(("stream", "own", "found"), [
    (STATEMENTS, NO_STREAM, False), (STATEMENTS, STATEMENTS, True), (STEPS, STEPS, True),
    (STEPS, STATEMENTS, False), (ARTIFACTS, NO_STREAM, True),
])  # fmt: skip
def test_a_round_with_news_from_another_stream_does_not_count(stream: int, own: int, found: bool) -> None:
    """Two elements, news, the same two again: the second round counts only if the news was one of the two."""
    streams = Streams()
    novelty = Novelty(streams)
    pushed(stream, "ab", streams)
    novelty.note_news(1, own)
    assert bool(pushed(stream, "ab", streams)) is found
    assert novelty.last_news == novelty.last_discovery == 1


def test_measured_progress_ends_every_period() -> None:
    streams = Streams()
    for stream in (STEPS, STATEMENTS, ARTIFACTS):
        pushed(stream, "ab", streams)
    Novelty(streams).note_progress(1)
    assert [pushed(stream, "ab", streams) for stream in (STEPS, STATEMENTS, ARTIFACTS)] == [[], [], []]


def test_a_loop_has_the_same_tag_whichever_element_comes_first() -> None:
    assert loop_tag([1, 2, 3]) == loop_tag([2, 3, 1]) == loop_tag([3, 1, 2])
    assert len({loop_tag(block) for block in ([1, 2, 3], [1, 3, 2], [1, 2], [1, 2, 2], [1, 1, 2], [2, 2, 1, 1])}) == 6


# Polls.


def test_a_poll_that_was_unchanged_for_an_hour_may_stay_unchanged_for_three() -> None:
    changed = [poll("1%", 0), poll("2%", 60)]
    assert reported([*changed, *(poll("2%", 60 + n) for n in range(1, 40))]) == []
    assert halts([*changed, *(poll("2%", 60 + 10 * n) for n in range(1, 40))]) == [("LOOP003", "halt", 19)]


def test_without_times_a_poll_may_repeat_its_answer_three_times_as_often_as_before() -> None:
    changed = [*[poll("1%")] * 2, *[poll("2%")] * 7, poll("3%")]
    assert halts([*changed, *[poll("3%")] * 30]) == [("LOOP003", "halt", 9 + 20)]


def test_a_poll_is_kept_while_other_calls_are_made() -> None:
    others = [other(n) for n in range(3 * CALLS_MAX)]
    assert reported([poll("1%"), poll("2%"), *others, *[poll("2%")] * 5]) == []
    assert halts([poll("2%"), *others, *[poll("2%")] * 5]) == [("LOOP003", "halt", 3 * CALLS_MAX + 3)]


def test_a_call_that_changes_after_other_news_is_not_a_poll() -> None:
    assert halts([poll("1%"), other(1), *[poll("2%")] * 3]) == [("LOOP003", "halt", 4)]


@pytest.mark.parametrize("between", range(2, 9))
def test_a_repeat_counts_within_ten_calls(between: int) -> None:
    """With more than three other known calls between them, the third repeat is beyond the last ten calls."""
    known = [other(n) for n in range(between)]
    trace = [*known, poll("x"), *reversed(known), poll("x"), *known, poll("x")]
    assert halts(trace) == ([("LOOP003", "halt", 3 * between + 2)] if between <= 3 else [])
