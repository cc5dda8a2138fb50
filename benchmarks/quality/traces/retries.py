"""Healthy retries: the infrastructure fails for a while, then recovers."""

from __future__ import annotations

from typing import Final

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate

TROUBLE: Final = (
    "HTTP 429 Too Many Requests", "Error code: 503 - Service Unavailable", "502 Bad Gateway",
    "rate limit exceeded, try again later", "connection timed out", "status 529: overloaded_error",
    "504 Gateway Timeout", "read ECONNRESET",
)  # fmt: skip
RETRIES_MAX: Final = 9  # the tenth in a row triggers a pause


def after_trouble(script: Script) -> None:
    """The same call until the service is back."""
    args = {"prompt": script.words.sentence()}
    trouble = script.dice.choice(TROUBLE)
    for _ in range(script.times(2, RETRIES_MAX)):
        narrate(script, 0.2)
        script.fail("llm", args, trouble)
    script.call("llm", args, script.words.text(2))


def reported_as_errors(script: Script) -> None:
    """The same infrastructure error, reported as the error of a turn."""
    trouble = script.dice.choice(TROUBLE)
    for _ in range(script.times(2, RETRIES_MAX)):
        script.add({"node": script.agent, "errors": [{"message": trouble}]})
    finding(script)


def declared_retryable(script: Script) -> None:
    """A retryable error of a kind that only its service recognises."""
    args, error = {"id": script.words.name()}, f"lease held by {script.words.noun()}"
    for _ in range(script.times(2, RETRIES_MAX)):
        made = {"name": "acquire", "args": args, "error": error, "retryable": True}
        script.add({"node": script.agent, "tool_calls": [made]})
    script.call("acquire", args, "acquired")


def delivered_again(script: Script) -> None:
    """A producer retries: repeated event ids are the same events."""
    for number in range(script.times(2, 6)):
        position = script.next
        finding(script)
        script.redeliver(f"{position}:{number}", script.times(1, 4))


def trouble_now_and_then(script: Script) -> None:
    """An overloaded service, over many different calls."""
    for _ in range(script.times(4, 12)):
        args = {"query": script.words.query()}
        for _ in range(script.times(0, 3)):
            script.fail("search", args, script.dice.choice(TROUBLE))
        script.call("search", args, script.words.text(2))


FRAGMENTS = (
    after_trouble, reported_as_errors, declared_retryable, delivered_again, trouble_now_and_then,
)  # fmt: skip
