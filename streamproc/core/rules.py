"""A policy as the engine uses it: resolved for one scope, validated and immutable."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

from streamproc.core.board.config import NO_BOARD, BoardConfig
from streamproc.core.charges import NO_ACCOUNTS, AccountRules
from streamproc.core.decision import Finding, Level, PolicyRef
from streamproc.core.marks import InForce, Switches, budget_marks_of, marks_of
from streamproc.core.prices import Price, Prices
from streamproc.core.scope import Scope, without_place, write_scope
from streamproc.core.signals.calls import IDLE, OVER, POLL, CallMemory
from streamproc.core.signals.novelty import Gate, Gates
from streamproc.core.tiers import NO_TIERS, TierRules
from streamproc.core.view import View
from streamproc.model.wire import WAITS

NO_BACKSTOP: Final = 1 << 62  # more turns than a run can have
NO_GATES: Final = Gates()
KINDS_MAX: Final = 1_024  # combinations of evidence with known detectors, 0.5 KB each; runs have a few dozen
IN_FORCE_MAX: Final = 1_024  # scopes, without their places in sessions, with known budgets, 1 KB each


class DetectorProtocol(Protocol):
    """A detector, as the engine calls it. `limits` are its parameters under the policy in force. `check` returns
    several findings only for an event about several subjects, such as the tasks of a batch. A detector may also have
    `due` (`core.deadlines`), `marks` and `budget_marks` (`core.marks`)."""

    code: str
    name: str
    kinds: int

    def check(self, view: View, limits: Any) -> Finding | tuple[Finding, ...] | None: ...


Pairs = tuple[tuple[DetectorProtocol, Any], ...]
"""Detectors with their limits."""
OnFault = Callable[[str, int, Exception], None]
"""Called when a detector raised: its code, how often it has raised so far, and the exception."""


class RulesOf(Protocol):
    """The source of the rules of each scope: the policy."""

    def rules(self, workflow: str, tenant: str, tier: str) -> Rules: ...


class Rules:
    """Detectors with their limits, budgets and actions for one (workflow, tenant, tier)."""

    def __init__(
        self,
        policy: PolicyRef,
        detectors: Sequence[tuple[DetectorProtocol, Any]],
        budgets: Mapping[str, int],
        *,
        on_stall: str,
        actions: Mapping[str, str],
        lower_is_better: frozenset[str],
        live_repeats_min: int,
        live_standstills: int,
        live_minutes: int,
        known_warn: int,
        known_halt: int,
        accounts: AccountRules = NO_ACCOUNTS,
        task_percents: Sequence[int] = (),
        board: BoardConfig = NO_BOARD,
        prices: Mapping[str, Price] = MappingProxyType({}),
        overridable: frozenset[str] = frozenset(),
        tiers: TierRules = NO_TIERS,
        gates: Gates = NO_GATES,
        suggested: Sequence[str] = (),
        edges_apart: bool = False,
        every_error: bool = False,
    ) -> None:
        self.policy = policy
        self.budgets = dict(budgets)
        self.overridable = overridable  # budgets that a run may raise
        self.tiers = tiers
        self.accounts = accounts
        self.task_percents = task_percents
        self.lower_is_better = lower_is_better
        self.board = board
        self.prices = Prices(prices)
        self._detectors = tuple(detectors)
        self.marks = marks_of(self._detectors)
        self.waiting: tuple[tuple[Any, Any], ...] = tuple(pair for pair in self._detectors if hasattr(pair[0], "due"))
        """Detectors that wait for something and have deadlines (`core.deadlines`)."""
        self._by_kinds: dict[int, Pairs] = {}
        self._known_in_force: dict[bytes, InForce] = {}
        self.gates = gates
        self.switches = Switches()
        self.switches.every_error, self.switches.edges_apart = every_error, edges_apart
        self.switches.outputs_gated = gates.outputs is not Gate.ANY
        self.switches.sequences_gated = gates.sequences is not Gate.ANY
        self.switches.calls_gated = gates.calls is not Gate.ANY
        self.switches.accounts_needed, self.switches.priced = accounts.needed, bool(prices)
        self.switches.task_budgets = bool(task_percents)
        self._on_stall = on_stall
        self._suggested = list(suggested)
        self._actions = dict(actions)
        self._live_repeats_min = live_repeats_min
        self._live_standstills = live_standstills
        self._live_ms = 60_000 * live_minutes
        self._known_warn = known_warn or NO_BACKSTOP
        self._known_halt = known_halt or NO_BACKSTOP

    def in_force(self, scope: Scope) -> InForce:
        """Return what counts for the runs of a scope: the budgets that they declared over the policy's, and marks.

        It does not depend on the run's place in its session, so the runs of a tree, whose scopes all differ, share it.
        """
        shared = without_place(scope)
        key = write_scope(shared)
        known = self._known_in_force.get(key)
        if known is None:
            if len(self._known_in_force) >= IN_FORCE_MAX:
                self._known_in_force.clear()
            budgets = {**self.budgets, **scope.budgets}
            limits = budget_marks_of(self._detectors, budgets, shared)
            known = self._known_in_force[key] = InForce(budgets, limits, self.marks, self.switches)
        return known

    def detectors(self, kinds: int) -> Pairs:
        """Return the detectors to ask about these kinds of evidence."""
        chosen = self._by_kinds.get(kinds)
        if chosen is None:
            if len(self._by_kinds) >= KINDS_MAX:
                self._by_kinds.clear()
            chosen = tuple(pair for pair in self._detectors if pair[0].kinds & kinds)
            self._by_kinds[kinds] = chosen
        return chosen

    def judge_poll(self, memory: CallMemory, marks: int, at_ms: int) -> int:
        """Return POLL, IDLE or OVER (`signals.calls`) for a live call that gave a known answer.

        An unchanged answer is a poll's if it has stayed unchanged about as long before, or for a short time only. One
        that changes back and forth is idle after some, over after more, whatever the time, unless it says that
        something is still running.
        """
        waited = at_ms - memory.still_since_ms if at_ms else NO_BACKSTOP
        enough = waited >= self._live_ms
        longest = self._live_standstills * memory.longest_still
        still_ms = max(self._live_ms, self._live_standstills * memory.longest_still_ms)
        if memory.still >= max(self._live_repeats_min, longest) and waited >= still_ms:
            return OVER
        if memory.known >= self._known_halt and (enough or not marks & WAITS):
            return OVER
        return IDLE if memory.known >= self._known_warn and (enough or not marks & WAITS) else POLL

    def actions(self, finding: Finding) -> tuple[str | None, list[str]]:
        """Return the action that policy takes on a finding (None: no action) and the alternatives, best first."""
        if finding.type in ("run.resumed", "decision.recorded"):
            return None, []
        if finding.level != Level.HALT:
            configured = self._actions.get(finding.code) if finding.action else None
            return configured or finding.action or "warn", []
        stuck = finding.reason in _STUCK
        usual = _ALTERNATIVES[finding.reason]
        alternatives = usual if finding.reason == "user_stop" else self._suggested or usual
        if finding.code in self._actions:
            action = self._actions[finding.code]
        elif finding.action:
            action = finding.action
        elif stuck:
            action = self._on_stall
        else:
            action = usual[0]
        if action == "snitch":
            alternatives = _AFTER_SNITCH
        return action, [action, *(other for other in alternatives if other != action)]


_AFTER_SNITCH = ["ask_human", "done_partial"]  # a planner's way out: report it, ask a person, or deliver what it has
_STUCK = ("stalled", "oscillating", "repeated_error")
_ALTERNATIVES = {
    "stalled": ["switch_to_interactive", "spawn_reviewer", "ask_human", "retry_with_new_provider", "done_partial"],
    "oscillating": ["switch_to_interactive", "spawn_reviewer", "ask_human", "done_partial"],
    "repeated_error": ["switch_to_interactive", "retry_with_new_provider", "ask_human", "done_partial"],
    "budget_exceeded": ["force_synthesis", "done_partial", "ask_human", "halt"],
    "user_stop": ["halt"],
}
