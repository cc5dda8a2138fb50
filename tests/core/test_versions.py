"""A state of the version before is read once: no halt is lifted, and no budget forgotten.

`states_of_version_2.json` has what version 2 stored after each of these traces.
"""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Final

import orjson
import pytest

from streamproc.core.run_state import STATE_VERSION, RunState, check, dump, load, peek, peek_scope
from tests.feeding import Feed, Raw

OF_VERSION_2: Final = orjson.loads(Path(__file__).with_name("states_of_version_2.json").read_bytes())


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
    "halted by a loop": [said("planner", "go"), *CALLS],
    "halted by its budget": [GRAPH, *ROUNDS],
    "within its budget": [GRAPH, *ROUNDS[:4]],
    "with a board": BOARD,
    "resumed": [said("planner", "go"), *CALLS, {"type": "operator.resume", "by": "ada", "reason": "seen"}, *CALLS[:1]],
    "new": [said("coder", "hello")],
}
NEXT: Final = [*ROUNDS, *CALLS]


def part_of(run: RunState) -> list[object]:
    cycles = [(one.key, one.iterations, one.since_ms, one.spent_before) for one in run.cycles.table.rows]
    return [run.ledger.cost_usd_micro, run.ledger.total_tokens, run.escalation.severity, run.escalation.resumes, cycles]


@pytest.mark.parametrize("name", TRACES)
def test_a_state_of_the_version_before_goes_on(name: str) -> None:
    raw = base64.b64decode(OF_VERSION_2[name])
    now, before = Feed(), Feed()
    now.all(TRACES[name])
    assert raw[0] == 2 < STATE_VERSION

    before.state = load(raw)
    check(before.state)

    assert peek(raw) == peek(dump(now.state))
    assert peek_scope(raw) == before.state.scope == now.state.scope
    assert part_of(before.state) == part_of(now.state)
    assert before.all(NEXT) == now.all(NEXT)


def test_the_stored_states_have_a_halt_and_a_budget() -> None:
    halted = {name for name, raw in OF_VERSION_2.items() if load(base64.b64decode(raw)).halted >= 0}
    assert halted == {"halted by a loop", "halted by its budget"}
    assert load(base64.b64decode(OF_VERSION_2["within its budget"])).scope.budgets["maxCycleIterations"] == 3
