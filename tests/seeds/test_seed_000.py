"""The requirement "Loop Safety and Non-Progress Detection", played under its preset, `loop-safety`. The quoted lines
are the document's own.
"""

from __future__ import annotations

import io
import itertools
from typing import TYPE_CHECKING, Any, Final, get_args

import orjson
import pytest
from rich.console import Console
from typer.testing import CliRunner

from streamproc.cli import build
from streamproc.cli.watch import list_of
from streamproc.core.graph import read_graph
from streamproc.model.controls import Action, HaltReason, read_control
from streamproc.monitor import Monitor
from tests.feeding import Raw

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamproc.model.controls import ControlEvent

PRESET: Final = "loop-safety"
START_MS: Final = 1_767_225_600_000
MINUTE_MS: Final = 60_000
GRAPH: Final = {"edges": [["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"]]}
COMPLAINTS: Final = (
    "It still fails for an empty list.", "No: an empty list raises an error.", "Look at lists without elements.",
    "The error with no elements remains.", "One case is left: nothing in the list.", "Empty lists do not work yet.",
    "The first element of nothing?", "What about no elements at all?", "Nope.", "Still the empty list.",
)  # fmt: skip


def said(node: str, text: str, **more: Any) -> Raw:
    return {"node": node, "output": text, **more}


def patched(text: str, **more: Any) -> Raw:
    return {"node": "coder", "artifact": text, **more}


def checked(*failed: str, **more: Any) -> Raw:
    return {"node": "verifier", "tests": {"failed": failed, "passed": 20 - len(failed), "total": 20}, **more}


def started(**budgets: Any) -> Raw:
    return {"type": "run.started", "graph": GRAPH, "budgets": budgets}


def reading(n: int) -> Raw:
    """Return a call of a session, with a new answer."""
    return {"tool_calls": [{"name": "read", "args": n, "result": f"text {n}"}]}


def loop(coder: list[Raw], verifier: list[Raw] | None = None) -> list[Raw]:
    """Return a `Coder ↔ Verifier` loop; without turns of its own, the verifier words each complaint in a new way."""
    verifier = verifier or [said("verifier", text) for text in COMPLAINTS]
    return [turn for pair in zip(coder, verifier, strict=False) for turn in pair]


def played(events: list[Raw], policy: Any = PRESET) -> tuple[Monitor, list[ControlEvent]]:
    """Return the monitor and the control events of a run that ends with its first halt."""
    monitor = Monitor(policy)
    controls: list[ControlEvent] = []
    for event in events:
        controls += monitor.feed(run_id="r", **event)
        if any(control.halts for control in controls):
            break
    return monitor, controls


def halted(events: list[Raw], policy: Any = PRESET) -> ControlEvent:
    halt = played(events, policy)[1][-1]
    assert halt.halts
    return halt


def where(control: ControlEvent) -> tuple[str, int]:
    assert control.trigger is not None
    assert control.trigger.turn is not None
    return control.code, control.trigger.turn


# "Stall detection: the stall detector MUST consider at least".


def test_a_coder_that_says_the_same_while_the_verifier_words_its_complaint_anew() -> None:
    halt = halted(loop([said("coder", "I have fixed it.")] * 10))
    assert where(halt) == ("LOOP001", 4)  # "same `message.final` content hash N times": "2-3 times"
    assert halt.halt_reason == "stalled"


def test_the_nudge_comes_before_the_halt() -> None:
    controls = played(loop([said("coder", "I have fixed it.")] * 10))[1]
    assert [(control.severity, *where(control)) for control in controls] == [
        ("warn", "LOOP001", 2), ("halt", "LOOP001", 4),
    ]  # "repeated identical outputs: 2-3 times"  # fmt: skip


def test_the_final_message_of_a_session_that_called_tools() -> None:
    session = [said("coder", "All done.", **reading(n)) for n in range(5)]
    assert where(halted(loop(session))) == ("LOOP001", 4)  # "same `message.final` content hash N times"


def test_the_same_structured_output() -> None:
    same = [{"node": "coder", "structured_output": {"done": True}}] * 10
    assert where(halted(loop(same))) == ("LOOP001", 4)  # "same `structured_output` hash N times"


@pytest.mark.parametrize("name", ["output", "structured_output"])
def test_two_states_in_turn_of_one_node(name: str) -> None:
    turns = [{"node": "coder", name: ("use a list", "use a set")[n % 2]} for n in range(10)]
    halt = halted(loop(turns))
    assert where(halt) == ("LOOP002", 6)  # "output alternates between two states (A/B/A/B)"
    assert halt.halt_reason == "oscillating"


def test_two_pages_in_turn_whatever_is_said_about_them() -> None:
    # "Oscillation - output alternates between two states"; "Docs progress: hash normalized markdown"
    monitor, halts = Monitor(PRESET), []
    for n in range(5):
        for turn in (
            {"node": "DocsWriter", "docs": f"# Page {'AB'[n % 2]}", "output": f"Rewrote the page{'!' * n}"},
            {"node": "DocsReviewer", "output": COMPLAINTS[n]},
        ):
            halts += [one for one in monitor.feed({"run_id": "r", **turn}) if one.severity == "halt"]
    assert halts[0].halt_reason == "oscillating"


@pytest.mark.parametrize("between", ["words", "calls"])
def test_an_unchanged_diff(between: str) -> None:
    diffs = [patched("+return 1", **(reading(n) if between == "calls" else {})) for n in range(5)]
    assert where(halted(loop(diffs))) == ("STALL001", 4)  # "diff hash unchanged across M iterations": "2 times"


@pytest.mark.parametrize("graph", [
    {"edges": [["planner", "coder"], ["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"],
               ["verifier", "planner"]]},
    {"edges": [["planner", "coder"], ["coder", "verifier"], ["verifier", "coder"], ["verifier", "end"],
               {"from": "verifier", "to": "planner", "anchor": True}]},
    None,
])  # fmt: skip
def test_a_loop_within_a_larger_one(graph: Raw | None) -> None:
    # "Coder ↔ Verifier", "unchanged diff: 2 times", "maxCycleIterations = 8": also where a verifier may ask the planner
    start = (
        [{"type": "run.started", "graph": graph}] if graph else [*map(said, ["planner", "coder", "verifier"], "abc")]
    )
    for stuck, limit in ((True, "stalled"), (False, "budget_exceeded")):
        monitor = Monitor(PRESET)
        turns = [*start, said("planner", "Plan.")]
        for n in range(9):
            turns.append(patched("+same" if stuck else f"+{'line ' * n}", output=f"Attempt{'!' * n}"))
            turns.append(checked("test_add", *[] if stuck else [f"test_{n}" for n in range(18 - n)]))
        halts = [one for turn in turns for one in monitor.feed({"run_id": "r", **turn}) if one.severity == "halt"]
        assert halts
        assert halts[0].halt_reason == limit
        assert halts[0].trigger is not None
        assert halts[0].trigger.turn <= (9 if stuck else 22)


def test_two_diffs_in_turn() -> None:
    halt = halted(loop([patched(f"+return {n % 2}", output=f"Now it is {n % 2}.") for n in range(8)]))
    assert (where(halt), halt.halt_reason) == (("STALL008", 6), "oscillating")  # "alternates between two states"


@pytest.mark.parametrize("words", [False, True])
def test_two_diffs_in_turn_whatever_is_said_or_left_beside_them(*, words: bool) -> None:
    # "Oscillation — output alternates between two states (A/B/A/B)"
    turns: list[Raw] = []
    for n in range(6):
        about = {"output": f"I followed the review. {'x' * n}"} if words else {}
        turns += [patched(f"+use a {'list' if n % 2 else 'set'}", **about)]
        turns += [{"node": "tester", "artifact": {f"test_{n}.py": f"def test_{'y' * n}(): pass"}}]
    assert where(halted(turns)) == ("LOOP002", 6)


@pytest.mark.parametrize("verifier", ["reports", "reads", "fails in another way"])
def test_the_same_test_failures(verifier: str) -> None:
    more: dict[str, Callable[[int], Raw]] = {
        "reports": lambda _: {}, "reads": reading, "fails in another way": lambda n: {"errors": [f"got {'x' * n}"]},
    }  # fmt: skip
    results = [checked("test_a", "test_b", **more[verifier](n)) for n in range(6)]
    events = loop([patched(f"+return {'x' * n}") for n in range(6)], results)
    assert where(halted(events)) == ("STALL002", 5)  # "same test failures (same set) repeats": "2-3 iterations"


@pytest.mark.parametrize(
    "name",
    [
        "test_a[/tmp/pytest-of-ann/pytest-{0}/data0]",
        "test_a (0.{0}s)",
        "test_a[550e8400-e29b-41d4-a716-44665544000{0}]",
        "suite 2026-01-01T00:00:0{0}Z::test_a",
    ],
    ids=["a temporary path", "a duration", "a UUID", "a time"],
)
def test_the_same_failures_under_ids_that_are_never_the_same(name: str) -> None:
    # "hash normalized failing test identifiers"
    events = loop([patched(f"+return {'x' * n}") for n in range(6)], [checked(name.format(n)) for n in range(6)])
    assert where(halted(events)) == ("STALL002", 5)


@pytest.mark.parametrize(
    "ids",
    [
        ["/tmp/work/tests/login.test.ts", "/tmp/work/tests/cart.test.ts", "/tmp/work/tests/pay.test.ts"],
        ["/tmp/a/test_x.py::t", "/tmp/b/test_y.py::t", "/tmp/c/test_z.py::t"],
        ["test_timeout[1s]", "test_timeout[2s]", "test_timeout[5s]"],
        ["test[10 ms]", "test[20 ms]", "test[50 ms]"],
        ["gives up after 3 minutes", "gives up after 5 minutes", "gives up after 7 minutes"],
    ],
)
def test_other_tests_are_not_the_same_failures(ids: list[str]) -> None:
    # "hash normalized failing test identifiers": normalised, they still say which test it is
    raws = [turn for n, name in enumerate(ids) for turn in (patched(f"+{n}"), checked(name))]
    assert [one.code for one in played([*raws, patched("+9"), checked()])[1] if one.code == "STALL002"] == []


@pytest.mark.parametrize("left", ["docs", "artifact"])
def test_a_verdict_of_a_reviewer_is_the_same_while_the_other_side_gets_on(left: str) -> None:
    # "A progress signal is an observable, low-cost indicator that the loop is converging": "docs progress"
    raws: list[Raw] = [
        turn
        for n in range(6)
        for turn in (
            {"node": "writer", left: f"# Draft {n}"},
            {"node": "reviewer", "structured_output": {"verdict": "revise"}},
        )
    ]
    assert [one.code for one in played(raws)[1] if one.severity == "halt" and one.code == "LOOP001"] == []


@pytest.mark.parametrize("left", ["docs", "artifact"])
def test_a_reviewer_says_the_same_in_a_few_words_while_the_other_side_gets_on(left: str) -> None:
    # "A progress signal is an observable, low-cost indicator that the loop is converging": "docs progress"
    drafts = [{"node": "coder", left: f"# Draft\n{'more ' * n}"} for n in range(5)]
    asked = [said("verifier", "Please revise.") for _ in range(5)]
    assert [one for one in played(loop(drafts, asked))[1] if one.halts] == []
    assert where(halted(loop(drafts[:1] * 5, asked))) == ("LOOP002", 3)  # nothing gets on: "A/B/A/B"
    long = [said("verifier", "Please revise. " * 20) for _ in range(5)]
    assert where(halted(loop(drafts, long))) == ("LOOP001", 5)


@pytest.mark.parametrize("author", ["coder", "DocsWriter", "tech-writer"])
def test_an_author_that_says_the_same_is_no_reviewer(author: str) -> None:
    # "Repeated identical outputs": "DocsWriter ↔ DocsReviewer"
    turns = [
        turn
        for n in range(6)
        for turn in (said(author, "I have updated it."), said("DocsReviewer", f"see {'x' * n}", artifact=f"{'y' * n}"))
    ]
    assert where(halted(turns)) == ("LOOP001", 4)


@pytest.mark.parametrize("verifier", ["reports", "reads"])
def test_a_failing_count_that_does_not_decrease(verifier: str) -> None:
    more = [reading(n) if verifier == "reads" else {} for n in range(6)]
    failed = [checked(f"test_{n}", f"test_{n + 1}", **more[n]) for n in range(6)]
    events = loop([patched(f"+return {'x' * n}") for n in range(6)], failed)
    assert where(halted(events)) == ("STALL003", 7)  # "failing count does not decrease for K iterations"


def test_a_loop_that_converges_is_left_alone() -> None:
    names = [f"test_{n}" for n in range(7)]
    events = loop(
        [patched(f"+return {'x' * n}", output="One more fixed.") for n in range(4)],
        [checked(*names[:left]) for left in (7, 4, 2, 0)],
    )
    monitor, controls = played(events)
    assert [control for control in controls if control.halts] == []
    status = monitor.status("r")
    assert status is not None
    assert status.failing_trend == [7, 4, 2, 0]  # "progress trend: failing tests 7 → 4 → 2"


@pytest.mark.parametrize(
    ("metric", "values"),
    [("checklist_items", [1, 2, 3, 4, 5]), ("docs_score", [0.1, 0.2, 0.3, 0.4, 0.5])],
)
def test_a_progress_signal_restarts_the_count(metric: str, values: list[float]) -> None:
    turns = [said("coder", "Next item.", progress={metric: value}) for value in values]
    assert played(loop(turns))[1] == played(turns)[1] == []  # "observable … indicator that the loop is converging"
    flat = [said("coder", f"Item {'I' * n}.", progress={metric: values[0]}, **reading(n)) for n in range(5)]
    assert where(halted(loop(flat))) == ("STALL004", 6)


@pytest.mark.parametrize("words", [["Done."], ["Done.", "Ready."]])
def test_another_diff_is_a_progress_signal_whatever_is_said_about_it(words: list[str]) -> None:
    turns = [patched(f"+return {'x' * n}", output=words[n % len(words)]) for n in range(5)]
    assert played(loop(turns))[1] == []  # "Progress signal … examples: diff content hash changed"
    same = [patched("+return 1", output=words[n % len(words)]) for n in range(5)]
    assert halted(loop(same)).halts


# "Required output on stall".


def test_a_halt_has_every_required_field() -> None:
    events = loop([patched("+return 1", output=f"try {'x' * n}") for n in range(6)], [checked("test_a")] * 6)
    halt = halted([started(), *events])
    assert halt.type == "loop.halted"  # "MUST emit a `loop.halted` event (or equivalent)"
    assert halt.cycle_id is not None  # "`cycleId`"
    assert halt.halt_reason == "stalled"  # "`haltReason`"
    assert halt.evidence is not None
    assert len(set(halt.evidence.artifact_hashes or ())) == 1  # "last N diff hashes"
    assert len(set(halt.evidence.failing_signatures or ())) == 1  # "last N failing test signatures"
    assert len(halt.evidence.output_hashes or ()) >= 2  # "last N node outputs (hashes)"


HALT_REASONS: Final[dict[str, list[Raw]]] = {
    "budget_exceeded": loop([said("coder", f"version {'x' * n}") for n in range(9)]),
    "stalled": loop([said("coder", "Done.")] * 5),
    "oscillating": loop([said("coder", f"use {n % 2}") for n in range(9)]),
    "repeated_error": loop([{"node": "coder", "errors": ["ValueError: no rows"]}] * 5),
    "user_stop": [said("coder", "Done."), {"type": "operator.stop", "issuer": "ann", "reason": "wrong branch"}],
}


def test_every_halt_reason_is_a_value() -> None:
    named = "budget_exceeded | stalled | oscillating | repeated_error | user_stop"  # "`haltReason`: …"
    assert set(get_args(HaltReason)) == set(named.split(" | ")) == set(HALT_REASONS)


@pytest.mark.parametrize("reason", HALT_REASONS)
def test_a_run_is_halted_for_each_reason(reason: str) -> None:
    assert halted(HALT_REASONS[reason]).halt_reason == reason


def test_the_suggested_actions_are_values_of_the_preset() -> None:
    wanted = ["switch to interactive", "spawn reconciliation node", "tighten context pack", "update docs contract"]
    assert {action.replace(" ", "_") for action in wanted} <= set(get_args(Action))
    for events in (loop([said("coder", "Done.")] * 5), loop([said("coder", f"use {n % 2}") for n in range(9)])):
        assert [action.replace("_", " ") for action in halted(events).suggested_actions] == wanted


@pytest.mark.parametrize("reason", ["budget_exceeded", "repeated_error"])
def test_every_halt_of_a_loop_suggests_them(reason: str) -> None:
    # "`haltReason`: `budget_exceeded | stalled | oscillating | repeated_error …`", "`suggestedActions`: …"
    wanted = ["switch_to_interactive", "spawn_reconciliation_node", "tighten_context_pack", "update_docs_contract"]
    found = halted(HALT_REASONS[reason]).suggested_actions
    assert [action for action in found if action != "force_synthesis"] == wanted


@pytest.mark.parametrize("action", ["pause", "switch_to_interactive", "spawn_reviewer", "retry_with_new_provider"])
def test_the_escalation_is_policy(action: str) -> None:
    policy = {"presets": [PRESET], "on_stall": action}
    halt = halted(loop([said("coder", "Done.")] * 5), policy)
    assert halt.action == action  # "`onStall = pause | switch_to_interactive | spawn_reviewer | …`"
    assert halted(loop([said("coder", "Done.")] * 5)).action == "switch_to_interactive"  # "recommended default"


# "Progress measurement: what to hash".


def test_time_stamps_in_a_patch_and_white_space_in_markdown_are_no_progress() -> None:
    head = "--- a.py\t2026-01-0{0} 10:00:00\n+++ a.py\t2026-01-0{0} 10:00:09\n@@ -{0},1 +{0},2 @@\n+x"
    diffs = [patched(head.format(n + 1)) for n in range(5)]
    assert where(halted(loop(diffs))) == ("STALL001", 4)  # "hash normalized patch text (ignore timestamps)"
    pages = [{"node": "writer", "docs": "# Guide\n" + "\n" * n + "Install  it."} for n in range(5)]
    assert where(halted(loop(pages)))[0] == "STALL001"  # "hash normalized markdown (strip whitespace)"


# "Budget model": "default recommended budgets (v0)".


def new_work(times: int, **more: Any) -> list[Raw]:
    return loop(
        [said("coder", f"version {'x' * n}", **more) for n in range(times)],
        [said("verifier", f"no {'x' * n}") for n in range(times)],
    )


def test_a_node_has_six_turns() -> None:
    halt = halted(new_work(8))
    assert (where(halt), halt.node) == (("BUDGET002", 12), "coder")  # "`maxTurnsPerNode = 6`": its seventh turn
    assert halt.halt_reason == "budget_exceeded"


def test_a_cycle_has_eight_iterations_and_its_badge_ends_at_the_limit() -> None:
    monitor, controls = played([started(maxTurnsPerNode=20), *new_work(12)])  # "Users can override"
    used_up, halt = controls[-2:]
    assert (used_up.code, used_up.severity, used_up.badge) == ("BUDGET003", "warn", "Loop 8/8")
    assert (halt.code, halt.badge) == ("BUDGET003", "Loop 8/8")  # "`maxCycleIterations = 8`"
    status = monitor.status("r")
    assert status is not None
    assert status.badge == "Loop 8/8"


@pytest.mark.parametrize("declared", [True, False])
@pytest.mark.parametrize("pairs", range(1, 7))
def test_each_of_several_cycles_has_eight_iterations(pairs: int, declared: bool) -> None:
    edges = [edge for n in range(pairs) for edge in ([f"coder{n}", f"verifier{n}"], [f"verifier{n}", f"coder{n}"])]
    ends = [[f"verifier{n}", "end"] for n in range(pairs)]
    begin = started(maxTurnsPerNode=99) | ({"graph": {"edges": edges + ends}} if declared else {"graph": None})
    turns = [
        {"node": f"{name}{n}", "artifact" if name == "coder" else "output": f"{n} {'x' * turn}"}
        | ({"from": f"{other}{n}"} if turn or name == "verifier" else {})
        for turn in range(12)
        for name, other in (("coder", "verifier"), ("verifier", "coder"))
        for n in range(pairs)
    ]
    halt = halted([begin, *turns])
    assert (halt.code, where(halt)[1]) == ("BUDGET003", 18 * pairs)  # "Track cycle iterations deterministically"


@pytest.mark.parametrize("agents", [1, 7, 20])
def test_the_oldest_open_turn_keeps_its_clock_whoever_works_beside_it(agents: int) -> None:
    started_at = [
        {"type": "turn.started", "node": f"agent{n}", "at": START_MS + (minute * MINUTE_MS if n else 0)}
        for minute in range(11)
        for n in range(agents)
        if n or minute == 0
    ]
    late = {"type": "deadline", "at": START_MS + 10 * MINUTE_MS, "due_at": START_MS + 10 * MINUTE_MS}
    halt = halted([{"type": "run.started", "at": START_MS}, *sorted(started_at, key=lambda one: str(one["at"])), late])
    assert (halt.code, halt.node) == ("BUDGET001", "agent0")  # "`turnTimeoutMs`"


def test_a_turn_has_ten_minutes() -> None:
    events = [
        {"type": "turn.started", "node": "coder", "at": START_MS},
        {"type": "deadline", "at": START_MS + 10 * MINUTE_MS, "due_at": START_MS + 10 * MINUTE_MS},
    ]
    assert halted([{"type": "run.started", "at": START_MS}, *events]).code == "BUDGET001"  # "`turnTimeoutMs = 10m`"


@pytest.mark.parametrize(
    ("budget", "code"),
    [
        ({"maxTokens": 1_000}, "BUDGET001"),  # "`maxTokens` (if API-based)"
        ({"maxRuntimeMsPerNode": 5 * MINUTE_MS}, "BUDGET002"),  # "`maxRuntimeMsPerNode`"
        ({"maxCycleRuntimeMs": 12 * MINUTE_MS}, "BUDGET003"),  # "`maxCycleRuntimeMs`"
        ({"maxCycleCost": "0.50"}, "BUDGET003"),  # "`maxCycleCost`"
    ],
)
def test_the_other_budgets_apply_where_a_run_declares_them(budget: dict[str, Any], code: str) -> None:
    events, at = [started(**budget) | {"at": START_MS}], START_MS
    for turn in new_work(6, usage={"input_tokens": 900, "output_tokens": 300, "cost_usd": "0.20"}):
        events.append({"type": "turn.started", "node": turn["node"], "at": at})
        events.append(turn | {"at": (at := at + 2 * MINUTE_MS)})
    assert halted(events).code == code


@pytest.mark.parametrize(("reported_ms", "at"), [(None, 2), (1_000, 2), (7 * MINUTE_MS, 0)])
def test_the_runtime_of_a_node_is_the_time_since_its_turn_started_or_more_if_reported(
    reported_ms: int | None, at: int
) -> None:
    usage = {} if reported_ms is None else {"usage": {"duration_ms": reported_ms}}
    events: list[Raw] = [started(maxRuntimeMsPerNode=5 * MINUTE_MS) | {"at": START_MS}]
    for n in range(4):
        begin = START_MS + n * 10 * MINUTE_MS
        events.append({"type": "turn.started", "node": "coder", "at": begin})
        events.append(said("coder", f"version {n}", at=begin + 2 * MINUTE_MS, **usage))
    halt = halted(events)
    assert where(halt) == ("BUDGET002", at)  # "`maxRuntimeMsPerNode`: applies across all turns in a run"
    assert halt.evidence is not None
    assert halt.evidence.used == (at + 1) * max(2 * MINUTE_MS, reported_ms or 0)


# "Implementation sketch".


def test_a_cycle_is_a_strongly_connected_component_or_a_self_loop() -> None:
    graph = read_graph({"edges": [["a", "b"], ["b", "a"], ["b", "c"], ["c", "c"], ["c", "d"]]}, any_size=False)
    found = [sorted(graph.names[place] for place in places) for places, _ in graph.components()]
    assert sorted(found) == [["a", "b"], ["c"]]  # "any SCC in the graph with >= 2 nodes, or a self-loop"


def test_a_self_loop_has_iterations_and_stalls() -> None:
    graph = {"edges": [["writer", "writer"], ["writer", "end"]]}
    start = {"type": "run.started", "graph": graph, "budgets": {"maxTurnsPerNode": 20}}
    halt = halted([start, *(said("writer", f"version {'x' * n}") for n in range(12))])
    assert (where(halt), halt.badge) == (("BUDGET003", 9), "Loop 8/8")  # "an output that … returns to itself as input"
    pages = [{"node": "writer", "docs": "# Guide"}] * 5
    assert where(halted([start, *pages])) == ("STALL001", 2)


def test_a_cycle_id_is_stable() -> None:
    reverse = {"edges": GRAPH["edges"][::-1]}
    ids = {
        halted([{"type": "run.started", "graph": graph}, *loop([said("coder", "Done.")] * 5)]).cycle_id
        for graph in (GRAPH, reverse)
    }
    assert len(ids) == 1  # "a stable `cycleId` (sorted node IDs + sorted edge IDs)"


def test_iterations_are_counted_where_the_anchor_edge_delivers() -> None:
    monitor = Monitor(PRESET)
    badges = []
    for turn in [started(), *new_work(4)]:
        monitor.feed(run_id="r", **turn)
        status = monitor.status("r")
        badges.append(status.badge if status is not None else None)
    # "Increment `iterationCount` when the cycle's anchor edge delivers a payload back to the anchor node."
    assert badges == [None, None, None, "Loop 1/8", "Loop 1/8", "Loop 2/8", "Loop 2/8", "Loop 3/8", "Loop 3/8"]


# "Recommended UX".


@pytest.fixture
def reported(tmp_path: Path) -> str:
    """The text report of a scan of the headline's run."""
    file = tmp_path / "turns.jsonl"
    events = loop([patched("+return 1", output="I have fixed it.")] * 6, [checked("test_a")] * 6)
    file.write_bytes(b"".join(orjson.dumps({"run_id": "r", **event}) + b"\n" for event in [started(), *events]))
    return CliRunner().invoke(build(), ["scan", str(file), "--policy", PRESET]).stdout


def test_the_report_shows_the_badge_the_reason_and_the_loop_evidence(reported: str) -> None:
    head = next(line for line in reported.splitlines() if line.startswith("HALTED"))
    assert head.endswith("Loop 2/8")  # "cycle badge: `Loop 3/8`"
    assert "stalled, began at turn 0" in reported  # "last halt reason if stopped"
    halt = halted([started(), *loop([patched("+return 1", output="I have fixed it.")] * 6, [checked("test_a")] * 6)])
    assert halt.evidence is not None
    shown = " ".join(reported.split())
    # "“Loop Evidence” section listing hashes and failure summaries"
    assert f"loop evidence: outputs {' '.join(halt.evidence.output_hashes or ())}" in shown
    assert f"artifacts {' '.join(halt.evidence.artifact_hashes or ())}" in shown
    assert f"failing test sets {' '.join(halt.evidence.failing_signatures or ())}" in shown


def test_watch_shows_the_badge() -> None:
    control = read_control(halted([started(maxTurnsPerNode=20), *new_work(12)]).model_dump_json())
    assert "[Loop 8/8] " in list_of([control], Console(file=io.StringIO()), 10).plain


@pytest.mark.parametrize("policy", [PRESET, "standard"])
def test_fewer_and_fewer_errors_are_progress(policy: Any) -> None:
    # "failing test count decreased", as linters and compilers report it: the first three messages stay
    told = [
        {"node": "verifier", "errors": [{"message": f"src/a.ts({n},1): error"} for n in range(20 - done)]}
        for done in range(12)
    ]
    found = played(loop([said("coder", f"Part {n} done.") for n in range(12)], told), policy)[1]
    assert [one.code for one in found if one.code[:6] != "BUDGET"] == []


@pytest.mark.parametrize("order", list(itertools.permutations([["v", "end"], ["c", "v"], ["v", "c"]])))
def test_iterations_do_not_depend_on_the_order_of_the_edges(order: Any) -> None:
    # "Track cycle iterations deterministically"
    events: list[Raw] = [{"type": "run.started", "graph": {"edges": list(order)}, "budgets": {"maxTurnsPerNode": 50}}]
    for n in range(12):
        events += [said("c", f"Change {n} {'xyz'[n % 3] * (n + 2)}"), said("v", f"Found {n} {'uvw'[n % 3] * (n + 3)}")]
    assert where(halted(events)) == ("BUDGET003", 18)  # the ninth pass begins at the node that was first


def test_reports_of_a_verifier_do_not_excuse_what_a_coder_repeats() -> None:
    # "same `message.final` content hash N times"
    reports = [{"node": "verifier", "artifact": {"report.txt": f"log {n}"}} for n in range(6)]
    assert where(halted(loop([said("coder", "I fixed it.")] * 6, reports))) == ("LOOP001", 4)
    drafts = [{"node": "writer", "artifact": {"page.md": f"draft {n}"}} for n in range(6)]
    turns = [turn for draft in drafts for turn in (draft, said("reviewer", "Please revise."))]
    assert [one for one in played(turns)[1] if one.severity == "halt"] == []


def test_work_in_another_cycle_does_not_excuse_what_is_repeated() -> None:
    # "Maintain per-cycle counters … `stalledCount`"
    pairs = [["coder", "verifier"], ["planner", "reviewer"]]
    edges = [edge for a, b in pairs for edge in ([a, b], [b, a], [b, "end"])]
    events: list[Raw] = [{"type": "run.started", "graph": {"edges": edges}}]
    for n in range(4):
        events += [
            patched(f"+x = {n}"),
            said("planner", "The plan is complete."),
            said("reviewer", f"Not yet: {'ab'[n % 2] * n}."),
        ]
    assert where(halted(events)) == ("LOOP001", 7)


@pytest.mark.parametrize("counted", [(0,), (1,), (2,), (0, 2), (1, 2)])
def test_the_same_failures_are_counted_whichever_reports_count_the_passing_tests(counted: tuple[int, ...]) -> None:
    # "same test failures (same set) repeats"
    reports = [{"failed": ["t1", "t2"], "total": 9, **({"passed": 7} if n in counted else {})} for n in range(3)]
    events = loop([patched(f"+{n}") for n in range(3)], [{"node": "verifier", "tests": report} for report in reports])
    halt = halted([started(), *events])
    assert (halt.code, where(halt)[1]) == ("STALL002", 5)


def test_more_passing_tests_than_before_are_progress_though_not_all_reports_count_them() -> None:
    # "progress signal: an observable, low-cost indicator that the loop is converging"
    passing = (5, None, 6, None, 7)
    reports = [{"failed": ["t1", "t2"], **({"passed": n} if n else {})} for n in passing]
    events = loop([patched(f"+{n}") for n in range(5)], [{"node": "verifier", "tests": report} for report in reports])
    assert not any(control.halts for control in played([started(), *events])[1])


@pytest.mark.parametrize(
    "contents",
    [
        [f"#define MASK 0x{mask}" for mask in ("ff00ff00", "00ff00ff", "f0f0f0f0", "0f0f0f0f")],
        [f"lib @ git+https://host/lib@{digit * 39}c" for digit in "1234"],
        [f"uuid = {digit * 8}-1111-4111-8111-11111111111f" for digit in "1234"],
    ],
    ids=["numbers in hex", "revisions", "ids"],
)
@pytest.mark.parametrize(
    "form", [lambda text: {"a.h": text}, lambda text: f"--- a/a.h\n+++ b/a.h\n@@ -1 +1 @@\n+{text}"]
)
def test_a_diff_that_changes_is_progress_whatever_changes_in_it(
    contents: list[str], form: Callable[[str], Any]
) -> None:
    # "diff content hash changed"; "hash normalized patch text (ignore timestamps)": nothing else is ignored
    monitor = Monitor(PRESET)
    raws = [patched(form(text), run_id="r") for text in contents]
    assert [one for raw in raws for one in monitor.feed(raw) if one.severity == "halt"] == []
    again = [one.code for _ in range(2) for one in monitor.feed(raws[-1]) if one.severity == "halt"]
    assert again == ["STALL001"]
