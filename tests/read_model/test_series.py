"""What the fleet did over time: counted once, in a bounded number of buckets, and the same after a restart."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from streamproc.model import wire
from streamproc.model.controls import ControlEvent
from streamproc.model.time_range import address_time, time_or_age_ms
from streamproc.read_model.decision_table import decision_news
from streamproc.read_model.model import ReadModel
from streamproc.read_model.rows import DecisionFilter, RunFilter
from streamproc.read_model.series import HALTS, NAMES_MAX, SPARE, STOPS, WINDOWS, SeriesTable, delay_class
from tests.read_model.deployment import NOON_MS, Deployment, filled, spend, turn


def busy() -> Deployment:
    """A run that costs, one that loops, and one that a person stops, a minute apart."""
    made = Deployment()
    made.send(wire.RunStarted(w=1, run_id="costs", event_id="s", workflow="nightly", user="ada"))
    for number in range(6):
        made.send(turn("costs", number, usage=spend(10, 1_000)))
    made.now_ms += 60_000
    for number in range(4):
        made.send(turn("loops", number, "I will try again.", usage=spend(10, 500)))
    made.now_ms += 60_000
    made.send(turn("stopped", 0))
    made.send(wire.OperatorStop(w=1, run_id="stopped", event_id="x", by="ada", reason="wrong"))
    return made


def test_turns_halts_and_spend_are_counted_in_the_bucket_of_their_time() -> None:
    made = busy()
    model = filled(ReadModel(), made)

    buckets = model.series("1h", now_ms=made.now_ms)

    assert [(one.turns, one.halts, one.stops, one.cost_usd_micro) for one in buckets[-3:]] == [
        (6, 0, 0, 6_000), (4, 1, 0, 2_000), (1, 0, 1, 0),
    ]  # fmt: skip
    assert len(buckets) == WINDOWS["1h"].buckets
    assert buckets[-1].start_ms <= made.now_ms < buckets[-1].end_ms
    assert sum(one.turns for one in model.series("24h", now_ms=made.now_ms)) == 11
    assert sum(one.turns for one in model.series("15m", now_ms=made.now_ms + 3_600_000)) == 0


def test_a_command_to_the_fleet_is_no_halt_of_a_run() -> None:
    series = SeriesTable(sqlite3.connect(":memory:"))
    for code in ("FLEET001", "LOOP003"):
        control = ControlEvent(id=code, type="fleet.state", run_id="*", code=code, severity="halt", message="")
        series.note_decisions([decision_news(control, b"{}", NOON_MS)])
    assert [(sums[HALTS], sums[STOPS]) for sums in series._sums.values()] == [(1, 0)]


def test_decided_after_is_a_median_and_what_nearly_all_need() -> None:
    made = busy()
    [bucket] = [one for one in filled(ReadModel(), made).series("1h", now_ms=made.now_ms) if one.halts]
    assert bucket.delay_ms == bucket.late_ms == 1
    assert filled(ReadModel(), made).series("1h", now_ms=made.now_ms)[0].delay_ms is None


@given(delay_ms=st.integers(0, 10**9))
def test_a_delay_is_known_to_a_tenth(delay_ms: int) -> None:
    low, high = 2 ** (delay_class(delay_ms) / 8) - 1, 2 ** ((delay_class(delay_ms) + 1) / 8) - 1
    assert low - 1e-6 <= delay_ms <= high + 1e-6


def test_spend_is_known_by_workflow_and_user_even_before_a_status() -> None:
    made = busy()
    model = ReadModel()
    for (role, _), records in made.log.items():
        if role == "turns":  # no status was read yet
            model.apply(role, records)

    assert [(one.name, one.cost_usd_micro) for one in model.spend_by("workflow", "15m", now_ms=made.now_ms)] == [
        ("nightly", 6_000), ("", 2_000),
    ]  # fmt: skip
    assert [one.name for one in model.spend_by("user", "15m", now_ms=made.now_ms)] == ["ada", ""]


def test_beyond_the_largest_all_spend_is_one_row() -> None:
    made = Deployment()
    for number in range(NAMES_MAX + 50):
        made.send(turn(f"r{number}", 0, usage=spend(1, 10), workflow=f"w{number:04}"))
    model = filled(ReadModel(), made)

    shares = model.spend_by("workflow", "15m", now_ms=made.now_ms, limit=3)

    assert [one.name for one in shares] == ["w0000", "w0001", "w0002", ""]
    assert shares[-1].others
    assert sum(one.cost_usd_micro for one in shares) == 10 * (NAMES_MAX + 50)
    assert model._all("SELECT max(found) FROM (SELECT count(*) AS found FROM series_spend "
                      "WHERE field = 'workflow' GROUP BY step_ms, slot)") == [(NAMES_MAX + 1,)]  # fmt: skip


def test_buckets_stay_within_their_bound() -> None:
    made = Deployment()
    for number in range(600):
        made.now_ms += 20_000
        made.send(turn("r", number, usage=spend(1, 10)))
    model = filled(ReadModel(), made)
    model._series.trim()

    kept = dict(model._all("SELECT step_ms, count(*) FROM series GROUP BY step_ms"))

    assert all(kept[one.step_ms] <= one.buckets + SPARE for one in WINDOWS.values())
    assert kept[WINDOWS["15m"].step_ms] == WINDOWS["15m"].buckets + SPARE
    rows = model._all(
        "SELECT count(*) FROM series_spend WHERE (step_ms, slot) NOT IN (SELECT step_ms, slot FROM series)"
    )
    assert rows == [(0,)]


def test_a_restart_with_a_file_counts_nothing_twice(tmp_path: Path) -> None:
    made, path = busy(), str(tmp_path / "page.db")
    model = filled(ReadModel(path), made)
    before = model.series("1h", now_ms=made.now_ms)
    model.close()

    again = filled(ReadModel(path), made)

    assert again.series("1h", now_ms=made.now_ms) == before
    again.close()


def test_runs_and_decisions_of_a_stretch_of_time_are_found() -> None:
    made = busy()
    model = filled(ReadModel(), made)
    second = address_time(NOON_MS + 60_000), address_time(NOON_MS + 120_000)

    def runs(since: str, until: str) -> set[str]:
        chosen = RunFilter(since=since, until=until)
        pages = [model.runs(group, chosen) for group in ("halted", "warned", "others")]
        assert all(page.total == len(page.rows) for page in pages)
        return {row.run_id for page in pages for row in page.rows}

    assert runs(*second) == {"loops"}
    assert runs("", second[0]) == {"costs"}
    assert runs(second[1], "") == {"stopped"}
    assert runs("nonsense", "") == {"costs", "loops", "stopped"}
    decided = model.decisions(DecisionFilter(since=second[0], until=second[1], severity="halt"))
    assert {row.run_id for row in decided} == {"loops"}


def test_what_people_have_stopped_is_counted_apart() -> None:
    made = busy()
    model = filled(ReadModel(), made)
    counts = model.counts(made.now_ms)
    assert (counts.halted, counts.stopped) == (2, 1)
    assert [row.run_id for row in model.runs("halted", RunFilter(), stopped=True).rows] == ["stopped"]
    assert [row.run_id for row in model.runs("halted", RunFilter(), stopped=False).rows] == ["loops"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("2026-01-01T00:00:00Z", 1_767_225_600_000), ("15m", NOON_MS - 900_000), ("", 0), ("soon", 0), ("1e9", 0)],
)
def test_times_and_ages_of_an_address(text: str, found: int) -> None:
    assert time_or_age_ms(text, NOON_MS) == found


def test_a_chart_of_many_runs_is_read_in_milliseconds() -> None:
    made = Deployment()
    for number in range(3_000):
        made.now_ms += 1_000
        made.send(turn(f"r{number % 500}", number, usage=spend(1, 10), workflow=f"w{number % 90}"))
    model = filled(ReadModel(), made)
    began_s = time.perf_counter()
    for name in WINDOWS:
        model.series(name, now_ms=made.now_ms)
        model.spend_by("workflow", name, now_ms=made.now_ms)
    assert time.perf_counter() - began_s < 0.5


def test_a_run_has_the_trace_of_its_last_turn_in_a_span() -> None:
    made = Deployment()
    made.send(turn("r", 0))
    record = made.records("turns")[0]
    for number, trace_id in enumerate(("0af7651916cd43dd8448eb211c80319c", "4bf92f3577b34da6a3ce929d0e0e4736")):
        traceparent = f"00-{trace_id}-b7ad6b7169203331-01".encode()
        made.write("turns", b"r", wire.encode(turn("r", number + 1)), headers=[("traceparent", traceparent)])
    made.write("turns", b"r", record.value, headers=[("traceparent", b"<script>")])
    run = filled(ReadModel(), made).run("r")
    assert run.trace_id == "4bf92f3577b34da6a3ce929d0e0e4736"
