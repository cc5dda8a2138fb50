"""A state of an earlier version is read once: no halt is lifted, and no budget forgotten.

`states_of_version_N.json` has what version N stored after each of these traces.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any, Final

import orjson
import pytest

from streamproc.worker.codec import peek_whole
from tests.core.test_cycle_scope import GRAPH as LOOPS, beside, docs_round, stuck_round
from tests.feeding import Feed, Raw
from tests.states import framed

STORED: Final = {
    version: orjson.loads(Path(__file__).with_name(f"states_of_version_{version}.json").read_bytes())
    for version in (2, 3, 4)
}


def said(node: str, text: str, **more: object) -> Raw:
    return {"node": node, "output": text, "at": 1_750_000_000_000, **more}


GRAPH: Final = {
    "type": "run.started", "workflow": "release", "tenant": "acme",
    "graph": {"edges": [["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"]]},
    "budgets": {"maxCycleIterations": 3, "maxCostUsd": 2},
}  # fmt: skip
ROUNDS: Final = [
    said(node, f"{node} {number}", usage={"cost_usd": 0.25, "total_tokens": 100}, at=1_750_000_000_000 + 1_000 * number)
    for number in range(6)
    for node in ("coder", "verifier")
]
CALLS: Final = [
    {"node": "agent", "tool_calls": [{"name": "read", "args": {"file": "a.py"}, "result": "the same"}]}
    for _ in range(4)
]
BOARD: Final = [
    {"type": "task.created", "task_id": "T1", "owner": "coder"},
    {"type": "task.transition", "task_id": "T1", "from": "LOCKED", "to": "IMPLEMENTING"},
    said("coder", "I have a plan.", task_id="T1"),
]

TRACES: Final[dict[str, list[Raw]]] = {
    "halted by a loop": [said("planner", "go"), *CALLS], "halted by its budget": [GRAPH, *ROUNDS],
    "within its budget": [GRAPH, *ROUNDS[:4]], "with a board": BOARD,
    "resumed": [said("planner", "go"), *CALLS, {"type": "operator.resume", "by": "ada", "reason": "seen"}, *CALLS[:1]],
    "new": [said("coder", "hello")], "two loops beside each other": [LOOPS, *beside(2, stuck_round, docs_round)],
}  # fmt: skip
NEXT: Final = [*ROUNDS, *CALLS]


def part_of(run: Any) -> list[object]:
    cycles = [(one.key, one.iterations, one.since_ms, one.spent_before) for one in run.cycles.table.rows]
    return [run.ledger.cost_usd_micro, run.ledger.total_tokens, run.escalation.severity, run.escalation.resumes, cycles]


@pytest.mark.parametrize(
    ("version", "name"), [(version, name) for version, stored in STORED.items() for name in stored]
)
def test_a_state_of_an_earlier_version_goes_on(version: int, name: str) -> None:
    raw = base64.b64decode(STORED[version][name])
    now, before = Feed(), Feed(stored=raw)
    now.all(TRACES[name])

    assert raw[0] == version < now.stored[0]
    seen = peek_whole(framed(raw))
    assert seen == peek_whole(framed(now.stored))
    assert seen[1] == before.state.scope == now.state.scope
    assert part_of(before.state) == part_of(now.state)
    following = NEXT if version == 2 else [*beside(3, stuck_round, docs_round), *NEXT]  # 2 stored no declared graphs
    assert before.all(following) == now.all(following)


@pytest.mark.parametrize("version", STORED)
def test_the_stored_states_have_a_halt_and_a_budget(version: int) -> None:
    states = {name: Feed(stored=base64.b64decode(raw)).state for name, raw in STORED[version].items()}
    halted = {name for name, run in states.items() if run.halted >= 0}
    assert halted == {"halted by a loop", "halted by its budget"}
    assert states["within its budget"].scope.budgets["maxCycleIterations"] == 3


def test_a_stored_state_of_version_3_has_memories_of_two_cycles() -> None:
    run = Feed(stored=base64.b64decode(STORED[3]["two loops beside each other"])).state
    assert (len(run.cycle_memories.table), run.cycle_memories.crowded, run.graphs) == (2, -1, 1)
