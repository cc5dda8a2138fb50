"""What a scan or a replay found, for people: each run that was halted or warned of, and a summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from streamproc.cli.terminal import clean, paint
from streamproc.core.decision import Decision, Evidence

UNSHOWN = {"kind", "turns", "output_hashes", "artifact_hashes", "failing_signatures"}  # in the message, or for machines


def by_run(decisions: Sequence[Decision]) -> dict[str, list[Decision]]:
    """The decisions of each run, in the order in which runs were first told of."""
    found: dict[str, list[Decision]] = {}
    for decision in decisions:
        found.setdefault(decision.run_id, []).append(decision)
    return found


def run_lines(run_id: str, decisions: Sequence[Decision], turns: int) -> Iterator[str]:
    """A run of so many turns: when and why it was halted, with evidence and what to do; before that, its warnings."""
    halt = next((decision for decision in decisions if decision.severity == "halt"), None)
    if halt is None:
        yield f"{paint('WARNED', 'yellow', bold=True)}  {clean(run_id)}  ({turns} turns)"
    else:
        at = _turn(halt)
        after = turns - at - 1
        rest = f", {after} more came after it" if after > 0 else ""
        place = f"at turn {at} of {turns}" if turns else "before its first turn"
        yield f"{paint('HALTED', 'red', bold=True)}  {clean(run_id)}  {place}{rest}"
    for decision in decisions:
        yield _headline(decision)
        if decision is halt:
            yield from _details(decision)
    yield ""


def _headline(decision: Decision) -> str:
    colour = {"halt": "red", "warn": "yellow"}.get(decision.severity, "cyan")
    place = f" in {decision.node}" if decision.node else ""
    severity = paint(f"{decision.severity:<4}", colour)
    return f"  {severity}  turn {_turn(decision)}{place}  {decision.code}  {decision.message}"


def _details(decision: Decision) -> Iterator[str]:
    onset = f", began at turn {decision.onset}" if decision.onset is not None else ""
    yield f"        {decision.halt_reason}{onset}; the run ends as {decision.terminal_status}"
    if decision.evidence is not None:
        yield f"        evidence: {_evidence(decision.evidence)}"
    others = [action for action in decision.suggested_actions if action != decision.action]
    yield f"        to do: {decision.action}" + (f"; or {', '.join(others)}" if others else "")


def _evidence(evidence: Evidence) -> str:
    fields = msgspec.to_builtins(evidence)
    parts = [f"{name} {_value(value)}" for name, value in fields.items() if name not in UNSHOWN]
    return ", ".join([evidence.kind, *parts])


def _value(value: object) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


def _turn(decision: Decision) -> int:
    turn = decision.trigger.turn if decision.trigger is not None else None
    return turn or 0


def summary(decisions: Sequence[Decision], turns: Mapping[str, int]) -> str:
    """How many runs there were, and what was said of them. `turns` is how many each run took."""
    halted: dict[str, int] = {}
    warned = set()
    for decision in decisions:
        if decision.severity == "halt":
            halted.setdefault(decision.run_id, _turn(decision))
        else:
            warned.add(decision.run_id)
    after = sum(max(0, turns[run_id] - at - 1) for run_id, at in halted.items())
    quiet = len(turns) - len(warned | halted.keys())
    text = (
        f"{len(turns)} runs, {sum(turns.values())} turns: {len(halted)} halted, "
        f"{len(warned - halted.keys())} only warned of, {quiet} quiet."
    )
    return f"{text} {after} turns came after a halt." if halted else text
