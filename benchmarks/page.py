"""The read model behind the operations page: a fleet of 10 000 runs, and 1 000 decisions and statuses a second.

Measured on a real Kafka, with the load in a process of its own: how fast the model reads what is there, how long a
decision takes from the log into the model, how long the queries of one fleet page take meanwhile, how long the event
loop stands still, and what a run needs of memory. `python -m benchmarks.page` measures only this.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.kafka_log import own_topics
from benchmarks.page_http import served_pages
from benchmarks.page_load import history
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, BenchmarkDefect, Row
from benchmarks.timing import percentile
from benchmarks.worker_process import Process
from streamproc.kafka.reading import Record
from streamproc.read_model.model import ReadModel
from streamproc.read_model.queries import Field
from streamproc.read_model.reader import ModelReader
from streamproc.read_model.rows import Changes, DecisionFilter, RunFilter
from streamproc.settings import Settings

DECISIONS_PER_S: Final = 1_000
TURNS_PER_S: Final = 2_000
QUERY_EVERY_S: Final = 0.2
TICK_S: Final = 0.005
IDLE_S: Final = 1.0
WAIT_S: Final = 300
DAY_MS: Final = 86_400_000
PAGE_MS_MAX: Final = Aim("≤", 100.0)
SHOWN_MS_MAX: Final = Aim("≤", 1_000.0)
PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
EVERYTHING: Final = RunFilter()
FIELDS: Final[tuple[Field, ...]] = ("workflow", "tenant", "user", "code")


@dataclass
class Live:
    """What was measured under load: the ms and the processor ms of the queries of a page, the ms for which the event
    loop stood still, decisions a second that were sent, and the share of a core that this process used."""

    queries: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    blocked: list[float] = field(default_factory=list)
    per_s: float = 0.0
    share: float = 0.0


class TimedModel(ReadModel):
    """A read model that notes how old decisions are when it has them."""

    def __init__(self) -> None:
        super().__init__()
        self.ages_ms: list[float] = []
        self.records = 0

    def apply(self, topic_role: str, records: Sequence[Record]) -> Changes:
        """Apply records."""
        changes = super().apply(topic_role, records)
        self.records += len(records)
        if topic_role == "control":
            now_ms = time.time() * 1000
            self.ages_ms += [now_ms - record.timestamp for record in records]
        return changes


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """Measure a model of one fleet."""
    async with own_topics(settings):
        await history(settings, sizes.page_runs)
        idle = await _idle()
        before, began = _resident(), time.perf_counter()
        model = TimedModel()
        reader = ModelReader(settings, model, since_ms=int(time.time() * 1000) - DAY_MS)
        await reader.start()
        try:
            await _until(lambda: reader.caught_up, "the model to read what is there")
            read_s, read = time.perf_counter() - began, model.records
            per_run = (_resident() - before) / sizes.page_runs
            model.ages_ms.clear()
            live = await _live(sizes, settings, model, reader)
        finally:
            await reader.stop()
        decided = len(model.ages_ms)
        grown = (_resident() - before) / 2**20
        model.close()
        served = await served_pages(settings, sizes.page_s, load_of(sizes))
    if decided != DECISIONS_PER_S * sizes.page_s:
        raise BenchmarkDefect(f"the model has {decided} decisions, expected {DECISIONS_PER_S * sizes.page_s}")
    load = f"{sizes.page_runs:,} runs, {live.per_s:.0f} decisions/s".replace(",", " ")
    return [
        Row("page.read", "read model of the page: reading what is there", read / read_s, "records/s",
            note=f"{sizes.page_runs} runs"),
        Row("page.shown", f"a decision from the log into the read model, {load}, p99",
            percentile(model.ages_ms, 0.99), "ms", aim=SHOWN_MS_MAX),
        *_served(served, load),
        Row("page.queries", "the queries of one fleet page meanwhile, p99", percentile(live.queries, 0.99), "ms",
            note=f"p50 {median(live.queries):.1f} ms, {median(live.cpu):.1f} ms of it processor time", aim=PAGE_MS_MAX),
        Row("page.cpu", "processor time of reader, model and queries under that load", 100 * live.share,
            "% of a core"),
        Row("page.blocked", "the event loop stands still meanwhile, p99", percentile(live.blocked, 0.99), "ms",
            "the same before, without a reader", percentile(idle, 0.99), note=f"at most {max(live.blocked):.0f} ms",
            detail=True),
        Row("page.run", "memory of the read model: a run with its decision", per_run, "bytes", detail=True),
        Row("page.memory", f"memory after {sizes.page_s} s of that load", grown, "MiB", detail=True),
    ]  # fmt: skip


def load_of(sizes: Sizes) -> tuple[str, ...]:
    """Return the command that sends the load."""
    return "benchmarks.page_load", str(DECISIONS_PER_S), str(TURNS_PER_S), str(sizes.page_runs), str(sizes.page_s)


def _served(served: list[float], load: str) -> list[Row]:
    """Return the rows of the page itself; none where it does not exist."""
    if not served:
        return []
    note = f"p50 {median(served):.0f} ms"
    return [
        Row("page.http", f"the fleet page from a server with its own model, {load}, p99", percentile(served, 0.99),
            "ms", note=note, aim=PAGE_MS_MAX)
    ]  # fmt: skip


async def _live(sizes: Sizes, settings: Settings, model: TimedModel, reader: ModelReader) -> Live:
    """Ask what a page asks while records arrive."""
    live = Live()
    ticking = asyncio.ensure_future(_tick(live.blocked))
    began, began_cpu = time.perf_counter(), time.process_time()
    try:
        with Process(settings, *load_of(sizes)) as sending:
            deadline = time.monotonic() + WAIT_S
            while len(model.ages_ms) < DECISIONS_PER_S * sizes.page_s:
                if time.monotonic() > deadline:
                    raise BenchmarkDefect(f"the model fell behind: it has {len(model.ages_ms)} decisions")
                asked = time.perf_counter()
                live.cpu.append(await asyncio.to_thread(_ask, model, len(live.queries)))
                live.queries.append((time.perf_counter() - asked) * 1000)
                await asyncio.sleep(QUERY_EVERY_S)
            live.share = (time.process_time() - began_cpu) / (time.perf_counter() - began)
            live.per_s = DECISIONS_PER_S * sizes.page_s / (await sending.answer(WAIT_S))["seconds"]
    finally:
        ticking.cancel()
    if reader.trouble is not None:
        raise BenchmarkDefect(f"the reader lost its broker: {reader.trouble}")
    return live


async def _idle() -> list[float]:
    """Return the ms for which an event loop with nothing to do stands still: what the machine itself takes."""
    found: list[float] = []
    ticking = asyncio.ensure_future(_tick(found))
    await asyncio.sleep(IDLE_S)
    ticking.cancel()
    return found


def _ask(model: ReadModel, number: int) -> float:
    """Ask all that the fleet page shows, every fourth time with a filter; return the ms of processor time."""
    began = time.thread_time()
    wanted = RunFilter(text="run-1") if number % 4 == 3 else EVERYTHING
    model.counts(int(time.time() * 1000))
    found = [model.runs(group, wanted).total for group in ("halted", "warned", "others")]
    if number == 0 and not sum(found):
        raise BenchmarkDefect("the page has no runs")
    for name in FIELDS:
        model.names(name)
    model.decisions(DecisionFilter(), limit=20)
    return (time.thread_time() - began) * 1000


async def _tick(blocked: list[float]) -> None:
    while True:
        began = time.perf_counter()
        await asyncio.sleep(TICK_S)
        blocked.append(max(0.0, (time.perf_counter() - began - TICK_S) * 1000))


async def _until(condition: Any, what: str) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        if time.monotonic() > deadline:
            raise BenchmarkDefect(f"waited {WAIT_S} s for {what}")
        await asyncio.sleep(0.05)


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text("ascii").split()[1]) * PAGE_BYTES


if __name__ == "__main__":
    from benchmarks.__main__ import main

    sys.argv[1:1] = ["--only", "page"]
    sys.exit(main())
