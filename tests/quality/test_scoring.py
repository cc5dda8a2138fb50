"""Scoring of alarms against labels, one fact at a time."""

from __future__ import annotations

import math

import pytest

from benchmarks.quality import scoring
from benchmarks.quality.labels import Episode
from benchmarks.quality.scoring import ANY, Alarm

LOOP = Episode("LOOP003", onset=10, end=30, warn_at=11, halt_at=12)
SIGN = Episode("LOOP004", onset=50, end=70, warn_at=55, halt_at=None)


def halt(position: int, code: str = "LOOP003", id: str = "") -> Alarm:  # noqa: A002 - the field of an alarm
    return Alarm(code, True, position, id or f"{code}@{position}")


def warning(position: int, code: str = "LOOP003", message: str = "", run_id: str = "") -> Alarm:
    return Alarm(code, False, position, f"{code}~{position}", message, run_id)


def test_an_alarm_within_an_episode_belongs_to_it() -> None:
    assert scoring.match([halt(12), warning(60)], [LOOP, SIGN]).hits == {0: [halt(12)], 1: [warning(60)]}


@pytest.mark.parametrize("position", [9, 31])
def test_an_alarm_outside_every_episode_is_a_false_alarm(position: int) -> None:
    assert scoring.match([halt(position)], [LOOP]).false_alarms == [halt(position)]


@pytest.mark.parametrize("position", [10, 30])
def test_both_ends_of_an_episode_belong_to_it(position: int) -> None:
    assert not scoring.match([halt(position)], [LOOP]).false_alarms


def test_a_halt_of_a_loop_that_should_only_warn_is_a_false_alarm() -> None:
    assert scoring.match([halt(60)], [SIGN]).false_alarms == [halt(60)]


def test_a_warning_does_not_find_a_loop_that_must_be_halted() -> None:
    assert scoring.detection(LOOP, [warning(11)]) is None


def test_a_warning_finds_a_loop_that_should_only_warn() -> None:
    assert scoring.detection(SIGN, [warning(56, "LOOP004")]) == warning(56, "LOOP004")


def test_the_first_halt_finds_an_episode() -> None:
    assert scoring.detection(LOOP, [warning(11), halt(14), halt(13)]) == halt(13)


def test_an_unrelated_detector_has_not_found_the_loop() -> None:
    assert scoring.detection(LOOP, [halt(12, "STALL001")]) is None


def test_another_suitable_detector_may_report_the_loop() -> None:
    seen_by_both = Episode("LOOP003", 10, 30, 11, 12, also=("LOOP002",))

    assert scoring.detection(seen_by_both, [halt(12, "LOOP002")]) == halt(12, "LOOP002")


def test_a_rule_without_codes_matches_any_episode_and_an_episode_for_any_code_matches_any_alarm() -> None:
    without_code = Episode("INFRA", 10, 30, None, 12, also=(ANY,))

    assert scoring.detection(LOOP, [halt(12, ANY)]) == halt(12, ANY)
    assert scoring.detection(without_code, [halt(12, "ERROR009")]) == halt(12, "ERROR009")


def test_delay_is_counted_from_the_threshold_and_not_from_the_onset() -> None:
    assert scoring.delay(LOOP, halt(12)) == 0
    assert scoring.delay(LOOP, halt(17)) == 5
    assert scoring.delay(SIGN, warning(57)) == 2


def test_an_alarm_before_the_threshold_is_early() -> None:
    assert scoring.early([scoring.delay(LOOP, halt(11)), 0, 3]) == 1


def test_the_typical_delay_is_the_median() -> None:
    assert scoring.typical([0, 0, 0, 7, 90]) == 0


def test_delay_is_undefined_where_nothing_was_found() -> None:
    assert math.isnan(scoring.typical([]))


def test_recall_counts_an_episode_once() -> None:
    assert scoring.recall(49, 50) == 0.98


def test_recall_is_undefined_where_nothing_was_planted() -> None:
    assert math.isnan(scoring.recall(0, 0))


@pytest.mark.parametrize(("alarms", "in_time"), [([warning(11)], True), ([halt(11)], True), ([halt(12)], False)])
def test_a_warning_is_in_time_when_its_threshold_is_met(alarms: list[Alarm], in_time: bool) -> None:
    assert scoring.warned_in_time(LOOP, alarms) is in_time


def test_an_episode_without_a_warning_threshold_has_no_warning_in_time() -> None:
    assert scoring.warned_in_time(Episode("STALL001", 10, 30, None, 12), []) is None


def test_the_second_halt_of_an_episode_is_a_duplicate_even_from_another_detector() -> None:
    matching = scoring.match([halt(12), halt(20, "LOOP002")], [LOOP])

    assert scoring.duplicate_halts(matching) == [halt(20, "LOOP002")]


def test_a_repeated_id_is_a_duplicate() -> None:
    matching = scoring.match([halt(1, id="x"), halt(2, id="x")], [])

    assert len(scoring.duplicate_halts(matching)) == 1


def test_a_repeat_is_counted_once_even_if_it_has_the_same_id_too() -> None:
    matching = scoring.match([halt(12, id="x"), halt(13, id="x")], [LOOP])

    assert scoring.duplicate_halts(matching) == [halt(13, id="x")]


def test_halts_of_two_episodes_are_not_duplicates() -> None:
    later = Episode("LOOP001", 40, 48, None, 42)

    assert not scoring.duplicate_halts(scoring.match([halt(12), halt(42, "LOOP001")], [LOOP, later]))


def test_a_warning_and_a_halt_are_not_duplicates() -> None:
    assert not scoring.duplicate_halts(scoring.match([warning(11), halt(12)], [LOOP]))


def test_a_warning_every_turn_is_a_repeated_warning() -> None:
    alarms = [warning(turn, message=f"the same call at turns 10 and {turn}") for turn in (11, 12, 13)]

    assert len(scoring.repeated_warnings(scoring.match(alarms, [LOOP]))) == 2


def test_one_warning_for_each_run_of_a_tree_is_not_repeated_but_a_second_one_is() -> None:
    alarms = [warning(turn, message="28 of 34 runs", run_id=run_id) for turn in (11, 12) for run_id in ("root", "c1")]

    assert not scoring.repeated_warnings(scoring.match(alarms[:2], [LOOP]))
    assert scoring.repeated_warnings(scoring.match(alarms, [LOOP])) == alarms[2:]


def test_different_warnings_in_one_episode_are_not_repeated() -> None:
    alarms = [warning(11, message="ls at turn 11"), warning(12, message="cat at turn 12")]

    assert not scoring.repeated_warnings(scoring.match(alarms, [LOOP]))


def test_a_rate_is_given_per_thousand_turns() -> None:
    assert scoring.per_thousand(3, 12_000) == 0.25
    assert math.isnan(scoring.per_thousand(0, 0))


def test_turns_within_episodes_are_not_healthy_turns() -> None:
    assert scoring.honest_turns(100, [LOOP, SIGN]) == 100 - 21 - 21
