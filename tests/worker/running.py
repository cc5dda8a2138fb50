"""A worker in a process of its own, and the topics around it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from multiprocessing import connection
from pathlib import Path
from typing import Any, Literal

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition
from pydantic import SecretStr

from streamproc.fingerprint import read_event
from streamproc.kafka.options import connection_options
from streamproc.model import wire
from streamproc.policy import load_policy
from streamproc.settings import Settings
from tests.waiting import until

Way = Literal["batch", "stock"]

# Workers are forked from a process that has Faust loaded already: a second and more for each of them.
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["streamproc.worker.app", "streamproc.policy.layers"])

# An exit code is read from a pipe, once. Every `start` asks for those of all processes, and of two threads that ask at
# the same time one gets 255.
ASKS = threading.Lock()


def work(environment: dict[str, str], log: str, path: Way, before: str, give_up_after_s: float | None) -> None:
    """Be a worker, as `streamproc worker` is; `before` is run first."""
    with Path(log).open("ab") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    os.environ.update(environment)
    exec(before, {})
    from streamproc.settings import load_settings
    from streamproc.worker.app import run_worker

    if path == "stock":
        from benchmarks.stock_path import use_stock_agents

        use_stock_agents()
    settings = load_settings()
    sys.exit(run_worker(settings, load_policy(settings.policy), give_up_after_s=give_up_after_s))


# A policy's engine that has a bug: it fails on a turn of the node "cursed", after it has changed the state.
CURSED = """
from tests.feeding import wrap_engines
def cursed(step, state, event, at_ms, position):
    outcome = step(state, event, at_ms, position)
    if event.node == "cursed":
        raise RuntimeError("a bug in a detector")
    return outcome
wrap_engines(cursed)
"""


# A worker that looks for old statuses all the time.
EAGER = """
from streamproc.worker import limits
limits.STATUS_SWEEP_FIRST_S = limits.STATUS_SWEEP_INTERVAL_S = 0.2
limits.STATUS_SWEEP_PAUSE_S = 0.0
"""


def environment_of(settings: Settings) -> dict[str, str]:
    """The variables that make a process have these settings."""
    return {
        f"STREAMPROC_{name.upper()}": str(value.get_secret_value() if isinstance(value, SecretStr) else value)
        for name, value in settings
        if value is not None
    }


class WorkerProcess:
    """`run_worker` in a process. Its log goes to a file."""

    def __init__(self, settings: Settings, log: Path, path: Way = "batch", before: str = "") -> None:
        self.settings = settings
        self.log = log
        self._path = path
        self._before = before
        self._process: Any = None

    def start(self, give_up_after_s: float | None = None) -> WorkerProcess:
        """Start it; does not wait."""
        environment = environment_of(self.settings)
        if "datadir" not in self.settings.model_fields_set:
            environment["STREAMPROC_DATADIR"] = str(self.log.with_suffix(".data"))
        arguments = (environment, str(self.log), self._path, self._before, give_up_after_s)
        self._process = FORKS.Process(target=work, args=arguments, daemon=True)
        with ASKS:
            self._process.start()
        return self

    @property
    def text(self) -> str:
        """All that it has logged."""
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def said(self, what: str, times: int = 1) -> bool:
        """Whether it has logged this."""
        assert self.running or self.text.count(what) >= times, f"the worker ended:\n{self.text[-3000:]}"
        return self.text.count(what) >= times

    @property
    def running(self) -> bool:
        """Whether it is alive."""
        with ASKS:
            return self._process is not None and self._process.is_alive()

    @property
    def pid(self) -> int:
        """Its process."""
        return int(self._process.pid)

    async def ready(self, times: int = 1) -> None:
        """Wait until it has its partitions."""
        await until(lambda: self.said("ready partitions=", times), 60, f"the worker to be ready {times} times")

    def send(self, signum: signal.Signals) -> None:
        """Send it a signal."""
        os.kill(self._process.pid, signum)

    def end_code(self, timeout_s: float = 60) -> int:
        """Wait until it ends by itself; its exit code."""
        connection.wait([self._process.sentinel], timeout_s)
        with ASKS:
            code = self._process.exitcode
        assert code is not None, f"it did not end within {timeout_s} s"
        return int(code)

    def end(self, signum: signal.Signals = signal.SIGTERM, timeout_s: float = 60) -> int:
        """Make it end; its exit code."""
        if self.running:
            self.send(signum)
        return self.end_code(timeout_s)


@dataclass
class Topics:
    """What tests send and read."""

    settings: Settings

    async def send(
        self, records: Iterable[tuple[bytes | None, bytes | None]], headers: Any = None, **options: Any
    ) -> None:
        """Send records to the turns topic, in order."""
        options.setdefault("max_request_size", 12_000_000)
        async with AIOKafkaProducer(
            **connection_options(self.settings), enable_idempotence=True, **options
        ) as producer:
            topic = self.settings.topic("turns")
            for sent in [await producer.send(topic, value, key=key, headers=headers) for key, value in records]:
                await sent

    async def read(self, name: str) -> list[Any]:
        """All records of a topic, up to its present ends."""
        return await self.read_topic(self.settings.topic(name))

    async def read_topic(self, topic: str) -> list[Any]:
        """The same, given the topic's full name."""
        async with AIOKafkaConsumer(
            **connection_options(self.settings), auto_offset_reset="earliest", **_LARGE
        ) as consumer:
            places = await places_of(consumer, topic)
            consumer.assign(places)
            ends = await consumer.end_offsets(places)
            records: list[Any] = []
            large: dict[bytes, bytes] = {}  # one copy of each: a burst repeats megabytes
            while any([await consumer.position(place) < ends[place] for place in places]):
                for batch in (await consumer.getmany(timeout_ms=200)).values():
                    for record in batch:
                        if record.value is not None and len(record.value) > LARGE_BYTES:
                            record = replace(record, value=large.setdefault(record.value, record.value))
                        records.append(record)
            return records

    async def controls(self) -> list[dict[str, Any]]:
        """All decisions, as JSON."""
        return [msgspec.json.decode(record.value) for record in await self.read("control")]

    async def lag(self) -> int:
        """Records of the turns topic that the workers have not committed."""
        committed, ends = await self.offsets()
        return sum(ends.values()) - sum(committed.values())

    async def offsets(self) -> tuple[dict[int, int], dict[int, int]]:
        """Committed offsets of the workers and ends of the turns topic, by partition."""
        async with AIOKafkaConsumer(
            **connection_options(self.settings), group_id=self.settings.worker_group, enable_auto_commit=False
        ) as consumer:
            places = await places_of(consumer, self.settings.topic("turns"))
            ends = await consumer.end_offsets(places)
            committed = {place.partition: await consumer.committed(place) or 0 for place in places}
            return committed, {place.partition: end for place, end in ends.items()}

    async def no_members(self) -> bool:
        """Whether the workers' group is empty."""
        admin = AIOKafkaAdminClient(**connection_options(self.settings))
        await admin.start()
        try:
            [response] = await admin.describe_consumer_groups([self.settings.worker_group])
            [(_error, _group, state, *_rest)] = response.groups
            return bool(state == "Empty")
        finally:
            await admin.close()

    async def done(self, timeout_s: float = 60) -> None:
        """Wait until the workers have committed all there is."""

        async def nothing_left() -> bool:
            return await self.lag() == 0

        await until(nothing_left, timeout_s, "the workers to commit everything", every_s=0.2)


async def places_of(consumer: AIOKafkaConsumer, topic: str) -> list[TopicPartition]:
    """The partitions of a topic."""
    consumer._client.add_topic(topic)
    await consumer._client.force_metadata_update()
    return [TopicPartition(topic, number) for number in sorted(consumer.partitions_for_topic(topic) or ())]


LARGE_BYTES = 65_536
_LARGE = {"max_partition_fetch_bytes": 16_000_000, "fetch_max_bytes": 64_000_000}


def turn(run_id: str, node: str = "coder", **fields: Any) -> tuple[bytes, bytes]:
    """A record of the turns topic with a raw turn."""
    return run_id.encode(), msgspec.json.encode({"run_id": run_id, "node": node, **fields})


def said(text: str) -> wire.Content:
    """A text as numbers; every text its own."""
    value = sum((index + 1) * 7919 * byte for index, byte in enumerate(text.encode())) + 1
    return wire.Content(value, value)


def event_record(event: wire.Event) -> tuple[bytes, bytes]:
    """A record of the turns topic with a fingerprinted event."""
    return event.run_id.encode(), wire.encode(event)


def looping_run(run_id: str, turns: int = 6) -> list[tuple[bytes, bytes]]:
    """A run that says the same over and over: warned of at the second turn, halted at the third."""
    return [
        event_record(
            wire.Turn(w=1, run_id=run_id, node="coder", event_id=f"{run_id}/{number}", output=said("I will try again."))
        )
        for number in range(turns)
    ]


def honest_run(run_id: str, turns: int = 6) -> list[tuple[bytes, bytes]]:
    """A run that says something new each time."""
    return [
        event_record(
            wire.Turn(w=1, run_id=run_id, node="coder", event_id=f"{run_id}/{number}", output=said(f"Step {number}."))
        )
        for number in range(turns)
    ]


def log_of_loops(runs: int, turns: int = 9) -> list[tuple[bytes, bytes]]:
    """Runs in turn, of which each begins to loop a turn later than the one before: something is decided everywhere."""
    return interleaved(
        [
            honest_run(f"run-{number}", turns)[: number % (turns - 2)]
            + looping_run(f"run-{number}", turns)[number % (turns - 2) :]
            for number in range(runs)
        ]
    )


def expected_ids(records: Iterable[tuple[bytes | None, bytes | None]], policy: str = "standard") -> set[str]:
    """Ids of the decisions that the engine makes of these records, in one process."""
    engine = load_policy(policy).engine()
    states: dict[bytes, Any] = {}
    ids: set[str] = set()
    for key, value in records:
        assert key is not None
        assert value is not None
        outcome = engine.step(states.get(key, b""), read_event(value), None)
        states[key] = outcome.kept
        ids |= {decision.id for decision in outcome.decisions}
    return ids


def interleaved(runs: list[list[tuple[bytes, bytes]]]) -> list[tuple[bytes, bytes]]:
    """Records of several runs, a turn of each in turn."""
    longest = max(len(run) for run in runs)
    return [run[number] for number in range(longest) for run in runs if number < len(run)]


def id_of(control: dict[str, Any]) -> str:
    return str(control["id"])


async def gather_controls(
    topics: Topics, wanted: set[str], timeout_s: float = 60, *, fact: Callable[[dict[str, Any]], str] = id_of
) -> list[dict[str, Any]]:
    """All controls, once each wanted fact is one of theirs."""
    controls: list[dict[str, Any]] = []

    async def all_there() -> bool:
        controls[:] = await topics.controls()
        return wanted <= {fact(control) for control in controls}

    await until(all_there, timeout_s, f"{len(wanted)} controls", every_s=0.2)
    return controls


def run_sync(work: Any) -> Any:
    """For fixtures that outlive one test's loop."""
    return asyncio.run(work)
