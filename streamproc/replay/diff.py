"""Compare the decisions of a replay with those that were published, by id, and pair those that differ."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import Final, NamedTuple

from streamproc.core.decision import Decision, PolicyRef
from streamproc.fleet.command_events import ALL
from streamproc.fleet.record_signing import read_decision
from streamproc.kafka.reading import Extent


class PublishedDecision(NamedTuple):
    """The compared fields of a published control event."""

    id: str
    run_id: str
    code: str
    severity: str
    message: str
    partition: int | None
    offset: int | None
    policy_hash: str
    turn: int | None = None
    workflow: str | None = None
    user: str | None = None
    tenant: str | None = None
    policy: PolicyRef | None = None
    repeats: int | None = None  # the count of the evidence
    signed: bool = True  # False: a worker should have signed it, and has not


class Moved(NamedTuple):
    """A decision that both sides make, at different turns."""

    decided: Decision
    published: PublishedDecision

    @property
    def turns_later(self) -> int:
        """By how many turns the replay decides later; negative: earlier."""
        return (self.decided.turn or 0) - (self.published.turn or 0)


class Difference(NamedTuple):
    """The result of a comparison.

    `same` counts the decisions with equal ids. `renamed` are the same decisions of another policy, whose hash is a part
    of their ids. `moved` ones are made by both sides at different turns. `missing` decisions are not published,
    although the workers have committed the turn; `pending` ones are not published because they have not. `extra`
    decisions are published, and the replay does not make them. `outside` ones are published for turns that the replayed
    log no longer or not yet holds. `repeated` counts decisions published again with the same id, which is harmless.
    """

    same: int
    missing: list[Decision]
    extra: list[PublishedDecision]
    pending: list[Decision]
    outside: list[PublishedDecision]
    repeated: int
    renamed: list[Moved]
    moved: list[Moved]

    @property
    def agrees(self) -> bool:
        """Whether both sides agree, as far as they can be compared."""
        return not self.missing and not self.extra and not self.moved


NEAREST_MAX: Final = 10_000  # possible pairs of one run and detector; with more, decisions are paired in their order


def read_published(value: bytes | None) -> PublishedDecision | None:
    """Decode a control event; None if it is none."""
    if (found := read_decision(value)) is None:
        return None
    trigger, policy, evidence = found.trigger, found.policy, found.evidence
    return PublishedDecision(
        id=found.id,
        run_id=found.run_id,
        code=found.code,
        severity=found.severity,
        message=found.message,
        partition=trigger.partition if trigger is not None else None,
        offset=trigger.offset if trigger is not None else None,
        policy_hash=policy.hash if policy is not None else "",
        turn=found.turn,
        workflow=found.workflow,
        user=found.user,
        tenant=found.tenant,
        policy=policy,
        repeats=evidence.count if evidence is not None else None,
    )


def compare(
    decided: Iterable[Decision],
    published: Iterable[PublishedDecision],
    extents: Mapping[int, Extent] | None,
    committed: Mapping[int, int] | None,
    runs: Set[str] | None = None,
) -> Difference:
    """Compare by id. `extents` are the offsets that the replay read, `committed` the offsets the workers committed;
    None: the replay read files, with events of these `runs`."""
    by_id: dict[str, PublishedDecision] = {}
    repeated = 0
    for control in published:
        if control.run_id == ALL:
            continue  # a fleet command comes from another topic
        repeated += control.id in by_id
        by_id.setdefault(control.id, control)
    left: list[Decision] = []
    same = 0
    for decision in decided:
        if by_id.pop(decision.id, None) is not None:
            same += 1
        else:
            left.append(decision)
    inside = [one for one in by_id.values() if _within(one, extents, runs)]
    outside = [one for one in by_id.values() if not _within(one, extents, runs)]
    renamed, left, inside = _pair(left, inside, exactly=True)
    moved, left, inside = _pair(left, inside, exactly=False)
    missing = [decision for decision in left if _is_committed(decision, committed)]
    pending = [decision for decision in left if not _is_committed(decision, committed)]
    return Difference(same, missing, inside, pending, outside, repeated, renamed, moved)


def _pair(
    decided: list[Decision], published: list[PublishedDecision], *, exactly: bool
) -> tuple[list[Moved], list[Decision], list[PublishedDecision]]:
    """Pair decisions of one run, detector and severity: those of the same turn under another policy (`exactly`), or
    else the nearest ones. Return the pairs and what is left of both sides."""
    groups: defaultdict[tuple[object, ...], tuple[list[Decision], list[PublishedDecision]]] = defaultdict(
        lambda: ([], [])
    )
    for decision in decided:
        turn = (decision.turn or 0) if exactly else None
        groups[decision.run_id, decision.code, decision.severity, turn][0].append(decision)
    for control in published:
        turn = control.turn or 0 if exactly else None
        groups[control.run_id, control.code, control.severity, turn][1].append(control)
    pairs: list[Moved] = []
    for ours, theirs in groups.values():
        pairs += [pair for pair in _nearest(ours, theirs) if not exactly or not _same_policy(*pair)]
    paired = {pair.decided.id for pair in pairs}, {pair.published.id for pair in pairs}
    return (
        pairs,
        [decision for decision in decided if decision.id not in paired[0]],
        [control for control in published if control.id not in paired[1]],
    )


def _nearest(ours: list[Decision], theirs: list[PublishedDecision]) -> list[Moved]:
    """Pair each decision with the nearest one of the other side, the nearest pairs first."""
    if len(ours) * len(theirs) > NEAREST_MAX:
        return [Moved(*pair) for pair in zip(ours, theirs, strict=False)]
    possible = sorted(
        (abs((one.turn or 0) - (other.turn or 0)), first, second)
        for first, one in enumerate(ours)
        for second, other in enumerate(theirs)
    )
    used: tuple[set[int], set[int]] = set(), set()
    found = []
    for _, first, second in possible:
        if first not in used[0] and second not in used[1]:
            used[0].add(first)
            used[1].add(second)
            found.append(Moved(ours[first], theirs[second]))
    return found


def _same_policy(decision: Decision, published: PublishedDecision) -> bool:
    return decision.policy is not None and decision.policy.hash == published.policy_hash


def _is_committed(decision: Decision, committed: Mapping[int, int] | None) -> bool:
    trigger = decision.trigger
    if committed is None or trigger is None or trigger.partition is None or trigger.offset is None:
        return True
    return trigger.offset < committed.get(trigger.partition, 0)


def _within(control: PublishedDecision, extents: Mapping[int, Extent] | None, runs: Set[str] | None) -> bool:
    if runs is not None and control.run_id not in runs:
        return False
    if extents is None or control.partition is None or control.offset is None:
        return True
    extent = extents.get(control.partition)
    return extent is not None and extent.begin <= control.offset < extent.end
