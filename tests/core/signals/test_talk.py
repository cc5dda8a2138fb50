"""Text-only streaks and replies to people: what counts, and what ends them."""

from __future__ import annotations

from typing import Final

import pytest

from tests.feeding import Feed, Raw

CALL: Final[Raw] = {"node": "agent", "tool_calls": [{"name": "run", "args": {}, "result": "no"}]}
ASKED: Final[Raw] = {"type": "user.message"}
AGAIN: Final[Raw] = {"node": "agent", "output": "I am sorry, could you rephrase that?"}


def text(number: int) -> Raw:
    return {"node": "agent", "output": f"Remark {number} about the trouble."}


def streak(*raws: Raw) -> int:
    """Return the length of the text-only streak after these events."""
    feed = Feed()
    feed.all(raws)
    feed.restart()
    found = feed.state.text_streak
    return found.count if found is not None else 0


@pytest.mark.parametrize("between", [
    CALL, ASKED, CALL | {"node": "worker"}, {"node": "worker", "artifact": "+a"},
    {"node": "worker", "tests": {"failed": [], "passed": 1, "total": 1}}, {"node": "worker", "output": "Yes?"},
    {"node": "router", "decision": {"next": "agent"}}, {"node": "user", "output": "Go on."},
    {"type": "task.transition", "task_id": "T1", "from": "ready", "to": "in_progress"},
    text(9) | {"structured_output": {"a": 1}}, text(9) | {"query": "What is it?"}, text(9) | {"round": 2},
    text(9) | {"decision": {"next": "worker"}},
], ids=str)  # fmt: skip
def test_any_evidence_of_work_ends_a_text_only_streak(between: Raw) -> None:
    assert streak(CALL, text(1), text(2)) == 2
    assert streak(CALL, text(1), text(2), between, text(3)) == 1


def test_a_turn_without_evidence_ends_no_streak() -> None:
    assert streak(CALL, text(1), {"node": "agent", "usage": {"total_tokens": 9}}, text(2)) == 2


def test_a_text_about_another_task_starts_another_streak() -> None:
    assert streak(CALL, text(1), text(2) | {"task_id": "T2"}) == 1


def replies(*raws: Raw) -> int:
    """Return how many equal replies in a row the node has given."""
    feed = Feed()
    feed.all(raws)
    feed.restart()
    found = feed.state.nodes.find(feed.engine.names.tag("agent")).reply
    return found.count


def test_equal_replies_to_other_messages_are_counted() -> None:
    assert replies(ASKED, AGAIN, ASKED, AGAIN, ASKED, AGAIN) == 3


def test_the_same_message_again_is_no_other_message() -> None:
    hello = {"node": "user", "output": "Hello?"}
    assert replies(hello, AGAIN, hello, AGAIN) == 1
    assert replies(hello, AGAIN, hello | {"output": "Is that all?"}, AGAIN) == 2


def test_two_equal_replies_to_one_message_count_once() -> None:
    assert replies(ASKED, AGAIN, AGAIN, AGAIN) == 1


@pytest.mark.parametrize("between", [
    CALL, CALL | {"node": "worker"}, {"node": "worker", "artifact": "+a"}, {"node": "worker", "progress": {"done": 3}},
    {"node": "agent", "output": "Your order is on its way."},
], ids=str)  # fmt: skip
def test_work_or_another_reply_starts_the_count_again(between: Raw) -> None:
    assert replies(ASKED, AGAIN, ASKED, AGAIN, between, ASKED, AGAIN) == 1
