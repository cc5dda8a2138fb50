"""Facts about one run, computed from what was recorded of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from streamproc.core.decision import BUDGET_EXCEEDED, USER_STOP, Decision, hex16
from streamproc.errors import plural
from streamproc.model.advice import ADVICE
from streamproc.report.history import CycleSeen, RunHistory, named_turns
from streamproc.report.model import (
    Advice,
    BudgetUse,
    CycleRing,
    EdgeCount,
    ErrorShown,
    Estimate,
    Moment,
    SpendShown,
    Standing,
    Stretch,
    TrendPoint,
)

STRETCHES_MAX: Final = 120  # marks along the drawing of the timeline
NODE_ROWS_MAX: Final = 10  # nodes with a row of their own in the drawing; others share one
OTHER_NODES: Final = "other nodes"
TREND_MAX: Final = 240
RATE_TURNS: Final = 200  # last turns of the loop from which an estimate takes its rate
RING_NODES_MAX: Final = 8


def main_decision(history: RunHistory) -> Decision | None:
    """Return the decision that the report is about: the first halt, else the first warning."""
    if history.halt is not None:
        return history.halt
    return next((one for one in history.decisions if one.severity == "warn"), None)


def standing(history: RunHistory) -> Standing:
    """Return what became of a run."""
    if history.halt is not None:
        return "halted"
    return "warned" if main_decision(history) is not None else "unremarkable"


def sentence(history: RunHistory, main: Decision | None) -> str:
    """Return what happened, in one sentence."""
    if main is not None:
        return main.message
    if not history.turns:
        return "The run has taken no turn."
    return f"The run took {plural(history.turns, 'turn')}, and no detector had anything to report."


def resumed(history: RunHistory) -> str:
    """Return that and why an operator has resumed a halted run the last time; empty if nobody has."""
    found = [one for one in history.decisions if one.type == "run.resumed"] if history.halt is not None else []
    return f"after turn {found[-1].turn or 0}: {found[-1].message}" if found else ""


def moment(history: RunHistory, turn: int | None) -> Moment | None:
    """Return when a turn happened; None for no turn."""
    if turn is None or not 0 <= turn < history.turns:
        return None
    return Moment(turn=turn, at=history.at[turn], place=history.place(turn))


def first_warning(history: RunHistory, onset: int | None, decided: int) -> int | None:
    """Return the turn of the first warning about the loop; without one, of the first in the run up to the decision."""
    warned = (one.turn or 0 for one in history.decisions if one.severity == "warn")
    turns = [turn for turn in warned if turn <= decided]
    return next((turn for turn in turns if onset is not None and turn >= onset), next(iter(turns), None))


def spend(history: RunHistory, first: int, end: int) -> SpendShown:
    """Return what the turns from `first` up to, but not including, `end` took."""
    first, end = max(0, first), min(end, history.turns)
    if end <= first:
        return SpendShown()
    start_at = history.at[first - 1] if first else history.at[0]
    return SpendShown(
        turns=end - first,
        tokens=sum(history.tokens[first:end]),
        cost_usd_micro=sum(history.cost[first:end]),
        ms=max(0, history.at[end - 1] - start_at) if start_at else 0,
    )


def estimate(history: RunHistory, main: Decision, first: int, last: int) -> Estimate | None:
    """Return what the rest of the tightest budget would have cost at the rate of the loop; None without a budget, and
    if the budget is what ended the run."""
    if main.halt_reason in (BUDGET_EXCEEDED, USER_STOP) or not history.turns:
        return None
    first = max(first, last + 1 - RATE_TURNS)
    rate = spend(history, first, last + 1)
    uses = history.budgets_at_halt or history.budgets
    left = [(turns, use) for use in uses if (turns := _turns_left(use, rate))]
    if not left or not rate.turns:
        return None
    turns, use = min(left, key=lambda one: one[0])
    return Estimate(
        budget=use.name,
        spend=SpendShown(
            turns=turns,
            tokens=rate.tokens * turns // rate.turns,
            cost_usd_micro=rate.cost_usd_micro * turns // rate.turns,
            ms=rate.ms * turns // rate.turns,
        ),
        basis=f"the turns left until {use.name}, each like the mean of turns {first} to {last}",
    )


def _turns_left(use: BudgetUse, rate: SpendShown) -> int:
    """Return after how many further turns a budget would have ended the run; 0: not known, or it has."""
    left = use.limit - use.used
    if left <= 0 or not rate.turns:
        return 0
    if use.name == "maxSteps":
        return left
    if use.name == "maxCostUsd" and rate.cost_usd_micro:
        return left * rate.turns // rate.cost_usd_micro
    if use.name == "maxRuntimeMs" and rate.ms:
        return left * rate.turns // rate.ms
    return 0


def trend(history: RunHistory) -> tuple[TrendPoint, ...]:
    """Return the numbers of failing tests with the fewest so far, at most `TREND_MAX` of them."""
    points: list[TrendPoint] = []
    best: int | None = None
    for turn, failing in history.trend:
        best = failing if best is None else min(best, failing)
        points.append(TrendPoint(turn=turn, failing=failing, best=best))
    step = -(-len(points) // TREND_MAX) or 1
    return tuple(points[:-1:step] + points[-1:]) if step > 1 else tuple(points)


def ring(history: RunHistory, main: Decision | None, onset: int | None, decided: int) -> CycleRing | None:
    """Return the cycle of nodes that the loop went round, if it did: only nodes that took turns in the loop count."""
    if main is None or not history.turns:
        return None
    start = onset if onset is not None else 0
    active = {history.names[number] for number in history.node_numbers[start : decided + 1]}
    halted = history.halt is main
    seen, counts = (history.cycles_at_halt, history.edges_at_halt) if halted else (history.cycles, history.edges)
    cycles = [one for one in seen if one.iterations and len(active.intersection(one.nodes)) > 1]
    if not cycles:
        return None
    chosen = max(cycles, key=lambda one: (hex16(one.key) == main.cycle_id, one.iterations))
    members = set(chosen.nodes)
    edges = [(edge, times) for edge, times in counts.most_common() if members.issuperset(edge)]
    return CycleRing(
        nodes=_in_order(chosen, dict(edges)),
        iterations=chosen.iterations,
        edges=tuple(EdgeCount(source=source, target=target, times=times) for (source, target), times in edges),
    )


def _in_order(cycle: CycleSeen, edges: dict[tuple[str, str], int]) -> tuple[str, ...]:
    """Return the nodes of a cycle from its anchor on, each followed by the one that it handed over to most."""
    found = [cycle.nodes[0]]
    rest = set(cycle.nodes[1:RING_NODES_MAX])
    while rest:
        following = max(sorted(rest), key=lambda node: edges.get((found[-1], node), 0))
        found.append(following)
        rest.discard(following)
    return tuple(found)


def first_error(history: RunHistory, onset: int | None, last: int) -> ErrorShown | None:
    """Return the first error of the loop; if it has none, the first of the run up to its end."""
    errors = [one for one in history.errors if one.turn <= last]
    found = next((one for one in errors if onset is None or one.turn >= onset), None) or next(iter(errors), None)
    if found is None:
        return None
    return ErrorShown(
        turn=found.turn,
        node=found.node,
        text=found.text,
        error_class=found.error_class,
        place=history.place(found.turn),
    )


def node_rows(history: RunHistory) -> list[str]:
    """Return the rows of the drawing: the nodes with most turns, in the order of their first turns."""
    counts = Counter(history.node_numbers)
    shown = {number for number, _ in sorted(counts.items(), key=lambda one: (-one[1], one[0]))[:NODE_ROWS_MAX]}
    names = [name for number, name in enumerate(history.names) if number in shown]
    return [*names, OTHER_NODES] if len(history.names) > NODE_ROWS_MAX else names


def stretches(history: RunHistory) -> Iterator[Stretch]:
    """Yield the marks along the drawing: one for each turn, or for as many turns as fit."""
    known = set(node_rows(history))
    size = -(-history.turns // STRETCHES_MAX) or 1
    for first in range(0, history.turns, size):
        last = min(first + size, history.turns) - 1
        kinds: dict[str, dict[str, int]] = {}
        for index in range(first, last + 1):
            node = history.node(index)
            own = kinds.setdefault(node if node in known else OTHER_NODES, {})
            own[history.kind(index)] = own.get(history.kind(index), 0) + 1
        yield Stretch(first=first, last=last, kinds=kinds)


def chosen_turns(history: RunHistory, main: Decision | None, onset: int | None, decided: int, shown: int) -> list[int]:
    """Return the turns to list: all if they fit, else those around what mattered, the first and the last."""
    if history.turns <= shown:
        return list(range(history.turns))
    wanted: dict[int, None] = {}

    def around(turn: int, before: int, after: int) -> None:
        for index in range(max(0, turn - before), min(history.turns, turn + after + 1)):
            if len(wanted) < shown:
                wanted[index] = None

    part = max(1, shown // 12)
    around(decided, 2 * part, part)
    if onset is not None:
        around(onset, part, part)
    around(0, 0, part)
    around(history.turns - 1, part, 0)
    for turn in named_turns(main) if main is not None else ():
        around(turn, 1, 1)
    for one in history.decisions:
        around(one.turn or 0, 2, 1)
    return sorted(wanted)


def todo(main: Decision | None) -> Iterator[Advice]:
    """Yield what to do about a decision: the choices of a person if it has any, then the policy's action first."""
    if main is None:
        return
    if main.evidence is not None:
        if rejected := "; ".join(f"{one.validator}: {one.reason}" for one in main.evidence.rejections or ()):
            yield Advice(action="read", text=f"Read the rejections of {main.task_id}: {rejected}")
        for option in main.evidence.options or ():
            yield Advice(action=option, text=f"{option[:1].upper()}{option[1:]} {main.task_id}")
    for action in dict.fromkeys([main.action, *main.suggested_actions]):
        if action:
            text = ADVICE.get(action, action)
            yield Advice(action=action, text=text[:1].upper() + text[1:])


def notes(history: RunHistory, left_out: int = 0) -> Iterator[str]:
    """Yield what a reader must know about the report itself; `left_out` is the number of turns before the first one."""
    if left_out:
        yield (
            f"The first {plural(left_out, 'turn')} of the run were not read. Turns are numbered from the first one "
            "that was read, and what happened before it is not counted."
        )
    if history.turns and not history.has_content:
        yield (
            "The log has fingerprints and no texts, so calls and answers cannot be shown. Texts are there in a report "
            "from a log file, where turns are published with include_content, and, of halted runs, where the policy "
            "has evidence_excerpts."
        )
    if history.life:
        reused = plural(history.life, "time")
        yield f"The run id was used again {reused} after its run had finished. The report is about the last run."


def scope_of(history: RunHistory) -> tuple[str, str, str, str]:
    """Return workflow, tenant, tier and user of a run."""
    scope = history.scope
    return (scope.workflow, scope.tenant, scope.tier, scope.user) if scope is not None else ("", "", "", "")


def after_onset(history: RunHistory, main: Decision | None) -> SpendShown:
    """Return what the turns from the onset to the end of the log took; nothing without a decision."""
    if main is None:
        return SpendShown()
    onset = main.onset if main.onset is not None else (main.turn or 0) + 1
    return spend(history, onset, history.turns)


def listed_gaps(turns: Sequence[int], total: int) -> Iterator[tuple[int, int]]:
    """Yield before which listed turn how many turns are left out; at the end, the total."""
    before = -1
    for turn in (*turns, total):
        if turn - before > 1:
            yield turn, turn - before - 1
        before = turn
