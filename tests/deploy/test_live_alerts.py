"""A real Prometheus scrapes real workers, clients and a notifier on a real Kafka: every alert fires for its cause, and
ends.

A minute of the rules is a second here. That an alert does not fire without its cause is for alerts_test.yaml: a machine
that is busy with other tests may well be late by seconds.
"""

from __future__ import annotations

import asyncio
import re
import shlex
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import yaml
from aiokafka import AIOKafkaProducer
from prometheus_client import CollectorRegistry, start_http_server

from deploy.local.prometheus import MISSING, find
from deploy.local.service import free_port
from streamproc.client import HaltListener, TurnPublisher
from streamproc.fleet.issuing import issue_command
from streamproc.kafka import topics as kafka_topics
from streamproc.kafka.options import connection_options
from streamproc.metrics import register_listener, register_publisher
from streamproc.metrics.definitions import BY_NAME
from streamproc.settings import Settings
from tests.deploy.expressions import FOLDER, RULES, expressions, metrics
from tests.docs.commands import Console, lines
from tests.docs.pages import ROOT, blocks
from tests.notify.test_on_kafka import Process
from tests.waiting import until
from tests.worker.conftest import settings_for
from tests.worker.running import CURSED, Topics, WorkerProcess, environment_of, honest_run, looping_run, turn
from tests.worker.test_providers import storm, with_policy
from tests.worker.test_stall_detector import MUTE_AGENT

WORN = CURSED + "\nfrom streamproc.worker import run_limits; run_limits.RUNS_MAX = 20\n"
"""A worker with a bug and little room."""
PATIENCE_S = 300  # a busy machine misses scrapes, and an alert begins to wait again
TAKEOVER_S = 30  # a dead worker's partitions are unwatched for so long
ONE_BY_ONE = {
    "StreamprocNoWorkers", "StreamprocUnwatched", "StreamprocPartitionUnwatched", "StreamprocWorkerStuck",
    "StreamprocDecisionsLate",
}  # fmt: skip
AT_ONCE = RULES.keys() - ONE_BY_ONE


def fast_rules() -> str:
    """The alerts with seconds for minutes, and half a second for the 30 of a late decision."""
    text = (FOLDER / "alerts.yaml").read_text().replace("streamproc_lag_seconds) > 30", "streamproc_lag_seconds) > 0.5")
    return re.sub(r"\b(\d+)m\b", r"\1s", text)


class Prometheus:
    """What a Prometheus on this machine knows."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session = session
        self._url = f"http://127.0.0.1:{port}"

    async def get(self, path: str) -> Any:
        """The data of an answer; None if there is none yet."""
        try:
            async with self._session.get(self._url + path) as answer:
                return (await answer.json())["data"] if answer.status == 200 else None
        except aiohttp.ClientError:
            return None

    async def names(self) -> set[str]:
        return set(await self.get("/api/v1/label/__name__/values") or ())

    async def firing(self) -> set[str]:
        alerts = (await self.get("/api/v1/alerts") or {"alerts": []})["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    async def fires(self, *alerts: str) -> None:
        """Wait until each has fired, at the same time or not."""

        async def fired() -> bool:
            missing.difference_update(await self.firing())
            return not missing

        missing = set(alerts)
        await self._until(fired, missing, "fire")

    async def is_over(self, *alerts: str) -> None:
        """Wait until none of them fires."""

        async def over() -> bool:
            left.clear()
            left.update(set(alerts) & await self.firing())
            return not left and await self.get("/api/v1/alerts") is not None

        left = set(alerts)
        await self._until(over, left, "be over")

    async def _until(self, condition: Callable[[], Awaitable[bool]], alerts: set[str], what: str) -> None:
        try:
            await until(condition, PATIENCE_S, every_s=0.2)
        except AssertionError:
            pytest.fail(f"{sorted(alerts)} did not {what} within {PATIENCE_S} s")


@pytest.fixture
def notifier_address(tmp_path: Path, settings: Settings) -> Iterator[str]:
    """The metrics of a notifier, which hears the workers."""
    address = f"127.0.0.1:{free_port()}"
    where = ("--brokers", settings.brokers, "--topic-prefix", settings.topic_prefix)
    nowhere = f"json://127.0.0.1:{free_port()}"
    notifier = Process(tmp_path / "notify.log", "notify", "--to", nowhere, "--metrics", address, *where)
    yield address
    notifier.end(signal.SIGKILL)


@pytest.fixture
def prometheus_port(tmp_path: Path, settings: Settings, agents_port: int, notifier_address: str) -> Iterator[int]:
    """Scrapes the worker of `settings`, the agents, and the notifier."""
    program = find("prometheus")
    if program is None:
        pytest.skip(MISSING)
    jobs = {"streamproc-worker": settings.metrics, "agents": f"127.0.0.1:{agents_port}", "notifier": notifier_address}
    config = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "500ms"},
        "rule_files": ["alerts.yaml"],
        "scrape_configs": [
            {"job_name": job, "static_configs": [{"targets": [target]}]} for job, target in jobs.items()
        ],
    }
    (tmp_path / "prometheus.yml").write_text(yaml.safe_dump(config))
    (tmp_path / "alerts.yaml").write_text(fast_rules())
    port = free_port()
    command = [program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/tsdb",
               f"--web.listen-address=127.0.0.1:{port}"]  # fmt: skip
    with (tmp_path / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


@pytest.fixture
async def prometheus(prometheus_port: int) -> AsyncIterator[Prometheus]:
    async with aiohttp.ClientSession() as session:
        yield Prometheus(session, prometheus_port)


@pytest.fixture
def agents_port() -> int:
    return free_port()


@pytest.fixture
async def settings(brokers: str, topic_prefix: str) -> Settings:
    """A deployment whose workers serve metrics."""
    made = settings_for(brokers, topic_prefix, partitions=2, metrics=f"127.0.0.1:{free_port()}")
    await kafka_topics.apply(made)
    return made


@pytest.fixture
async def cut_off_agent(settings: Settings, agents_port: int) -> AsyncIterator[TurnPublisher]:
    """An agent's process whose clients do not reach their broker; its publisher has room for one turn."""
    nowhere = settings.model_copy(update={"brokers": f"127.0.0.1:{free_port()}"})
    registry = CollectorRegistry()
    async with (
        TurnPublisher(settings=nowhere, buffer_max=1, block_ms_max=1, close_timeout_s=0.1) as publisher,
        HaltListener(settings=nowhere, wait=False) as listener,
    ):
        register_publisher(publisher, registry)
        register_listener(listener, registry)
        server, thread = start_http_server(agents_port, "127.0.0.1", registry)
        yield publisher
        server.shutdown()
        server.server_close()
        thread.join()


async def harm(settings: Settings, agent: TurnPublisher) -> None:
    """Send what a deployment in trouble sees, for ever: loops, unusable records, a turn that hits a bug, refused calls
    of a provider, forged commands; and turns that cannot be published."""
    topics = Topics(settings)
    async with AIOKafkaProducer(**connection_options(settings)) as producer:
        for number in range(1_000):
            loops = [record for run in range(20) for record in looping_run(f"loop-{number}-{run}", 4)]
            await topics.send([*loops, turn(f"cursed-{number}", "cursed"), (b"r", b"not JSON"), *storm()])
            await producer.send_and_wait(settings.topic("commands"), b"STOP everything", key=b"fleet")
            await agent.turn(run_id="lost", node="coder", output=f"{number}")
            await asyncio.sleep(0.3)


@pytest.mark.long
async def test_every_alert_fires_for_its_cause_and_ends_with_it(
    settings: Settings,
    start_worker: Callable[..., WorkerProcess],
    prometheus: Prometheus,
    cut_off_agent: TurnPublisher,
    tmp_path: Path,
) -> None:
    settings = with_policy(settings, tmp_path, probe_timeout_s=5)  # a breaker that no one asks closes soon
    await prometheus.fires("StreamprocNoWorkers")
    worker = start_worker(settings, before=WORN)
    await prometheus.is_over("StreamprocNoWorkers")

    trouble = asyncio.create_task(harm(settings, cut_off_agent))
    await issue_command(settings, "STOP", "fleet", "ada", "a drill")
    await prometheus.fires(*AT_ONCE)
    trouble.cancel()
    await asyncio.gather(trouble, return_exceptions=True)
    await prometheus.is_over(*AT_ONCE - {"StreamprocListenerDeaf", "StreamprocFleetStopped"})
    await issue_command(settings, "CLEAR", "fleet", "ada", "the drill is over")
    await prometheus.is_over("StreamprocFleetStopped")
    shown = await prometheus.names()
    for place, expression in expressions().items():
        wanted = {name for name in metrics(expression) if name not in BY_NAME or "worker" in BY_NAME[name].programs}
        assert not {name for name in wanted if not {name, f"{name}_bucket"} & shown}, place

    worker.send(signal.SIGSTOP)
    await prometheus.fires("StreamprocNoWorkers", "StreamprocUnwatched")
    worker.send(signal.SIGCONT)
    await prometheus.is_over("StreamprocNoWorkers", "StreamprocUnwatched")

    other = start_worker(settings.model_copy(update={"session_timeout_s": TAKEOVER_S, "metrics": ""}))
    await other.ready()
    other.end(signal.SIGKILL)
    await prometheus.fires("StreamprocPartitionUnwatched")
    await prometheus.is_over("StreamprocPartitionUnwatched")
    worker.end(signal.SIGKILL)

    stuck = start_worker(settings, before=MUTE_AGENT)
    await stuck.ready()
    await Topics(settings).send(honest_run("waiting"))
    await prometheus.fires("StreamprocWorkerStuck", "StreamprocDecisionsLate")
    stuck.end(signal.SIGKILL)
    start_worker(settings)
    await prometheus.is_over("StreamprocWorkerStuck", "StreamprocDecisionsLate", "StreamprocNoWorkers")


@pytest.mark.long
async def test_the_commands_of_the_runbook_work(
    settings: Settings,
    start_worker: Callable[..., WorkerProcess],
    prometheus_port: int,
    prometheus: Prometheus,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    start_worker(settings)
    await Topics(settings).send(looping_run("nightly-42"))

    async def halted() -> bool:
        return any(control["severity"] == "halt" for control in await Topics(settings).controls())

    await until(halted, 60, "nightly-42 to be halted", every_s=0.2)
    await prometheus.is_over("StreamprocNoWorkers")
    for name, value in environment_of(settings).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    tried = [await asyncio.to_thread(try_command, command, prometheus_port) for command in runbook_commands()]
    assert {"promtool", "stop-all", "status", "report", "resume", "stats"} <= set(tried)


def runbook_commands() -> list[str]:
    """The commands of the page, in order."""
    page = ROOT / "docs" / "runbook.md"
    return [command for block in blocks(page) if block.language == "sh" for command in lines(block.text)]


def try_command(command: str, prometheus_port: int) -> str:
    """Run a command unless it follows a topic for ever or is another project's; its name."""
    words = shlex.split(command)
    if words[0] == "promtool":
        words = [find("promtool") or "", *words[1:3], f"http://127.0.0.1:{prometheus_port}", *words[4:]]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return "promtool"
    if words[0] == "streamproc" and words[1] != "watch":
        console = Console()
        printed = console.run(command)
        wanted = {"status": {1}, "doctor": {0, 1}}.get(words[1], {0})  # halted; without a Redis, a problem
        assert console.exit_code in wanted, f"{command}: {printed}"
        return words[1]
    return ""
