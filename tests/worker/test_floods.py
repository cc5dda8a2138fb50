"""Floods of bad records fill neither the log nor the time of the worker."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamproc.kafka.log_limit import FIRST_LINES, INTERVAL_S, KINDS_MAX, LINE_MAX, LogLimit, flush_limits
from streamproc.model.log_lines import named_values
from streamproc.policy import load_policy
from streamproc.worker.run_limits import RunLimits
from streamproc.worker.tables import Runs
from streamproc.worker.turn_processor import TurnProcessor
from tests.worker.records import TOPIC, records_of

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

FLOOD = 50_000
LOG_BYTES_MAX = 100_000
LEFT_OUT = re.compile(r"(\d+) more lines? like|and (\d+) more like")


@pytest.fixture
def log_file(tmp_path: Path) -> Iterator[Path]:
    flush_limits()  # of earlier tests
    handler = logging.FileHandler(tmp_path / "worker.log")
    logger = logging.getLogger("streamproc")
    logger.addHandler(handler)
    yield tmp_path / "worker.log"
    logger.removeHandler(handler)
    handler.close()


def counted(lines: list[str], what: str) -> int:
    """The number of lines that a log shows or says to have left out."""
    left_out = sum(int(found.group(1) or found.group(2)) for line in lines if (found := LEFT_OUT.search(line)))
    return sum(line.startswith(what) for line in lines) + left_out


@pytest.mark.long
def test_50_000_bad_records_are_all_counted_and_fill_no_log(log_file: Path) -> None:
    processor = TurnProcessor(
        load_policy().engine(), TOPIC, event_bytes_max=1_048_576, dead_letter_bytes=900_000, version="1"
    )
    bad = [b"\xff" * 200, b'{"run_id": 7}', b'{"run_id": "%s"}' % (b"x" * 3_000), b'{"run_id": "r", "node": []}', None]
    for partition in range(5):
        records = records_of([(b"r", bad[number % len(bad)]) for number in range(FLOOD // 5)])
        assert len(processor.accept(Runs(partition, RunLimits()), records)) == FLOOD // 5
    flush_limits()

    lines = log_file.read_text().splitlines()
    assert processor.counts.refused == FLOOD
    assert counted(lines, "refused") == FLOOD
    assert log_file.stat().st_size < LOG_BYTES_MAX


def test_after_the_first_lines_of_a_kind_one_comes_each_interval_with_the_number_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    limited = LogLimit(logging.getLogger("streamproc.test"), clock=lambda: now_s)
    for number in range(100):
        now_s = number * INTERVAL_S / 50
        limited(logging.WARNING, "a", "bad %d", number)
    limited(logging.WARNING, "b", "other")
    shown = [record.getMessage() for record in caplog.records]
    assert shown[:FIRST_LINES] == [f"bad {number}" for number in range(FIRST_LINES)]
    assert shown[FIRST_LINES:] == ["bad 54 (and 49 more like this before it)", "other"]

    limited.flush()
    limited.flush()
    assert [record.getMessage() for record in caplog.records][-1] == "45 more lines like those about a were left out"
    assert len(caplog.records) == FIRST_LINES + 3


def test_ever_new_kinds_of_lines_are_limited_together(caplog: pytest.LogCaptureFixture) -> None:
    limited = LogLimit(logging.getLogger("streamproc.test"), clock=lambda: 0.0)
    for number in range(100 * KINDS_MAX):
        limited(logging.WARNING, f"kind {number}", "bad")
    assert len(caplog.records) == KINDS_MAX + FIRST_LINES
    limited.flush()
    assert sum(int(record.getMessage().split()[0]) for record in caplog.records[-1:]) == 99 * KINDS_MAX - FIRST_LINES


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_line_is_short_whatever_it_names_and_a_short_one_keeps_the_names(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    LogLimit(logging.getLogger("streamproc.test"))(logging.WARNING, "kind", "refused run=%s", "x" * size)
    [record] = caplog.records
    assert len(record.getMessage()) <= LINE_MAX
    assert named_values(record) == ({"run": "x" * size} if size == 10 else {})
