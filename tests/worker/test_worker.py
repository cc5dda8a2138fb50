"""The worker on a real Kafka: the same decisions as in one process, whatever happens to it meanwhile."""

from __future__ import annotations

from collections import Counter

from streamproc.model import wire
from streamproc.model.controls import RunStatus, read_control
from streamproc.worker.limits import END_TIMEOUT_S
from tests.waiting import until
from tests.worker.running import (
    event_record,
    expected_ids,
    gather_controls,
    log_of_loops,
    looping_run,
)


async def test_the_worker_decides_as_the_engine_does_in_one_process(settings, topics, start_worker, path) -> None:
    records = log_of_loops(40)
    wanted = expected_ids(records)
    worker = start_worker(settings, path)
    await topics.send(records)

    controls = await gather_controls(topics, wanted)

    assert Counter(control["id"] for control in controls) == Counter(wanted)
    assert worker.end() == 0


async def test_a_decision_names_its_triggering_record_and_has_cloudevents_headers(shared) -> None:
    topics, _worker = shared
    records = looping_run("r")
    await topics.send(records)
    await gather_controls(topics, expected_ids(records))

    warning, halt = [record for record in await topics.read("control") if record.key == b"r"]
    third = [record for record in await topics.read("turns") if record.key == b"r"][2]

    control = read_control(halt.value)
    assert control.halts
    assert control.trigger.topic == topics.settings.topic("turns")
    assert (control.trigger.partition, control.trigger.offset) == (third.partition, third.offset)
    assert dict(halt.headers) == {
        "ce_specversion": b"1.0",
        "ce_id": control.id.encode(),
        "ce_type": b"loop.halted",
        "ce_source": b"/streamproc/worker",
        "ce_subject": b"r",
        "content-type": b"application/json",
    }
    assert read_control(warning.value).severity == "warn"


async def test_a_decision_names_the_span_of_its_turn(shared) -> None:
    topics, worker = shared
    traceparent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    records = looping_run("traced")
    await topics.send(
        records, headers=[("publisher", b"me"), ("traceparent", b"00-broken"), ("traceparent", traceparent)]
    )
    await gather_controls(topics, expected_ids(records))

    decisions = [dict(record.headers) for record in await topics.read("control") if record.key == b"traced"]
    assert [headers["ce_traceparent"] for headers in decisions] == [traceparent, traceparent]
    await until(lambda: worker.said("trace_id=0af7651916cd43dd8448eb211c80319c span_id=b7ad6b7169203331"))


async def test_the_latest_status_of_a_run_keeps_the_decision_that_halted_it(shared) -> None:
    topics, _worker = shared
    records = [*looping_run("s", 3), event_record(wire.RunFinished(w=1, run_id="s", event_id="end"))]
    await topics.send(records)
    await topics.done()

    latest = [record for record in await topics.read("runs") if record.key == b"s"][-1]

    status = RunStatus.model_validate_json(latest.value)
    assert status.status == "halted"
    assert status.halt.id in expected_ids(records)


async def test_a_stopped_worker_has_committed_everything_and_its_successor_repeats_nothing(
    settings, topics, start_worker
) -> None:
    records = log_of_loops(600)
    half = len(records) // 2
    first = start_worker(settings)
    await first.ready()
    await topics.send(records[:half])
    await until(lambda: first.said(" halt run="), 30, "a first halt, in the middle of it")

    assert first.end(timeout_s=END_TIMEOUT_S) == 0

    committed, _ = await topics.offsets()
    assert f"records={sum(committed.values())} repeated=0" in first.text
    second = start_worker(settings)
    await topics.send(records[half:])
    await topics.done()
    assert second.end() == 0
    assert f"records={len(records) - sum(committed.values())} repeated=0" in second.text
    assert Counter(control["id"] for control in await topics.controls()) == Counter(expected_ids(records))
