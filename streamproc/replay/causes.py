"""Why a replay and the published decisions differ: policy, retention, a missing signature, or the engine's version."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, Literal, NamedTuple

from streamproc.core.decision import Decision, PolicyRef
from streamproc.errors import InvalidPolicy, plural
from streamproc.policy import Policy, load_policy
from streamproc.policy.files import preset_names
from streamproc.replay.diff import Difference, Moved, PublishedDecision

Why = Literal["policy", "retention", "unsigned", "engine", "unknown"]
Kind = Literal["missing", "extra", "earlier", "later", "other-id"]
SETTINGS_SHOWN: Final = 6  # that differ between two policies, for one decision


class Explained(NamedTuple):
    """One difference, with its cause."""

    kind: Kind
    decided: Decision | None
    published: PublishedDecision | None
    why: Why
    detail: str

    @property
    def run_id(self) -> str:
        """The run that differs."""
        found = self.decided or self.published
        assert found is not None
        return found.run_id


def show_ref(ref: PolicyRef) -> str:
    """Return ``standard 1 (26fc7e99b53ed60e)``."""
    return f"{ref.name} {ref.version} ({ref.hash})"


class Causes:
    """What explains differences between a replay under `policy` and `published` decisions.

    `turn_at` has the index of the run's last turn in the log, by partition and offset. `begins` are the first offsets
    of the turns topic, `control_begins` of the control topic. `known` are policies whose contents are at hand, besides
    the presets: if one of them has decided, its settings are compared with ours.
    """

    def __init__(
        self,
        policy: Policy,
        published: Sequence[PublishedDecision],
        *,
        turn_at: Mapping[tuple[int, int], int] | None = None,
        begins: Mapping[int, int] | None = None,
        control_begins: Mapping[int, int] | None = None,
        known: Iterable[Policy] = (),
    ) -> None:
        self._policy = policy
        self._known = {one.hash: one for one in (*_presets(), *known)}
        self._control_begins = control_begins or {}
        self.policies: dict[str, PolicyRef] = {}
        """Policies that have decided, by hash."""
        self._used: dict[int | None, list[tuple[int, PolicyRef]]] = {}
        self._lost: dict[str, int] = {}
        for one in sorted(published, key=lambda one: one.offset or 0):
            if one.policy is None:
                continue
            self.policies[one.policy.hash] = one.policy
            self._used.setdefault(one.partition, []).append((one.offset or 0, one.policy))
            self._note_lost(one, turn_at or {}, begins or {})

    def _note_lost(
        self, one: PublishedDecision, turn_at: Mapping[tuple[int, int], int], begins: Mapping[int, int]
    ) -> None:
        """Note whether a published decision shows that the log no longer has the beginning of its run."""
        if one.partition is None or one.offset is None or not one.signed:
            return
        here = turn_at.get((one.partition, one.offset))
        if here is not None and one.turn is not None and one.turn > here:
            self._lost[one.run_id] = max(self._lost.get(one.run_id, 0), one.turn - here)
        elif one.offset < begins.get(one.partition, 0):
            self._lost.setdefault(one.run_id, one.turn or 0)

    def explain(self, difference: Difference) -> list[Explained]:
        """Return every difference with its cause."""
        found = [self._explained("missing", one, None) for one in difference.missing]
        found += [self._explained("extra", None, one) for one in difference.extra]
        for pair in difference.moved:
            kind: Kind = "later" if pair.turns_later > 0 else "earlier" if pair.turns_later else "other-id"
            found.append(self._explained(kind, *pair))
        return found

    def renamed(self, pairs: Iterable[Moved]) -> dict[str, int]:
        """Count the decisions that are the same under another id, by the policy that has published them."""
        counts: dict[str, int] = {}
        for _, published in pairs:
            shown = show_ref(published.policy) if published.policy is not None else "no policy"
            counts[shown] = counts.get(shown, 0) + 1
        return counts

    def _explained(self, kind: Kind, decided: Decision | None, published: PublishedDecision | None) -> Explained:
        return Explained(kind, decided, published, *self._why(decided, published))

    def _why(self, decided: Decision | None, published: PublishedDecision | None) -> tuple[Why, str]:
        if published is not None and not published.signed:
            return "unsigned", "no worker has signed it, so it may be forged"
        if (lost := self._lost.get((decided or published).run_id)) is not None:  # type: ignore[union-attr]
            return "retention", f"the log no longer has the beginning of the run (at least {plural(lost, 'turn')})"
        if decided is not None and published is None and self._expired(decided):
            return "retention", "the control topic no longer has decisions that old"
        theirs = published.policy if published is not None else self._policy_at(decided)
        if theirs is None:
            return "unknown", "nothing is published that names a policy; did a worker decide on this log?"
        if theirs.hash != self._policy.hash:
            detail = self._settings(theirs, decided, published)
            return "policy", f"published under {show_ref(theirs)}{detail}"
        return "engine", "the same policy decided otherwise: another version of streamproc, or of a plug-in"

    def _expired(self, decided: Decision) -> bool:
        trigger = decided.trigger
        if trigger is None or trigger.partition is None or not self._control_begins.get(trigger.partition):
            return False
        used = self._used.get(trigger.partition)
        return not used or (trigger.offset or 0) < used[0][0]

    def _policy_at(self, decided: Decision | None) -> PolicyRef | None:
        """Return the policy that was in force when the workers read the event of a decision, by what they published
        before it in the same partition; else after it, else anywhere."""
        trigger = decided.trigger if decided is not None else None
        used = self._used.get(trigger.partition if trigger is not None else None)
        if used is None:
            return next(iter(self.policies.values()), None)
        offset = trigger.offset if trigger is not None and trigger.offset is not None else 0
        return used[max(0, bisect_right(used, offset, key=lambda one: one[0]) - 1)][1]

    def _settings(self, theirs: PolicyRef, decided: Decision | None, published: PublishedDecision | None) -> str:
        """Name the settings that differ; without the other policy, what ours tells about the decision."""
        one = decided or published
        assert one is not None
        ours = self._in_force(self._policy, one)
        if (other := self._known.get(theirs.hash)) is not None:
            before = self._in_force(other, one)
            names = [name for name in sorted(before.keys() | ours.keys()) if before.get(name) != ours.get(name)]
            off = ours.keys() ^ before.keys()  # detectors that are off on one side have none of their limits there
            names = [name for name in names if (name in off and "." not in name) or name not in off]
            own = [name for name in names if name.partition(".")[0] == one.code] or names
            changed = [f"{name} {_shown(before, name)} there and {_shown(ours, name)} here" for name in own]
            more = f"; and {len(own) - SETTINGS_SHOWN} more" if len(own) > SETTINGS_SHOWN else ""
            return f": {'; '.join(changed[:SETTINGS_SHOWN])}{more}" if own else ""
        if one.code in ours:
            return f": {one.code} is off here"
        limit = ours.get(f"{one.code}.{one.severity}")
        if isinstance(limit, int) and published is not None and published.repeats not in (None, limit):
            return f": {one.code}.{one.severity} is {limit} here, and it was published at {published.repeats}"
        return ""

    def _in_force(self, policy: Policy, one: Decision | PublishedDecision) -> dict[str, Any]:
        """Return all limits and budgets for the run of a decision, by the names that people write. A detector that is
        off has one entry, under its code."""
        found = policy.effective(one.workflow or "", one.tenant or "", "", one.user or "")
        flat: dict[str, Any] = {f"budgets.{name}": value for name, value in found["budgets"].items()}
        for code, limits in found["detectors"].items():
            flat |= {code: "off"} if limits is None else {f"{code}.{name}": value for name, value in limits.items()}
        return flat


def _shown(found: Mapping[str, Any], name: str) -> str:
    """Return a setting as people read it. A name without a dot is a detector's, and there only if it is off."""
    return str(found.get(name, "not set" if "." in name else "on"))


def _presets() -> list[Policy]:
    found = []
    for name in preset_names():
        with suppress(InvalidPolicy):  # one that needs a plug-in
            found.append(load_policy(name))
    return found


def describe(one: Explained) -> str:
    """Return ``halt LOOP003 at turn 7, published at turn 5``."""
    shown = one.decided or one.published
    assert shown is not None
    if one.decided is not None and one.published is not None:
        turns = f"at turn {one.decided.turn or 0}, published at turn {one.published.turn}"
    else:
        turns = f"at turn {shown.turn or 0 if one.published is None else shown.turn}"
    return f"{shown.severity} {shown.code} {turns}"
