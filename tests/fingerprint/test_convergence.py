"""Convergence by meaning: an embedding function of the caller makes a field of the event."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from streamproc import Monitor
from streamproc.client.publisher import TurnPublisher
from streamproc.fingerprint.convergence import RUNS_MAX, Convergence, similarity
from streamproc.model.wire import Turn, decode
from tests.feeding import reported

VECTORS = {"yes": [1.0, 0.0], "yes!": [1.0, 0.1], "no": [0.0, 1.0], "never": [-1.0, 0.0]}


def proposal(text: str, **more: Any) -> dict[str, Any]:
    return {"run_id": "r", "node": "persona", "output": text, "round": 1, **more}


def measured(*texts: str, embed: Any = VECTORS.__getitem__) -> list[float | None]:
    convergence = Convergence(embed)
    return [convergence.measured(proposal(text)).get("convergence") for text in texts]


def test_a_proposal_is_compared_with_the_one_before_it() -> None:
    """Seed 002: "Semantic similarity > 0.85 (early stop)", "Semantic similarity scoring (embeddings)"."""
    assert measured("yes", "yes!", "no", "never") == [
        None,
        pytest.approx(0.995, abs=0.001),
        pytest.approx(0.0995, abs=0.001),
        0.0,
    ]


def test_only_turns_of_a_deliberation_are_measured_and_their_own_number_wins() -> None:
    convergence = Convergence(VECTORS.__getitem__)
    convergence.measured(proposal("yes"))
    for event in (
        {"run_id": "r", "node": "a", "output": "yes"}, proposal(""), {"run_id": "r", "round": 2, "node": "a"},
        {"type": "run.started", "run_id": "r"}, proposal("yes", run_id="another"),
    ):  # fmt: skip
        assert convergence.measured(event) is event
    assert convergence.measured(proposal("no", convergence=0.9))["convergence"] == 0.9
    assert convergence.measured(proposal("no"))["convergence"] == 1.0


@pytest.mark.parametrize("proposers", ["persona", ["persona", "critic"]])
def test_a_check_between_two_proposals_is_no_proposal_if_the_nodes_are_named(proposers: Any) -> None:
    """Seed 002: "persona → check_convergence → facilitator"."""
    convergence = Convergence(VECTORS.__getitem__, proposers)
    convergence.measured(proposal("yes"))
    check = proposal("no", node="check_convergence")
    assert convergence.measured(check) is check
    assert convergence.measured(proposal("yes"))["convergence"] == 1.0


@pytest.mark.parametrize("embed", [lambda _: 1 / 0, lambda text: [1.0] * len(text), lambda _: [float("nan")]])
def test_a_function_that_fails_changes_nothing_and_is_named_once(embed: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    assert measured("yes", "no", "yes", "never", embed=embed) == [None] * 4
    assert caplog.text.count("the embedding function failed") == 1


def test_the_memory_is_bounded() -> None:
    convergence = Convergence(lambda _: [1.0])
    for number in range(RUNS_MAX + 50):
        convergence.measured(proposal("x", run_id=f"r{number}"))
    assert len(convergence._last) == RUNS_MAX


def test_blank_vectors_are_not_alike() -> None:
    assert similarity([0.0, 0.0], [1.0, 0.0]) == 0.0


def test_publisher_and_monitor_measure_alike() -> None:
    turns = [proposal(text) for text in ("no", "yes", "yes!")]
    publisher = TurnPublisher("localhost:9", embed=VECTORS.__getitem__, proposers=["persona"])
    sent = [decode(encoded.value) for turn in turns if (encoded := publisher.prepare(turn)) is not None]
    monitor = Monitor("deliberation", embed=VECTORS.__getitem__, proposers=["persona"])
    told = [one for turn in turns for one in monitor.feed(turn)]
    assert [one.convergence for one in sent if isinstance(one, Turn)] == [None, 0.0, pytest.approx(0.995, abs=0.001)]
    assert [(one.code, one.stop_reason, one.trigger and one.trigger.turn) for one in told] == [
        ("BUDGET005", "consensus", 2)
    ]
    assert reported(turns, monitor.policy) == []
