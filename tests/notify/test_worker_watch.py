"""When people are told that workers do not decide, or that the broker does not answer: once each, and once that it is
over."""

from __future__ import annotations

from streamproc.fleet.watching import Watching
from streamproc.fleet.workers import UnwatchedPartition, WatchName, WatchState
from streamproc.notify.triggers import trigger_of
from streamproc.notify.worker_watch import WorkerWatch

NOW_MS = 1_700_000_000_000


def found(name: WatchName = "watching", *partitions: int, for_s: float = 0) -> Watching:
    unwatched = tuple(UnwatchedPartition(number, NOW_MS) for number in partitions)
    return Watching(WatchState(name, NOW_MS if name == "unwatched" else 0, for_s), unwatched, (), None, 4, ())


def kinds(*steps: tuple[float, Watching]) -> list[str]:
    watch = WorkerWatch()
    told = [(watch.step(one, at_s), one) for at_s, one in steps]
    for kind, one in told:
        if kind:
            assert trigger_of(watch.event(kind, one, NOW_MS)) is not None
    return [kind for kind, _ in told]


def test_a_fleet_without_workers_is_told_once_at_once_and_once_that_it_is_over() -> None:
    gone = found("unwatched")
    assert kinds((1, found("unknown")), (2, gone), (3, gone), (4, found()), (5, found())) == [
        "", "fleet_unwatched", "", "fleet_watched", "",
    ]  # fmt: skip


def test_partitions_without_a_worker_are_told_after_a_takeover_should_have_ended() -> None:
    one = found("watching", 2)
    assert kinds((1, one), (30, one), (31, one), (40, found()), (41, one), (70, one), (71, one)) == [
        "", "", "fleet_partition_unwatched", "fleet_watched", "", "", "fleet_partition_unwatched",
    ]  # fmt: skip


def test_a_broker_that_does_not_answer_is_told_after_half_a_minute() -> None:
    steps = [(at_s, found("disconnected", for_s=at_s)) for at_s in (1, 29.9, 30, 60)]
    assert kinds(*steps, (61, found("unwatched")), (62, found("disconnected", for_s=1)), (63, found())) == [
        "", "", "fleet_disconnected", "", "fleet_unwatched", "", "fleet_watched",
    ]  # fmt: skip


def test_a_short_outage_of_the_broker_is_not_told() -> None:
    assert kinds((1, found()), (2, found("disconnected", for_s=29)), (3, found())) == ["", "", ""]
