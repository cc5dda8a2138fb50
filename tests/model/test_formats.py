"""Money, ages and durations, as people read and type them."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, strategies as st

from streamproc.model.formats import age, clock, duration, grouped, money, read_duration, time_of_day, usd

NOW = 1_795_000_000_000


@pytest.mark.parametrize(
    ("micro", "text"),
    [
        (0, "0.00"), (400, "0.0004"), (4_200, "0.0042"), (420_000, "0.42"), (421_700, "0.4217"), (1_000_000, "1.00"),
        (1_250_000, "1.25"), (1_204_000_000, "1\u202f204.00"), (12_345_000_000, "12\u202f345.00"), (-50_000, "-0.05"),
    ],
)  # fmt: skip
def test_money_has_two_decimals_and_four_below_a_dollar_where_they_are_needed(micro: int, text: str) -> None:
    assert (usd(micro), money(micro)) == (text, f"{text} USD")


@given(st.integers(-(10**15), 10**15))
def test_money_is_off_by_less_than_half_a_cent_and_below_a_dollar_by_a_twentieth_of_that(micro: int) -> None:
    shown = float(usd(micro).replace("\u202f", "")) * 1_000_000
    assert abs(shown - micro) <= (5_000 if abs(micro) >= 1_000_000 else 50) * 1.001
    assert len(usd(micro).partition(".")[2]) in (2, 4)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0.0 s"), (500, "0.5 s"), (9_940, "9.9 s"), (10_000, "10 s"), (59_999, "59 s"), (125_000, "2 min 5 s"),
        (3_600_000, "1 h 0 min"), (90_061_000, "25 h"), (36_000_000_000, "10\u202f000 h"),
    ],
)  # fmt: skip
def test_a_duration_has_two_units(ms: int, text: str) -> None:
    assert duration(ms) == text


@given(st.integers(1, NOW))
def test_an_age_takes_four_columns_for_27_years_and_goes_one_way(at_ms: int) -> None:
    assert age(0, NOW) == ""
    assert age(NOW + 5, NOW) == "0s"
    shown = age(NOW - at_ms % (9_999 * 86_400_000), NOW)
    assert len(shown) <= 5
    assert shown[-1] in "smhd"


@pytest.mark.parametrize(
    ("text", "ms"),
    [("10s", 10_000), ("500ms", 500), ("2m", 120_000), ("1h", 3_600_000), ("0", 0), ("0.5", 500), (" 20 ", 20_000)],
)
def test_a_duration_is_read(text: str, ms: int) -> None:
    assert read_duration(text) == ms


@given(st.text(max_size=12))
def test_any_other_text_is_refused_and_nothing_else_is_raised(text: str) -> None:
    found = None
    with contextlib.suppress(ValueError):
        found = read_duration(text)
    assert found is None or found >= 0


def test_times_and_numbers() -> None:
    assert (clock(0), clock(1_769_860_800_000), time_of_day(1_769_860_800_000)) == (
        "", "2026-01-31 12:00:00", "12:00:00",
    )  # fmt: skip
    assert (grouped(9_999), grouped(10_000), grouped(-12_345_678)) == ("9999", "10\u202f000", "-12\u202f345\u202f678")
