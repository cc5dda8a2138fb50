"""Golden traces: their exact decisions, and the turn of each.

`honest*.json` hold known complaints about other breakers, and past errors of this one: none of them is halted.
`stuck*.json` and `orders.json` hold traces that need a decision, `boards.json` those of tasks and tickets, and
`waiting.json` honest and endless waiting, searching and writing, side by side. Those of `seeds*.json` name their
preset. `samples.json` pins the real runs of the package.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from streamproc.fingerprint import read_event
from streamproc.model.controls import ControlEvent
from streamproc.policy import Policy, load_policy
from streamproc.replay.scan import Scan
from streamproc.replay.source import Source
from streamproc.samples import outcomes, trajectory_file
from tests.feeding import Feed, Raw, Reported, decisions, reported, short

GOLDEN: Final = Path(__file__).parent / "golden"
JUPYTER: Final = "claude_code_coder/jupyter-notebook-server"
TRACES: Final[dict[str, list[Raw]]] = {
    file.stem: json.loads(file.read_text("utf-8")) for file in sorted(GOLDEN.glob("*.json")) if file.stem != "samples"
}
HONEST: Final = [trace for name, traces in TRACES.items() if name.startswith("honest") for trace in traces]
STUCK: Final = [trace for name, traces in TRACES.items() if name.startswith("stuck") for trace in traces]
SAMPLES: Final[dict[str, list[Any]]] = json.loads((GOLDEN / "samples.json").read_text("utf-8"))

every_trace = pytest.mark.parametrize(
    "trace", [pytest.param(trace, id=trace["title"]) for traces in TRACES.values() for trace in traces]
)
stuck_trace = pytest.mark.parametrize("trace", [pytest.param(trace, id=trace["title"]) for trace in STUCK])


def pinned(trace: Raw) -> list[Reported]:
    return [Reported(*one) for one in trace["decisions"]]


def policy_of(trace: Raw) -> Policy:
    return load_policy(trace.get("preset", "standard"))


@every_trace
def test_a_trace_gets_exactly_its_decisions(trace: Raw) -> None:
    assert reported(trace["events"], policy_of(trace)) == pinned(trace), trace["why"]


@every_trace
def test_a_restart_after_every_event_loses_nothing(trace: Raw) -> None:
    feed, found = Feed(policy_of(trace)), []
    for raw in trace["events"]:
        found += feed.raw(raw)
        feed.restart()
    assert [short(decision) for decision in found] == pinned(trace)


@every_trace
def test_raw_records_on_the_topic_get_the_same_decisions(trace: Raw) -> None:
    feed = Feed(policy_of(trace))
    records = [read_event(orjson.dumps({"run_id": "r", **raw})) for raw in trace["events"]]
    found = [decision for record in records for decision in feed.event(record, record.at)]
    expected = decisions(trace["events"], policy_of(trace))
    assert [decision.id for decision in found] == [decision.id for decision in expected]


def test_healthy_traces_are_not_halted() -> None:
    assert len(HONEST) >= 30
    assert {one.severity for trace in HONEST for one in pinned(trace)} <= {"warn"}


@stuck_trace
def test_a_stuck_run_is_halted_with_where_its_loop_began(trace: Raw) -> None:
    halt = next(decision for decision in decisions(trace["events"]) if decision.severity == "halt")
    assert halt.onset is not None
    assert halt.trigger is not None
    assert 0 <= halt.onset < (halt.trigger.turn or 0)


def test_a_second_loop_has_its_own_evidence() -> None:
    [trace] = [trace for trace in STUCK if trace["title"] == "a second, different loop"]
    first, second = [decision for decision in decisions(trace["events"]) if decision.severity == "halt"]
    assert (first.evidence.tool, second.evidence.tool) == ("run", "look")
    assert (first.evidence.turns, second.evidence.turns) == ([0, 1, 2], [4, 5, 6])
    assert (first.onset, second.onset) == (0, 4)
    assert first.id != second.id


# The real runs of the package.


@pytest.fixture(scope="module")
def sampled() -> dict[str, list[ControlEvent]]:
    """Return the decisions of a scan for each sample run."""
    found: dict[str, list[ControlEvent]] = defaultdict(list)
    with trajectory_file() as path:
        for decision in Scan([Source(path)], load_policy()):
            found[decision.run_id].append(decision)
    return found


@pytest.mark.parametrize("run_id", SAMPLES)
def test_a_real_run_gets_exactly_its_decisions(sampled: dict[str, list[ControlEvent]], run_id: str) -> None:
    assert [list(short(decision)) for decision in sampled[run_id]] == SAMPLES[run_id]


def test_the_sample_runs_that_were_solved_are_not_halted(sampled: dict[str, list[ControlEvent]]) -> None:
    solved = [run_id for run_id, outcome in outcomes().items() if outcome.solved]
    assert len(solved) >= 10
    assert JUPYTER in solved
    assert [run_id for run_id in solved if any(one.severity == "halt" for one in sampled[run_id])] == []


def sample_turns() -> dict[str, list[Raw]]:
    turns: dict[str, list[Raw]] = defaultdict(list)
    with trajectory_file() as path:
        for line in Source(path):
            turns[line.raw.run_id].append(line.raw.model_dump(exclude_none=True))
    return turns


def third_in_a_row(turns: list[Raw]) -> int | None:
    """Return the turn with the third equal calls and answers in a row, by the simplest of rules."""
    row: list[str] = []
    for index, turn in enumerate(turns):
        calls = [[call["name"], call.get("args"), call.get("result")] for call in turn["tool_calls"]]
        if calls and all(call[2] is not None for call in calls):
            same = json.dumps(sorted(map(json.dumps, calls)))
            row = [*row, same] if row[-1:] == [same] else [same]
            if len(row) == 3:
                return index
    return None


def test_a_real_run_is_halted_at_its_third_repeat(sampled: dict[str, list[ControlEvent]]) -> None:
    repeating = {run_id: third for run_id, turns in sample_turns().items() if (third := third_in_a_row(turns))}
    assert len(repeating) >= 8
    for run_id, third in repeating.items():
        halt = next(short(decision) for decision in sampled[run_id] if decision.severity == "halt")
        assert halt.at <= third, run_id
