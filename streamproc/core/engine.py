"""`step(state, event, rules) → decisions`: the product, as one pure function.

The carrier of events (worker, Monitor, scan, replay) owns the states and the positions; the engine owns nothing
but what can be computed again: tags of names and the rules of each scope.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Protocol

from xxhash import xxh3_64_intdigest, xxh3_128_hexdigest

from streamproc.core import kind
from streamproc.core.accounts import CLOSED
from streamproc.core.board.change import BoardChange
from streamproc.core.board.transitions import apply_event, settle
from streamproc.core.charges import SESSION_BUDGETS, Charge, charge, short_name
from streamproc.core.deadlines import Due, next_due
from streamproc.core.decision import Decision, Finding, Level, Trigger, hex16
from streamproc.core.escalation import admit
from streamproc.core.names import Names
from streamproc.core.observer import Observer
from streamproc.core.prices import priced
from streamproc.core.resume import pass_probation, resume, strictly
from streamproc.core.rules import Rules
from streamproc.core.run_state import ID_BYTES, IDS_MAX, Cycle, RunState, begin_again
from streamproc.core.signals.cycles import declare
from streamproc.core.signals.handovers import NAME_SHOWN, speak_to
from streamproc.core.signals.novelty import note_progress
from streamproc.core.signals.open_turns import start_turn
from streamproc.core.signals.task_tokens import grant_tokens, spend_tokens
from streamproc.core.size_budget import ANY_TURN, OTHER_EVENT, shrink_to_size
from streamproc.core.status import Status, status_of
from streamproc.core.view import View
from streamproc.errors import InvalidGraph
from streamproc.model.budgets import declared
from streamproc.model.log_time import AT_MS_MAX, rfc3339
from streamproc.model.wire import (
    OPERATOR_KINDS,
    BoardEvent,
    BudgetReached,
    Deadline,
    Event,
    HaltAcknowledged,
    OperatorResume,
    RunFinished,
    RunStarted,
    TaskDelegated,
    Turn,
    TurnStarted,
    Usage,
    UserMessage,
)

SCOPES_MAX: Final = 65_536  # scopes whose rules are kept ready; past it, all are computed again


OnFault = Callable[[str, int, Exception], None]
"""Told that the detector of this code raised, how often by now, and what."""


class RulesOf(Protocol):
    """Where the engine gets the rules of a scope from: the policy."""

    def rules(self, workflow: str, tenant: str, tier: str) -> Rules: ...


class Engine:
    """The detectors, under a policy. One engine serves any number of runs; it is not for several threads at once."""

    def __init__(self, policy: RulesOf) -> None:
        self._policy = policy
        self._names = Names()
        self._tag = self._names.__getitem__
        self._observer = Observer(self._names)
        self._rules: dict[tuple[str, str, str], Rules] = {}
        self._view = View()
        self.charges: list[Charge] | None = None
        """What the last steps owe to accounts of sessions, users and tenants. A carrier that books it sets a list here,
        and takes away what it finds in it; without one nothing is noted."""
        self.place = 0
        """Where in the carrier's log the event stands that is stepped: charges carry it."""
        self.faults: dict[str, int] = {}
        """How often each detector has raised, by code. It told nothing then, and all others decided as ever: here and
        wherever the same log is stepped, because a detector is a function of the log."""
        self.on_fault: OnFault | None = None

    def rules_of(self, run: RunState) -> Rules:
        """The rules for a run's scope."""
        scope = (run.workflow, run.tenant, run.tier)
        rules = self._rules.get(scope)
        if rules is None:
            if len(self._rules) >= SCOPES_MAX:
                self._rules.clear()
            rules = self._rules[scope] = self._policy.rules(*scope)
        return rules

    def step(self, run: RunState, event: Event, at_ms: int | None) -> list[Decision]:
        """Take in one event at log time `at_ms` (None: the run's last known time) and say what is to be told.

        `run` is changed in place. Decisions come without topic, partition and offset: the carrier adds those.
        """
        if event.event_id:
            try:
                digest = xxh3_64_intdigest(event.event_id.encode())  # naming an error handler would cost 150 ns
            except UnicodeEncodeError:
                digest = xxh3_64_intdigest(event.event_id.encode("utf-8", "surrogatepass"))
            ids = run.ids
            if digest in ids:
                run.duplicates += 1
                return []
            ids[digest] = 0
            if len(ids) > IDS_MAX:
                del ids[next(iter(ids))]
            else:
                run.room -= ID_BYTES
        self._view.heard_ms = heard_ms = run.at_ms
        if at_ms is not None and heard_ms < at_ms <= AT_MS_MAX:
            run.at_ms = at_ms
            if not run.started_ms:
                run.started_ms = at_ms
        if type(event) is Turn:
            if run.finished:
                run.late += 1
                return []
            return self._turn(run, event)
        found = self._other(run, event)
        run.room -= OTHER_EVENT
        if run.room < 0:
            shrink_to_size(run)
        return found

    def status(self, run: RunState, run_id: str, halt: Decision | None = None) -> Status:
        """The whole latest status of a run; `halt` is the decision that has just halted it, if one has.

        A run that was halted before keeps the status that says why: do not overwrite it without `halt`.
        """
        limit = run.budgets.get("maxCycleIterations") or self.rules_of(run).budgets.get("maxCycleIterations")
        return status_of(run, run_id, halt, limit)

    # Turns.

    def _turn(self, run: RunState, turn: Turn) -> list[Decision]:
        if turn.workflow or turn.tenant or turn.user or turn.tier or turn.session_id or turn.parent_run_id:
            _take_scope(run, turn)
        rules = self._rules.get((run.workflow, run.tenant, run.tier)) or self.rules_of(run)
        view = self._view
        view.begin(run, turn, rules.budgets)
        self._observer.turn(view, rules)
        if turn.usage is not None and (turn.task_id or run.task):
            self._spend_on_task(view, turn, rules)
        run.turns = view.index + 1
        if run.previous != view.node_tag:
            run.previous, run.previous_name = view.node_tag, turn.node[:NAME_SHOWN]
        found = self._ask(view, turn, rules) if view.kinds else []
        if run.probation:
            pass_probation(run, iterated=view.iterated is not None)
        if (run.session or rules.accounts_needed) and (turn.usage is not None or not run.charged):
            usage = turn.usage
            if usage is not None and rules.prices:
                usage = priced(usage, turn.model, rules.prices)
            self._charge(run, turn.run_id, usage)
        run.room -= ANY_TURN
        if run.room < 0:
            shrink_to_size(run)
        return found

    def _spend_on_task(self, view: View, turn: Turn, rules: Rules) -> None:
        run, default = view.run, view.budgets.get("maxTaskTokens")
        if not rules.task_percents or not (run.task_tokens or default):
            return
        task = self._names[turn.task_id] if turn.task_id else run.task
        spent = spend_tokens(run, turn, task, default, rules.task_percents)
        if spent is not None:
            view.task_tokens = spent
            view.kinds |= kind.TASK_TOKENS

    def _ask(self, view: View, event: Event, rules: Rules) -> list[Decision]:
        """Ask the detectors that have something to look at, in their order."""
        run, found = view.run, []
        for detector, limits in rules.detectors(view.kinds):
            try:
                finding = detector.check(view, limits)
            except Exception as problem:  # noqa: BLE001 (a defect of one detector must not silence the others)
                self._fault(detector.code, problem)
                continue
            if not finding:
                continue
            several = finding if isinstance(finding, tuple) else (finding,)
            if run.probation:
                several = tuple(strictly(one, limits) for one in several)
            told = [one for one in several if admit(run, one, view.index)]
            found += [self._decide(run, event, rules, one, view.cycle) for one in told]
            for one in told:
                if one.task_status:
                    settle(run, one, rules.board, self._tag)
        return found

    def _ask_about(self, run: RunState, event: Event, kinds: int, step: BoardChange | None = None) -> list[Decision]:
        """Ask the detectors about an event that is no turn. They find it in `view.event`."""
        rules = self.rules_of(run)
        self._view.begin_other(run, event, rules.budgets, kinds, step)
        return self._ask(self._view, event, rules)

    # Other events.

    def _other(self, run: RunState, event: Event) -> list[Decision]:
        if type(event) is RunStarted:
            return self._started(run, event)
        if type(event) is RunFinished:
            return self._finished(run, event)
        if type(event) is Deadline:
            return self._deadline(run, event)
        if type(event) is TurnStarted:
            return self._turn_started(run, event)
        if type(event) is UserMessage:
            if not run.finished:
                speak_to(run, run.turns)
                note_progress(run, run.turns)  # streaks assume that nobody spoke: they start again
                run.pending = []
                return self._ask_about(run, event, kind.CLOCK)
        elif type(event) in OPERATOR_KINDS:
            return self._ordered(run, event)
        elif type(event) is HaltAcknowledged:
            run.unheeded = -1
        elif type(event) is BudgetReached:
            return self._reached(run, event)
        elif isinstance(event, BoardEvent):
            return self._board(run, event)
        else:
            run.noted += 1
        return []

    def _finished(self, run: RunState, event: RunFinished) -> list[Decision]:
        if run.finished:
            return []
        found = self._ask_about(run, event, kind.CLOCK)
        if run.charged:
            self._charge(run, event.run_id, None, left=True)
        run.finished = True
        return found

    def _board(self, run: RunState, event: BoardEvent) -> list[Decision]:
        if run.finished:
            run.late += 1
            return []
        _take_scope(run, event)
        if type(event) is TaskDelegated:
            grant_tokens(run, event, self._tag)
        step = apply_event(run, event, self.rules_of(run).board, self._tag)
        return self._ask_about(run, event, kind.BOARD | kind.CLOCK, step)

    def _started(self, run: RunState, event: RunStarted) -> list[Decision]:
        if run.finished:
            begin_again(run)  # a run id that is used again must not stay unguarded
        _take_scope(run, event)
        if event.budgets:
            run.budgets = run.budgets | declared(event.budgets)
        view = self._view
        view.unsafe, view.unreadable = (), ""
        if event.graph:
            try:
                view.unsafe = declare(run, event.graph, self._tag)
            except InvalidGraph as error:
                view.unreadable = str(error)  # the run goes on without it
        if event.task_id:
            run.task = self._names[event.task_id]
        if not run.session and any(name in run.budgets for _, name in SESSION_BUDGETS):
            run.session = short_name(event.run_id)  # it is the root of a session without a name of its own
        if run.session or self.rules_of(run).accounts_needed:
            self._charge(run, event.run_id, None)
        return self._ask_about(run, event, kind.STARTED)

    def _charge(self, run: RunState, run_id: str, usage: Usage | None, *, left: bool = False) -> None:
        if self.charges is not None:
            self.charges.append(charge(run, run_id, self.rules_of(run).accounts, usage, self.place, left=left))

    def _reached(self, run: RunState, event: BudgetReached) -> list[Decision]:
        if run.finished:
            run.late += 1
            return []
        run.closed = run.closed or (event.account.startswith("session:") and event.rung in CLOSED)
        heard_ms = self._view.heard_ms
        found = self._ask_about(run, event, kind.ACCOUNT)
        run.at_ms = heard_ms or run.at_ms  # that others have spent is no sign of life of this run
        return found

    # Time.

    def next_deadline(self, run: RunState) -> Due | None:
        """What happens first, should this run stay silent from now on; None where nothing would be told."""
        if run.finished or run.halted >= 0:
            return None
        return next_due(run, self.rules_of(run), self._fault)

    def _fault(self, code: str, problem: Exception) -> None:
        times = self.faults[code] = self.faults.get(code, 0) + 1
        if self.on_fault is not None:
            self.on_fault(code, times, problem)

    def _turn_started(self, run: RunState, event: TurnStarted) -> list[Decision]:
        if run.finished:
            run.late += 1
            return []
        _take_scope(run, event)
        found = self._ask_about(run, event, kind.CLOCK)
        start_turn(run, event, self._tag)
        return found

    def _deadline(self, run: RunState, event: Deadline) -> list[Decision]:
        """Decide on the silence so far. The run's own time is not moved: a deadline is no sign of life.

        One that comes early, by the log's time, is forgotten, so that it may come again under the same id.
        """
        now_ms, heard_ms = run.at_ms, self._view.heard_ms
        if event.due_ms > now_ms:
            if event.event_id:
                run.ids.popitem()  # its own: the last one that came in
            run.at_ms = heard_ms
            return []
        over = run.finished or run.halted >= 0  # nobody waits for such a run
        found = [] if over else self._ask_about(run, event, kind.CLOCK)
        run.checked_ms = max(run.checked_ms, now_ms)
        run.at_ms = heard_ms or now_ms
        return found

    def _ordered(self, run: RunState, event: Event) -> list[Decision]:
        if type(event) is OperatorResume and run.halted >= 0:
            limits = self.rules_of(run).budgets | run.budgets
            resume(run, event.grant or {}, limits, self._view.heard_ms)
        elif run.finished or type(event) is OperatorResume:  # too late, or nothing to resume
            run.late += run.finished
            run.noted += not run.finished
            return []
        return self._ask_about(run, event, kind.ORDER)

    # Decisions.

    def _decide(self, run: RunState, event: Event, rules: Rules, finding: Finding, cycle: Cycle | None) -> Decision:
        halts = finding.level == Level.HALT
        index = max(0, run.turns - 1)
        action, suggested = rules.actions(finding)
        evidence = finding.evidence
        if halts:
            evidence.output_hashes = [hex16(value) for value in run.outputs] or None
            evidence.artifact_hashes = [hex16(value) for value in run.artifacts] or None
            evidence.failing_signatures = [hex16(value) for value in run.failing] or None
            evidence.failing_trend = list(run.trend) or None
        budget = finding.reason == "budget_exceeded"
        return Decision(
            id=_identity(event.run_id, run, finding, index, rules.policy.hash),
            type=finding.type or ("loop.halted" if halts else "budget.level" if budget else "loop.warning"),
            run_id=event.run_id,
            code=finding.code,
            severity=finding.level.name.lower(),
            message=finding.message,
            workflow=run.workflow or None,
            tenant=run.tenant or None,
            user=run.user or None,
            cycle_id=hex16(cycle.id) if cycle is not None else None,
            node=finding.node or event.node or event.agent or None,
            task_id=finding.task or event.task_id or None,
            halt_reason=finding.reason if halts else None,
            terminal_status=finding.status if halts or finding.status == "escalated" else finding.task_status or None,
            action=action,
            suggested_actions=suggested,
            evidence=evidence,
            trigger=Trigger(event_id=event.event_id, turn=index),
            onset=finding.onset if finding.onset >= 0 else None,
            policy=rules.policy,
            at=rfc3339(run.at_ms) if run.at_ms else None,
            labels=event.labels,
        )


def _identity(run_id: str, run: RunState, finding: Finding, index: int, policy_hash: str) -> str:
    """The same log and policy give the same id: nothing of the carrier goes in. A run id that is used again
    (`again` times so far), and a run that was resumed, must not get the ids of before: readers would take its halt
    for a duplicate."""
    life = f"{run.again}.{run.resumes}" if run.resumes else run.again
    place = "" if finding.anywhere else index
    text = f"{run_id}\0{life}\0{finding.code}\0{finding.loop}\0{int(finding.level)}\0{place}\0{policy_hash}"
    return xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def _take_scope(run: RunState, event: Event) -> None:
    """A run's scope is what was said first."""
    known = run.workflow, run.tenant, run.user, run.tier, run.session
    run.workflow = run.workflow or event.workflow
    run.tenant = run.tenant or event.tenant
    run.user = run.user or event.user
    run.tier = run.tier or event.tier
    if not run.session and (event.session_id or event.parent_run_id):
        run.session = short_name(event.session_id or event.parent_run_id)
    run.child = run.child or bool(event.parent_run_id)
    if known != (run.workflow, run.tenant, run.user, run.tier, run.session):
        run.room = 0
