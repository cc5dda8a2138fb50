"""The current statuses of working runs: seconds old for people, never read by guards, never a word against a halt."""

from __future__ import annotations

from typing import Any

import pytest

from streamproc.fleet.keyring import new_keys
from streamproc.kafka import topics as kafka_topics
from streamproc.model.controls import RunStatus
from streamproc.policy import load_policy
from streamproc.replay.published import LatestStatuses, status_of_run, statuses
from streamproc.settings import Settings
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.kafka.deleted_topics import delete_topics
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.records import TOPIC, records_of
from tests.worker.running import Topics, honest_run, looping_run


async def turns_shown(settings: Settings, run_id: str) -> int:
    found = await status_of_run(settings, run_id)
    return found.turns if found is not None else -1


@pytest.mark.long
async def test_the_status_of_a_run_that_works_undisturbed_is_current(settings, topics, start_worker) -> None:
    start_worker(settings)
    await topics.send([*honest_run("calm", 1), *looping_run("stuck", 3)])
    await topics.done()
    for before, turns in ((1, 3), (3, 7)):
        await topics.send(honest_run("calm", turns)[before:])

        async def is_current(wanted: int = turns) -> bool:
            return await turns_shown(settings, "calm") == wanted

        await until(is_current, 60, "the latest turns", every_s=0.2)

    assert {record.key for record in await topics.read("activity")} == {b"calm"}
    assert (await statuses(settings))["calm"].turns == 1  # what guards read, and what commands ask about halts
    assert (await statuses(settings, current=True))["stuck"].status == "halted"


def test_a_run_is_published_once_in_a_round_however_often_it_was_written_and_only_if_it_has_changed() -> None:
    processor = TurnProcessor(load_policy().engine(), TOPIC, event_bytes_max=4096, dead_letter_bytes=4096, version="1")
    runs = Runs(0, RunLimits())
    for number in range(3):
        processor.accept(runs, records_of(honest_run("calm", 3)[number:][:1], first=number))
        runs.stored(runs.take(), None)
    assert list(runs.take_active()) == [b"calm"]
    assert list(runs.take_active()) == []
    assert runs.peek(b"calm") is not None
    assert b"calm" not in runs.dirty


async def test_a_worker_works_on_without_the_topic_and_says_so(settings, topics, start_worker) -> None:
    await delete_topics(settings, settings.topic("activity"))

    worker = start_worker(settings)
    await topics.send(looping_run("stuck", 3))
    await topics.done()

    await until(lambda: worker.said("lists show its running runs as of their last decision"), 30, "a warning")
    assert (await statuses(settings, current=True))["stuck"].status == "halted"
    assert worker.end() == 0


@pytest.mark.long
async def test_current_statuses_are_signed_if_a_control_key_is_set(brokers, topic_prefix, start_worker) -> None:
    key, public = new_keys("workers", ed25519=True)
    settings = settings_for(brokers, topic_prefix, control_key=key.line())
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    start_worker(settings)
    await topics.send(honest_run("calm", 1))
    await topics.done()
    await topics.send(honest_run("calm", 5)[1:])
    reader = settings.model_copy(
        update={"control_key": settings_for(brokers, "p", control_key=public.line()).control_key}
    )

    async def is_current() -> bool:
        return await turns_shown(reader, "calm") == 5

    await until(is_current, 60, "a signed status", every_s=0.2)
    other, _ = new_keys("workers", ed25519=True)
    stranger = settings.model_copy(
        update={"control_key": settings_for(brokers, "p", control_key=other.line()).control_key}
    )
    assert await turns_shown(stranger, "calm") == -1


def a_status(**fields: Any) -> RunStatus:
    return RunStatus(**({"run_id": "r", "status": "running", "severity": "info", "partition": 0, "offset": 5} | fields))


def test_a_current_status_changes_neither_a_halt_nor_an_end_nor_what_is_newer() -> None:
    for known in (a_status(status="halted"), a_status(status="finished"), a_status(offset=9)):
        latest = LatestStatuses()
        latest.take(known)
        latest.take_current(a_status(offset=8, turns=3))
        assert latest.in_force() == {"r": known}
    latest = LatestStatuses()
    latest.take_current(a_status(offset=8))
    assert latest.in_force() == {}
