"""What draws the charts: bars that lead to their runs, round scales, and no text of others that becomes markup."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest
from hypothesis import given, strategies as st

from streamproc.read_model.series import WINDOWS, SeriesBucket, SpendShare
from streamproc.report.markup import Html
from streamproc.web.moments import time_words
from streamproc.web.views.charts import bucket_href, charts_of, drawn_chart, scale_top, spend_list, switch, table
from tests.web.test_views import AT, golden, parsed

WINDOW: Final = WINDOWS["15m"]
EMPTY: Final = tuple(
    SeriesBucket(start_ms=AT + number * WINDOW.step_ms, end_ms=AT + (number + 1) * WINDOW.step_ms)
    for number in range(4)
)
BUSY: Final = (
    replace(EMPTY[0], turns=30, cost_usd_micro=1_200_000),
    replace(EMPTY[1], turns=45, halts=3, stops=1, warnings=2, delay_ms=84, late_ms=1_200),
    *EMPTY[2:],
)
SHARES: Final = (
    SpendShare(name="nightly", cost_usd_micro=900_000),
    SpendShare(name="", cost_usd_micro=200_000),
    SpendShare(name="", cost_usd_micro=100_000, others=True),
)


def markup(buckets: tuple[SeriesBucket, ...], shares: tuple[SpendShare, ...]) -> Html:
    charts = [drawn_chart(one, buckets) for one in charts_of(WINDOW, buckets)]
    return Html("\n").join([*charts, spend_list("workflow", shares, buckets), table(buckets), switch("15m")])


def test_the_charts_are_exactly_this() -> None:
    shown = markup(BUSY, SHARES)
    parsed(shown)
    golden("charts.html", shown + Html("\n"))


def test_a_bar_leads_to_what_happened_in_its_time() -> None:
    turns, halts, spend, delays = (drawn_chart(one, BUSY) for one in charts_of(WINDOW, BUSY))
    first = "since=2026-01-01T00%3A00%3A00Z&amp;until=2026-01-01T00%3A00%3A15Z"
    second = "since=2026-01-01T00%3A00%3A15Z&amp;until=2026-01-01T00%3A00%3A30Z"
    assert f'href="/?{first}"' in turns
    assert f'href="/?{first}"' in spend
    assert f'href="/decisions?severity=halt&amp;{second}"' in halts
    assert f'href="/decisions?{second}"' in delays
    assert [one.count("<a ") for one in (turns, halts, spend, delays)] == [2, 1, 1, 1]
    assert "3 halted, 1 stopped by people" in halts
    assert "median 84 ms, 95 % within 1.2 s" in delays
    assert bucket_href("/", BUSY[0]) == f"/?{first}".replace("&amp;", "&")


def test_charts_of_nothing_say_so() -> None:
    shown = markup(EMPTY, ())
    parsed(shown)
    assert "<a " not in "".join(drawn_chart(one, EMPTY) for one in charts_of(WINDOW, EMPTY))
    assert "no turn named its cost in the last 15 minutes" in shown
    assert "no decision in the last 15 minutes" in shown
    assert "Send `usage.cost_usd` with your turns" in shown


@given(most=st.floats(0, 1e15), least=st.floats(0.01, 1e6))
def test_a_scale_ends_at_a_round_number_that_is_not_far_above(most: float, least: float) -> None:
    top = scale_top(most, least)
    assert max(most, least) <= top * (1 + 1e-6)
    assert top <= 2.0001 * max(most, least)


@given(name=st.text(min_size=1, max_size=40))
def test_a_name_of_others_is_text(name: str) -> None:
    parsed(spend_list("user", (SpendShare(name=name, cost_usd_micro=1),), BUSY))


@pytest.mark.parametrize(
    ("since", "until", "begins"),
    [("2026-01-01T00:00:00Z", "2026-01-01T01:00:00Z", "from "), ("15m", "", "since "), ("", "15m", "before "),
     ("x", "", "")],
)  # fmt: skip
def test_a_stretch_of_time_in_words(since: str, until: str, begins: str) -> None:
    found = time_words(since, until)
    assert found.startswith(begins)
    assert bool(found) == bool(begins)
