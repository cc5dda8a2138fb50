"""The part of a log between two times, and the comparison with the control topic."""

from __future__ import annotations

import pytest

from streamproc.core.decision import Decision, Trigger, encode_decision
from streamproc.fleet.command_events import state_event
from streamproc.fleet.issuing import new_command
from streamproc.fleet.state import Fleet
from streamproc.kafka.reading import Extent
from streamproc.replay.diff import PublishedDecision, compare, read_published
from streamproc.replay.window import LogWindow
from tests.replay.records import record

WHOLE = {0: Extent(0, 100), 1: Extent(50, 100)}


def decision(name: str, partition: int = 0, offset: int = 10) -> Decision:
    trigger = Trigger(turn=1, topic="t.turns", partition=partition, offset=offset)
    return Decision(
        id=name, type="loop.halted", run_id="r", code="LOOP001", severity="halt", message="Again.", trigger=trigger
    )


def published(name: str, partition: int = 0, offset: int = 10) -> PublishedDecision:
    found = read_published(encode_decision(decision(name, partition, offset)))
    assert found is not None
    return found


def diff(decided: list[Decision], on_topic: list[PublishedDecision], committed: int = 100):
    return compare(decided, on_topic, WHOLE, {0: committed, 1: committed})


def test_the_same_decisions_on_both_sides_agree() -> None:
    found = diff([decision("a"), decision("b", 1, 60)], [published("b", 1, 60), published("a")])

    assert (found.same, found.agrees) == (2, True)


def test_an_unpublished_decision_is_missing_once_the_workers_have_committed_its_turn() -> None:
    found = diff([decision("a", offset=10), decision("b", offset=40)], [], committed=20)

    assert [one.id for one in found.missing] == ["a"]
    assert [one.id for one in found.pending] == ["b"]
    assert not found.agrees


def test_a_decision_only_on_the_control_topic_is_extra_within_the_log_and_outside_otherwise() -> None:
    found = diff([], [published("a"), published("b", 1, 49), published("c", 1, 100), published("d", 7, 0)])

    assert [one.id for one in found.extra] == ["a"]
    assert {one.id for one in found.outside} == {"b", "c", "d"}
    assert not found.agrees


def test_a_fleet_command_is_not_compared() -> None:
    command = new_command(Fleet(), "STOP", "fleet", "ada", "enough")
    state = read_published(encode_decision(state_event(command)))
    assert state is not None

    assert diff([decision("a")], [published("a"), state]) == diff([decision("a")], [published("a")])


def test_a_repetition_with_the_same_id_is_counted_and_harmless() -> None:
    found = diff([decision("a")], [published("a"), published("a")])

    assert (found.same, found.repeated, found.agrees) == (1, 1, True)


@pytest.mark.parametrize("value", [None, b"", b"nonsense", b"{}", b'{"id": 7}'])
def test_a_record_that_is_not_a_control_event_is_not_read(value: bytes | None) -> None:
    assert read_published(value) is None


def times(*pairs: tuple[int, int]) -> list:
    return [record({}, offset=offset, at_ms=at_ms) for offset, at_ms in pairs]


def test_without_bounds_the_window_is_the_whole_log() -> None:
    window = LogWindow(WHOLE, None, None)
    window.see(times((0, 5)))

    assert window.extents == WHOLE
    assert window.holds(decision("a"))


def test_bounds_are_inclusive_and_become_offsets() -> None:
    window = LogWindow(WHOLE, 20, 30)
    window.see(times((1, 10), (2, 20), (3, 25), (4, 30), (5, 31)))

    assert window.extents == {0: Extent(2, 5)}
    assert window.holds(decision("a", offset=4))
    assert not window.holds(decision("a", offset=5))
    assert not window.holds(decision("a", partition=1, offset=60))


def test_in_a_log_out_of_order_the_window_spans_the_first_to_the_last_match() -> None:
    window = LogWindow(WHOLE, 20, None)
    window.see(times((1, 30), (2, 10), (3, 25), (4, 5)))

    assert window.extents == {0: Extent(1, 4)}
