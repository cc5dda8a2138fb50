"""Decisions have the evidence that their detector declares: its page and `schemas/evidence.schema.json` show that."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator, ValidationError
from msgspec.structs import asdict

from streamproc.detectors import BY_CODE, MODULES
from streamproc.detectors.base import OF_HALTS
from streamproc.detectors.board_detector import OF_MOVES
from streamproc.monitor import Monitor
from tests.test_golden import TRACES

# Not in every trace: what the board reports of a move, published content, a declared graph's cycles, prices.
AT_TIMES = {*OF_MOVES, "args_excerpt", "iteration", "unpriced"}


def test_decisions_have_what_their_detector_declares_and_nothing_else() -> None:
    examples = [(example.policy, example.turns) for module in MODULES for example in (*module.STUCK, *module.HEALTHY)]
    golden = [(trace.get("preset"), trace["events"]) for traces in TRACES.values() for trace in traces]
    filled: dict[str, set[str]] = defaultdict(set)
    for policy, raws in (*examples, *golden):
        monitor = Monitor(policy)
        for control in (control for raw in raws for control in monitor.feed({"run_id": "r"} | raw)):
            assert control.evidence is not None
            fields = asdict(control.evidence).items()
            filled[control.code].update(name for name, value in fields if value is not None)
    for code, module in BY_CODE.items():
        declared = set(module.DETECTOR.evidence)
        assert filled[code] <= declared | {"kind", *OF_HALTS}, code
        assert declared - filled[code] <= AT_TIMES, code


def test_a_recurring_error_names_the_tool_that_failed() -> None:
    monitor = Monitor()
    tools = [("bash", "result"), ("read", "error")]
    turns = [
        {"run_id": "r", "node": "agent", "tool_calls": [
            {"name": name, "args": {"n": n}, part: f"it is too long, like {name}"} for name, part in tools
        ]}
        for n in range(3)
    ]  # fmt: skip
    (control,) = (control for turn in turns for control in monitor.feed(turn) if control.code == "ERROR005")
    assert control.message.startswith("read failed with the same error at turns 0, 1 and 2")
    assert control.evidence is not None
    assert control.evidence.tool == "read"


def test_equal_answers_are_of_the_tool_that_gave_them() -> None:
    monitor = Monitor()
    turns = [
        {"run_id": "r", "node": "agent", "tool_calls": [
            {"name": "read", "args": {"n": n}, "result": f"page {'x' * n}"},
            {"name": "search", "args": {"n": n}, "result": "no match" if n else "one match"},
        ]}
        for n in range(7)
    ]  # fmt: skip
    (control,) = (control for turn in turns for control in monitor.feed(turn) if control.code == "LOOP004")
    assert control.message.startswith("search returned the same result for 6 different calls")


def test_the_schema_refuses_evidence_of_another_detector() -> None:
    schema = json.loads((Path(__file__).parents[2] / "schemas" / "evidence.schema.json").read_bytes())
    of_loops = Draft202012Validator(schema | {"anyOf": [{"$ref": "#/$defs/LOOP005"}]})
    of_loops.validate({"kind": "edge_loop", "count": 6, "edge": ["planner", "researcher"], "limit": 5})
    with pytest.raises(ValidationError, match="cycles"):
        of_loops.validate({"kind": "edge_loop", "cycles": [["a", "b"]]})
