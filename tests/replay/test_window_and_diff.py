"""The part of a log between two times, and the comparison with the control topic."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from streamproc.fleet.command_events import state_event
from streamproc.fleet.state import Fleet, new_command
from streamproc.kafka.reading import Extent
from streamproc.model.controls import ControlEvent, ControlEvidence, ControlTrigger
from streamproc.policy import Policy, load_policy
from streamproc.replay.causes import Causes
from streamproc.replay.diff import PublishedDecision, compare, read_published
from streamproc.replay.window import LogWindow, Selection
from tests.replay.records import record

WHOLE = {0: Extent(0, 100), 1: Extent(50, 100)}


def decision(name: str, partition: int = 0, offset: int = 10) -> ControlEvent:
    trigger = ControlTrigger(turn=1, topic="t.turns", partition=partition, offset=offset)
    return ControlEvent(
        id=name, type="loop.halted", run_id="r", code="LOOP001", severity="halt", message="Again.", trigger=trigger
    )


def published(name: str, partition: int = 0, offset: int = 10) -> PublishedDecision:
    found = read_published(msgspec.json.encode(decision(name, partition, offset)))
    assert found is not None
    return found


def diff(decided: list[ControlEvent], on_topic: list[PublishedDecision], committed: int = 100):
    return compare(decided, on_topic, WHOLE, {0: committed, 1: committed})


def test_the_same_decisions_on_both_sides_agree() -> None:
    found = diff([decision("a"), decision("b", 1, 60)], [published("b", 1, 60), published("a")])

    assert (found.same, found.agrees) == (2, True)


def test_an_unpublished_decision_is_missing_once_the_workers_have_committed_its_turn() -> None:
    found = diff([decision("a", offset=10), decision("b", offset=40)], [], committed=20)

    assert [one.id for one in found.missing] == ["a"]
    assert [one.id for one in found.pending] == ["b"]
    assert not found.agrees


def test_a_decision_only_on_the_control_topic_is_extra_within_the_log_and_outside_otherwise() -> None:
    found = diff([], [published("a"), published("b", 1, 49), published("c", 1, 100), published("d", 7, 0)])

    assert [one.id for one in found.extra] == ["a"]
    assert {one.id for one in found.outside} == {"b", "c", "d"}
    assert not found.agrees


def test_a_fleet_command_is_not_compared() -> None:
    command = new_command(Fleet(), "STOP", "fleet", "ada", "enough")
    state = read_published(msgspec.json.encode(state_event(command)))
    assert state is not None

    assert diff([decision("a")], [published("a"), state]) == diff([decision("a")], [published("a")])


def test_a_repetition_with_the_same_id_is_counted_and_harmless() -> None:
    found = diff([decision("a")], [published("a"), published("a")])

    assert (found.same, found.repeated, found.agrees) == (1, 1, True)


@pytest.mark.parametrize("value", [None, b"", b"nonsense", b"{}", b'{"id": 7}'])
def test_a_record_that_is_not_a_control_event_is_not_read(value: bytes | None) -> None:
    assert read_published(value) is None


def times(*pairs: tuple[int, int]) -> list:
    return [record({}, offset=offset, at_ms=at_ms) for offset, at_ms in pairs]


def test_without_bounds_the_window_is_the_whole_log() -> None:
    window = LogWindow(WHOLE, None, None)
    window.see(times((0, 5)))

    assert window.extents == WHOLE
    assert window.holds(decision("a"))


def test_bounds_are_inclusive_and_become_offsets() -> None:
    window = LogWindow(WHOLE, 20, 30)
    window.see(times((1, 10), (2, 20), (3, 25), (4, 30), (5, 31)))

    assert window.extents == {0: Extent(2, 5)}
    assert window.holds(decision("a", offset=4))
    assert not window.holds(decision("a", offset=5))
    assert not window.holds(decision("a", partition=1, offset=60))


def test_in_a_log_out_of_order_the_window_spans_the_first_to_the_last_match() -> None:
    window = LogWindow(WHOLE, 20, None)
    window.see(times((1, 30), (2, 10), (3, 25), (4, 5)))

    assert window.extents == {0: Extent(1, 4)}


# Pairs, and causes.

OURS = load_policy({"name": "ours", "detectors": {"LOOP003": {"halt": 5}, "LOOP002": False}})
STANDARD = load_policy()


def at_turn(
    turn: int, *, code: str = "LOOP003", run: str = "r", policy: Policy = OURS, offset: int = 10
) -> ControlEvent:
    trigger = ControlTrigger(turn=turn, topic="t.turns", partition=0, offset=offset)
    return ControlEvent(
        id=f"{run}/{code}/{turn}/{policy.hash}", type="loop.halted", run_id=run, code=code, severity="halt",
        message="Again.", trigger=trigger, policy=policy.ref, evidence=ControlEvidence(kind="call", count=3),
    )  # fmt: skip


def on_topic(*arguments: Any, **options: Any) -> PublishedDecision:
    found = read_published(msgspec.json.encode(at_turn(*arguments, policy=options.pop("policy", STANDARD), **options)))
    assert found is not None
    return found


def explained(decided: list[ControlEvent], on: list[PublishedDecision], **options: Any) -> list[tuple[str, str, str]]:
    causes = Causes(OURS, on, **options)
    return [(one.kind, one.why, one.detail) for one in causes.explain(diff(decided, on))]


def test_the_same_decision_of_another_policy_is_no_difference() -> None:
    found = diff([at_turn(7)], [on_topic(7)])

    assert (found.same, len(found.renamed), found.agrees) == (0, 1, True)
    assert Causes(OURS, [on_topic(7)]).renamed(found.renamed) == {f"standard {STANDARD.version} ({STANDARD.hash})": 1}


def test_a_decision_that_moved_is_one_difference_and_the_nearest_ones_are_paired() -> None:
    found = diff([at_turn(35)], [on_topic(11), on_topic(34)])

    assert [(pair.turns_later, pair.published.turn) for pair in found.moved] == [(1, 34)]
    assert ([one.turn for one in found.extra], found.missing) == ([11], [])


def test_decisions_of_other_detectors_and_runs_are_not_paired() -> None:
    found = diff([at_turn(7, code="LOOP001"), at_turn(7, run="s")], [on_topic(7)])

    assert (len(found.missing), len(found.extra), found.moved, found.renamed) == (2, 1, [], [])


def test_where_both_policies_are_known_the_settings_that_differ_are_named() -> None:
    [(kind, why, detail)] = explained([at_turn(9)], [on_topic(7)])

    assert (kind, why) == ("later", "policy")
    assert detail == f"published under standard {STANDARD.version} ({STANDARD.hash}): LOOP003.halt 3 there and 5 here"
    [(_, _, off)] = explained([], [on_topic(7, code="LOOP002")])
    assert off.endswith(": LOOP002 on there and off here")
    [(_, _, other)] = explained([], [on_topic(7, code="LOOP009")])
    assert other.endswith(": LOOP002 on there and off here; LOOP003.halt 3 there and 5 here")


def test_where_only_ours_is_known_it_tells_what_it_can() -> None:
    theirs = load_policy({"name": "theirs", "detectors": {"LOOP003": {"halt": 4}}})

    [(_, _, limit)] = explained([at_turn(9)], [on_topic(7, policy=theirs)])
    [(_, _, off)] = explained([], [on_topic(7, code="LOOP002", policy=theirs)])

    assert limit.endswith(": LOOP003.halt is 5 here, and it was published at 3")
    assert off.endswith(": LOOP002 is off here")
    assert [why for _, why, _ in explained([], [on_topic(7, policy=theirs)], known=[theirs])] == ["policy"]


def test_with_the_same_policy_the_engine_differs() -> None:
    assert [why for _, why, _ in explained([at_turn(9)], [on_topic(7, policy=OURS)])] == ["engine"]


def test_the_same_decision_of_the_same_policy_under_another_id_is_a_difference() -> None:
    on = on_topic(7, policy=OURS)._replace(id="another")

    assert [one[:2] for one in explained([at_turn(7)], [on])] == [("other-id", "engine")]
    assert not diff([at_turn(7)], [on]).agrees


def test_a_log_without_the_beginning_of_a_run_is_the_cause() -> None:
    on = [on_topic(7, policy=OURS, offset=60)]

    found = explained([at_turn(3, offset=61)], on, turn_at={(0, 60): 2}, begins={0: 50})

    assert found == [("earlier", "retention", "the log no longer has the beginning of the run (at least 5 turns)")]


def test_decisions_older_than_the_control_topic_are_not_called_a_defect() -> None:
    on = [on_topic(7, policy=OURS, offset=60)]

    [(kind, why, _)] = explained([at_turn(2, offset=10), at_turn(7, offset=60)], on, control_begins={0: 3})

    assert (kind, why) == ("missing", "retention")


def test_a_missing_decision_is_explained_by_the_policy_in_force_at_its_place() -> None:
    on = [on_topic(1, run="s", offset=5), on_topic(1, run="t", policy=OURS, offset=50)]
    kept = [at_turn(1, run="s", offset=5), at_turn(1, run="t", offset=50)]

    [early] = explained([*kept, at_turn(7, offset=20)], on)
    [late] = explained([*kept, at_turn(7, offset=70)], on)

    assert (early[:2], late[:2]) == (("missing", "policy"), ("missing", "engine"))


def test_a_control_event_that_no_worker_has_signed_is_called_unsigned() -> None:
    assert [why for _, why, _ in explained([], [on_topic(7)._replace(signed=False)])] == ["unsigned"]


def test_a_selection_looks_at_run_workflow_and_user() -> None:
    one = at_turn(7).model_copy(update={"workflow": "nightly", "user": "ada"})

    assert Selection().holds(one)
    assert Selection("r", "nightly", "ada").holds(one)
    assert not any(only.holds(one) for only in (Selection("s"), Selection(workflow="w"), Selection(user="eve")))


def test_a_window_within_offsets_ends_with_them() -> None:
    window = LogWindow({0: Extent(2, 4)}, 10, None)
    window.see(times((1, 20), (2, 20), (3, 20), (4, 20)))

    assert window.extents == {0: Extent(2, 4)}
