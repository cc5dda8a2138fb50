"""The metrics and probes of real processes on a real Kafka."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaProducer
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

from deploy.local.kafka import Broker, free_port
from streamproc.fleet.command_events import REFUSED
from streamproc.kafka import topics as kafka_topics
from streamproc.metrics.definitions import METRICS, SPAN_OUTCOMES, WORKFLOWS_MAX
from streamproc.model import wire
from streamproc.settings import Settings, load_settings
from tests.metrics.scraped import OPENMETRICS, Scraped, get, probe, scrape
from tests.notify.test_on_kafka import Process, Start, settings, start
from tests.otel.test_receiver import QUERY, agent
from tests.waiting import until
from tests.worker.running import Topics, honest_run, looping_run

__all__ = ["settings", "start"]  # fixtures

ANY = "127.0.0.1:0"


async def metrics_of(process: Process) -> str:
    """Return the URL at which a process serves its metrics."""
    await until(lambda: process.logged("serving metrics on"), 90)
    found = re.search(r"serving metrics on (http://[^/\s]+)/metrics", process.log.read_text())
    return found[1]


async def ready(url: str) -> None:
    async def answers_200() -> bool:
        return (await probe(f"{url}/readyz"))[0] == 200

    await until(answers_200, 90, "the process to be ready", every_s=0.1)


def shows(url: str, condition: Callable[[Scraped], bool]) -> Callable[[], Awaitable[Scraped | None]]:
    async def page() -> Scraped | None:
        found = await scrape(url)
        return found if condition(found) else None

    return page


def events(*runs: str, workflow: str = "") -> list[tuple[bytes, bytes]]:
    """Return a start and an end of each run."""
    made: list[tuple[bytes, bytes]] = []
    for run in runs:
        begun = wire.RunStarted(w=wire.WIRE_VERSION, run_id=run, event_id=f"{run}-1", workflow=workflow)
        ended = wire.RunFinished(w=wire.WIRE_VERSION, run_id=run, event_id=f"{run}-2")
        made += [(run.encode(), wire.encode(event)) for event in (begun, ended)]
    return made


def checked(page: Scraped) -> None:
    """Let promtool look at a page, where it is installed."""
    if promtool := shutil.which("promtool"):
        done = subprocess.run(
            [promtool, "check", "metrics"], input=page.text, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


async def test_a_worker_shows_every_metric_of_its_own(settings: Settings, start: Start) -> None:
    topics = Topics(settings)
    worker = start("worker", "--metrics", ANY)
    url = await metrics_of(worker)
    await ready(url)
    zero = await scrape(url)
    mine = [metric for metric in METRICS if "worker" in metric.programs]
    families = {metric.family for metric in mine if "provider" not in metric.labels}  # none has been called
    assert zero.ours() == families
    assert zero.value("streamproc_fleet_status", status="CLEAR") == 1

    loop = [events("stuck", workflow="nightly")[0], *looping_run("stuck")]
    bad = [(b"x", b"no event"), (b"other", events("key")[0][1])]
    await topics.send([*loop, *events("fine", workflow="nightly"), *bad])
    async with AIOKafkaProducer(bootstrap_servers=settings.brokers) as producer:
        await producer.send_and_wait(settings.topic("commands"), b"no command", key=b"fleet")
    page = await until(
        shows(url, lambda page: page.sum("streamproc_decisions_total", code=REFUSED) == 1
              and page.sum("streamproc_events_total") == len(loop) + 4
              and page.sum("streamproc_decision_delay_seconds_count") > 0
              and page.value("streamproc_runs", state="held") == 2
              and page.sum("streamproc_changelog_bytes_total") > 0
              and not page.sum("streamproc_lag_records")),
        60, "the records to show", every_s=0.2,
    )  # fmt: skip
    assert page.ours() == families
    checked(page)
    assert page.sum("streamproc_events_total", type="run.finished") == 1
    assert page.sum("streamproc_events_total", type="invalid") == 2
    decisions = await topics.controls()
    for severity in ("halt", "warn"):
        of_runs = [one for one in decisions if one["severity"] == severity and one["type"] != "fleet.state"]
        assert page.sum("streamproc_decisions_total", severity=severity, workflow="nightly") == len(of_runs)
    of_turns = [one for one in decisions if one["type"] != "fleet.state"]
    for name in ("delay", "wait", "publish"):
        assert page.value(f"streamproc_decision_{name}_seconds_count") == len(of_turns)
    total = page.value("streamproc_decision_delay_seconds_sum") or 0
    parts = [page.value(f"streamproc_decision_{name}_seconds_sum") or 0 for name in ("wait", "publish")]
    assert total == pytest.approx(sum(parts), abs=0.05)
    assert page.value("streamproc_runs", state="halted") == 1
    assert page.value("streamproc_runs", state="held") == 2
    assert page.value("streamproc_runs_ended_total", outcome="halted", workflow="nightly") == 1
    assert page.value("streamproc_runs_ended_total", outcome="finished", workflow="nightly") == 1
    dead = {
        reason: page.value("streamproc_dead_letters_total", reason=reason)
        for reason in ("unreadable", "key", "command")
    }
    assert dead == {"unreadable": 1, "key": 1, "command": 1}
    assert len(await topics.read("dead-letter")) == 3
    assert page.value("streamproc_step_seconds_count") == page.sum("streamproc_events_total")
    open_page = Scraped((await asyncio.to_thread(get, f"{url}/metrics", OPENMETRICS))[2], is_openmetrics=True)
    assert open_page.ours() == families
    assert worker.end() == 0


@pytest.mark.long
async def test_ten_thousand_runs_add_no_series(settings: Settings, start: Start) -> None:
    topics = Topics(settings)
    worker = start("worker", "--metrics", ANY)
    url = await metrics_of(worker)
    await ready(url)
    sent = 0

    async def page_after(records: list[tuple[bytes, bytes]]) -> Scraped:
        nonlocal sent
        sent += len(records)
        await topics.send(records)
        return await until(
            shows(url, lambda page: page.sum("streamproc_events_total") == sent),
            120,
            "the records to show",
            every_s=0.3,
        )

    # All partitions and more workflows than are shown.
    before = await page_after(
        [event for number in range(2 * WORKFLOWS_MAX) for event in events(f"first-{number}", workflow=f"w{number}")]
    )
    after = await page_after(
        [event for number in range(10_000) for event in events(f"run-{number}", workflow=f"v{number}")]
    )
    assert after.series() == before.series()
    workflows = {dict(labels).get("workflow") for name, labels in after.series() if "ended" in name}
    assert len(workflows) == WORKFLOWS_MAX + 2  # none and other
    assert after.sum("streamproc_runs_ended_total", outcome="finished") == 10_000 + 2 * WORKFLOWS_MAX
    assert worker.end() == 0


@pytest.fixture
def away(tmp_path: Path, topic_prefix: str) -> Iterator[tuple[Process, Settings, int]]:
    """A worker whose broker is not there yet, its settings, and the broker's port."""
    port = free_port()
    settings = load_settings(brokers=f"127.0.0.1:{port}", topic_prefix=topic_prefix)
    process = Process(
        tmp_path / "away.log", "worker", "--metrics", ANY, "--brokers", settings.brokers, "--topic-prefix", topic_prefix
    )
    yield process, settings, port
    process.end(signal.SIGKILL)


@pytest.mark.long
async def test_probes_through_start_outage_recovery_and_stop(
    own_broker: Broker, away: tuple[Process, Settings, int]
) -> None:
    worker, settings, port = away
    url = await metrics_of(worker)
    assert await probe(f"{url}/healthz") == (200, "ok\n")
    assert await probe(f"{url}/readyz") == (503, "waiting for the broker and its topics\n")
    assert (await scrape(url)).ours() == set()

    await asyncio.to_thread(own_broker.start, port)
    await kafka_topics.apply(settings)
    topics = Topics(settings)
    await topics.send(honest_run("r1", 200))
    await ready(url)
    assert (await scrape(url)).sum("streamproc_lag_records") == 0

    own_broker.kill()
    for _ in range(10):
        assert await probe(f"{url}/healthz") == (200, "ok\n")
    await asyncio.to_thread(own_broker.start, port)
    await topics.send(looping_run("later"))
    await until(
        shows(url, lambda page: page.value("streamproc_runs", state="halted") == 1), 120, "a halt after the outage",
        every_s=0.3,
    )  # fmt: skip
    await ready(url)
    assert worker.end() == 0
    assert await probe(f"{url}/readyz") == (0, "")


@pytest.mark.long
async def test_each_of_several_workers_has_a_port(settings: Settings, start: Start) -> None:
    workers = start("worker", "--processes", "2", "--metrics", ANY)
    await until(lambda: workers.logged("serving metrics on", 2), 90, "both workers")
    urls = re.findall(r"serving metrics on (http://[^/\s]+)/metrics", workers.log.read_text())
    assert len(set(urls)) == 2

    async def divided() -> bool:
        found = [await scrape(url) for url in urls]
        mine = [{dict(labels)["partition"] for name, labels in page.series() if name == "streamproc_lag_records"}
                for page in found]  # fmt: skip
        return all(mine) and mine[0] | mine[1] == set("0123") and not mine[0] & mine[1]

    await until(divided, 60, "each worker to show its partitions", every_s=0.3)
    for url in urls:
        await ready(url)
    assert workers.end() == 0


@pytest.mark.long
async def test_a_notifier_shows_what_it_sends(settings: Settings, start: Start) -> None:
    notifier = start("notify", "--to", "json://127.0.0.1:1", "--metrics", ANY)
    url = await metrics_of(notifier)
    await ready(url)
    page = await scrape(url)
    assert page.ours() == {metric.family for metric in METRICS if "notify" in metric.programs}
    await Topics(settings).send(looping_run("stuck"))
    worker = start("worker")
    await until(
        shows(url, lambda page: (page.value("streamproc_notifications_waiting") or 0) > 0), 60, "a notification"
    )
    checked(page)
    assert worker.end() == notifier.end() == 0


async def test_the_bridge_shows_its_spans_and_its_publisher(settings: Settings, start: Start) -> None:
    bridge = start("otel", "--listen", ANY, "--reorder-ms", "100", "--metrics", ANY)
    url = await metrics_of(bridge)
    await ready(url)
    found = await until(lambda: re.search(r"listening on (http://\S+)", bridge.log.read_text()), 60)
    await asyncio.to_thread(agent, OTLPSpanExporter(found[1]), [QUERY] * 3)
    page = await until(
        shows(url, lambda page: page.sum("streamproc_otel_spans_total") == 7
              and page.sum("streamproc_publisher_events_total", outcome="delivered") >= 3),
        60, "the spans and their turns",
    )  # fmt: skip
    assert page.ours() == {metric.family for metric in METRICS if "otel" in metric.programs}
    spans = {outcome: page.value("streamproc_otel_spans_total", outcome=outcome) for outcome in SPAN_OUTCOMES}
    assert spans == {
        "turn": 3,
        "usage": 3,
        "ignored": 1,
        "refused": 0,
        "late": 0,
    }  # three calls, by a model, of an agent
    checked(page)
    assert bridge.end() == 0
