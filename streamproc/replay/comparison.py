"""What policies would have done on one log, side by side: counts, savings, false halts, and the best of a sweep."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, Literal, NamedTuple

from streamproc.core.decision import PolicyRef
from streamproc.model.budgets import USD_MICRO
from streamproc.policy.variants import Settings, short_name
from streamproc.replay.backtest import PolicyResult, RunHalt
from streamproc.replay.held_calls import HeldCalls
from streamproc.replay.outcomes import RunLabel

Change = Literal["same", "earlier", "later", "never", "new"]
CHANGES: Final[tuple[Change, ...]] = ("same", "earlier", "later", "never", "new")


class ChangedRun(NamedTuple):
    """A run that is halted under one of two policies or under both. None: not halted."""

    run_id: str
    change: Change
    halt: RunHalt | None
    before: RunHalt | None  # under the first policy


@dataclass(frozen=True, slots=True)
class ComparedPolicy:
    """One policy, compared with the first one."""

    ref: PolicyRef
    settings: Settings
    runs: int
    turns: int
    warned: int
    tokens: int
    micro_usd: int
    changed: Sequence[ChangedRun]
    labels: Mapping[str, RunLabel] = field(repr=False)
    held: HeldCalls | None = None
    """What the breakers of its providers would have held back; None: not known."""

    def count(self, change: Change) -> int:
        """Return how many runs changed like this."""
        return sum(one.change == change for one in self.changed)

    @property
    def halts(self) -> dict[str, RunHalt]:
        """The first halt of each halted run."""
        return {one.run_id: one.halt for one in self.changed if one.halt is not None}

    @property
    def turns_after(self) -> int:
        """Turns that the log has after the halts, which would have been saved."""
        return sum(halt.turns_after for halt in self.halts.values())

    @property
    def tokens_after(self) -> int:
        """Tokens that were spent after the halts."""
        return sum(halt.tokens_after for halt in self.halts.values())

    @property
    def cost_after(self) -> str | None:
        """USD that were spent after the halts, as text; None: no run has a cost."""
        return usd(sum(halt.micro_usd_after for halt in self.halts.values())) if self.micro_usd else None

    @property
    def false_halts(self) -> list[str]:
        """Halted runs that solved their task, or whose halt was judged a false alarm."""
        return [run_id for run_id in self.halts if (label := self.labels.get(run_id)) is not None and label.healthy]

    @property
    def right_halts(self) -> list[str]:
        """Halted runs that are known to be stuck."""
        return [run_id for run_id in self.halts if (label := self.labels.get(run_id)) is not None and label.stuck]

    @property
    def share_saved(self) -> float:
        """Turns after halts, as a share of all turns."""
        return self.turns_after / self.turns if self.turns else 0.0

    def as_json(self) -> dict[str, Any]:
        """Return all of it; money is USD as text. `false_halts` is null without labels."""
        labelled = bool(self.labels)
        return {
            "policy": {"name": self.ref.name, "version": self.ref.version, "hash": self.ref.hash},
            "settings": {short_name(name): value for name, value in self.settings.items()},
            "runs": self.runs,
            "turns": self.turns,
            "halted": len(self.halts),
            **{change: self.count(change) for change in CHANGES},
            "warned": self.warned,
            "turns_saved": self.turns_after,
            "tokens_saved": self.tokens_after,
            "cost_usd_saved": self.cost_after,
            "false_halts": sorted(self.false_halts) if labelled else None,
            "right_halts": sorted(self.right_halts) if labelled else None,
            "healthy_runs": sum(label.healthy for label in self.labels.values()),
            "stuck_runs": sum(bool(label.stuck) for label in self.labels.values()),
            "providers": None if self.held is None else _held_json(self.held),
            "halts": [_halt_json(one) for one in self.changed],
        }


def _held_json(held: HeldCalls) -> dict[str, Any]:
    return {
        "opened": held.opened,
        "held_seconds": held.held_ms / 1000,
        "failed_calls": held.failed,
        "answered_calls": held.answered,
        "openings": dict(sorted(held.providers.items())),
    }


def _halt_json(one: ChangedRun) -> dict[str, Any]:
    halt, before = one.halt, one.before
    return {
        "run_id": one.run_id,
        "change": one.change,
        "code": None if halt is None else halt.code,
        "turn": None if halt is None else halt.turn,
        "turns_saved": 0 if halt is None else halt.turns_after,
        "first_code": None if before is None else before.code,
        "first_turn": None if before is None else before.turn,
    }


def compared(
    refs: Sequence[tuple[PolicyRef, Settings]],
    results: Sequence[PolicyResult],
    turns: Mapping[str, int],
    labels: Mapping[str, RunLabel],
    held: Sequence[HeldCalls] | None = None,
) -> list[ComparedPolicy]:
    """Compare each result with the first one. `turns` has the runs that count; labels of other runs are ignored. `held`
    is what the breakers of each policy hold back, if that is known."""
    first = results[0]
    own = {run_id: label for run_id, label in labels.items() if run_id in turns}
    return [
        ComparedPolicy(
            ref, settings, len(turns), sum(turns.values()), result.warned, result.tokens, result.micro_usd,
            sorted(_changes(result, first), key=lambda one: one.run_id), own, None if held is None else held[number],
        )
        for number, ((ref, settings), result) in enumerate(zip(refs, results, strict=True))
    ]  # fmt: skip


def _changes(result: PolicyResult, first: PolicyResult) -> Iterable[ChangedRun]:
    for run_id in result.halts.keys() | first.halts.keys():
        halt, before = result.halts.get(run_id), first.halts.get(run_id)
        yield ChangedRun(run_id, _change(halt, before), halt, before)


def _change(halt: RunHalt | None, before: RunHalt | None) -> Change:
    if halt is None:
        return "never"
    if before is None:
        return "new"
    if halt.turn == before.turn:
        return "same"
    return "earlier" if halt.turn < before.turn else "later"


def best(rows: Sequence[ComparedPolicy]) -> list[int]:
    """Return the positions of the policies that no other one beats: none saves as many turns with fewer false halts, or
    more turns with as many. Of several that do the same, the first."""
    points = [(len(row.false_halts), -row.turns_after) for row in rows]
    found = []
    for index, (false, saved) in enumerate(points):
        beaten = any(
            (other[0] <= false and other[1] <= saved) and (other != (false, saved) or position < index)
            for position, other in enumerate(points)
            if position != index
        )
        if not beaten:
            found.append(index)
    return found


def usd(micro: int) -> str:
    """Return micro-USD as USD: ``1.25``."""
    return f"{Decimal(micro) / USD_MICRO:.2f}"
