"""Commands that a worker issues again: they take the place of the first one, and of no later one."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterable

import pytest
from hypothesis import given, settings, strategies as st

from streamproc.errors import InvalidEvent
from streamproc.fleet.issuing import restatement
from streamproc.fleet.state import Fleet, new_command
from streamproc.model.fleet_command import FleetCommand, Status, encode_command, read_command

T0 = 1_769_860_800_000
CLOCKS = st.integers(T0 - 300_000, T0 + 300_000)  # of operators and workers, which differ
PAIRS: list[tuple[Status, Status]] = [("CLEAR", "STOP"), ("STOP", "CLEAR"), ("CLEAR", "PAUSE"), ("PAUSE", "STOP")]


def command(status: Status, at: int, since: int = 0) -> FleetCommand:
    return FleetCommand(w=1, id=f"{status}/{at}/{since}", status=status, scope="fleet", at=at, since=since, by="ada")


def read(log: Iterable[FleetCommand]) -> Fleet:
    """The state of a reader of this log, which refuses what is outdated."""
    fleet = Fleet()
    for one in log:
        with contextlib.suppress(InvalidEvent):
            fleet.apply(read_command(encode_command(one), one.scope.encode()))
    return fleet


@settings(deadline=None, derandomize=True)
@given(
    pair=st.sampled_from(PAIRS),
    first_ms=CLOCKS,
    clocks=st.lists(CLOCKS, max_size=5),
    known=st.integers(0, 5),
    stop_ms=CLOCKS,
    order=st.randoms(use_true_random=False),
    compacted=st.booleans(),
)
def test_a_later_command_stands_in_any_interleaving_with_restatements_of_the_earlier_one(
    pair: tuple[Status, Status],
    first_ms: int,
    clocks: list[int],
    known: int,
    stop_ms: int,
    order: random.Random,
    compacted: bool,
) -> None:
    first = new_command(Fleet(), pair[0], "fleet", "ada", "", now_ms=first_ms)
    restated = [first]
    for clock_ms in clocks:  # each of the standing one, which may be restated already
        restated.append(restatement(restated[order.randrange(len(restated))], clock_ms))
    stop = new_command(read(restated[: known + 1]), pair[1], "fleet", "bob", "", now_ms=stop_ms)
    arriving = [*restated[1:], stop]
    order.shuffle(arriving)
    log = [first, *arriving]
    if compacted:
        del log[: log.index(stop)]

    fleet = read(log)

    assert fleet.command == stop
    again = restatement(stop, T0)
    assert read([*log, again, *restated]).command == again


@settings(deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.sampled_from(["STOP", "PAUSE", "CLEAR"]), CLOCKS, CLOCKS), min_size=1, max_size=8))
def test_the_command_issued_last_stands_in_any_log_of_commands_and_restatements(
    log: list[tuple[Status, int, int]],
) -> None:
    commands = [command(status, max(at, since), since if at > since else 0) for status, at, since in log]
    fleet = read(commands)
    assert fleet.command is not None
    assert fleet.command.order_ms == max(one.order_ms for one in commands)


def test_restatements_of_several_workers_change_nothing() -> None:
    stop = new_command(Fleet(), "STOP", "user:eve", "ada", "abuse", now_ms=T0)
    again = [restatement(stop, T0 + number) for number in (5, 5, 3)]
    again.append(restatement(again[0], T0 + 9))
    fleet = read([stop, *again])

    assert {one.order_ms for one in again} == {T0}
    assert [one.at for one in again] == [T0 + 5, T0 + 5, T0 + 3, T0 + 9]
    assert len({one.id for one in (stop, *again)}) == 5
    assert (again[0].by, again[0].why) == ("ada", "abuse")
    assert fleet.killing("eve", "") == again[-1]
    assert read([stop, *again, new_command(fleet, "CLEAR", "user:eve", "ada", "", now_ms=0)]).kills is False


def test_a_restatement_of_a_command_from_a_clock_that_is_ahead_is_valid() -> None:
    stop = new_command(Fleet(), "STOP", "fleet", "ada", "", now_ms=T0)
    again = restatement(stop, T0 - 60_000)
    assert (again.at, again.since) == (T0, T0)
    assert read([stop, again]).command == again


def test_a_worker_whose_clock_is_ahead_does_not_push_the_times_of_later_commands() -> None:
    stop = new_command(Fleet(), "STOP", "fleet", "ada", "", now_ms=T0)
    fleet = read([stop, restatement(stop, T0 + 60_000)])
    assert new_command(fleet, "CLEAR", "fleet", "ada", "", now_ms=T0 + 5).at == T0 + 5


def test_a_restatement_that_names_the_time_of_another_command_does_not_override_it() -> None:
    fleet = read([command("STOP", T0)])
    with pytest.raises(InvalidEvent, match=r"since: older than the STOP that ada has issued"):
        fleet.apply(command("CLEAR", T0 + 9, since=T0))
    assert fleet.apply(command("CLEAR", T0))  # two operators in one millisecond: the later record stands
