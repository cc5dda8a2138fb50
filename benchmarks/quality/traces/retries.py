"""Honest trying again: what failed is the infrastructure, and then it works."""

from __future__ import annotations

from typing import Final

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate

TROUBLE: Final = (
    "HTTP 429 Too Many Requests", "Error code: 503 - Service Unavailable", "502 Bad Gateway",
    "rate limit exceeded, try again later", "connection timed out", "status 529: overloaded_error",
    "504 Gateway Timeout", "read ECONNRESET",
)  # fmt: skip
RETRIES_MAX: Final = 9  # the tenth in a row is one too many


def after_trouble(script: Script) -> None:
    """The same call until the service is back."""
    args = {"prompt": script.words.sentence()}
    trouble = script.dice.choice(TROUBLE)
    for _ in range(script.times(2, RETRIES_MAX)):
        narrate(script, 0.2)
        script.fail("llm", args, trouble)
    script.call("llm", args, script.words.text(2))


def reported_as_errors(script: Script) -> None:
    """The same trouble, reported as the error of a turn."""
    trouble = script.dice.choice(TROUBLE)
    for _ in range(script.times(2, RETRIES_MAX)):
        script.add({"node": script.agent, "errors": [{"message": trouble}]})
    finding(script)


def declared_retryable(script: Script) -> None:
    """Trouble of a kind that only its own service knows."""
    args, error = {"id": script.words.name()}, f"lease held by {script.words.noun()}"
    for _ in range(script.times(2, RETRIES_MAX)):
        made = {"name": "acquire", "args": args, "error": error, "retryable": True}
        script.add({"node": script.agent, "tool_calls": [made]})
    script.call("acquire", args, "acquired")


def delivered_again(script: Script) -> None:
    """A producer in trouble sends what it has sent: the same event ids, which are the same events."""
    for number in range(script.times(2, 6)):
        position = script.next
        finding(script)
        script.redeliver(f"{position}:{number}", script.times(1, 4))


def trouble_now_and_then(script: Script) -> None:
    """A service that is short of breath, over many different calls."""
    for _ in range(script.times(4, 12)):
        args = {"query": script.words.query()}
        for _ in range(script.times(0, 3)):
            script.fail("search", args, script.dice.choice(TROUBLE))
        script.call("search", args, script.words.text(2))


FRAGMENTS = (
    after_trouble, reported_as_errors, declared_retryable, delivered_again, trouble_now_and_then,
)  # fmt: skip
