"""The publisher's buffer: its bounds, its order, and its evictions when it is full."""

from __future__ import annotations

from hypothesis import given, strategies as st

from streamproc.client.encoding import Encoded
from streamproc.client.outbox import Outbox


def add(outbox: Outbox, *keys: str, lasting: bool = False, value: bytes = b"v") -> int:
    return sum(outbox.add(Encoded("", key.encode(), value, None, lasting))[1] for key in keys)


def drain(outbox: Outbox) -> list[str]:
    drained = []
    for queue in outbox.queues:
        items = outbox.start_sending(queue, 10**9)
        drained += [item.key.decode() for item in items]
        outbox.remove_sent(queue, len(items))
    return drained


def test_events_are_sent_in_publishing_order() -> None:
    outbox = Outbox(10, 10**6)
    add(outbox, "a", "b")
    add(outbox, "started", lasting=True)
    add(outbox, "c")

    assert drain(outbox) == ["a", "b", "started", "c"]
    assert (outbox.events, outbox.bytes) == (0, 0)


def test_a_full_buffer_drops_its_oldest_turns() -> None:
    outbox = Outbox(3, 10**6)

    assert add(outbox, "a", "b", "c") == 0
    assert add(outbox, "d", "e") == 2
    assert drain(outbox) == ["c", "d", "e"]


def test_lasting_events_are_kept_longer_than_turns() -> None:
    outbox = Outbox(3, 10**6)
    add(outbox, "started", lasting=True)

    assert add(outbox, "a", "b", "c", "d") == 2
    assert drain(outbox) == ["started", "c", "d"]


def test_the_oldest_lasting_event_is_dropped_when_no_turn_is_left() -> None:
    outbox = Outbox(2, 10**6)
    add(outbox, "s1", "s2", lasting=True)

    assert add(outbox, "s3", lasting=True) == 1
    assert drain(outbox) == ["s2", "s3"]


def test_the_buffer_is_bounded_in_bytes() -> None:
    outbox = Outbox(1000, 100)
    add(outbox, *"abc", value=b"x" * 29)

    assert outbox.bytes == 90
    assert add(outbox, "d", value=b"x" * 59) == 2
    assert drain(outbox) == ["c", "d"]


def test_an_event_larger_than_the_buffer_drops_itself() -> None:
    outbox = Outbox(10, 100)

    assert add(outbox, "a", value=b"x" * 200) == 1
    assert (outbox.events, outbox.bytes) == (0, 0)


def test_events_being_sent_are_not_dropped_but_count() -> None:
    outbox = Outbox(2, 10**6)
    add(outbox, "a", "b")
    [queue] = outbox.queues
    outbox.start_sending(queue, 10**6)

    assert add(outbox, "c") == 1
    assert [item.key for item in queue.sending] == [b"a", b"b"]
    assert outbox.events == 2


def test_unacknowledged_events_return_to_their_place() -> None:
    outbox = Outbox(10, 10**6)
    add(outbox, "a")
    add(outbox, "s", lasting=True)
    add(outbox, "b", "c")
    [queue] = outbox.queues
    outbox.start_sending(queue, 10**6)
    outbox.remove_sent(queue, 1)
    queue.return_sending()

    assert drain(outbox) == ["s", "b", "c"]


def test_a_batch_has_at_least_one_event_and_respects_its_size_budget() -> None:
    outbox = Outbox(10, 10**6)
    add(outbox, "a", "b", "c", value=b"x" * 99)
    [queue] = outbox.queues

    assert len(outbox.start_sending(queue, 50)) == 1
    outbox.remove_sent(queue, 1)
    assert len(outbox.start_sending(queue, 200)) == 2


@given(
    st.lists(st.tuples(st.sampled_from("abcdefgh"), st.booleans()), max_size=60),
    st.integers(1, 8),
    st.integers(1, 20),
    st.integers(0, 60),
)
def test_key_order_and_bounds_survive_repartitioning(events, count: int, most: int, repartition_at: int) -> None:
    outbox = Outbox(most, 10**6)
    dropped = 0
    for number, (key, lasting) in enumerate(events):
        if number == repartition_at:
            outbox.start_sending(outbox.queues[0], 3)
            outbox.repartition(count, lambda key: key[0] % count)
        dropped += add(outbox, key, lasting=lasting, value=b"%d" % number)
        assert outbox.events <= most

    left = [item for queue in outbox.queues for item in outbox.start_sending(queue, 10**9)]
    assert len(left) + dropped == len(events)
    assert outbox.oldest() == min((item.number for item in left), default=outbox.newest)
    for key in "abcdefgh":
        numbers = [int(item.value) for item in left if item.key == key.encode()]
        assert numbers == sorted(numbers)
