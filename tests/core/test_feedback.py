"""Feedback on a halt: an event of the log that changes nothing in the run it is about."""

from __future__ import annotations

from tests.feeding import Feed, Raw, event_of

STUCK: list[Raw] = [{"node": "coder", "output": "I will try again."}] * 3
NOON_MS = 1_769_860_800_000


def judged(**fields: object) -> Raw:
    return {"type": "feedback", "verdict": "false-alarm", "by": "ada", "event_id": "f1", **fields}


def test_feedback_leaves_the_state_as_it_was() -> None:
    feed = Feed()
    feed.all(STUCK)
    before = feed.stored

    assert feed.raw(judged(at=NOON_MS + 86_400_000)) == []

    assert feed.stored == before


def test_feedback_on_a_run_without_events_begins_nothing() -> None:
    feed = Feed()

    feed.raw(judged(at=NOON_MS))

    assert (feed.state.started_ms, feed.state.at_ms, feed.state.turns) == (0, 0, 0)


def test_feedback_needs_no_token_and_binds_no_run() -> None:
    feed = Feed()
    event = event_of({"run_id": "r", "node": "coder", "output": "x"})
    event.token = "t1"
    feed.engine.step(feed.state, event_of({"run_id": "r", **judged()}), NOON_MS)

    feed.engine.step(feed.state, event, NOON_MS)

    assert (feed.state.turns, feed.state.strangers) == (1, 0)
