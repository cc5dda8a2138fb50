"""What other nodes of a run do, in whichever order, neither excuses a loop that is stuck nor is charged to it."""

from __future__ import annotations

from typing import Final

from hypothesis import given, strategies as st

from tests.feeding import Feed, Raw, halts
from tests.laws.traces import BRIEF

START_MS: Final = 1_750_000_000_000
KINDS: Final = ("docs", "better", "news", "words", "polls")


def turn_outside(kind: str, number: int) -> Raw:
    """Return an honest turn of a node that is in no cycle, or in another one."""
    if kind == "docs":
        return {"node": "writer", "from": "editor", "docs": f"Chapter {number} treats subject {number}."}
    if kind == "better":
        return {
            "node": "editor",
            "from": "writer",
            "output": f"Draft {number} reads well.",
            "progress": {"score": number},
        }
    if kind == "words":
        return {"node": "manager", "from": "director", "output": f"Remark {number} of the day is about {number * 7}."}
    call = {"name": "search", "args": {"q": f"subject {number}"}, "result": f"{number * 31} hits"}
    if kind == "polls":
        call = {"name": "job_status", "args": {"id": 7}, "result": {"status": "running", "done": number}}
    return {"node": "analyst", "from": "director", "tool_calls": [call]}


def stuck_turns(rounds: int) -> list[Raw]:
    """Return rounds in which the same change fails the same tests, in the same words."""
    change = {"output": "I have fixed the parser.", "artifact": {"parser.py": "return None"}}
    tests = {"output": "Two tests still fail.", "tests": {"failed": ["test_a", "test_b"], "passed": 8}}
    return [{"node": "coder", "from": "verifier", **change}, {"node": "verifier", "from": "coder", **tests}] * rounds


between = st.lists(st.lists(st.sampled_from(KINDS), max_size=3), min_size=16, max_size=16)


@given(between)
@BRIEF
def test_no_turn_outside_excuses_a_loop_that_is_stuck(others: list[list[str]]) -> None:
    raws: list[Raw] = []
    number = 0
    for turn, kinds in zip(stuck_turns(8), others, strict=True):
        raws.append(turn)
        for kind in kinds:
            number += 1
            raws.append(turn_outside(kind, number))
    found = halts(raws)
    assert found
    own = sum(raw["node"] in ("coder", "verifier") for raw in raws[: found[0].at])
    assert own < 12, found  # alone it is halted in its third round; its first one may pass before the loop is known


@given(
    st.lists(st.tuples(st.sampled_from(("coder", "verifier", "analyst", "writer")), st.integers(0, 500)), max_size=40)
)
@BRIEF
def test_a_cycle_has_spent_what_its_own_nodes_have(turns: list[tuple[str, int]]) -> None:
    """Time and money, in whatever order nodes take turns."""
    feed = Feed()
    edges = [["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"]]
    feed.raw({"type": "run.started", "at": START_MS, "graph": {"edges": edges}})
    at_ms, cents, own_ms = START_MS, 0, 0
    entered = False
    for number, (node, amount) in enumerate(turns):
        at_ms += amount
        raw: Raw = {"node": node, "output": f"{node} {number}", "at": at_ms, "usage": {"cost_usd": amount / 100}}
        inside = node in ("coder", "verifier")
        source = {"coder": "verifier", "verifier": "coder"}.get(node, "director")
        feed.raw(raw | {"from": source})
        cents += amount * inside
        own_ms += amount * (inside and entered)  # its time begins with its first turn
        entered = entered or inside
    [cycle] = feed.state.cycles.table.rows
    if entered:
        assert feed.state.ledger.cost_usd_micro - cycle.spent_before == cents * 10_000
        assert feed.state.at_ms - cycle.since_ms == own_ms
