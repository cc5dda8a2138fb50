"""Log time as text."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from hypothesis import given, strategies as st

from streamproc.model.log_time import AT_MS_MAX, rfc3339


@given(st.integers(0, AT_MS_MAX))
def test_a_time_is_written_to_the_millisecond(at_ms: int) -> None:
    text = rfc3339(at_ms)
    assert text.endswith("Z")
    assert len(text) == len("2026-01-31T12:00:00.000Z")
    assert datetime.fromisoformat(text) == datetime.fromtimestamp(0, UTC) + timedelta(milliseconds=at_ms)


def test_times_of_the_same_second_keep_their_milliseconds() -> None:
    assert [rfc3339(1_769_860_800_000 + ms) for ms in (0, 7, 999)] == [
        "2026-01-31T12:00:00.000Z", "2026-01-31T12:00:00.007Z", "2026-01-31T12:00:00.999Z",
    ]  # fmt: skip
