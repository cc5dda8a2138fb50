"""One step of a session's tree: a birth, an end, a halt or a silence, and the events for the runs that it concerns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
import xxhash

from streamproc.core.session_tree import (
    ALIVE,
    BIRTHS,
    BUDGETS,
    CHILD,
    DEPTH,
    EXCEEDED,
    FINISH,
    FINISHED,
    HALTED,
    HANDOVERS,
    HISTORY_HOPS,
    HOP_MS,
    LIVING,
    NEAR_BITS,
    PACE,
    PARENT,
    PERIODS,
    PROMPTS_MAX,
    REFUSED,
    REJECTED,
    RESTRICT,
    RUNS,
    SAME,
    SHARED,
    SIBLINGS_MAX,
    SILENT,
    STATE_NAMES,
    STOP,
    WARNING,
    WINDOW_HOPS,
    WINDOW_OF,
    WORKING,
    SessionTree,
    TreeEntry,
    TreeRules,
    TreeRun,
    ancestors,
    await_birth,
    awaited_births,
    descendants,
    forget,
    make_room,
    read_rules,
    tag_of,
)
from streamproc.core.tree_loops import hand_over, note_end
from streamproc.model.wire import WIRE_VERSION, BudgetReached

Told = list[tuple[int, BudgetReached]]
"""Events, each with the partition of the log that it belongs into."""


def step_tree(
    tree: SessionTree, account: str, source: int, entries: Iterable[TreeEntry], stored_rules: msgspec.Raw
) -> Told:
    """Apply what is reported of runs, oldest first, and return the events for the runs that it concerns."""
    told, rules = _Events(tree, account), read_rules(bytes(stored_rules))
    for entry in entries:
        tree.at_ms = max(tree.at_ms, entry.at_ms)
        for unit, limit in entry.declared.items():
            tree.declared[unit] = min(limit, tree.declared.get(unit, limit))
        if entry.born:
            _birth(tree, told, source, entry, rules)
        if not entry.born or entry.state != WORKING:
            run = tree.runs.get(tag_of(entry.run_id))
            if run is not None:
                _change(tree, told, run, entry, rules)
    return told.found


def refusal_of(tree: SessionTree, entry: TreeEntry, rules: TreeRules, pending: int = 0) -> str:
    """Return why a birth would be refused now, as a sentence; empty if it would be taken. `pending` are other runs that
    are about to be born. It changes nothing."""
    above = tree.runs.get(tag_of(entry.parent))
    run = TreeRun(entry.run_id, 0, tag_of(entry.parent), 1 if above is None else above.depth + 1)
    counts = _counts(tree, run, entry)
    counts |= {unit: counts[unit] + pending for unit in (RUNS, ALIVE, BIRTHS) if counts[unit]}
    refusal = _refusal(tree, run, counts, _in_force(tree, rules))
    if refusal is None:
        return ""
    unit, used, limit, about = refusal
    if about:
        return f"{about} is halted, and may start no other runs."
    if not used:
        return "The session is halted, and may start no other run."
    return f"The session may start no other run: it would be {used} of {limit} ({BUDGETS[unit]})."


class _Events:
    """Makes the events of one step."""

    def __init__(self, tree: SessionTree, account: str) -> None:
        self.found: Told = []
        self._tree, self._account = tree, account

    def tell(
        self, run: TreeRun, unit: str, rung: str, used: int = 0, limit: int = 0, *, about: str = "",
        names: Sequence[str] = (), reason: str = "",
    ) -> None:  # fmt: skip
        """Add an event for a run."""
        again = unit in WINDOW_OF or unit == CHILD
        event = BudgetReached(
            w=WIRE_VERSION, run_id=run.name, at=self._tree.at_ms or None, account=self._account,
            window=WINDOW_OF.get(unit, "total"), unit=unit, used=used, limit=limit, rung=rung,
            since_ms=self._tree.at_ms if again else 0, about=about, runs=tuple(names), reason=reason,
        )  # fmt: skip
        words = (run.name, self._account, unit, rung, about, str(event.since_ms), str(limit))
        event.event_id = xxhash.xxh3_128_hexdigest("\0".join(words).encode("utf-8", "surrogatepass"))
        self.found.append((run.partition, event))


# Births.


def _birth(tree: SessionTree, told: _Events, source: int, entry: TreeEntry, rules: TreeRules) -> None:
    tag, parent = tag_of(entry.run_id), tag_of(entry.parent)
    above = tree.runs.get(parent)
    depth = 0 if not parent or parent == tag else above.depth + 1 if above is not None else 1
    run = TreeRun(entry.run_id, source, parent, depth, WORKING, entry.agent, entry.prompt, entry.at_ms)
    before, awaited = tree.runs.get(tag), awaited_births(tree)
    moves = tag in awaited if before is None else (before.parent, before.depth) != (parent, depth)
    if before is not None:
        forget(tree, tag)
    elif moves:
        awaited.remove(tag)
    if parent and above is None and parent != tag:
        await_birth(tree, parent)
    young = above is not None and tree.at_ms - above.born_ms < WINDOW_HOPS * HOP_MS and above.depth > 0
    limits = _in_force(tree, rules)
    counts = _counts(tree, run, entry) if limits else {}  # most trees have none
    refusal = _refusal(tree, run, counts, limits)
    tree.runs[tag] = run
    tree.names_bytes += len(run.name)
    if refusal is not None:
        _refuse(tree, told, run, rules, *refusal)
    else:
        _take(tree, entry, nested=depth > 1, young=young)
        if limits:
            _warn(tree, told, run, entry, rules, counts, limits)
        if entry.at_ms and (depth > 1 or PACE in tree.warned):  # the pace is that of births below another run
            _check_pace(tree, told, run, rules)
        handovers = hand_over(tree.loops, above, run) if above is not None and above.state == FINISHED else 0
        if rules.loops and 0 < rules.loops[4] < handovers:
            told.tell(run, HANDOVERS, WARNING, handovers, rules.loops[4], about=above.name if above else "")
        if tree.loops.level and not tree.loops.told:
            tree.loops.told = True
            told.tell(run, PERIODS, WARNING, tree.loops.times, tree.loops.period)
    if moves:  # its children, if it has any
        _adopt(tree, told, run, rules, known=before is not None)
    make_room(tree)


def _counts(tree: SessionTree, run: TreeRun, entry: TreeEntry) -> dict[str, int]:
    """Return what each limit counts, with this birth."""
    same = next((row[2] for row in tree.prompts if row[0] == entry.prompt), 0) if entry.prompt else -1
    births = _in_window(tree, 1) if entry.at_ms else -1  # a log without times has no pace
    return {RUNS: tree.born + 1, ALIVE: tree.alive + 1, DEPTH: run.depth, BIRTHS: births + 1, SAME: same + 1}


def _in_force(tree: SessionTree, rules: TreeRules) -> dict[str, int]:
    """Return the limits of this birth: the lowest that any run of the session declared, up to those of the policy."""
    if not (rules.limits or tree.declared):
        return {}
    general, raised = rules.limits, rules.overridable
    lower = {unit: n for unit, n in tree.declared.items() if unit in raised or n <= general.get(unit, n)}
    return {unit: limit for unit, limit in (general | lower).items() if unit in rules.levels}


def _refusal(
    tree: SessionTree, run: TreeRun, counts: Mapping[str, int], limits: Mapping[str, int]
) -> tuple[str, int, int, str] | None:
    """Return why a birth is refused: the unit, how many there would be (0: the session is closed), the limit, and the
    run that it is about."""
    if tree.closed:
        return tree.closed, 0, 0, ""
    halted = _halted_above(tree, run)
    if halted is not None:
        return PARENT, 0, 0, halted.name
    over = next((unit for unit in BUDGETS if unit in limits and counts[unit] > limits[unit]), None) if limits else None
    if over is None or (not run.depth and _children(tree, run)):  # a root, reported after its children
        return None
    return over, counts[over], limits[over], ""


def _halted_above(tree: SessionTree, run: TreeRun) -> TreeRun | None:
    """Return the next ancestor whose halt says what becomes of the runs below it."""
    if run.parent not in tree.runs:
        return None
    for one in ancestors(tree, run):
        if one.fate:
            return one
    return None


def _children(tree: SessionTree, run: TreeRun) -> list[TreeRun]:
    """Return the known children of a run: of a newborn, those that were reported before it."""
    tag = tag_of(run.name)
    return [one for one in tree.runs.values() if one.parent == tag and one is not run]


def _refuse(
    tree: SessionTree, told: _Events, run: TreeRun, rules: TreeRules, unit: str, used: int, limit: int, about: str
) -> None:
    run.state = REFUSED
    times = tree.refused[unit] = tree.refused.get(unit, 0) + 1
    above = tree.runs.get(run.parent)
    if times == 1 and not tree.closed and above is not None and above.state in LIVING:
        told.tell(above, unit, RESTRICT, used, limit, about=run.name)
    told.tell(run, unit, REJECTED, used, limit, about=about)
    most = rules.levels.get(unit, (0, 0))[1]
    if unit in BUDGETS and not tree.closed and 0 < most < times:
        _close(tree, told, unit, used, limit)


def _close(tree: SessionTree, told: _Events, unit: str, used: int, limit: int) -> None:
    """Halt the session."""
    tree.closed = unit
    for run in tree.runs.values():
        if run.state in LIVING:
            told.tell(run, unit, EXCEEDED, used, limit)


def _take(tree: SessionTree, entry: TreeEntry, *, nested: bool, young: bool) -> None:
    """Count a birth."""
    tree.born += 1
    tree.alive += 1
    tree.peak = max(tree.peak, tree.alive)
    for unit in (ALIVE, BIRTHS):  # refused births in a row
        tree.refused.pop(unit, None)
    if entry.at_ms:
        number = max(entry.at_ms // HOP_MS, tree.hops[-1][0] if tree.hops else 0)
        if not tree.hops or tree.hops[-1][0] != number:
            tree.hops.append([number, 0, 0, 0])
            while tree.hops[0][0] <= number - HISTORY_HOPS:
                del tree.hops[0]
        hop = tree.hops[-1]
        hop[1], hop[2], hop[3] = hop[1] + 1, hop[2] + nested, hop[3] + young
    if entry.prompt:
        row = next((row for row in tree.prompts if row[0] == entry.prompt), None) or [entry.prompt, entry.sim, 0]
        row[2] += 1
        others = [other for other in tree.prompts if other[0] != entry.prompt]
        tree.prompts = [*others[1 - PROMPTS_MAX :], row]


def _in_window(tree: SessionTree, what: int) -> int:
    """Return how many of the births of the last minute are of one kind: a place in a hop."""
    oldest = tree.at_ms // HOP_MS - WINDOW_HOPS
    return sum(hop[what] for hop in tree.hops if hop[0] > oldest)


def _warn(
    tree: SessionTree,
    told: _Events,
    run: TreeRun,
    entry: TreeEntry,
    rules: TreeRules,
    counts: Mapping[str, int],
    limits: Mapping[str, int],
) -> None:
    """Warn the newborn and its ancestors once for each unit; again, if what can fall has fallen to half of that."""
    near = {SAME: counts[SAME] + _near(tree, entry)} if SAME in limits else {}
    for unit, limit in limits.items():
        used, percent = max(counts[unit], near.get(unit, 0)), rules.levels[unit][0]
        if unit in (ALIVE, BIRTHS) and used * 200 < limit * percent:
            tree.warned.pop(unit, None)
        if not percent or limit < 2 or used * 100 < limit * percent or unit in tree.warned:
            continue
        tree.warned[unit] = tree.at_ms
        for one in (run, *ancestors(tree, run)):
            if one.state in LIVING:
                told.tell(one, unit, WARNING, used, limit, about=run.name)


def _near(tree: SessionTree, entry: TreeEntry) -> int:
    """Return how many children had almost the same prompt."""
    if not entry.sim:
        return 0
    return sum(
        row[2] for row in tree.prompts
        if row[0] != entry.prompt and row[1] and (row[1] ^ entry.sim).bit_count() <= NEAR_BITS
    )  # fmt: skip


def _check_pace(tree: SessionTree, told: _Events, run: TreeRun, rules: TreeRules) -> None:
    """Warn of an unusual pace: of births below children of the root, far above that before, or of newborns
    that give birth by themselves."""
    if not rules.pace or not tree.hops:
        return
    least, multiple, cascade = rules.pace
    nested, young = _in_window(tree, 2), _in_window(tree, 3)
    before = sum(hop[2] for hop in tree.hops) - nested
    minutes = max(1, (tree.hops[-1][0] - tree.hops[0][0] - WINDOW_HOPS + 1) * HOP_MS // 60_000)
    jump = 0 < least <= nested and before > 0 and nested * minutes >= multiple * before
    if not jump and not 0 < cascade <= young:
        if nested < least and young < cascade:
            tree.warned.pop(PACE, None)
        return
    if PACE not in tree.warned:
        tree.warned[PACE] = tree.at_ms
        used, limit = (nested, multiple * before // minutes) if jump else (young, cascade)
        for one in (run, *ancestors(tree, run)):
            if one.state in LIVING:
                told.tell(one, PACE, WARNING, used, limit, about=run.name)


def _adopt(tree: SessionTree, told: _Events, run: TreeRun, rules: TreeRules, *, known: bool) -> None:
    """Make up for what was reported of the descendants of this run before its own birth: tell it of its children that
    are halted or silent, correct their depth, and refuse those that are too deep."""
    children = _children(tree, run)
    for child in () if known else children:
        _tell_parent(tree, told, child)
    if not run.depth or not children:
        return
    halted = _halted_above(tree, run)
    if halted is not None:
        _tell_descendants(tree, told, halted, run)
    limit = _in_force(tree, rules).get(DEPTH)
    for one in tuple(descendants(tree, run)):
        one.depth = tree.runs[one.parent].depth + 1  # that of the parent is corrected first
        if limit is not None and one.depth > limit and one.state in LIVING:
            tree.alive -= 1
            tree.born -= 1
            _refuse(tree, told, one, rules, DEPTH, one.depth, limit, "")


# Changes.


def _change(tree: SessionTree, told: _Events, run: TreeRun, entry: TreeEntry, rules: TreeRules) -> None:
    """Note what has become of a run."""
    before, now = run.state, entry.state
    if entry.agent:
        run.agent = entry.agent
    if now == before or (before == REFUSED and now in (*LIVING, FINISHED)):
        return
    tree.alive += (now in LIVING) - (before in LIVING)
    run.state = now
    if now in LIVING and before == HALTED:  # an operator has resumed it
        tree.closed, run.fate, run.stopped = "", "", False
        tree.refused.clear()
    if now == HALTED:
        _stop_children(tree, told, run, rules.children)
    elif now == FINISHED and before in LIVING:
        _finish(tree, told, run, rules, entry.digest)
    concerns_parent = now in (HALTED, SILENT) and before != REFUSED and not entry.reason.startswith(SHARED)
    run.reason = entry.reason if concerns_parent else None
    _tell_parent(tree, told, run)


def _stop_children(tree: SessionTree, told: _Events, run: TreeRun, children: str) -> None:
    if children not in (STOP, FINISH):
        return
    run.fate = children
    _tell_descendants(tree, told, run, run)


def _tell_descendants(tree: SessionTree, told: _Events, halted: TreeRun, above: TreeRun) -> None:
    """Halt the runs below one, each once, if they halt with their ancestor. If they may finish, they learn nothing."""
    for one in descendants(tree, above) if halted.fate == STOP else ():
        if one.state in LIVING and not one.stopped:
            one.stopped = True
            told.tell(one, PARENT, EXCEEDED, about=halted.name)


def _finish(tree: SessionTree, told: _Events, run: TreeRun, rules: TreeRules, digest: int) -> None:
    """Look whether the runs of the session end in the same way again and again."""
    if not rules.loops or not digest:
        return
    level = note_end(tree.loops, run, digest, rules.loops)
    if level == EXCEEDED and not tree.closed:
        _close(tree, told, PERIODS, tree.loops.times, tree.loops.period)
    elif level == WARNING and (again := f"{PERIODS} {tree.loops.period}") not in tree.warned:  # it may end and begin
        for one in tree.runs.values():
            if one.state in LIVING:
                tree.loops.told, tree.warned[again] = True, tree.at_ms
                told.tell(one, PERIODS, WARNING, tree.loops.times, tree.loops.period)


def _tell_parent(tree: SessionTree, told: _Events, run: TreeRun) -> None:
    """Tell the parent of a halted or silent run, for which it may wait, and name the siblings that have finished."""
    above = tree.runs.get(run.parent)
    if run.reason is None or above is None or above is run:
        return
    if above.state not in LIVING or above.told >= SIBLINGS_MAX:
        return
    above.told += 1
    done = [one.name for one in tree.runs.values() if one.parent == run.parent and one.state == FINISHED]
    told.tell(
        above, CHILD, STATE_NAMES[run.state], len(done), about=run.name, names=done[-SIBLINGS_MAX:], reason=run.reason
    )
