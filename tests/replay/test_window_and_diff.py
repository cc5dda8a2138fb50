"""The part of a log between two times, and what is compared of it."""

from __future__ import annotations

import pytest

from streamproc.core.decision import Decision, Trigger, encode_decision
from streamproc.fleet.command_events import state_event
from streamproc.fleet.issuing import new_command
from streamproc.fleet.state import Fleet
from streamproc.kafka.reading import Extent
from streamproc.replay.diff import Carried, compare, read_carried
from streamproc.replay.window import LogWindow
from tests.replay.records import record

WHOLE = {0: Extent(0, 100), 1: Extent(50, 100)}


def decision(name: str, partition: int = 0, offset: int = 10) -> Decision:
    trigger = Trigger(turn=1, topic="t.turns", partition=partition, offset=offset)
    return Decision(
        id=name, type="loop.halted", run_id="r", code="LOOP001", severity="halt", message="Again.", trigger=trigger
    )


def carried(name: str, partition: int = 0, offset: int = 10) -> Carried:
    found = read_carried(encode_decision(decision(name, partition, offset)))
    assert found is not None
    return found


def diff(decided: list[Decision], on_topic: list[Carried], committed: int = 100):
    return compare(decided, on_topic, WHOLE, {0: committed, 1: committed})


def test_the_same_on_both_sides_agrees() -> None:
    found = diff([decision("a"), decision("b", 1, 60)], [carried("b", 1, 60), carried("a")])

    assert (found.same, found.agrees) == (2, True)


def test_what_is_not_carried_is_missing_where_the_workers_have_passed() -> None:
    found = diff([decision("a", offset=10), decision("b", offset=40)], [], committed=20)

    assert [one.id for one in found.missing] == ["a"]
    assert [one.id for one in found.pending] == ["b"]
    assert not found.agrees


def test_what_is_only_carried_is_extra_within_the_log_and_beyond_outside_of_it() -> None:
    found = diff([], [carried("a"), carried("b", 1, 49), carried("c", 1, 100), carried("d", 7, 0)])

    assert [one.id for one in found.extra] == ["a"]
    assert {one.id for one in found.beyond} == {"b", "c", "d"}
    assert not found.agrees


def test_an_order_to_the_fleet_is_not_of_this_log() -> None:
    order = new_command(Fleet(), "STOP", "fleet", "ada", "enough")
    told_of_it = read_carried(encode_decision(state_event(order)))
    assert told_of_it is not None

    assert diff([decision("a")], [carried("a"), told_of_it]) == diff([decision("a")], [carried("a")])


def test_a_repeat_with_the_same_id_is_counted_and_harmless() -> None:
    found = diff([decision("a")], [carried("a"), carried("a")])

    assert (found.same, found.twice, found.agrees) == (1, 1, True)


@pytest.mark.parametrize("value", [None, b"", b"nonsense", b"{}", b'{"id": 7}'])
def test_what_is_no_control_event_is_not_read(value: bytes | None) -> None:
    assert read_carried(value) is None


def times(*pairs: tuple[int, int]) -> list:
    return [record({}, offset=offset, at_ms=at_ms) for offset, at_ms in pairs]


def test_without_bounds_the_window_is_the_log() -> None:
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


def test_a_log_out_of_order_is_taken_from_the_first_to_the_last_within() -> None:
    window = LogWindow(WHOLE, 20, None)
    window.see(times((1, 30), (2, 10), (3, 25), (4, 5)))

    assert window.extents == {0: Extent(1, 4)}
