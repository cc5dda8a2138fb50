"""The worker's turns per second, compared with the limit and with alternatives.

All of them read the same prepared topic, one after the other, in several rounds. The ratios are medians over the
rounds.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Iterator
from statistics import median
from typing import Final

from benchmarks import stages
from benchmarks.fleet_log import FleetLog, fleet_log
from benchmarks.kafka_log import fill, own_topics
from benchmarks.peers import OTHERS, installed, other_speed, raw_speed, stock_speed
from benchmarks.signing import KINDS
from benchmarks.sizes import Sizes
from benchmarks.table import Aim, Row
from benchmarks.timing import percentile
from benchmarks.worker_speed import Measured, Speed, worker_speed
from streamproc.core.compiled import core_kind
from streamproc.settings import Settings

STOCK_RATIO_MIN: Final = Aim("≥", 15)
LIMIT_RATIO_MIN: Final = Aim("≥", 0.3)
LOOP_RATIO_MIN: Final = Aim("≥", 1.2)
BYTEWAX_RATIO_MIN: Final = Aim("≥", 1.2)
QUIX_RATIO_MIN: Final = Aim("≥", 3)
CHANGELOG_BYTES_MAX: Final = Aim("≤", 30)  # a turn
LOG_AGE_MS: Final = 600_000  # the log lies in the past, but within the topic's retention

BESIDE: Final[tuple[tuple[str, str, Aim | None], ...]] = (
    ("limit", "limit: aiokafka getmany + orjson, no work", LIMIT_RATIO_MIN),
    ("loop", "aiokafka loop, same core, no state, no output", LOOP_RATIO_MIN),
    ("stock", "stock Faust agent, same core, table write per event", STOCK_RATIO_MIN),
    ("quix", "Quix Streams, same core, its RocksDB state and changelog", QUIX_RATIO_MIN),
    ("bytewax", "Bytewax, same core, its snapshots every 10 s", BYTEWAX_RATIO_MIN),
    ("python", "the same worker with the core in pure Python", None),
    ("stock path", "the worker, stock Faust agents: same stores, event by event", None),
    ("HMAC", "the same worker, decisions and statuses signed with HMAC-SHA256", None),
    ("Ed25519", "the same worker, decisions and statuses signed with Ed25519", None),
)
CPU_BESIDE: Final = ("limit", "stock", "quix", "bytewax")


async def rows(sizes: Sizes, settings: Settings) -> list[Row]:
    """Measure the worker and its peers."""
    start_ms = int(time.time() * 1000) - LOG_AGE_MS
    log = fleet_log(sizes.log_turns, start_ms, settings.partitions)
    speeds: defaultdict[str, list[Speed]] = defaultdict(list)
    others = list(filter(installed, OTHERS))
    async with own_topics(settings):
        await fill(settings, log)
        for number in range(sizes.kafka_rounds):
            speeds["limit"].append(await raw_speed(settings, log, "decode"))
            measured = await worker_speed(settings, log, f"{number}")
            speeds["worker"].append(measured.speed)
            speeds["loop"].append(await raw_speed(settings, log, "loop"))
            for name in others:
                speeds[name].append(await other_speed(settings, log, name, number))
            speeds["stock"].append(await stock_speed(settings, log, number, sizes.stock_turns))
            if core_kind() == "compiled":
                in_python = await worker_speed(settings, log, f"{number}-python", STREAMPROC_CORE="python")
                speeds["python"].append(in_python.speed)
            for kind, (key, _) in KINDS.items():
                signing = await worker_speed(settings, log, f"{number}-{kind}", STREAMPROC_CONTROL_KEY=key.line())
                speeds[kind].append(signing.speed)
    await _on_short_log(sizes, settings, start_ms, speeds)
    cpu_us = min(speed.cpu_us for speed in speeds["worker"])
    return [*_speeds(speeds, log), *_stored(measured, log), *stages.rows(log, cpu_us, len(measured.sizes))]


async def _on_short_log(sizes: Sizes, settings: Settings, start_ms: int, speeds: defaultdict[str, list[Speed]]) -> None:
    """Measure the stock path once, on a short log: the whole log would take minutes."""
    short = settings.model_copy(update={"topic_prefix": f"{settings.topic_prefix}-short", "group": ""})
    log = fleet_log(sizes.stock_turns, start_ms, settings.partitions)
    async with own_topics(short):
        await fill(short, log)
        speeds["stock path"].append((await worker_speed(short, log, "0", "benchmarks.stock_path")).speed)


def _speeds(speeds: dict[str, list[Speed]], log: FleetLog) -> Iterator[Row]:
    ours = speeds["worker"]
    for name, beside, aim in BESIDE:
        theirs = speeds[name]
        if name == "python" and not theirs:
            continue  # the worker itself ran in pure Python
        if not theirs:
            yield Row(
                f"worker.{name}", "worker, all detectors, states and decisions on Kafka",
                median(speed.per_s for speed in ours) * log.turn_share, "turns/s", f"{beside}: not installed",
            )  # fmt: skip
            continue
        ratio = median(our.per_s / their.per_s for our, their in zip(ours, theirs, strict=False))
        yield Row(
            f"worker.{name}", "worker, all detectors, states and decisions on Kafka",
            median(speed.per_s for speed in ours) * log.turn_share, "turns/s",
            beside, median(speed.per_s for speed in theirs) * log.turn_share, ratio, aim,
        )  # fmt: skip
    for name, beside, _ in BESIDE:
        if name not in CPU_BESIDE or not speeds[name]:
            continue
        yield Row(
            f"worker.cpu.{name}", "worker, processor time per turn, everything included",
            median(speed.cpu_us for speed in ours) / log.turn_share, "µs",
            beside, median(speed.cpu_us for speed in speeds[name]) / log.turn_share,
        )  # fmt: skip


def _stored(measured: Measured, log: FleetLog) -> Iterator[Row]:
    turns, sizes = sum(log.turns_of.values()), measured.sizes
    yield Row("worker.turns_per_state", "worker, turns per written state", turns / len(sizes), "turns")
    yield Row(
        "worker.changelog", "worker, changelog per turn, as stored by the broker",
        measured.batch_bytes / turns, "bytes", aim=CHANGELOG_BYTES_MAX,
        note=f"{sum(sizes) / turns:.0f} before compression",
    )  # fmt: skip
    yield Row(
        "worker.record", "worker, changelog record of a run, including its halt, p99",
        percentile(sizes, 0.99), "bytes",
    )  # fmt: skip
