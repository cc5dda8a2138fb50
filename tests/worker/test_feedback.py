"""Feedback on a real Kafka: it lands in the log, changes no decision, and holds up nothing."""

from __future__ import annotations

from streamproc.client import TurnPublisher
from streamproc.settings import Settings
from tests.worker.running import Topics, expected_ids, honest_run, looping_run
from tests.worker.test_fleet_commands import signing


async def test_feedback_is_in_the_log_and_changes_no_decision(settings: Settings, topics: Topics, start_worker) -> None:
    looping, honest = looping_run("r1", turns=8), honest_run("r2")
    await topics.send([*looping[:4], *honest[:3]])
    worker = start_worker(settings)
    await worker.ready()
    await topics.done()
    before = {record.key: record.value for record in await topics.read("runs")}

    async with TurnPublisher(settings=settings) as turns:
        for run_id in ("r1", "r2", "never-seen"):
            await turns.feedback(run_id=run_id, verdict="false-alarm", by="ada", reason="it polls")
    await topics.done()
    assert {record.key: record.value for record in await topics.read("runs")} == before  # no status, no new run

    await topics.send([*looping[4:], *honest[3:]])
    await topics.done()
    assert {one["id"] for one in await topics.controls()} == expected_ids([*looping, *honest])
    assert not await topics.read("dead-letter")
    kept = [record for record in await topics.read("turns") if b'"feedback"' in record.value]
    assert {record.key for record in kept} == {b"r1", b"r2", b"never-seen"}


async def test_where_commands_are_signed_unsigned_feedback_is_refused(settings, topics: Topics, start_worker) -> None:
    worker = start_worker(signing(settings))
    await worker.ready()
    for own in (settings, signing(settings)):
        async with TurnPublisher(settings=own) as turns:
            await turns.feedback(run_id="r1", verdict="right", by="ada")

    await topics.done()

    [refused] = await topics.read("dead-letter")
    assert b"signature: it is not signed" in dict(refused.headers)["reason"]
