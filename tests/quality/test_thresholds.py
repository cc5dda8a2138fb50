"""The simple, slow definitions that label planted loops."""

from __future__ import annotations

import pytest

from benchmarks.quality.traces.thresholds import earliest, full_periods_at, repeated_call_at, stuck_poll_at


@pytest.mark.parametrize(
    ("steps", "known", "at"),
    [
        ("aaa", "", 2),
        ("aa", "", None),
        ("aba", "", None),  # b is new after the first a
        ("abaa", "", None),  # and only two follow it
        ("abaaa", "", 4),
        ("ababa", "b", 4),  # a known call in between is nothing new
        ("abbabba", "b", 4),  # the known call itself occurs for the third time
        ("aabbaabba", "", 6),
        ("a" + "bcdefghi" + "a" + "a", "bcdefghi", None),  # the first is more than ten calls ago
        ("a" + "bcdefgh" + "aa", "bcdefgh", 9),
    ],
)
def test_three_equal_answers_within_ten_calls_and_nothing_new(steps: str, known: str, at: int | None) -> None:
    assert repeated_call_at(steps, known) == at


def test_a_call_may_need_more_than_three() -> None:
    assert repeated_call_at("aaaaa", more={"a": 5}) == 4


@pytest.mark.parametrize(
    ("steps", "periods", "at"),
    [
        ("abab", 2, 3),
        ("abab", 3, None),
        ("xabcabc", 2, 6),
        ("ababab", 3, 5),
        ("aaaaaa", 2, None),  # a repeat, not an oscillation
        ("aabaab", 2, 5),
        ("abcdefghijklmnop" * 2, 2, 31),
        ("abcdefghijklmnopq" * 2, 2, None),  # seventeen
    ],
)
def test_full_periods_of_two_to_sixteen_steps(steps: str, periods: int, at: int | None) -> None:
    assert full_periods_at(steps, periods) == at


def test_the_earliest_threshold_counts() -> None:
    assert earliest(None, 7, 5) == 5
    with pytest.raises(AssertionError, match="none of its thresholds"):
        earliest(None, None)


def test_a_poll_may_repeat_its_answer_ten_times_and_three_times_as_often_as_before() -> None:
    assert stuck_poll_at([1, 2, 3]) == 10
    assert stuck_poll_at([1, 5]) == 15
