"""The same work, published in another form: what frameworks and harnesses make of one session differs, its work does
not. No solved run of the repository may be halted in any form, unless it is halted as it was recorded; and a call that
one of them makes again and again is found in every form, whatever the agent says about it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import pytest

from benchmarks.quality.grafts import repeatable
from benchmarks.quality.real import real_runs
from tests.feeding import Raw, halts
from tests.test_golden import HONEST, policy_of

Form = Callable[[Raw], Iterator[Raw]]


def as_recorded(turn: Raw) -> Iterator[Raw]:
    yield turn


def narrated_apart(turn: Raw) -> Iterator[Raw]:
    """The text beside calls is a turn of its own."""
    yield {name: value for name, value in turn.items() if name != "tool_calls"}
    if turn.get("tool_calls"):
        yield _beside(turn, tool_calls=turn["tool_calls"])


def call_by_call(turn: Raw) -> Iterator[Raw]:
    """Each of several parallel calls is a turn."""
    calls = turn.get("tool_calls", [])
    yield {**turn, "tool_calls": calls[:1]} if calls else turn
    for call in calls[1:]:
        yield _beside(turn, tool_calls=[call])


def answered_by_tools(turn: Raw) -> Iterator[Raw]:
    """A node `tools` reports the answers."""
    calls = turn.get("tool_calls", [])
    asked = [{name: call[name] for name in ("name", "args") if name in call} for call in calls]
    yield {**turn, "tool_calls": asked} if calls else turn
    if calls:
        yield _beside(turn, node="tools", tool_calls=calls)


def a_node_for_each_tool(turn: Raw) -> Iterator[Raw]:
    """Each tool is a node, and the agent hands over to it."""
    if turn.get("output") or not turn.get("tool_calls"):
        yield {name: value for name, value in turn.items() if name != "tool_calls"}
    for call in turn.get("tool_calls", []):
        yield _beside(turn, node=f"tool:{call.get('name')}", **{"from": turn["node"]}, tool_calls=[call])


def under_an_orchestrator(turn: Raw) -> Iterator[Raw]:
    """Every turn names the node that gave the work, which publishes nothing itself."""
    yield {**turn, "from": "orchestrator"}


def naming_itself(turn: Raw) -> Iterator[Raw]:
    """Every turn names its own node."""
    yield {**turn, "from": turn["node"]}


def routed(turn: Raw) -> Iterator[Raw]:
    """A node without words decides who acts next."""
    yield _beside(turn, node="router", decision={"next": turn["node"]})
    yield {**turn, "from": "router"}


def prompted(turn: Raw) -> Iterator[Raw]:
    """A harness says the same before each turn."""
    yield _beside(turn, node="supervisor", output="Continue.")
    yield turn


def beside_a_twin(turn: Raw) -> Iterator[Raw]:
    """Two agents do the same work at once."""
    for name in "ab":
        yield {**turn, "node": f"{turn['node']}_{name}"}


FORMS: Final[tuple[Form, ...]] = (
    narrated_apart, call_by_call, answered_by_tools, a_node_for_each_tool, under_an_orchestrator, naming_itself, routed,
    prompted, beside_a_twin,
)  # fmt: skip
WORDS: Final = "ABCDEFGHIJKLM"
# Its recorder wrote one line of narration twice, so that its agent and the harness say the same two lines in turn.
TWICE: Final = {(prompted, "kimi_k2.5/query-optimize__xcBWV57")}


def _beside(turn: Raw, **fields: Any) -> Raw:
    """Return another turn at the same time."""
    return {name: turn[name] for name in ("run_id", "node", "at") if name in turn} | fields


@cache
def _solved() -> list[tuple[str, list[Raw]]]:
    """Return the solved runs that are not halted as they were recorded. Copies of a turn have no id in common."""
    plain = [
        (run.run_id, [{name: value for name, value in turn.items() if name != "event_id"} for turn in run.events])
        for run in real_runs()
        if run.solved
    ]
    return [(run_id, turns) for run_id, turns in plain if not halts(turns)]


def _looping(turns: list[Raw], times: int, *, narrated: bool) -> Iterator[list[Raw]]:
    """Yield the turns before a call that occurs once in a run, together, and then each of its repeats, announced in
    other words or with none."""
    place = random.Random(turns[0]["run_id"]).choice(repeatable(turns))
    yield turns[:place]
    for again in range(times):
        words = f"Let me look at {WORDS[again % 13]}, and {WORDS[again * 5 % 13]}, number {again}."
        said = [_beside(turns[place], output=words)] if narrated else []
        yield [*said, _beside(turns[place], tool_calls=turns[place]["tool_calls"])]


@pytest.mark.parametrize("form", [as_recorded, *FORMS])
@pytest.mark.parametrize("narrated", [False, True])
def test_a_call_that_is_made_again_and_again_is_found_in_every_form(form: Form, narrated: bool) -> None:
    slow = form in (a_node_for_each_tool, beside_a_twin)  # the words are of another node
    late: dict[str, object] = {}
    for run_id, turns in _solved()[::4]:
        if not repeatable(turns):
            continue
        steps = _looping(turns, 25 if slow and narrated else 3, narrated=narrated)
        before, *again = ([other for turn in step for other in form(turn)] for step in steps)
        found = halts([*before, *(turn for step in again for turn in step)])
        if not found or found[0].at < len(before):
            late[run_id] = found
    assert not late


@pytest.mark.parametrize("form", [narrated_apart, under_an_orchestrator, routed])
def test_no_honest_trace_is_halted_however_it_is_routed(form: Form) -> None:
    halted = {}
    for trace in HONEST:
        turns = [
            other
            for event in trace["events"]
            for other in (form(event) if event.get("type", "turn") == "turn" else [event])
        ]
        plain = [{name: value for name, value in turn.items() if name != "event_id"} for turn in turns]
        if found := halts(plain, policy_of(trace)):
            halted[trace["title"]] = found
    assert not halted


@pytest.mark.parametrize("form", FORMS)
def test_no_solved_run_is_halted_in_another_form(form: Form) -> None:
    solved = _solved()
    assert len(solved) > 150
    halted = {
        (form, run_id): found
        for run_id, turns in solved
        if (found := halts([other for turn in turns for other in form(turn)]))
    }
    assert halted.keys() <= TWICE, halted
