"""The table of the page has all frameworks and rows, and says what the suite says."""

from __future__ import annotations

from pathlib import Path

import pytest

from docs.tables import marks
from tests.conformance.sessions import SameSession
from tests.conformance.suite import Conformance
from tests.conformance.table import FRAMEWORKS, NAME, PAGE, ROWS, Found, read, table, write

BEGIN, END = marks(NAME)
ALL = {(framework, row): Found("passed") for framework in FRAMEWORKS.values() for row in ROWS}


def test_every_row_of_the_suite_has_a_title() -> None:
    tests = set(dir(Conformance)) - set(dir(SameSession))  # sessions are judged alike everywhere: no rows
    rows = {name.removeprefix("test_") for name in tests if name.startswith("test_")}
    assert rows == set(ROWS)


def test_the_page_has_every_framework_and_row() -> None:
    shown = PAGE.read_text().partition(BEGIN)[2].partition(END)[0]
    header, _, *lines = shown.strip().splitlines()
    assert [cell.strip() for cell in header.strip("|").split("|")][1:] == list(FRAMEWORKS.values())
    assert [line.strip("|").split("|")[0].strip() for line in lines if line.startswith("|")] == list(ROWS.values())


def test_a_row_that_failed_or_is_missing_makes_no_table() -> None:
    key = ("CrewAI", "money")
    for broken in (ALL | {key: Found("failed")}, {one: found for one, found in ALL.items() if one != key}):
        with pytest.raises(ValueError, match="CrewAI/money"):
            table(broken)


def test_a_row_that_makes_no_sense_has_its_reason_below() -> None:
    shown = table(ALL | {("AG2", "stuck_hand_overs"): Found("skipped", "no hand-overs")})
    assert "n/a (1)" in shown
    assert shown.endswith("\n1. no hand-overs")


def test_reports_are_read_and_written_into_a_page(tmp_path: Path) -> None:
    cases = "".join(
        f'<testcase classname="tests.x.{framework}" name="test_{row}"/>' for framework in FRAMEWORKS for row in ROWS
    )
    report, page = tmp_path / "report.xml", tmp_path / "page.md"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    assert read([report]) == ALL
    write([report], page)
    assert page.read_text() == f"before\n{BEGIN}\n{table(ALL)}\n{END}\nafter\n"
