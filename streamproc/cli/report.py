"""The report of a scan or a replay for people: each halted or warned run, and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from streamproc.cli.terminal import COLOURS, clean, fold, paint
from streamproc.core.decision import Decision, Evidence
from streamproc.errors import plural

LOOP_EVIDENCE = {"output_hashes": "outputs", "artifact_hashes": "artifacts", "failing_signatures": "failing test sets"}
UNSHOWN = {"kind", "turns", *LOOP_EVIDENCE}  # in the message, or on a line of its own
DETAIL_INDENT = 8  # columns


def by_run(decisions: Sequence[Decision]) -> dict[str, list[Decision]]:
    """Group decisions by run, in the order of each run's first decision."""
    found: dict[str, list[Decision]] = {}
    for decision in decisions:
        found.setdefault(decision.run_id, []).append(decision)
    return found


def run_lines(run_id: str, decisions: Sequence[Decision], turns: int) -> Iterator[str]:
    """Report one run of `turns` turns: when and why it was halted, the evidence, the actions, and its warnings."""
    halt = next((decision for decision in decisions if decision.severity == "halt"), None)
    if halt is None:
        badge = f"  {clean(decisions[-1].badge)}" if decisions[-1].badge else ""
        head = f"{paint('WARNED', 'yellow', bold=True)}  {clean(run_id)}  ({plural(turns, 'turn')}){badge}"
    else:
        head = halt_line(halt, turns)
    yield fold(head, DETAIL_INDENT)
    for decision in decisions:
        yield fold(_headline(decision), DETAIL_INDENT)
        if decision is halt:
            yield from (fold(f"{' ' * DETAIL_INDENT}{text}", DETAIL_INDENT + 2) for text in _details(decision))
    yield ""


def halt_line(halt: Decision, turns: int) -> str:
    """Return which run was halted, at which of its turns, and how many came after it."""
    at = halt.turn or 0
    after = turns - at - 1
    rest = f", {after} more followed" if after > 0 else ""
    place = f"at turn {at} of {turns}" if turns else "before its first turn"
    badge = f"  {clean(halt.badge)}" if halt.badge else ""
    return f"{paint('HALTED', 'red', bold=True)}  {clean(halt.run_id)}  {place}{rest}{badge}"


def _headline(decision: Decision) -> str:
    place = f" in {clean(decision.node)}" if decision.node else ""
    severity = paint(f"{decision.severity:<4}", COLOURS.get(decision.severity, "cyan"))
    return f"  {severity}  turn {decision.turn or 0}{place}  {clean(decision.code)}  {clean(decision.message)}"


def _details(decision: Decision) -> Iterator[str]:
    yield end_line(decision)
    if decision.evidence is not None:
        yield from value_lines(decision.evidence)
    yield to_do(decision)


def end_line(halt: Decision) -> str:
    """Return why a run was halted, since when, and how it ends."""
    onset = f", began at turn {halt.onset}" if halt.onset is not None else ""
    return f"{halt.halt_reason}{onset}; the run ends as {halt.terminal_status}"


def value_lines(evidence: Evidence) -> Iterator[str]:
    """Return the values of the evidence, and the last hashes of the run."""
    yield f"evidence: {clean(_evidence(evidence))}"
    yield from hash_lines(evidence)


def hash_lines(evidence: Evidence) -> Iterator[str]:
    """Return the last hashes of the run, if the evidence has any."""
    if hashes := _loop_evidence(evidence):
        yield f"loop evidence: {clean(hashes)}"


def to_do(decision: Decision) -> str:
    """Return the action of a halt, and the others."""
    others = [action for action in decision.suggested_actions if action != decision.action]
    return f"to do: {decision.action}" + (f"; or {', '.join(others)}" if others else "")


def _evidence(evidence: Evidence) -> str:
    fields = msgspec.to_builtins(evidence)
    parts = [f"{name} {_value(value)}" for name, value in fields.items() if name not in UNSHOWN]
    return ", ".join([evidence.kind, *parts])


def _loop_evidence(evidence: Evidence) -> str:
    """Return the last hashes of the run, oldest first."""
    return "; ".join(
        f"{title} {_value(hashes)}" for name, title in LOOP_EVIDENCE.items() if (hashes := getattr(evidence, name))
    )


def _value(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def summary(decisions: Sequence[Decision], turns: Mapping[str, int]) -> str:
    """Count runs by outcome, folded at the terminal's width. `turns` holds the number of turns of each run."""
    return fold(counts(decisions, turns))


def counts(decisions: Sequence[Decision], turns: Mapping[str, int]) -> str:
    """Return the same on one line."""
    halted: dict[str, int] = {}
    warned = set()
    for decision in decisions:
        if decision.severity == "halt":
            halted.setdefault(decision.run_id, decision.turn or 0)
        else:
            warned.add(decision.run_id)
    after = sum(max(0, turns[run_id] - at - 1) for run_id, at in halted.items())
    unremarkable = len(turns) - len(warned | halted.keys())
    text = (
        f"{plural(len(turns), 'run')}, {plural(sum(turns.values()), 'turn')}: {len(halted)} halted, "
        f"{len(warned - halted.keys())} warned, {unremarkable} without findings."
    )
    return f"{text} {plural(after, 'turn')} came after a halt." if halted else text
