"""A loop whose results stay the same is halted, wherever in a graph it is and whatever came before it."""

from __future__ import annotations

import random

from hypothesis import given, settings, strategies as st

from streamproc import Monitor
from streamproc.policy import load_policy
from tests.feeding import Raw

NODES = ("planner", "coder", "verifier", "writer", "critic", "tool", "lead", "docs")
POLICY = load_policy("standard")
ROUNDS_MAX = 8


def turn(dice: random.Random, node: str, *, stuck: bool) -> Raw:
    """Return a turn with new words: a coder leaves a diff, a verifier the tests that fail."""
    made: Raw = {"run_id": "r", "node": node, "output": " ".join(str(dice.getrandbits(30)) for _ in range(8))}
    if node == "coder":
        made["artifact"] = "+ the same" if stuck else f"+ {dice.getrandbits(30)}"
    if node == "verifier":
        made["tests"] = {"failed": ["t1", "t2"] if stuck else [f"t{dice.randrange(99)}"], "passed": 3}
    return made


@given(st.randoms(use_true_random=False), st.integers(2, 4), st.integers(0, 12), st.integers(0, 14), st.booleans())
@settings(deadline=None, max_examples=150)
def test_a_loop_without_new_results_is_halted_in_any_graph(
    dice: random.Random, size: int, before: int, more_edges: int, declared: bool
) -> None:
    others = dice.sample([node for node in NODES if node not in ("coder", "verifier")], size - 2)
    ring = dice.sample(["coder", "verifier", *others], size)
    raws: list[Raw] = []
    if declared:
        edges = {*zip(ring, ring[1:] + ring[:1], strict=True), (ring[0], "end")}
        edges |= {tuple(dice.sample(NODES, 2)) for _ in range(more_edges)}  # type: ignore[misc]
        raws.append({"run_id": "r", "type": "run.started", "graph": {"edges": dice.sample(sorted(edges), len(edges))}})
    raws += [turn(dice, dice.choice(NODES), stuck=False) for _ in range(before)]
    raws += [turn(dice, node, stuck=True) for _ in range(ROUNDS_MAX) for node in ring]
    monitor = Monitor(POLICY)
    # What came before may be stuck as well, such as a verifier with other failing tests each time: one halt is enough.
    assert "halt" in [one.severity for raw in raws for one in monitor.feed(raw)]
