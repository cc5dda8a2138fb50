"""Why an answer ended: the words of model APIs and frameworks for the usual end are none."""

from __future__ import annotations

import pytest

from streamproc.fingerprint.reviews import stop_reason


@pytest.mark.parametrize(
    "word",
    [
        "stop", "end_turn", "tool_use", "tool_calls", "function_call", "function_calls", "STOP", "FinishReason.STOP",
        "completed", "stop_sequence", "pause_turn", "",
    ],
)  # fmt: skip
def test_the_usual_end_has_no_reason(word: str) -> None:
    """AutoGen calls it `function_calls`."""
    assert stop_reason(word.rpartition(".")[2], is_empty=False) == ""


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("length", "length"), ("max_tokens", "length"), ("MAX_TOKENS", "length"), ("refusal", "refusal"),
        ("malformed_function_call", "malformed"),
    ],
)  # fmt: skip
def test_another_end_has_its_reason(word: str, said: str) -> None:
    assert stop_reason(word, is_empty=False) == said
