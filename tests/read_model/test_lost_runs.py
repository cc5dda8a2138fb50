"""Runs whose publisher is gone are lost: counted apart, in no default list, and back with their next event."""

from __future__ import annotations

import time

from hypothesis import given, strategies as st

from streamproc.fleet.lost_runs import STATUS_EVERY_MS, is_lost
from streamproc.fleet.record_signing import read_status
from streamproc.model import wire
from streamproc.model.controls import RunStatus
from streamproc.policy.files import LOST_AFTER_S_MIN
from streamproc.read_model.model import ReadModel
from streamproc.read_model.rows import RunFilter, RunGroup
from tests.read_model.deployment import Deployment, filled, turn

LOST_AFTER_MS = LOST_AFTER_S_MIN * 1_000
GROUPS: tuple[RunGroup, ...] = ("halted", "warned", "others", "lost")


def groups(model: ReadModel, **chosen: str) -> dict[RunGroup, list[str]]:
    found = {group: model.runs(group, RunFilter(**chosen)) for group in GROUPS}
    assert all(page.total == len(page.rows) for page in found.values())
    assert all(row.group == group for group, page in found.items() for row in page.rows)
    return {group: sorted(row.run_id for row in page.rows) for group, page in found.items()}


def test_a_silent_run_leaves_the_lists_and_an_event_brings_it_back() -> None:
    made, model = Deployment(), ReadModel()
    made.now_ms = int(time.time() * 1000) - 2 * LOST_AFTER_MS
    made.send(wire.RunStarted(w=1, run_id="finished", event_id="s"))
    made.send(wire.RunFinished(w=1, run_id="finished", event_id="f"))
    for number in range(4):
        made.send(turn("halted", number, "I will try again."))
    for number in range(2):
        made.send(turn("warned", number, "I will try again."))
    made.send(turn("quiet", 0))
    made.send(turn("working", 0))
    made.now_ms = int(time.time() * 1000) - 1_000
    made.send(turn("working", 1))
    filled(model, made)
    assert groups(model)["lost"] == []

    model.lost_after_ms = LOST_AFTER_MS

    assert groups(model) == {
        "halted": ["halted"], "warned": [], "others": ["finished", "working"], "lost": ["quiet", "warned"],
    }  # fmt: skip
    counts = model.counts(int(time.time() * 1000))
    assert (counts.halted, counts.warned, counts.working, counts.lost) == (1, 0, 1, 2)
    assert groups(model, status="lost") == {"halted": [], "warned": [], "others": [], "lost": ["quiet", "warned"]}
    assert groups(model, text="quiet")["lost"] == ["quiet"]
    run = model.run("warned")
    assert (run.lost, run.group) == (True, "lost")

    made.send(turn("quiet", 1))
    filled(model, made)
    assert groups(model)["lost"] == ["warned"]
    assert groups(model)["others"] == ["finished", "quiet", "working"]


PAUSES_MS = st.lists(st.integers(1, 2 * STATUS_EVERY_MS), min_size=1, max_size=12)


@given(pauses=PAUSES_MS, later_ms=st.integers(0, 2 * LOST_AFTER_MS))
def test_the_topic_of_statuses_alone_says_which_run_is_lost(pauses: list[int], later_ms: int) -> None:
    """A run without decisions publishes its status often enough that it is never lost while it works, and always once
    it was silent for long enough."""
    made = Deployment()
    for number, pause_ms in enumerate(pauses):
        made.now_ms += pause_ms
        made.send(turn("r", number))
    heard_ms = made.records("turns")[-1].timestamp
    status = read_status(made.records("runs")[-1].value)
    assert isinstance(status, RunStatus)
    at_ms = [record.timestamp for record in made.records("turns") if record.offset == status.offset][-1]

    lost = is_lost(status.status, at_ms, heard_ms + later_ms, LOST_AFTER_MS)

    if later_ms < LOST_AFTER_MS - STATUS_EVERY_MS:
        assert not lost
    if later_ms > LOST_AFTER_MS:
        assert lost


def test_only_running_runs_are_lost_and_none_if_the_policy_says_so() -> None:
    assert is_lost("running", 1, 5_002, 5_000)
    assert not is_lost("running", 2, 5_002, 5_000)
    assert not is_lost("running", 0, 5_002, 5_000)
    assert not is_lost("running", 1, 5_002, 0)
    assert not is_lost("halted", 1, 5_002, 5_000)
    assert not is_lost("finished", 1, 5_002, 5_000)
