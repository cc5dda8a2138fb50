"""The tests for literals that come before a pattern never hide what the pattern would find."""

from __future__ import annotations

import random
from functools import cache
from typing import Final

import pytest

from streamproc.fingerprint.calls import (
    _ANSWER_BEGINS,
    _ERROR_HEAD,
    _HUNG_BEGINS,
    _RETRYABLE,
    _RETRYABLE_ANSWER,
    _RETRYABLE_HINTS,
    RETRYABLE_ANSWER_MAX,
    _is_retryable_answer,
    looks_retryable,
)

PARTS: Final = (
    "429", "500", "502", "503", "504", "529", " ", "too many requests", "timed out: ", "timed out. ", "unavailable",
    "gateway", "bad gateway", "overloaded",
    "overloaded_error", "rate limit", "rate_limit_error", "rate limited", "time-out", "timeout", "timed out",
    "did not respond",
    "has not returned", "doesn't return", "error", "Error code: ", "status", "HTTP/1.1 ", "code", "exception",
    "service ",
    "temporarily ", "deadline exceeded", "ETIMEDOUT", "ECONNRESET", "connection ", "request ", "the ", "tool ",
    "bash ",
    "shell ", "shell timed out", "terminal", "command ", "kernel ", "sandbox ", "server ", "line ", " of", " ", "  ",
    ": ", "(", "_", "\n", "é",
    "\u017fervice unavailable", "\u212aernel timed out", "\u0130", "x", "7", "limit", "reached",
    "internal server error",
)  # fmt: skip


@cache
def texts(seed: int, count: int) -> list[str]:
    dice = random.Random(seed)
    found = ["".join(dice.choices(PARTS, k=dice.randrange(1, 6))) for _ in range(count)]
    return [text.upper() if dice.random() < 0.1 else text for text in found]


def test_no_infrastructure_error_is_missed() -> None:
    matched = 0
    for text in texts(seed=3, count=30_000):
        expected = _RETRYABLE.search(text[:_ERROR_HEAD]) is not None
        assert looks_retryable(text) == expected, text
        matched += expected
    assert matched > 3_000


def test_no_answer_that_is_only_an_infrastructure_error_is_missed() -> None:
    matched = 0
    for text in texts(seed=4, count=60_000):
        expected = len(text) <= RETRYABLE_ANSWER_MAX and _RETRYABLE_ANSWER.match(text) is not None
        assert _is_retryable_answer(text) == expected, text
        matched += expected
    assert matched > 3_000


@pytest.mark.parametrize("hint", _RETRYABLE_HINTS)
def test_each_hint_is_needed(hint: str) -> None:
    """There is an error in which no other one is."""
    others = [other for other in _RETRYABLE_HINTS if other != hint]
    found = [text for text in texts(seed=3, count=30_000) if hint in text.lower() and _RETRYABLE.search(text)]
    assert any(not any(other in text.lower() for other in others) for text in found)


@pytest.mark.parametrize("begin", [*_ANSWER_BEGINS, *_HUNG_BEGINS])
def test_each_beginning_is_needed(begin: str) -> None:
    found = [text for text in texts(seed=4, count=60_000) if text.lower().startswith(begin)]
    assert any(_RETRYABLE_ANSWER.match(text) for text in found)
