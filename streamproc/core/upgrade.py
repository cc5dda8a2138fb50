"""Turn a state of version 1 into one of version 2: the same memory, in other containers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec

from streamproc.core.records import HASH, StateError, Trail
from streamproc.core.scope import Scope
from streamproc.core.signals.streaks import Streak
from streamproc.core.version1 import VERSION, OldNode, OldRun, OldStreak, old_runs

if TYPE_CHECKING:
    from streamproc.core.run_state import RunState

COUNT_MAX: Final = 2**32 - 1  # counts of version 2 are 32-bit numbers, as are turns, with a sign


def upgrade(raw: bytes, run: RunState) -> None:
    """Fill a blank state with a state of version 1. Raises `StateError`."""
    try:
        old = old_runs.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # msgspec lets Python's own through
        raise StateError(str(error)) from None
    if old.version != VERSION:
        raise StateError("not a state of this version")
    try:
        _numbers(run, old)
        _scope(run, old)
        _novelty(run, old)
        _calls(run, old)
        _streams(run, old)
        for tag, node in old.nodes.items():
            _node(run, _u64(tag), node)
        _handovers(run, old)
        _talk(run, old)
        _spend(run, old)
        _escalation(run, old)
    except (OverflowError, IndexError, ValueError, TypeError) as error:
        raise StateError(f"not a state: {error}") from None


def _within(value: int, least: int, most: int) -> int:
    if not least <= value <= most:
        raise StateError(f"{value} is not between {least} and {most}")
    return value


def _u32(value: int) -> int:
    return _within(value, 0, COUNT_MAX)


def _i32(value: int) -> int:
    return _within(value, -(2**31), 2**31 - 1)


def _i64(value: int) -> int:
    return _within(value, -(2**63), 2**63 - 1)


def _u64(value: int) -> int:
    return _within(value, 0, HASH)


def _numbers(run: RunState, old: OldRun) -> None:
    run.size_left = 0  # it was measured in other bytes
    run.partition, run.offset, run.turns = _i32(old.partition), _i64(old.offset), _i32(old.turns)
    run.call_turns, run.started_ms, run.at_ms = _u32(old.call_turns), _i64(old.started_ms), _i64(old.at_ms)
    run.checked_ms, run.owner, run.round = _i64(old.checked_ms), _u64(old.owner), _u64(old.round)
    run.finished, run.halted, run.started = old.finished, _i32(old.halted), old.started
    run.duplicates, run.late, run.evicted = _u32(old.duplicates), _u32(old.late), _u32(old.evicted)
    run.ignored_events, run.id_reuses, run.strangers = (
        _u32(old.ignored_events),
        _u32(old.id_reuses),
        _u32(old.strangers),
    )
    run.checks_rounds, run.charged, run.session_closed = old.checks_rounds, old.charged, old.session_closed
    for event_id in old.event_ids:
        run.event_ids.push(_u64(event_id))
    cold = run.cold
    cold.board, cold.open_turns, cold.task_tokens = old.board, old.open_turns, old.task_tokens
    cold.node_names, cold.recent_calls = old.node_names, old.recent_calls
    cold.command_ids, cold.commands_since_ms = old.command_ids, old.commands_since_ms
    run.has_board, run.turns_open, run.has_task_tokens = (
        old.board is not None,
        len(old.open_turns),
        bool(old.task_tokens),
    )


def _scope(run: RunState, old: OldRun) -> None:
    run.set_scope(
        Scope(
            workflow=old.workflow, tenant=old.tenant, user=old.user, tier=old.tier, named_tier=old.named_tier,
            unknown_tier=old.unknown_tier, session=old.session, child=old.child, task=_u32(old.task),
            budgets=old.budgets, declared=old.declared, granted=old.granted, capped=old.capped,
        )
    )  # fmt: skip


def _novelty(run: RunState, old: OldRun) -> None:
    known = run.novelty
    known.last_news, known.last_discovery = _i32(old.last_news), _i32(old.last_discovery)
    known.last_result, known.last_progress = _i32(old.last_result), _i32(old.last_progress)
    known.last_answer_change, known.last_measurement = _i32(old.last_answer_change), _i32(old.last_measurement)
    known.last_success = _i32(old.last_success)
    for tag in old.seen:
        known.seen.add(_u32(tag))


def _calls(run: RunState, old: OldRun) -> None:
    run.calls.stale_bits, run.calls.stale_since = _u32(old.stale_bits), _i32(old.stale_since)
    _streak(run.calls.writes, old.writes)
    for key, call in old.calls.items():
        memory = run.calls.table.add(_u64(key))
        memory.exact, memory.norm, memory.exact_run = _u64(call.exact), _u64(call.norm), _u32(call.exact_run)
        memory.live, memory.still, memory.still_since_ms = call.live, _u32(call.still), _i64(call.still_since_ms)
        memory.longest_still, memory.longest_still_ms = _u32(call.longest_still), _i64(call.longest_still_ms)
        memory.known, memory.known_since = _u32(call.known), _i32(call.known_since)
        _trail(memory.times, call.call_turns, call.turns)
        if not call.turns:
            raise StateError("a call that was never made")
    tools = run.tools
    tools.failed_turns, tools.excused_failures = _u32(old.failed_turns), _u32(old.excused_failures)
    tools.retries, tools.failing_since = _u32(old.retries), _i32(old.failing_since)
    for name, one in old.tools.items():
        tool = tools.table.add(_u64(name))
        tool.answer, tool.call_key, tool.same = _u32(one.answer), _u32(one.key), _u32(one.same)
        tool.first, tool.call_turn, tool.varied = _i32(one.first), _u32(one.call_turn), one.varied
        _trail(tool.failures, one.failures, one.turns)
        _trail(tool.keys, [0] * (len(one.turns) - len(one.keys)) + one.keys, one.turns)


def _streams(run: RunState, old: OldRun) -> None:
    for stream, one in old.hash_windows.items():
        window = run.windows.add(_u64(stream))
        _trail(window.tags, one.tags, one.turns)
        for length, (matches, onset) in one.active.items():
            held = window.held.add(_within(length, 1, len(one.tags)))
            held.matches, held.onset = _u32(matches), _u32(onset)
    for sim, turn in old.recent_simhashes:
        run.long_texts.sims.push(_u64(sim))
        run.long_texts.turns.push(_u32(turn))
    for values, kept in (
        (old.recent_outputs, run.evidence.outputs), (old.recent_artifacts, run.evidence.artifacts),
        (old.recent_failing_sets, run.evidence.failing_sets), (old.recent_failing_counts, run.evidence.failing_counts),
    ):  # fmt: skip
        for value in values:
            kept.push(_u64(value))
    for key, best in old.metrics.items():
        metric = run.metrics.add(_u64(key))
        metric.best, metric.lowest, metric.count = best.best, best.lowest, _u32(best.count)
        metric.falls, metric.first, metric.stamp = _u32(best.falls), _i32(best.first), _i32(best.stamp)


def _node(run: RunState, tag: int, old: OldNode) -> None:
    node = run.nodes.add(tag)
    node.last_turn, node.last_call, node.last_call_news = (
        _i32(old.last_turn),
        _i32(old.last_call),
        _i32(old.last_call_news),
    )
    node.query_simhash, node.text_simhash = _u64(old.query_simhash), _u64(old.text_simhash)
    node.has_answered, node.attempted = old.has_answered, bool(old.attempted)
    if old.attempted:
        node.attempted_tool, node.attempted_call = map(_u32, old.attempted)
    for said, kept in ((old.output, node.output), (old.structured, node.structured)):
        if said is not None:
            kept.value, kept.count, kept.first = _u32(said.value), _u32(said.count), _i32(said.first)
            kept.own, kept.own_first = _u32(said.own), _i32(said.own_first)
    _streak(node.artifact, old.artifact)
    _streak(node.errors, old.errors)
    _streak(node.query, old.query)
    _streak(node.reply, old.reply)
    _streak(node.attempts, old.attempts)
    for suite in (old.other_suite, old.tests):
        if suite is not None:
            node.suites.forget(_i64(suite.total) & HASH)
            track = node.suites.add(_i64(suite.total) & HASH)
            track.best_failing, track.best_passed = _i64(suite.best_failing), _i64(suite.best_passed)
            track.unpassed = _u32(suite.unpassed)
            _streak(track.same, suite.same)
            _streak(track.flat, suite.flat)


def _handovers(run: RunState, old: OldRun) -> None:
    known = run.handovers
    known.previous_node, known.chosen_edge = _u32(old.previous_node), _u64(old.chosen_edge)
    known.previous_name.set(old.previous_node_name)
    known.finder, known.found, known.others_found = _u32(old.last_finder[0]), *map(_i32, old.last_finder[1:])
    for edge, (count, last, bits, first) in old.fruitless_handovers.items():
        row = known.fruitless.add(_u64(edge))
        row.count, row.last, row.bits, row.first = _u32(count), _i32(last), _u32(bits), _i32(first)
    for edge in old.edges:
        run.cycles.edges.add(_u64(edge))
    for one in old.cycles:
        cycle = run.cycles.table.add(_u64(one.id))
        cycle.anchor, cycle.over, cycle.many, cycle.iterations = (
            _u32(one.anchor),
            _u32(one.over),
            one.many,
            _u32(one.iterations),
        )
        cycle.since_ms, cycle.spent_before = _i64(one.since_ms), _i64(one.spent_before)
        for member in one.members:
            cycle.members.push(_u64(member))


def _talk(run: RunState, old: OldRun) -> None:
    if old.pending_text:
        run.pending.node, run.pending.value = _u32(old.pending_text[0]), _u64(old.pending_text[1])
        run.pending.turn = _i32(old.pending_text[2])
    if (one := old.monologue) is not None:
        kept = run.monologue
        kept.node, kept.value, kept.sim, kept.count = _u32(one.node), _u32(one.value), _u64(one.sim), _u32(one.count)
        kept.first, kept.size, kept.grown, kept.loose = _i32(one.first), _i64(one.size), _i64(one.grown), one.loose
    if (texts := old.text_streak) is not None:
        streak = run.text_streak
        streak.node, streak.topic, streak.count = _u32(texts.node), _u32(texts.topic), _u32(texts.count)
        streak.first, streak.pages, streak.size = _i32(texts.first), _u32(texts.pages), _i64(texts.size)
        streak.not_longer = _u32(texts.not_longer)
    if old.text_turns:
        run.text_streak.last_text_turn, run.text_streak.text_turn_before = map(_i32, old.text_turns)
    if (heard := old.messages) is not None:
        messages = run.messages
        messages.count, messages.text, messages.worked = _u32(heard.count), _u32(heard.text), _i32(heard.worked)
        messages.answered, messages.by = _u32(heard.answered), _u32(heard.by)


def _spend(run: RunState, old: OldRun) -> None:
    for name in ("input_tokens", "output_tokens", "cached_tokens", "total_tokens", "cost_usd_micro", "duration_ms"):
        setattr(run.ledger, name, _i64(getattr(old.ledger, name)))
    run.ledger.unpriced = _u32(old.ledger.unpriced)
    for tag, (turns, runtime_ms) in old.node_counts.items():
        counts = run.node_counts.add(_u64(tag))
        counts.turns, counts.runtime_ms = _u32(turns), _i64(runtime_ms)
    if (one := old.pace) is not None:
        run.pace.unit, run.pace.turns, run.pace.total = _u32(one.unit), _u32(one.turns), _i64(one.total)
        run.pace.since_ms, run.pace.spent = _i64(one.since_ms), _i64(one.spent)
        for cost in one.last:
            run.pace.last.push(_u64(cost))


def _escalation(run: RunState, old: OldRun) -> None:
    known = run.escalation
    known.halted_loop_seen, known.unacknowledged_halt = _i32(old.halted_loop_seen), _i32(old.unacknowledged_halt)
    known.severity, known.resumes = _u32(old.severity), _u32(old.resumes)
    known.halt_code.set(old.halt_code)
    if old.probation:
        known.probation_until, known.probation_iterations = _i32(old.probation[0]), _u32(old.probation[1])
    for key, level in old.episodes.items():
        known.episodes.add(_u64(key)).level = _u32(level)


def _streak(kept: Streak, old: OldStreak | None) -> None:
    if old is not None:
        kept.value, kept.count = _i64(old.value) & HASH if old.value < 0 else _u64(old.value), _u32(old.count)
        kept.first, kept.stamp = _i32(old.first), _i32(old.stamp)


def _trail(kept: Trail, numbers: list[int], turns: list[int]) -> None:
    for number, turn in zip(numbers, turns, strict=True):
        kept.push(_u32(number), _u32(turn))
