"""The benchmark of several workers: its logs, its rows, and two workers on a real Kafka. Times are not checked."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks import scaling
from benchmarks.fleet_log import fleet_log
from benchmarks.scaling import PARTITIONS, Published, Together
from benchmarks.sizes import FULL, TINY
from docs import generate
from streamproc.cli.measured_figures import SOURCES, rows_as_figures
from streamproc.settings import load_settings

START_MS = 1_750_000_000_000


def test_a_wide_log_ends_in_the_middle_of_its_runs() -> None:
    log = fleet_log(600, START_MS, PARTITIONS, wide=400)

    taken = Counter(log.turns_of.values())
    assert sum(log.turns_of.values()) >= 600
    assert len(log.turns_of) > 350  # which run is next is chance
    assert max(taken) < 10
    assert all(log.partitions)


def made_up_rows(workers_us: float = 20.0) -> list[scaling.Row]:
    log = fleet_log(TINY.log_turns, START_MS, PARTITIONS)
    one = Together(40_000, workers_us, 8.0, [2_000, 2_100], 1_500)
    rounds = [{1: one, 2: one._replace(per_s=60_000), 4: one._replace(per_s=80_000, broker_us=None)}]
    return [
        *scaling._scaling(rounds, log),
        *scaling._states(one, log, "scaling.narrow", scaling.ACTIVE_RUNS_MAX),
        *scaling._wide(one, log, FULL.wide_runs, 20.0),
        *scaling._bytes(Published(40, 39, 38, 450), 380),
        *scaling._broker([one], log, 250),
    ]


def test_the_efficiency_is_that_of_the_workers_together() -> None:
    rows = {row.name: row for row in made_up_rows()}

    assert rows["scaling.2"].to_peer == pytest.approx(0.75)
    assert rows["scaling.4"].to_peer == pytest.approx(0.5)
    assert rows["scaling.cpu.4"].to_peer == 1
    assert "workers 0.80, the broker 0.32 of" in rows["scaling.1"].note
    assert "the broker runs elsewhere" in rows["scaling.4"].note


def test_the_plan_finds_its_figures_among_the_rows_by_name_and_in_the_table_by_their_words() -> None:
    rows = made_up_rows()

    found = rows_as_figures({row.name: (row.figure, row.what) for row in rows})
    meant = {one.field for one in SOURCES if one.row.startswith("scaling.") and one.row != "scaling.listener"}
    assert set(found) == meant
    for one in SOURCES:
        if one.field in meant:
            assert [row.name for row in rows if generate.re.match(one.what, row.what)] == [one.row], one


@pytest.mark.long
async def test_two_workers_share_the_log_and_decide_as_the_engine(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(
        brokers=brokers, topic_prefix=topic_prefix, partitions=PARTITIONS, timestamp_type="CreateTime"
    )

    found, published = await scaling._together(settings, "two", fleet_log(TINY.log_turns, START_MS, PARTITIONS), 2)

    assert found.per_s > 0
    assert found.workers_us > 0
    assert found.state_sizes
    assert min(published) > 0


async def test_turns_are_published_alone_and_a_listener_reads_all_statuses(brokers: str, topic_prefix: str) -> None:
    settings = load_settings(brokers=brokers, topic_prefix=topic_prefix, partitions=2)

    alone, _ = await scaling._alone(settings, 4)

    assert alone > 61 + 100  # a batch of its own has a head of 61 bytes
    assert await scaling._listener_start(settings, 50) > 0
