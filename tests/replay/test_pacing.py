"""The due time of each event of a file."""

from __future__ import annotations

import itertools

import pytest

from streamproc.errors import InvalidSettings
from streamproc.model.raw_events import parse_raw
from streamproc.replay.pacing import SendingPace, read_pace, timed
from streamproc.replay.source import Line


def lines(*events: tuple[str, int | None]) -> list[Line]:
    """Make events from (run, seconds after the first; None for no time)."""
    base_ms = 1_750_000_000_000
    made = []
    for number, (run_id, at_s) in enumerate(events, start=1):
        at = None if at_s is None else base_ms + at_s * 1000
        made.append(Line(number, parse_raw({"run_id": run_id, "node": "n", "at": at})))
    return made


@pytest.mark.parametrize(("text", "pace"), [
    ("max", SendingPace()), ("200", SendingPace(per_s=200.0)), ("0.5", SendingPace(per_s=0.5)),
    ("realtime", SendingPace(factor=1.0)), ("10x", SendingPace(factor=10.0)), ("2.5x", SendingPace(factor=2.5)),
])  # fmt: skip
def test_every_form_of_a_speed_is_parsed(text: str, pace: SendingPace) -> None:
    assert read_pace(text) == pace


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "0x", "nan", "inf", "x", "1e30"])
def test_an_invalid_speed_gets_an_error_that_lists_the_forms(text: str) -> None:
    with pytest.raises(InvalidSettings, match="use max"):
        read_pace(text)


def test_at_max_events_are_not_delayed_and_the_file_is_not_read_ahead() -> None:
    endless = (line for _ in itertools.count() for line in lines(("a", 0)))

    assert [due for due, _ in itertools.islice(timed(endless, SendingPace()), 3)] == [0.0, 0.0, 0.0]


def test_a_rate_spaces_events_evenly() -> None:
    assert [due for due, _ in timed(lines(("a", 0), ("a", 99), ("b", 5)), SendingPace(per_s=4.0))] == [0.0, 0.25, 0.5]


def test_with_a_factor_all_runs_start_together_and_keep_their_gaps() -> None:
    """Runs that were recorded one after the other are sent side by side."""
    events = lines(("a", 0), ("a", 10), ("a", 30), ("b", 1000), ("b", 1015))

    played = list(timed(events, SendingPace(factor=5.0)))

    assert [(due, line.raw.run_id) for due, line in played] == [(0, "a"), (0, "b"), (2, "a"), (3, "b"), (6, "a")]


def test_an_event_without_a_time_is_due_with_the_one_before_it_and_order_is_kept() -> None:
    events = lines(("a", None), ("a", 0), ("a", None), ("a", 10), ("a", 4), ("a", 20))

    played = list(timed(events, SendingPace(factor=1.0)))

    assert [due for due, _ in played] == [0, 0, 0, 10, 10, 20]
    assert [line.number for _, line in played] == [1, 2, 3, 4, 5, 6]


def test_a_file_without_times_has_no_recorded_speed() -> None:
    with pytest.raises(InvalidSettings, match="no event has a time"):
        list(timed(lines(("a", None), ("b", None)), SendingPace(factor=1.0)))


def test_an_empty_file_has_no_events() -> None:
    assert list(timed([], SendingPace(factor=1.0))) == []
