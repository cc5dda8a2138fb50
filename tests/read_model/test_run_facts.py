"""The row of a run, from what each topic says: in every order, and with what workers say late."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import pytest

from streamproc.model.controls import ControlEvent, ControlTrigger, RunStatus
from streamproc.read_model.run_facts import (
    RunFacts,
    finding_facts,
    live_run,
    note_current,
    note_finding,
    note_status,
    status_facts,
)

Note = tuple["Callable[[RunFacts, object], None]", object]


def status(offset: int, state: str = "running", severity: str = "info") -> Note:
    found = RunStatus(run_id="r", status=state, severity=severity, partition=0, offset=offset)
    return note_status, status_facts(found, 1_000 + offset)


def finding(offset: int, severity: str, *, resumed: bool = False, at_ms: int = 0) -> Note:
    found = ControlEvent(
        id=f"{offset}/{severity}", type="run.resumed" if resumed else "loop.warning", run_id="r",
        code=f"{severity}{offset}", severity=severity, message="m", trigger=ControlTrigger(partition=0, offset=offset),
    )  # fmt: skip
    return note_finding, finding_facts(found, at_ms or 1_000 + offset)


def row_of(*notes: Note) -> tuple[str, str, str] | None:
    run = RunFacts()
    for note, news in notes:
        note(run, news)
    row = live_run("r", run)
    return None if row is None else (row.status, row.severity, row.code)


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (status(1), finding(2, "warn"), ("running", "warn", "warn2")),
        (status(1), finding(2, "halt"), ("halted", "halt", "halt2")),
        (status(3), finding(2, "warn"), ("running", "info", "")),  # it has got better since
        (status(3, "running", "warn"), finding(2, "warn"), ("running", "warn", "warn2")),
        (status(2, "halted", "halt"), finding(2, "halt"), ("halted", "halt", "halt2")),
        (status(2, "halted", "halt"), finding(3, "info", resumed=True), ("running", "info", "")),
        (status(3, "finished"), finding(2, "warn"), ("finished", "info", "")),
    ],
)
def test_the_later_event_of_a_run_decides_whichever_is_read_first(first, second, expected) -> None:
    assert row_of(first, second) == row_of(second, first) == expected


def test_of_two_decisions_on_one_event_the_more_severe_is_in_force() -> None:
    for order in permutations((status(1), finding(2, "warn"), finding(2, "halt"))):
        assert row_of(*order) == ("halted", "halt", "halt2")


def test_what_a_worker_says_that_has_lost_its_partition_changes_nothing() -> None:
    assert row_of(status(5, "halted", "halt"), status(4)) == ("halted", "halt", "")
    late = finding(4, "halt", at_ms=1_900)
    assert row_of(status(1), finding(5, "info", resumed=True), late) == ("running", "info", "")


def current(offset: int, turns: int, state: str = "running") -> Note:
    found = RunStatus(
        run_id="r", status=state, severity="info", partition=0, offset=offset, turns=turns, badge=f"Loop {turns}/8"
    )
    return note_current, status_facts(found, 1_000 + offset)


def test_a_current_status_brings_the_figures_of_a_run_that_works_up_to_date_in_any_order() -> None:
    for notes in permutations((current(5, 4), current(9, 7), current(7, 6))):
        run = RunFacts()
        for note, news in (status(1), *notes):
            note(run, news)
        row = live_run("r", run)
        assert (row.status, row.turns, row.badge) == ("running", 7, "Loop 7/8")


@pytest.mark.parametrize(
    "known", [status(2, "halted", "halt"), status(2, "finished"), status(9, "halted", "halt"), finding(9, "halt")]
)
def test_a_current_status_never_says_that_a_run_goes_on(known) -> None:
    begun = status(1)
    assert row_of(begun, known, current(5, 4)) == row_of(begun, known)
    assert row_of(begun, current(5, 4), status(9, "halted", "halt")) == row_of(begun, status(9, "halted", "halt"))
    assert row_of(current(5, 4)) is None


def test_a_run_without_a_status_has_no_row() -> None:
    assert row_of(finding(2, "halt")) is None
    assert row_of(finding(2, "halt"), status(1), (note_status, 0)) is None
