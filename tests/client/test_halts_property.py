"""One without keys who writes whatever to the topics that a listener reads changes nothing.

A listener beside him that sees only the genuine records is the measure: after every step both know the same halted
runs, and an operator's resume lifts the halt. `attacker.py` says what each of them writes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiokafka import TopicPartition
from hypothesis import HealthCheck, given, settings as hypothesis_settings, strategies as st

from streamproc.client import HaltListener
from streamproc.settings import load_settings
from tests.client.attacker import RUNS, Attacker, Life, story
from tests.fleet.signing import NOON_MS, OPERATOR_PUBLIC, WORKER_PUBLIC

if TYPE_CHECKING:
    Record = Any

KEYS = load_settings(command_key=OPERATOR_PUBLIC.line(), control_key=WORKER_PUBLIC.line())


class Reader:
    """A listener, given records as its consumer gives them."""

    def __init__(self, *, late: bool = False) -> None:
        self.listener = HaltListener(settings=KEYS)
        self._consumer = self.listener._consumer
        self._subscription = self.listener.subscribe(unverified=True)
        if not late:
            self.caught_up()

    async def read(self, role: str, one: Record) -> None:
        """Read one record."""
        await self._consumer._apply({TopicPartition(f"streamproc.{role}", one.partition): [one]})

    def caught_up(self) -> None:
        """All that was there at the start is read."""
        self._consumer._snapshot()

    @property
    def halted(self) -> set[str]:
        """The runs that must stop."""
        return {run_id for run_id in RUNS if self.listener.error(run_id) is not None}


def run(coroutine: Any) -> Any:
    """Run what never waits."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


LIMITED = hypothesis_settings(
    max_examples=200, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@pytest.mark.long
@LIMITED
@given(data=st.data())
def test_live_listeners_know_the_same_halts_whatever_one_without_keys_writes(data: st.DataObject) -> None:
    lives, written = story(data.draw)
    attacked, measure, attacker = Reader(), Reader(), Attacker(data.draw)
    at_ms = NOON_MS
    queue = list(written)
    while queue:
        number = data.draw(st.integers(0, min(4, len(queue) - 1)))  # the order of a topic is kept, no other one
        number = next(n for n, one in enumerate(queue) if one[1] == queue[number][1])
        at, role, one = queue.pop(number)
        at_ms = max(at_ms, at)
        run(measure.read(role, one))
        run(attacked.read(role, one))
        attacker.seen.append((role, one))
        for _ in range(data.draw(st.integers(0, 3))):
            run(attacked.read(*attacker.write(at_ms)))
            assert attacked.halted == measure.halted
        assert attacked.halted == measure.halted
    assert measure.halted == {life.run_id for life in lives if life.stops}
    finish(lives, at_ms, attacker, attacked, measure)


@pytest.mark.long
@LIMITED
@given(data=st.data())
def test_listeners_that_start_later_know_the_same_halts(data: st.DataObject) -> None:
    lives, written = story(data.draw)
    attacker = Attacker(data.draw)
    stored: dict[tuple[str, int], list[Record]] = {}
    genuine = list(written)
    at_ms = NOON_MS
    for at_ms, role, one in written:
        stored.setdefault((role, one.partition), []).append(one)
        attacker.seen.append((role, one))
        for _ in range(data.draw(st.integers(0, 2))):
            to, forged = attacker.write(at_ms)
            stored.setdefault((to, forged.partition), []).append(forged)
    attacked, measure = Reader(late=True), Reader(late=True)
    for wanted in ("commands", "runs"):  # in this order; partitions in any
        for _, role, one in genuine:
            if role == wanted:
                run(measure.read(role, one))
        queues = {place: list(queue) for place, queue in stored.items() if place[0] == wanted}
        while queues:
            place = data.draw(st.sampled_from(sorted(queues)))
            run(attacked.read(wanted, queues[place].pop(0)))
            if not queues[place]:
                del queues[place]
    for reader in (attacked, measure):
        reader.caught_up()
    assert attacked.halted == measure.halted
    assert measure.halted == {life.run_id for life in lives if life.stops}
    finish(lives, at_ms, attacker, attacked, measure)


def finish(lives: list[Life], at_ms: int, attacker: Attacker, *readers: Reader) -> None:
    """The attacker goes on, then operators resume what is halted, and it is released."""
    attacked = readers[0]
    before = attacked.halted
    for _ in range(3):
        run(attacked.read(*attacker.write(at_ms)))
        assert attacked.halted == before
    for life in lives:
        at_ms += 1_000
        steps = ["obey", "resume"] if life.killed and not life.halt else ["resume"]
        for what in steps if life.stops else ():
            for role, one in life.step(what, at_ms):
                attacker.seen.append((role, one))
                for reader in readers:
                    run(reader.read(role, one))
                run(attacked.read(*attacker.write(at_ms)))
    for reader in readers:
        assert reader.halted == set()
