"""Queries that differ by a word: one more is near, another one is not, whatever the words are."""

from __future__ import annotations

import random
from typing import Any

import pytest

from streamproc.policy import load_policy
from tests.feeding import reported

PLANNER = load_policy("planner")
LETTERS = "abcdefghijklmnoprstuvw"


def is_near(first: list[str], second: list[str]) -> bool:
    """Whether the second of two queries is taken for the first; both get the same answer."""
    turns: list[dict[str, Any]] = [
        {"node": "researcher", "query": " ".join(words), "output": "They sing."} for words in (first, second)
    ]
    return "LOOP007" in [one.code for one in reported(turns, PLANNER)]


@pytest.mark.parametrize(("second", "near"), [
    ("to Rome from Paris, flights", True),
    ("the flights from Paris to Rome", True),
    ("flights from Rome to Paris", False),
    ("flights to Paris from Rome", False),
    ("flights from Paris to", True),
])  # fmt: skip
def test_from_here_to_there_is_not_from_there_to_here(second: str, near: bool) -> None:
    first = "flights from Paris to" if second.endswith("to") else "flights from Paris to Rome"
    assert is_near(first.split(), second.split()) == near


@pytest.mark.parametrize("size", [2, 4, 8])
def test_a_word_more_is_near_and_another_word_is_not(size: int) -> None:
    dice = random.Random(size)
    near = {"more": 0, "other": 0, "both": 0}
    for _ in range(200):
        words = ["".join(dice.choices(LETTERS, k=6)) for _ in range(size + 2)]
        base = words[:size]
        near["more"] += is_near(base, dice.sample(words[:-1], size + 1))
        near["both"] += is_near(base, [*base[1:], *words[size:]])
        near["other"] += is_near(base, [*base[1:], words[size]])
    assert near["more"] == 200, "in any order"
    assert near["other"] == 0
    assert near["both"] <= 20, "one word more and another one: a tenth at most share their bits by chance"
