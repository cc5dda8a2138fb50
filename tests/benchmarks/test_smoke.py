"""The benchmarks do the work that they claim to measure: all parts without Kafka. Tiny sizes; times are not checked."""

from __future__ import annotations

import json
import sys
from itertools import islice

import pytest

from benchmarks import (
    __main__ as command,
    core_speed,
    graph_speed,
    interleaved,
    publisher_speed,
    scan_speed,
    stages,
    state_size,
    wire_speed,
)
from benchmarks.fleet_log import BEGIN, END, fleet_log, partition_of
from benchmarks.rescans import LastTen, WholeHistory
from benchmarks.sizes import TINY
from benchmarks.table import Aim, Row, markdown, shown
from benchmarks.timing import best_median, in_pieces, percentile
from benchmarks.traces import made_up_turns, real_turns, run_of, sample_runs
from streamproc.model import wire
from streamproc.model.wire import WIRE_VERSION, Call, Content, Turn, decode
from tests.feeding import Feed

START_MS = 1_750_000_000_000


@pytest.mark.long
@pytest.mark.parametrize("part", [core_speed, state_size, wire_speed, scan_speed, publisher_speed, graph_speed])
def test_the_rows_of_a_part_without_kafka_can_be_shown(part) -> None:
    rows = list(part.rows(TINY))

    assert len({row.name for row in rows}) == len(rows) > 0
    assert all(row.figure > 0 for row in rows)
    assert markdown(rows, ["machine"]).count("\n") == len(rows) + 3


def test_the_stages_of_a_turn_are_measured_on_the_log() -> None:
    log = fleet_log(TINY.log_turns, START_MS)

    rows = list(stages.rows(log, 100.0, log.records // 10))

    assert [row.name for row in rows] == [
        f"stage.{name}" for name in ("decode", "step", "carry", "encode", "batch", "rest")
    ]
    assert sum(row.figure for row in rows) == pytest.approx(100.0)


@pytest.mark.parametrize("source", [real_turns, made_up_turns])
def test_a_long_run_is_the_same_for_the_same_seed_and_leads_to_decisions(source) -> None:
    trace = run_of(3_000, source("r", 1))
    feed = Feed()

    decisions = [decision for event, at_ms in trace for decision in feed.event(event, at_ms)]

    assert trace == run_of(3_000, source("r", 1))
    assert feed.state.turns == 3_000
    assert decisions


@pytest.mark.parametrize("source", [real_turns, made_up_turns])
def test_every_turn_survives_the_wire_format(source) -> None:
    for event, _ in islice(source("r", 2), 3_000):
        assert decode(wire.encode(event)) == event


def test_made_up_turns_carry_every_kind_of_evidence() -> None:
    turns = [event for event, _ in islice(made_up_turns("r"), 500)]

    for field in ("calls", "output", "artifact", "tests", "errors", "progress", "usage"):
        assert any(getattr(turn, field) for turn in turns), field


def test_the_log_keeps_the_order_of_each_run_and_has_markers_at_both_ends() -> None:
    log = fleet_log(TINY.log_turns, START_MS)

    assert sorted(log.markers.values()) == sorted([BEGIN, END] * 4)
    assert sum(log.turns_of.values()) >= TINY.log_turns
    assert {log.decisions[marker].offset for marker, side in log.markers.items() if side == BEGIN} == {log.warm_up}
    for partition, records in enumerate(log.partitions):
        assert all(partition_of(record.key.decode(), 4) == partition for record in records)
        assert [record.at_ms for record in records] == sorted(record.at_ms for record in records)
    run_id = next(iter(log.turns_of))
    ids = [
        decode(record.value).event_id
        for record in log.partitions[partition_of(run_id, 4)]
        if record.key.decode() == run_id
    ]
    assert ids == [f"{run_id}:s", *(f"{run_id}:{number}" for number in range(log.turns_of[run_id])), f"{run_id}:f"]


def test_the_log_is_the_same_for_the_same_arguments() -> None:
    assert fleet_log(300, START_MS) == fleet_log(300, START_MS)


def test_the_times_of_a_sample_never_decrease() -> None:
    for run in sample_runs():
        times = [at_ms for _, at_ms in run]
        assert times == sorted(times)


@pytest.mark.parametrize("turn", [
    Turn(w=WIRE_VERSION, run_id="r", node="n", calls=(Call("t", 1, 2, 3, 1),)),
    Turn(w=WIRE_VERSION, run_id="r", node="n", output=Content(1, 2)),
    Turn(w=WIRE_VERSION, run_id="r", node="n", tests=wire.Tests(5, 1)),
])  # fmt: skip
def test_the_rescanning_peers_find_a_plain_repeat(turn: Turn) -> None:
    peers = [WholeHistory(), LastTen()] if turn.calls else [WholeHistory()]

    for peer in peers:
        assert [bool(peer.step(turn)) for _ in range(3)] == [False, False, True]


def test_the_whole_history_peer_finds_alternation() -> None:
    turns = [Turn(w=WIRE_VERSION, run_id="r", node=name, output=Content(1, 2)) for name in "ab"]
    peer = WholeHistory()

    assert [peer.step(turn) for turn in turns * 2] == [False, False, False, True]


def test_an_aim_applies_to_the_ratio_if_there_is_one() -> None:
    alone = Row("a", "a", 9.0, "µs", aim=Aim("≤", 10))
    beside = Row("b", "b", 9.0, "µs", "peer", 1.0, aim=Aim("≤", 3))

    assert alone.met is True
    assert beside.met is False
    assert beside.cells()[-2:] == ("9x", "≤ 3x ✗")


def test_numbers_are_shown_with_three_significant_digits() -> None:
    assert [shown(value) for value in (0, 0.01234, 4.567, 78.94, 123.4, 45_678, 420_123)] == [
        "0", "0.0123", "4.57", "78.9", "123", "45 700", "420 000",
    ]  # fmt: skip


def test_pieces_have_equal_sizes_and_the_best_median_wins() -> None:
    assert in_pieces(range(7), 3) == [range(3), range(3, 6)]
    assert best_median([[1, 9, 9], [2, 2, 50]]) == 2
    assert percentile([3, 1, 2, 4], 0.5) == 3


def test_the_command_prints_the_table_and_writes_it_as_json(tmp_path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(command, "QUICK", TINY)
    monkeypatch.setattr(
        sys, "argv", ["benchmarks", "--quick", "--only", "wire", "signing", "--json", str(tmp_path / "b.json")]
    )

    assert command.main() == 0

    assert "| measured" in capsys.readouterr().out
    assert [row["unit"] for row in json.loads((tmp_path / "b.json").read_text())] == ["µs"] * 8


@pytest.mark.parametrize("argument", ["wire,signing,wire", "wire signing"])
def test_parts_are_apart_by_commas_or_spaces(argument, monkeypatch) -> None:
    measured = []
    monkeypatch.setattr(command, "_measure", lambda name, *_: measured.append(name) or [])
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", *argument.split()])

    assert command.main() == 0

    assert measured == ["wire", "signing"]


def test_an_unknown_part_is_refused_with_those_that_exist(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "wire,speed"])

    with pytest.raises(SystemExit):
        command.main()

    assert "no part speed; there are core, " in capsys.readouterr().err


def test_interleaved_runs_have_turns_after_which_no_detector_is_asked() -> None:
    figures = interleaved.figures(40, 1)

    assert all(value > 0 for values in figures.values() for value in values)
    assert 0.5 < figures["quiet_share"][0] < 1


def test_each_copy_of_a_log_to_scan_has_runs_and_texts_of_its_own() -> None:
    lines = [json.loads(line) for line in scan_speed.copied_lines(2)]
    half = len(lines) // 2
    said = [{line["output"] for line in part if "output" in line} for part in (lines[:half], lines[half:])]

    assert len({line["run_id"] for line in lines}) == 2 * len(sample_runs())
    assert all(said)
    assert not said[0] & said[1]


def test_without_a_broker_the_command_suggests_make_bench(monkeypatch, capsys) -> None:
    monkeypatch.delenv("STREAMPROC_BROKERS", raising=False)
    monkeypatch.setattr(sys, "argv", ["benchmarks"])

    assert command.main() == 2

    assert "make bench" in capsys.readouterr().err
