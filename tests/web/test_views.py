"""What draws the views: exactly this markup for these rows, and no text becomes markup."""

from __future__ import annotations

import os
import time
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

import html5lib
import pytest
from hypothesis import given, strategies as st

from streamproc.policy import load_policy
from streamproc.read_model.rows import (
    AccountRow,
    DecisionRow,
    FleetCounts,
    FleetPage,
    LiveRun,
    PartitionHealth,
    PolicyRow,
    RefusedRow,
    RunFilter,
)
from streamproc.read_model.run_filters import fits
from streamproc.report.drawings import TimelineForm, timeline
from streamproc.report.markup import Html, tag
from streamproc.report.policy_values import PolicyScope
from streamproc.report.writing import report_of
from streamproc.web.keys import element_id, query_of, run_href
from streamproc.web.views.accounts import account_table
from streamproc.web.views.decisions import decision_row
from streamproc.web.views.fleet import run_list
from streamproc.web.views.health import partitions, refused
from streamproc.web.views.policies import seen_section, values_sections
from streamproc.web.views.run import fingerprints, now_line, widths_of
from streamproc.web.views.run_rows import ListView, group_of, more, run_row
from streamproc.web.views.small import identicon, loop_badge, share_bar, sparkline
from streamproc.web.views.strip import FleetStanding, headline, shown_delay, strip
from streamproc.web.views.what_if import difference
from tests.report.runs import HOSTILE, looping, recorded, written

GOLDEN: Final = Path(__file__).parent / "golden"
AT: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z
RUN: Final = LiveRun(
    run_id="nightly/42", status="halted", severity="halt", workflow="nightly", tenant="acme", user="ada",
    badge="Loop 3/8", code="LOOP003", message="bash returned the same result.", failing_trend=(9, 7, 7, 7),
    turns=12_345, total_tokens=1_000, cost_usd_micro=1_250_000, at_ms=AT, halted_at_ms=AT,
)  # fmt: skip
WARNED: Final = replace(RUN, run_id="b", status="running", severity="warn", badge="", failing_trend=(), halted_at_ms=0)
COUNTS: Final = FleetCounts(
    at_ms=AT, working=7, warned=1, halted=1, turns_per_second=3.25, spend_usd_micro_per_hour=12_000_000, delay_ms=84,
    caught_up=True, read_share=1.0,
)  # fmt: skip
ELEMENTS: Final = {
    "section", "div", "span", "p", "h1", "h2", "h3", "dl", "dt", "dd", "ul", "ol", "li", "b", "strong", "small", "a",
    "bdi", "code", "table", "caption", "thead", "tbody", "tr", "th", "td", "time", "svg", "title", "rect", "path",
    "details", "summary", "circle", "progress", "input", "figure", "figcaption", "label", "output", "pre", "text", "g",
    "line",
}  # fmt: skip
anything = st.text(max_size=40)


def parsed(markup: str) -> Any:
    """Parse a fragment as browsers do; a mistake in it, or an element or attribute that is not ours, fails."""
    parser = html5lib.HTMLParser(namespaceHTMLElements=False)
    tree = parser.parse(f"<!DOCTYPE html><title>x</title><main>{markup}</main>").find("body/main")
    assert parser.errors == []
    for one in tree.iter():
        name = one.tag.rpartition("}")[2] if isinstance(one.tag, str) else "comment"
        assert name in ELEMENTS | {"main"}, name
        assert not [key for key in one.attrib if key.startswith("on") or key in ("style", "src")]
        assert one.get("href", "/").startswith(("/", "#"))
    return tree


def drawn(run: LiveRun) -> Html:
    """The row of a run, in a table."""
    return tag("table", tag("tbody", run_row(run)))


def golden(name: str, markup: str) -> None:
    """Compare with a file. `STREAMPROC_GOLDEN=write` writes it again: look at the difference before you commit it."""
    path = GOLDEN / name
    if os.environ.get("STREAMPROC_GOLDEN") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(markup)
    assert markup == path.read_text()


def test_the_fleet_is_exactly_this() -> None:
    found = FleetPage(rows=(RUN, replace(RUN, run_id="c", badge="Loop 9")), total=240)
    parts = [
        strip(FleetStanding(COUNTS, 1)),
        run_list({
            "halted": found, "warned": FleetPage(rows=(WARNED,), total=1), "others": FleetPage(rows=(), total=0),
        }, ListView(RunFilter(workflow="nightly"), "-turns", selectable=True)),
    ]  # fmt: skip
    markup = Html("\n").join(parts)
    parsed(markup)
    golden("fleet.html", markup + "\n")


@pytest.mark.parametrize(
    ("counts", "halted", "sentence", "state"),
    [
        (COUNTS, 1, "1 run halted in the last hour", "halted"),
        (COUNTS, 0, "1 run with a warning", "warned"),
        (replace(COUNTS, warned=0), 0, "Nothing is stuck", "fine"),
        (replace(COUNTS, fleet_status="STOP", fleet_by="ada", fleet_why="cost"), 0, "The fleet is stopped", "halted"),
        (replace(COUNTS, fleet_status="PAUSE"), 0, "The fleet is paused", "warned"),
    ],
)
def test_the_headline_says_how_the_fleet_stands(counts: FleetCounts, halted: int, sentence: str, state: str) -> None:
    standing = FleetStanding(counts, halted)
    assert headline(standing) == sentence
    assert f'class="strip {state}"' in strip(standing)
    assert ("by <bdi" in strip(standing)) == bool(counts.fleet_by)


def test_the_strip_says_over_what_time_its_numbers_are() -> None:
    shown = strip(FleetStanding(replace(COUNTS, working=8, lost=3), 2, stopped=1))
    assert ">8<small>1 of them warned" in shown
    assert ">2<small>by detectors and budgets, last hour" in shown
    assert ">1</a><small>by people, last hour" in shown
    assert "rate of the last 15 minutes" in shown
    assert "from turn to decision, median of the last minute" in shown
    assert ">3</a><small>no event for a long time" in shown
    assert "no decision in the last minute" in strip(FleetStanding(replace(COUNTS, delay_ms=None), 0))
    assert [shown_delay(ms) for ms in (84, 1_250, 61_000)] == ["84 ms", "1.2 s", "1 min 1 s"]


def test_a_run_that_a_person_has_stopped_is_no_red_halt() -> None:
    stopped = replace(RUN, code="OPERATOR001")
    assert group_of(stopped) == "stopped"
    assert 'class="row-others"' in run_row(stopped)
    assert "stopped</span>" in run_row(stopped)
    assert group_of(replace(RUN, halted_at_ms=int(time.time() * 1000))) == "halted"


def test_a_page_that_is_reading_says_how_far_it_is() -> None:
    shown = strip(FleetStanding(replace(COUNTS, caught_up=False, read_share=0.4), 0))
    assert "Reading the topics: 40 %" in shown
    assert "3000 records behind" in strip(FleetStanding(replace(COUNTS, behind_records=3_000), 0))
    assert "reading" not in strip(FleetStanding(COUNTS, 0))


def test_what_is_not_on_the_page_is_a_link_away() -> None:
    chosen = ListView(RunFilter(workflow="a b"), "-cost")
    found = FleetPage(rows=(RUN,) * 3, total=240)
    assert '<a href="/?workflow=a+b&amp;sort=-cost&amp;group=halted&amp;offset=120">237 more' in more(
        "halted", found, chosen
    )
    assert "<a" not in more("halted", FleetPage(rows=(RUN,), total=1), chosen)
    assert "Back" in more("halted", found, chosen, 120)


def test_a_filter_is_the_read_models() -> None:
    assert fits(RUN, RunFilter(workflow="nightly", text="RETURNED"))
    assert fits(RUN, RunFilter(status="halted"))
    assert not fits(RUN, RunFilter(workflow="night"))
    assert not fits(RUN, RunFilter(text="elsewhere"))
    assert fits(replace(RUN, started_ms=AT - 1_000), RunFilter(since="2026-01-01T00:00:00Z", until="2026-01-01T01:00Z"))
    assert not fits(RUN, RunFilter(since="2026-01-01T00:00:01Z"))
    assert not fits(replace(RUN, started_ms=AT), RunFilter(until="2026-01-01T00:00:00Z"))
    assert fits(RUN, RunFilter(since="yesterday"))
    assert query_of(RunFilter()) == ""


@pytest.mark.parametrize(
    ("run_id", "href"),
    [
        ("a/b c", "/runs/a%2Fb%20c"), ("..", "/run/?id=.."), ("a?b#c%", "/runs/a%3Fb%23c%25"), ("\ud800", "/runs/%3F"),
    ],
)  # fmt: skip
def test_the_address_of_a_run_is_quoted_once(run_id: str, href: str) -> None:
    assert run_href(run_id) == href
    assert element_id(run_id).isalnum()


def test_a_badge_shows_its_steps() -> None:
    assert loop_badge("Loop 3/8").count("step-done") == 3
    assert "over" in loop_badge("Loop 8/8")
    assert "<svg" not in loop_badge("Loop 3/999") + loop_badge("Loop 3") + loop_badge("<b>")
    assert loop_badge("") == ""


def test_a_trend_is_flat_or_falls() -> None:
    assert "falling" in sparkline((8, 6, 4, 2))
    assert "flat" in sparkline((9, 7, 7, 7))
    assert "flat" in sparkline((2, 4))
    assert sparkline((3,)) == ""


def test_equal_hashes_look_equal_and_others_do_not() -> None:
    assert identicon(-1) == identicon(0xFFFFFFFFFFFFFFFF)
    assert len({identicon(0x9E3779B97F4A7C15 * number) for number in range(1, 200)}) == 199


def test_the_timeline_of_a_page_has_links_widths_and_open_turns(tmp_path: Path) -> None:
    recording = recorded(written(tmp_path, looping()))
    history = recording.histories["loop"]
    report = report_of(recording, "loop")
    plain = timeline(report)
    assert "<a" not in plain
    assert 'role="img"' in plain
    by_time = widths_of(report, history, "time")
    assert by_time == [0.0, *[10_000.0] * 11]
    assert widths_of(report, history, "turns") is None
    drawing = timeline(report, TimelineForm(by_time, lambda one: f"/?decision={one.id}", ("coder",)))
    parsed(drawing)
    assert drawing.count('class="flag-link"') == 2
    assert drawing.count("open-turn") == 1
    assert 'role="group"' in drawing
    assert drawing != plain


def test_without_texts_there_are_fingerprints(tmp_path: Path) -> None:
    history = recorded(written(tmp_path, looping())).histories["loop"]
    shown = fingerprints(history, [5, 6, 7])
    parsed(shown)
    drawings = [part.partition("</svg>")[0] for part in shown.split("<svg")[1:]]
    assert len(drawings) == 6
    assert len(set(drawings)) == 2


def difference_of(**changes: Any) -> str:
    """What changes between two policies on ten runs."""
    same = {"run_id": "a", "change": "same", "code": "LOOP003", "turn": 3, "turns_saved": 4, "first_code": "LOOP003"}
    before = {
        "runs": 10, "halted": 1, "warned": 2, "turns_saved": 4, "cost_usd_saved": None, "false_halts": None,
        "new": 0, "earlier": 0, "later": 0, "never": 0, "halts": [same | {"first_turn": 3}],
    }  # fmt: skip
    return difference(before, before | changes)


def test_a_policy_that_changes_nothing_says_so() -> None:
    assert "Nothing changes: all 10 runs end as they did." in difference_of()


def test_runs_that_ended_well_and_would_be_halted_come_first() -> None:
    halt = {"change": "new", "code": "LOOP001", "turn": 2, "turns_saved": 9, "first_code": None, "first_turn": None}
    gone = {"run_id": "b", "change": "never", "code": None, "turn": None, "turns_saved": 0, "first_code": "X",
            "first_turn": 1}  # fmt: skip
    halts = [gone, halt | {"run_id": "fine"}, halt | {"run_id": "also new"}]
    shown = difference_of(halts=halts, false_halts=["fine"], new=2, never=1, halted=2)
    rows = parsed(shown).findall(".//tbody/tr")
    assert ["".join(row.find("td").itertext()) for row in rows] == ["fine", "also new", "b"]
    assert "ended well, would now be halted" in "".join(rows[0].itertext())
    assert "3 runs of 10 would have ended otherwise." in shown


def test_two_policies_at_once_are_a_roll_out() -> None:
    one = PolicyRow(name="a", version="1", hash="h1", first_ms=AT, last_ms=AT, decisions=3)
    other = replace(one, hash="h2", last_ms=AT - 1_000)
    assert "a roll-out" in seen_section((one, other), "h1")
    assert "another policy" in seen_section((other,), "h1")
    assert 'class="note"' not in seen_section((one, replace(other, last_ms=AT - 10_000_000)), "h1")


def test_values_have_their_lines(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("name: mine\npresets: [standard]\ndetectors:\n  LOOP003: { halt: 9 }\n")
    shown = Html().join(values_sections(load_policy(path), str(path), PolicyScope()))
    parsed(shown)
    rows = {"".join(row.itertext()) for row in parsed(shown).iter("tr")}
    assert any("halt9" in row and row.endswith(f"{path}:4") for row in rows)


def test_a_forecast_is_near_far_or_over() -> None:
    row = AccountRow(scope="user:ada", budget="maxUserCostUsd", spent=9.0, limit=10.0, unit="USD")
    assert "not within a day" in account_table([row])
    assert "reached" in account_table([replace(row, spent=1e7)])
    assert 'class="sev-warn"' in account_table([replace(row, limit_at_ms=AT)])
    assert "bar-near" in account_table([row])
    assert "9.00 USD" in account_table([row])


def filled(row: type, text: str) -> Any:
    """A row whose every text is this."""
    given_ = {one.name: text for one in fields(row) if one.type == "str"}
    numbers = {one.name: 1 for one in fields(row) if one.type in ("int", "float") and one.name not in given_}
    return row(**numbers | given_)


@pytest.mark.long
@given(anything)
@pytest.mark.parametrize("hostile", [True, False])
def test_no_text_becomes_markup(hostile: bool, text: str) -> None:
    text = HOSTILE + text if hostile else text
    run = replace(filled(LiveRun, text), status="halted", severity="halt")
    decision, account = filled(DecisionRow, text), filled(AccountRow, text)
    refusal, policy, health = filled(RefusedRow, text), filled(PolicyRow, text), filled(PartitionHealth, text)
    counts = replace(filled(FleetCounts, text), fleet_status="STOP", caught_up=True)
    parsed(drawn(run))
    parsed(now_line(run))
    parsed(tag("table", tag("tbody", decision_row(decision))))
    parsed(strip(FleetStanding(counts, 1)))
    parsed(account_table([account]))
    parsed(refused([refusal]) + partitions([health]) + seen_section((policy,), text))
    parsed(share_bar(1, 2, text) + loop_badge(text))
    parsed(more("halted", FleetPage(rows=(), total=9_999), ListView(filled(RunFilter, text), text)))
