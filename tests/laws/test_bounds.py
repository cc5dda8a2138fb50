"""A state takes at most 4 KiB, however long the run is and whatever its events contain."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given

from benchmarks.traces import sample_runs
from streamproc.core import states
from streamproc.core.board.state import TASKS_MAX
from streamproc.core.size_budget import FULL_BYTES, shrink
from streamproc.fingerprint import fingerprint
from streamproc.model import wire
from streamproc.model.budgets import BUDGETS
from streamproc.model.raw_events import parse_raw
from streamproc.model.wire import WIRE_VERSION, Call, Content, Errors, RunStarted, Turn, Usage
from streamproc.policy import load_policy
from tests.feeding import Feed, Raw
from tests.laws.traces import BRIEF, START_MS, TURNS, traces

STATE_BYTES_MAX = 4_096
HASH_MAX = 2**64 - 1
COUNT_MAX = 2**53
WIDE = "𝄞"  # four bytes in UTF-8
SCOPE = WIDE * 32  # 128 bytes


def started(**more: Any) -> RunStarted:
    """Return the largest legal start of a run: scopes of the maximum length, and every budget declared."""
    budgets = {budget.name: COUNT_MAX for budget in BUDGETS}
    scope: dict[str, Any] = {"workflow": SCOPE, "tenant": SCOPE, "user": SCOPE, "tier": SCOPE}
    scope |= {"session_id": WIDE * 32, "parent_run_id": WIDE * 64, "task_id": WIDE * 32}
    return RunStarted(w=WIRE_VERSION, run_id=WIDE * 64, event_id="start", budgets=budgets, **scope, **more)


def full_turn(n: int, dice: random.Random) -> Turn:
    """Return a turn with random kinds of evidence, in the largest legal numbers."""

    def of(kinds: int) -> int:
        return HASH_MAX - dice.randrange(kinds)

    def content(kinds: int) -> Content:
        return Content(of(kinds), of(kinds), of(kinds), COUNT_MAX)

    brings = dice.randrange(64)
    return Turn(
        w=WIRE_VERSION,
        run_id=WIDE * 64,
        event_id=f"{n}",
        node=f"{WIDE * 60}{dice.randrange(40)}",
        from_=f"{WIDE * 60}{dice.randrange(40)}",
        output=content(3) if brings & 1 else None,
        structured=content(3) if brings & 2 else None,
        artifact=content(3) if brings & 4 else None,
        tests=wire.Tests(of(3), COUNT_MAX - dice.randrange(9), COUNT_MAX, COUNT_MAX) if brings & 8 else None,
        errors=Errors(of(3), of(3), COUNT_MAX, "e" * 120) if brings & 16 else None,
        progress={f"{WIDE * 30}{k}": dice.random() for k in range(15)} if brings & 32 else None,
        calls=tuple(
            Call(f"{WIDE * 60}{dice.randrange(20)}", of(20), of(2), of(2), dice.randrange(3))
            for _ in range(dice.randrange(4))
        ),
        usage=Usage(COUNT_MAX, COUNT_MAX, COUNT_MAX, COUNT_MAX, 10**15, COUNT_MAX),
        task_id=f"{dice.randrange(40)}",
    )


def circling_turn(n: int, dice: random.Random) -> Turn:
    """Return a turn of a run that is stuck in every way: twelve parallel calls, texts, artifacts, tests, errors."""
    same = Content(HASH_MAX, HASH_MAX)
    return Turn(
        w=WIRE_VERSION,
        run_id=WIDE * 64,
        event_id=f"{n}",
        node=f"n{n % 8}",
        from_=f"n{n * 3 % 9}",
        output=same,
        structured=Content(HASH_MAX - n % 2, HASH_MAX - n % 2),
        artifact=same,
        docs=same,
        tests=wire.Tests(HASH_MAX, COUNT_MAX - 1, COUNT_MAX, COUNT_MAX),
        errors=Errors(HASH_MAX, HASH_MAX, 3, "x"),
        calls=tuple(Call("t", HASH_MAX - k, HASH_MAX, HASH_MAX, 1) for k in range(12 if n % 3 else 1)),
    )


def growing_turn(n: int, dice: random.Random) -> Turn:
    """Return a turn with small numbers for the first 700 turns, and with the largest ones after that."""
    if n >= 700:
        return full_turn(n, dice)
    shape = full_turn(n, dice)
    small = Content(n % 90, n % 90)
    return msgspec.structs.replace(
        shape,
        output=shape.output and small,
        structured=shape.structured and small,
        artifact=shape.artifact and small,
        tests=shape.tests and wire.Tests(n % 9, 1, n % 9, 9),
        errors=shape.errors and Errors(n % 9, n % 9, 1, ""),
        calls=tuple(Call(call.name, n % 20, n % 2, n % 2, 1) for call in shape.calls),
        usage=Usage(1, 1),
    )


def full_board(n: int, dice: random.Random) -> wire.Event:
    """Return a board event of maximum size, about one of forty tasks."""
    task = f"{WIDE * 120}{dice.randrange(40)}"
    proofs = {f"{WIDE * 70}{k}": wire.Proof(bool(k % 2), (WIDE * 80,) * 24, (WIDE * 80,) * 24) for k in range(16)}
    states = ("IMPLEMENTING", "QA_REVIEW", "REWORK", "BLOCKED", "VALIDATION", "elsewhere")
    shared: dict[str, Any] = {"w": WIRE_VERSION, "run_id": WIDE * 64, "event_id": f"b{n}", "task_id": task}
    kind = dice.randrange(6)
    if kind == 0:
        others = tuple(f"{WIDE * 120}{dice.randrange(40)}" for _ in range(32))
        return wire.TaskCreated(**shared, depends_on=others, module=task, ui_touching=True, evidence=proofs)
    if kind == 1:
        return wire.TaskVerdict(
            **shared, verdict="REJECTED", validator=WIDE * 128, reason=WIDE * 100, failure_class=WIDE * 128
        )
    if kind == 2:
        return wire.CycleCompleted(**shared, moved=tuple((f"{task}{k}", "DONE") for k in range(3)))
    if kind == 3:
        return wire.TaskDelegated(**shared, tasks=(task,) * 256, count=COUNT_MAX, phase=WIDE * 128)
    to = states[dice.randrange(len(states))]
    return wire.TaskTransition(**shared, from_=states[n % 5], to=to, evidence=proofs, failure_class=WIDE, module=task)


def largest(
    make: Callable[[int, random.Random], Turn], turns: int, start: RunStarted | None = None, before: int = 0
) -> int:
    """Return the size in bytes of the largest state of a run that already had `before` turns."""
    feed, dice, worst = Feed(), random.Random(1), 0
    if start is not None:
        feed.event(start)
    feed.state.turns = feed.state.call_turns = before
    for n in range(turns):
        feed.event(make(n, dice), START_MS + n * 1_000)
        size = len(feed.stored)
        assert size <= STATE_BYTES_MAX
        worst = max(worst, size)
    assert feed.state.turns == before + turns
    return worst


@given(traces)
@BRIEF
def test_a_state_is_within_the_limit_after_every_event(trace: list[Raw]) -> None:
    feed = Feed()
    for raw in trace:
        feed.raw(raw)
        assert len(feed.stored) <= STATE_BYTES_MAX


@pytest.mark.parametrize("before", [0, 100_000])
@pytest.mark.parametrize("make", [full_turn, circling_turn, growing_turn])
def test_a_state_is_within_the_limit_when_every_collection_is_full(
    make: Callable[[int, random.Random], Turn], before: int
) -> None:
    assert largest(make, 2_000, started(), before) <= STATE_BYTES_MAX


@pytest.mark.parametrize("make", [full_turn, circling_turn])
def test_dropped_entries_do_not_depend_on_the_position_in_the_log(make: Callable[[int, random.Random], Turn]) -> None:
    memories = []
    for place in (-1, 2**62):
        feed, dice = Feed(), random.Random(1)
        feed.event(started())
        for n in range(500):
            feed.event(make(n, dice), START_MS + n * 1_000)
            feed.state.offset = place + n if place > 0 else place
        assert feed.state.evicted
        feed.state.offset = -1
        memories.append(feed.stored)
    assert memories[0] == memories[1]


@pytest.mark.parametrize("make", [full_turn, circling_turn, growing_turn])
def test_the_size_that_is_calculated_while_entries_are_dropped_is_that_of_the_state(
    make: Callable[[int, random.Random], Turn],
) -> None:
    feed, dice = Feed(), random.Random(3)
    for n in range(800):
        feed.event(make(n, dice), START_MS + n * 1_000)
        if n % 20 == 0:
            other = Feed(stored=feed.stored)
            run = other.state
            for more in range(dice.randrange(20)):  # so much that each of the rounds is needed at times
                run.cold.command_ids[2**60 + more] = run.cold.command_ids[2**59 + more] = 2**60
                run.cold.node_names[more] = "n" * dice.randrange(90)
            assert shrink(run) == run.size_bytes() == len(other.stored)


@pytest.mark.parametrize("make", [full_turn, circling_turn])
def test_a_state_with_a_full_board_is_within_the_limit(make: Callable[[int, random.Random], Turn]) -> None:
    feed, dice, worst = Feed(), random.Random(2), 0
    feed.event(started())
    for n in range(1_500):
        event = make(n, dice) if n % 3 else full_board(n, dice)
        if n % 5 == 1 and isinstance(event, Turn):
            event.task_id = f"{WIDE * 120}{dice.randrange(40)}"
            event.errors = Errors(HASH_MAX, HASH_MAX, 1, "", WIDE * 80)
        feed.event(event, START_MS + n * 1_000)
        worst = max(worst, len(feed.stored))
    assert feed.state.board is not None
    assert worst <= STATE_BYTES_MAX


@pytest.mark.parametrize("make", [full_turn, circling_turn])
def test_a_state_with_open_turns_is_within_the_limit(make: Callable[[int, random.Random], Turn]) -> None:
    feed, dice, worst = Feed(), random.Random(3), 0
    feed.event(started())
    for n in range(1_500):
        event: wire.Event = make(n, dice)
        if n % 3 == 0:
            node, task = (f"{WIDE * 60}{dice.randrange(40)}" for _ in range(2))
            event = wire.TurnStarted(w=WIRE_VERSION, run_id=WIDE * 64, event_id=f"s{n}", node=node, task_id=task)
        feed.event(event, START_MS + n * 1_000)
        worst = max(worst, len(feed.stored))
    assert feed.state.open_turns
    assert worst <= STATE_BYTES_MAX


def test_a_state_of_many_tasks_and_parallel_calls_is_within_the_limit() -> None:
    feed, worst = Feed(load_policy("tickets")), 0
    for n in range(TASKS_MAX):
        task = f"0f00c0de-{n:04}-4000-8000-000000000000"
        feed.raw({"type": "task.created", "task_id": task})
        feed.raw(
            {"type": "task.delegated", "agent": f"agent{n % 10}", "tasks": [task], "max_token_budget": 100_000 + n}
        )
        feed.raw({"type": "task.transition", "task_id": task, "to": "LOCKED"})
        feed.raw({"type": "turn.started", "node": f"agent{n}-with-a-name-of-some-length", "task_id": task})
    for n in range(300):
        calls = [{"name": f"tool{m}", "args": n, "result": f"text {n} {m}"} for m in range(8)]
        feed.raw({"node": f"agent{n % 10}", "tool_calls": calls, "usage": {"total_tokens": 10}})
        worst = max(worst, len(feed.stored))
    assert worst <= STATE_BYTES_MAX


def test_ten_thousand_tasks_are_bounded() -> None:
    feed = Feed()
    for n in range(10_000):
        feed.raw({"type": "task.transition", "task_id": f"T{n}", "to": "IMPLEMENTING", "module": f"m{n}"})
    board = feed.state.board
    assert len(board.tasks) <= TASKS_MAX
    assert feed.state.evicted >= 10_000 - TASKS_MAX
    assert len(feed.stored) <= STATE_BYTES_MAX


def test_a_state_after_a_hundred_thousand_turns_is_as_small_as_after_a_thousand() -> None:
    events = [fingerprint(parse_raw({"run_id": "r", **raw})) for raw in TURNS]
    feed, sizes, largest_size = Feed(), [], 0
    feed.event(started())
    for n in range(100_000):
        event = events[n * 7 % len(events)]
        event.event_id = f"{n}"
        feed.event(event, START_MS + n)
        if n % 10_000 >= 9_000 or n < 1_000:
            largest_size = max(largest_size, len(feed.stored))
        if n in (999, 9_999, 99_999):
            sizes.append(largest_size)
            largest_size = 0
    assert feed.state.turns == 100_000
    assert max(sizes) <= STATE_BYTES_MAX
    assert sizes[2] - sizes[0] < 128


@pytest.mark.parametrize("what", ["node", "tool", "metric", "run"])
def test_ten_thousand_names_are_bounded(what: str) -> None:
    def turn(n: int, dice: random.Random) -> Turn:
        name = f"{WIDE * 60}{n}"
        node = name if what == "node" else "agent"
        calls = (Call(name, n * 7, n, n, 1),) if what == "tool" else ()
        progress = {f"{WIDE * 30}{n}": float(n)} if what == "metric" else None
        run = name if what == "run" else "r"
        return Turn(w=WIRE_VERSION, run_id=run, node=node, calls=calls, progress=progress)

    assert largest(turn, 10_000) <= STATE_BYTES_MAX


@pytest.mark.parametrize("edges", [
    [[f"n{n}", f"n{n + 1}"] for n in range(5_000)], [[f"n{n}", f"n{(n + 1) % 5_000}"] for n in range(5_000)],
    [pair for n in range(2_500) for pair in ([f"a{n}", f"b{n}"], [f"b{n}", f"a{n}"])],
], ids=["a chain", "one great cycle", "thousands of cycles"])  # fmt: skip
def test_a_graph_of_five_thousand_nodes_is_bounded(edges: list[list[str]]) -> None:
    feed = Feed()
    feed.event(started(graph={"edges": edges}))
    assert len(feed.stored) <= STATE_BYTES_MAX
    for n in range(300):
        feed.raw({"node": edges[n][0], "from": edges[n - 1][0], "output": "hm"})
    assert len(feed.stored) <= STATE_BYTES_MAX


def test_a_turn_of_a_thousand_calls_is_bounded() -> None:
    feed = Feed()
    for _ in range(3):
        feed.raw({"node": "agent", "tool_calls": [{"name": "read", "args": n, "result": "x"} for n in range(1_000)]})
    assert len(feed.stored) <= STATE_BYTES_MAX


def test_dropped_entries_are_counted() -> None:
    feed = Feed()
    for n in range(100):
        feed.raw({"node": f"n{n}"})
    assert feed.state.evicted > 0


@pytest.mark.parametrize("huge", [2**64, 10**40])
def test_numbers_beyond_64_bits_can_be_stored(huge: int) -> None:
    """A publisher in another language may send any number; storing the state must not fail."""
    feed = Feed()
    content = Content(huge, huge, huge, 1)
    feed.event(RunStarted(w=1, run_id="r", budgets={"maxSteps": huge, "maxRounds": huge, "nonsense": 1}))
    for n in range(6):
        feed.event(
            Turn(
                w=1,
                run_id="r",
                node="a",
                at=huge,
                seq=huge,
                round=huge,
                output=content,
                structured=content,
                artifact=content,
                docs=content,
                query=content,
                tests=wire.Tests(huge, 1, 1, 2),
                errors=Errors(huge, huge, 1),
                calls=(Call("t", huge, huge + n, huge + n, 1), Call("u", 1, huge + n, 1, 1)),
            )
        )
        feed.event(Turn(w=1, run_id="r", node="a", output=content))
    feed.restart()
    assert len(feed.stored) <= STATE_BYTES_MAX


def test_spend_stops_at_the_largest_number_a_state_can_hold() -> None:
    feed = Feed()
    turn = full_turn(0, random.Random(0))
    for n in range(100_000 // 8):
        turn.event_id = f"{n}"
        feed.event(turn)
    feed.restart()
    ledger = feed.state.ledger
    assert ledger.cost_usd_micro >= 10**18
    assert ledger.total_tokens >= 10**18


@pytest.mark.parametrize("at_ms", [-(2**63), -1, 0, 253_402_300_800_000, 2**63, 10**40])
def test_an_invalid_time_does_not_move_the_clock(at_ms: int) -> None:
    feed = Feed()
    said = fingerprint(parse_raw({"run_id": "r", "node": "a", "output": "hm"}))
    feed.event(said, START_MS)
    [warning] = feed.event(said, at_ms)
    assert warning.at == "2026-01-01T00:00:00.000Z"
    [halt] = feed.event(said, START_MS + 5)
    assert halt.at == "2026-01-01T00:00:00.005Z"


def repeating_turn(n: int, dice: random.Random) -> Turn:
    """Return a turn whose text is said a few times in a row: the periods that its stream holds come and go."""
    shape = circling_turn(0, dice)
    said = Content(HASH_MAX - n // 3 % 2, HASH_MAX - n // 3 % 2)
    return Turn(w=WIRE_VERSION, run_id=shape.run_id, event_id=f"{n}", node="n", output=said)


@pytest.mark.parametrize("make", [full_turn, circling_turn, growing_turn, repeating_turn])
def test_every_addition_is_counted(make: Callable[[int, random.Random], Turn]) -> None:
    """A state that is kept unpacked is measured before it can be too large; a packed one is measured each time."""
    feed, dice = Feed(), random.Random(4)
    for n in range(1_000):
        feed.event(make(n % 40, dice), START_MS + n * 1_000)
        feed.state.event_ids.clear()
        assert len(feed.stored) + max(0, feed.state.room) <= FULL_BYTES


def test_a_real_run_is_hardly_ever_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    turns, measured = 0, []
    monkeypatch.setattr(states, "shrink", lambda run: measured.append(run) or shrink(run))  # type: ignore[func-returns-value]
    for run in sample_runs():
        feed = Feed()
        for event, at_ms in run:
            feed.event(event, at_ms)
        turns += feed.state.turns
        assert feed.state.evicted == 0
    assert turns > 1_000
    assert len(measured) < turns / 10
