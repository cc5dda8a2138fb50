"""Compare the decisions of a replay with those on the control topic, by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from streamproc.core.decision import Decision
from streamproc.fleet.command_events import ALL
from streamproc.kafka.reading import Extent


class PublishedDecision(NamedTuple):
    """The compared fields of a control event on the control topic."""

    id: str
    run_id: str
    code: str
    severity: str
    message: str
    partition: int | None
    offset: int | None
    policy_hash: str


class Difference(NamedTuple):
    """The result of a comparison.

    `same` counts the decisions on both sides. `missing` decisions are not published, although the workers have
    committed the turn; `pending` ones are not published because they have not. `extra` decisions are published, and
    the replay does not make them. `outside` ones are published for turns that the replayed log no longer or not yet
    holds. `repeated` counts decisions published again with the same id, which is harmless.
    """

    same: int
    missing: list[Decision]
    extra: list[PublishedDecision]
    pending: list[Decision]
    outside: list[PublishedDecision]
    repeated: int

    @property
    def agrees(self) -> bool:
        """Whether both sides agree, as far as they can be compared."""
        return not self.missing and not self.extra


_decoder = msgspec.json.Decoder(Decision)


def read_published(value: bytes | None) -> PublishedDecision | None:
    """Decode a record of the control topic; None if it is not a control event."""
    try:
        found = _decoder.decode(value or b"")
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, and so are Unicode errors
        return None
    trigger = found.trigger
    return PublishedDecision(
        found.id,
        found.run_id,
        found.code,
        found.severity,
        found.message,
        trigger.partition if trigger is not None else None,
        trigger.offset if trigger is not None else None,
        found.policy.hash if found.policy is not None else "",
    )


def compare(
    decided: Iterable[Decision],
    published: Iterable[PublishedDecision],
    extents: Mapping[int, Extent],
    committed: Mapping[int, int],
) -> Difference:
    """Compare by id. `extents` are the offsets that the replay read, `committed` the offsets the workers committed."""
    by_id: dict[str, PublishedDecision] = {}
    repeated = 0
    for control in published:
        if control.run_id == ALL:
            continue  # a fleet command comes from another topic
        repeated += control.id in by_id
        by_id.setdefault(control.id, control)
    missing: list[Decision] = []
    pending: list[Decision] = []
    same = 0
    for decision in decided:
        if by_id.pop(decision.id, None) is not None:
            same += 1
        elif _is_committed(decision, committed):
            missing.append(decision)
        else:
            pending.append(decision)
    extra = [control for control in by_id.values() if _within(control, extents)]
    outside = [control for control in by_id.values() if not _within(control, extents)]
    return Difference(same, missing, extra, pending, outside, repeated)


def _is_committed(decision: Decision, committed: Mapping[int, int]) -> bool:
    trigger = decision.trigger
    if trigger is None or trigger.partition is None or trigger.offset is None:
        return True
    return trigger.offset < committed.get(trigger.partition, 0)


def _within(control: PublishedDecision, extents: Mapping[int, Extent]) -> bool:
    if control.partition is None or control.offset is None:
        return True
    extent = extents.get(control.partition)
    return extent is not None and extent.begin <= control.offset < extent.end
