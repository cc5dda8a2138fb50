"""Files of outcomes, those that others write included, and the labels that feedback becomes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamproc.errors import InvalidEvent
from streamproc.model.wire import Feedback
from streamproc.replay.outcomes import RunLabel, beside, outcomes_json, read_outcomes, with_feedback


def written(path: Path, data: object) -> Path:
    path.write_text(json.dumps(data))
    return path


@pytest.mark.parametrize(("found", "label"), [
    ({"outcome": "solved"}, RunLabel("solved")), ({"outcome": True, "failure_mode": "unset"}, RunLabel("solved")),
    ({"outcome": 1.0}, RunLabel("solved")), ({"outcome": 0.5}, RunLabel("failed")),
    ({"outcome": False}, RunLabel("failed")), ({"outcome": None}, RunLabel("unknown")),
    ({"solved": True}, RunLabel("solved")),
    ({"stuck": True, "why": "it polls", "by": "ada"}, RunLabel("unknown", True, "it polls", "ada")),
])  # fmt: skip
def test_an_outcome_is_read_in_every_form(tmp_path: Path, found: object, label: RunLabel) -> None:
    assert read_outcomes(written(tmp_path / "o.json", {"r": found})) == {"r": label}


@pytest.mark.parametrize(("data", "mistake"), [
    ([], "expected an object by run id"), ({"r": "solved"}, "r: expected an object with outcome or stuck"),
    ({"r": {"outcome": "won"}}, "r.outcome: 'won' is no outcome"),
    ({"r": {"stuck": "yes"}}, "r.stuck: expected true or false, got 'yes'"),
])  # fmt: skip
def test_a_mistake_is_named_with_its_file_and_run(tmp_path: Path, data: object, mistake: str) -> None:
    path = written(tmp_path / "o.json", data)

    with pytest.raises(InvalidEvent) as raised:
        read_outcomes(path)

    assert f"{path}: " in str(raised.value)
    assert mistake in str(raised.value)


def test_outcomes_lie_beside_their_log(tmp_path: Path) -> None:
    own = written(tmp_path / "runs.outcomes.json", {})

    assert beside([str(tmp_path / "runs.jsonl.gz"), str(tmp_path / "others.jsonl")]) == [str(own)]


def test_the_latest_word_about_a_run_counts_and_its_outcome_stays() -> None:
    said = [Feedback(w=1, run_id="r", verdict=verdict, by="ada") for verdict in ("false-alarm", "right")]

    labels = with_feedback({"r": RunLabel("solved"), "s": RunLabel("failed")}, said)

    assert labels == {"r": RunLabel("solved", True, "", "ada"), "s": RunLabel("failed")}


def test_a_halt_is_false_if_people_say_so_or_else_if_the_task_was_solved() -> None:
    assert [RunLabel("failed", False).healthy, RunLabel("solved").healthy] == [True, True]
    assert [RunLabel("solved", True).healthy, RunLabel("failed").healthy, RunLabel().healthy] == [False] * 3


def test_exported_labels_are_read_again(tmp_path: Path) -> None:
    labels = {"r": RunLabel("unknown", False, "it polls\n", "ada"), "é\ud800": RunLabel("solved")}
    path = tmp_path / "o.json"
    path.write_text(outcomes_json(labels))

    assert read_outcomes(path) == labels
