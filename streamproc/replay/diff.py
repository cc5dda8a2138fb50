"""What a replay decides beside what the control topic carries, by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import msgspec

from streamproc.core.decision import Decision
from streamproc.fleet.command_events import ALL
from streamproc.kafka.reading import Extent


class Carried(NamedTuple):
    """A control event on the control topic: what is compared of it."""

    id: str
    run_id: str
    code: str
    severity: str
    message: str
    partition: int | None
    offset: int | None
    policy_hash: str


class Difference(NamedTuple):
    """`missing`: decided in the replay, not carried although the workers have passed that place. `extra`: carried,
    not decided in the replay. `pending`: not carried, but the workers have not come so far. `beyond`: carried for
    turns that the log does not hold (any more, or yet). `twice`: carried again with the same id, which is harmless."""

    same: int
    missing: list[Decision]
    extra: list[Carried]
    pending: list[Decision]
    beyond: list[Carried]
    twice: int

    @property
    def agrees(self) -> bool:
        """Whether both say the same, as far as both can be compared."""
        return not self.missing and not self.extra


_decoder = msgspec.json.Decoder(Decision)


def read_carried(value: bytes | None) -> Carried | None:
    """A record of the control topic; None where it is no control event."""
    try:
        found = _decoder.decode(value or b"")
    except (ValueError, RecursionError):  # msgspec's errors are ValueErrors, and Python's own of a text
        return None
    trigger = found.trigger
    return Carried(
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
    carried: Iterable[Carried],
    extents: Mapping[int, Extent],
    committed: Mapping[int, int],
) -> Difference:
    """Compare by id. `extents` is what the replay read of the turns topic, `committed` how far the workers are."""
    by_id: dict[str, Carried] = {}
    twice = 0
    for control in carried:
        if control.run_id == ALL:
            continue  # an order to the fleet stands on another topic
        twice += control.id in by_id
        by_id.setdefault(control.id, control)
    missing: list[Decision] = []
    pending: list[Decision] = []
    same = 0
    for decision in decided:
        if by_id.pop(decision.id, None) is not None:
            same += 1
        elif _confirmed(decision, committed):
            missing.append(decision)
        else:
            pending.append(decision)
    extra = [control for control in by_id.values() if _within(control, extents)]
    beyond = [control for control in by_id.values() if not _within(control, extents)]
    return Difference(same, missing, extra, pending, beyond, twice)


def _confirmed(decision: Decision, committed: Mapping[int, int]) -> bool:
    trigger = decision.trigger
    if trigger is None or trigger.partition is None or trigger.offset is None:
        return True
    return trigger.offset < committed.get(trigger.partition, 0)


def _within(control: Carried, extents: Mapping[int, Extent]) -> bool:
    if control.partition is None or control.offset is None:
        return True
    extent = extents.get(control.partition)
    return extent is not None and extent.begin <= control.offset < extent.end
