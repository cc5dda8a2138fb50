"""`step(state, event, at_ms, position) → outcome`: the product, as one pure function of stored states.

The caller (worker, Monitor, scan, replay, report, backtest) owns the states and the positions in the log; all that one
event causes is in its outcome. The engine owns only caches that can be computed again: tags of names, the rules of each
scope, and the state that it stepped last, unpacked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from streamproc.core import kind
from streamproc.core.accounts import CLOSED
from streamproc.core.board.change import BoardChange
from streamproc.core.board.holds import settle, stall, start_task
from streamproc.core.board.transitions import apply_event
from streamproc.core.charges import Charge, charge, closes_own_session
from streamproc.core.deadlines import Due, next_due
from streamproc.core.decide import decide, iterations_max
from streamproc.core.decision import Decision, Finding, Level
from streamproc.core.episodes import admit
from streamproc.core.marks import InForce
from streamproc.core.membership import name_session, tell_tree
from streamproc.core.names import Names, digest_of_id
from streamproc.core.noted_events import LATE, NOTED
from streamproc.core.observer import observe_turn
from streamproc.core.outcome import Outcome
from streamproc.core.packed_states import Held, PackedStates
from streamproc.core.prices import priced
from streamproc.core.records import Values, ccall, cclass, cfunc, final, i64, u64
from streamproc.core.refusal import KNOWN, NOT_PUBLISHED, STRANGER, is_stranger, refuse_command
from streamproc.core.resume import pass_probation, restart_counts, resume, strictly
from streamproc.core.rules import OnFault, Pairs, Rules, RulesOf
from streamproc.core.run_scope import declare_budgets, set_scope, settle_tier
from streamproc.core.run_state import UNBOUND, RunState, reset_run
from streamproc.core.signals.open_turns import start_turn
from streamproc.core.signals.task_tokens import drop_idle, grant_tokens
from streamproc.core.status import status_of
from streamproc.core.view import View
from streamproc.errors import InvalidGraph, Problem
from streamproc.model.controls import RunStatus
from streamproc.model.guard_report import is_guard_report
from streamproc.model.log_time import AT_MS_MAX
from streamproc.model.wire import (
    ASIDE,
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

RULES_MAX: Final = 8_192  # scopes with known rules, up to 2 KB each; past it, the cache is cleared
NO_POSITION: Final = -1  # of an event that stands in no log


@final
@cclass
class Engine:
    """The detectors, under a policy. One engine serves any number of runs. It is not thread-safe."""

    position: i64  # of the current event
    states: PackedStates
    """Opens and packs what `Outcome.kept` keeps (`core.states.States`)."""
    faults: dict[str, int]
    """How often each detector has raised, by code. The others decide as usual. A replay raises the same faults."""
    on_fault: OnFault | None
    charges: list[Charge]  # that it causes
    refused: Problem | None  # why it is refused
    policy: RulesOf
    names: Names
    tag: Callable[[str], int]
    view: View
    known_rules: dict[bytes, tuple[Rules, InForce]]  # by scope

    def __init__(self, policy: RulesOf) -> None:
        from streamproc.core.states import new_states  # it needs the parts of this module

        self.policy, self.names, self.known_rules = policy, Names(), {}
        self.tag, self.view = self.names.tag, View(self.names)
        self.states = cast("PackedStates", new_states())
        self.faults, self.on_fault, self.position, self.charges, self.refused = {}, None, NO_POSITION, [], None

    @ccall
    def rules_of(self, run: RunState) -> Rules:
        """Return the rules for a run's scope."""
        return self._in_force(run)[0]

    @cfunc
    def _in_force(self, run: RunState) -> tuple[Rules, InForce]:
        known = self.known_rules.get(run.scope_raw)
        if known is None:
            if len(self.known_rules) >= RULES_MAX:
                self.known_rules.clear()
            rules = self.policy.rules(run.scope.workflow, run.scope.tenant, run.scope.tier)
            known = self.known_rules[run.scope_raw] = rules, rules.in_force(run.scope)
        return known

    @ccall
    def step(self, state: Held, event: Event, at_ms: int | None, position: i64 = NO_POSITION) -> Outcome:
        """Apply one event of a run at log time `at_ms` (None: the run's last known time).

        `state` is a stored state, which may be stepped any number of times, or what the last outcome of the run has
        `kept`; an empty one begins a run. `position` is that of the event in the caller's log. A refused event only
        adds to a count. Raises `StateError` for bytes that are no state.
        """
        run: RunState = self.states.open(state)
        decisions = self.apply(run, event, at_ms, position)
        return Outcome(self.states.close(run), decisions, self.charges, self.refused)

    @ccall
    def apply(self, run: RunState, event: Event, at_ms: int | None, position: i64) -> list[Decision]:
        """Apply one event to an opened state, and return the decisions; `charges` and `refused` have the rest."""
        self.position, self.charges, self.refused = position, [], None
        try:
            decisions = self._apply(run, event, at_ms)
            if run.charged and (decisions or (self.charges and (type(event) is not Turn or self.charges[0].first))):
                tell_tree(run, event, decisions, self.charges, self.rules_of(run).accounts, self.position)
        except BaseException:
            self.states.drop()  # the object holds no state any more
            raise
        return decisions

    def skip(self, state: Held, position: i64) -> Held:
        """Return a state that counts the event at this position as applied."""
        run: RunState = self.states.open(state)
        run.offset = position
        return self.states.close(run)

    @cfunc
    def _apply(self, run: RunState, event: Event, at_ms: int | None) -> list[Decision]:
        """Change the run, and return the decisions."""
        digest: u64
        last_event_ms: i64
        ids: Values = run.event_ids
        if type(event) in ASIDE or (type(event) is HaltAcknowledged and is_guard_report(event)):
            return []  # a judgement or a report: not even activity of the run
        if self.position >= 0:
            run.offset = self.position
        if run.owner != UNBOUND and is_stranger(run, event):
            run.strangers += 1
            self.refused = STRANGER
            return []
        run.stub = False
        if event.event_id:
            digest = digest_of_id(event.event_id, type(event) not in NOT_PUBLISHED)
            if ids.has(digest):
                run.duplicates += 1
                return []
            ids.push(digest)
        last_event_ms = run.at_ms
        self.view.last_event_ms = last_event_ms
        if at_ms is not None and last_event_ms < at_ms <= AT_MS_MAX:
            run.at_ms = at_ms
            if not run.started_ms:
                run.started_ms = at_ms
        self.view.evicted = 0
        found = self._turn(run, event) if type(event) is Turn else self._other(run, event)
        run.evicted += self.view.evicted
        return found

    def status(self, run: RunState, run_id: str, halt: Decision | None = None) -> RunStatus:
        """Return the complete status of a run; `halt` is the decision that has just halted it, if any. Without it, the
        status of a halted run does not say why: do not overwrite an earlier one that does."""
        return status_of(run, run_id, halt, iterations_max(run, self.rules_of(run)))

    @cfunc
    def _turn(self, run: RunState, turn: Turn) -> list[Decision]:
        view: View = self.view
        rules: Rules
        force: InForce
        found: list[Decision] = []
        if run.finished:
            run.late += 1
            return found
        if turn.workflow or turn.tenant or turn.user or turn.tier or turn.session_id or turn.parent_run_id:
            set_scope(run, turn, self.rules_of)
        rules, force = self._in_force(run)
        view.begin(run, turn, force)
        observe_turn(view, rules)
        run.turns = view.index + 1
        if view.kinds:
            found = self._ask(view, turn, rules)
        if run.handovers.previous_node != view.node_tag:
            run.handovers.previous_node = view.node_tag
            run.handovers.previous_name.set(turn.node)
        run.cycle_memories.leave()
        if run.escalation.probation_until >= 0:
            pass_probation(run, view.iterated is not None)
        if (force.switches.accounts_needed or run.scope.session) and (turn.usage is not None or not run.charged):
            usage = turn.usage
            if usage is not None and force.switches.priced:
                usage = priced(usage, turn.model, rules.prices)
            self._charge(run, turn.run_id, usage)
        return found

    @cfunc
    def _ask(self, view: View, event: Event, rules: Rules) -> list[Decision]:
        """Ask the detectors whose kinds of evidence are present, in their order, and then those that read warnings."""
        found = self._ask_those(view, event, rules, rules.detectors(view.kinds))
        if view.warned:
            if type(event) is Turn:
                found += self._ask_those(view, event, rules, rules.detectors(kind.WARNED))
            view.warned = []
        return found

    @cfunc
    def _ask_those(self, view: View, event: Event, rules: Rules, detectors: Pairs) -> list[Decision]:
        run: RunState = view.run
        found: list[Decision] = []
        for detector, limits in detectors:
            try:
                finding = detector.check(view, limits)
                if view.memories:
                    view.store_memory(detector.code)
            except Exception as problem:  # noqa: BLE001 (a defect of one detector must not silence the others)
                view.memories = {}
                self._fault(detector.code, problem)
                continue
            if not finding:
                continue
            several = finding if isinstance(finding, tuple) else (finding,)
            if run.escalation.probation_until >= 0:
                several = tuple([strictly(one, limits) for one in several])
            admitted = [one for one in several if admit(run, one, view.index)]
            if admitted:
                view.warned += [one for one in admitted if one.level is Level.WARN]
                found += self._decide(view, event, rules, admitted)
        return found

    @cfunc
    def _decide(self, view: View, event: Event, rules: Rules, admitted: list[Finding]) -> list[Decision]:
        """Return the decisions that findings become, after what they change on the board."""
        run: RunState = view.run
        if run.has_board or rules.board.tasks_of_turns:
            for one in admitted:
                stall(run, one, event, rules.board, self.tag)
        found = [decide(view, event, rules, one) for one in admitted]
        for one in admitted:
            if one.task_status:
                change = view.board_change if view.kinds & kind.BOARD else None
                failure = settle(run, one, event, rules.board, self.tag, change)
                if failure is not None:
                    view.board_change = failure
                    found += self._ask_those(view, event, rules, rules.detectors(kind.TASK_FAILED))
                    view.board_change = change
        return found

    def _ask_about(self, run: RunState, event: Event, kinds: int, change: BoardChange | None = None) -> list[Decision]:
        """Ask the detectors about an event that is no turn: `view.event`."""
        rules, force = self._in_force(run)
        self.view.begin_other(run, event, force.budgets, kinds, change)
        return self._ask(self.view, event, rules)

    def _other(self, run: RunState, event: Event) -> list[Decision]:
        if run.finished and isinstance(event, LATE):
            run.late += 1
            return []
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
                restart_counts(run)
                run.messages.note()
                run.pending.clear()
                return self._ask_about(run, event, kind.CLOCK)
        elif type(event) in OPERATOR_KINDS:
            return self._commanded(run, event)
        elif type(event) is HaltAcknowledged:
            run.escalation.unacknowledged_halt = -1
        elif type(event) is BudgetReached:
            return self._account_reached(run, event)
        elif isinstance(event, BoardEvent):
            return self._board(run, event)
        else:
            return self._noted(run, event)
        return []

    def _noted(self, run: RunState, event: Event) -> list[Decision]:
        set_scope(run, event, self.rules_of)
        return self._ask_about(run, event, NOTED.get(type(event), 0))

    def _finished(self, run: RunState, event: RunFinished) -> list[Decision]:
        if run.finished:
            return []
        found = self._ask_about(run, event, kind.CLOCK | kind.FINISHED)
        if run.charged:
            self._charge(run, event.run_id, None, left=True)
        run.finished = True
        return found

    def _board(self, run: RunState, event: BoardEvent) -> list[Decision]:
        set_scope(run, event, self.rules_of)
        if type(event) is TaskDelegated:
            grant_tokens(run.cold.task_tokens, event, self.tag, run.turns)
            run.has_task_tokens = len(run.cold.task_tokens) > 0
            self.view.evicted += drop_idle(run.cold.task_tokens)
            run.session_closed = run.session_closed or closes_own_session(run, self.rules_of(run).accounts)
        change = apply_event(run, event, self.rules_of(run).board, self.tag)
        run.text_streak.end()  # a task that moves is work
        return self._ask_about(run, event, kind.BOARD | kind.CLOCK, change)

    def _started(self, run: RunState, event: RunStarted) -> list[Decision]:
        if run.finished and run.halted < 0:
            reset_run(run)  # a run id that is reused must not stay unguarded
        elif run.finished or run.started:
            if run.finished:
                restart_counts(run)  # the next execution repeats nothing of the one that was halted
            run.finished = False  # a halted run is open again and still halted: only an operator lifts a halt
            run.ignored_events += not event.graph
            run.started = True
            return self._declared(run, event) if event.graph else []
        run.started = True
        set_scope(run, event, self.rules_of)
        settle_tier(run, self.rules_of, named=True)
        declare_budgets(run, event.budgets, rules := self.rules_of(run))
        if event.task_id:
            start_task(run, event.task_id, rules.board, self.tag)
        name_session(run, event)
        if run.scope.session or rules.switches.accounts_needed:
            self._charge(run, event.run_id, None)
        return self._declared(run, event)

    def _declared(self, run: RunState, event: RunStarted) -> list[Decision]:
        view = self.view
        view.unsafe, view.unreadable = (), ""
        if event.graph:
            try:
                view.unsafe = run.cycles.declare(event.graph, view)
                run.graphs += 1
            except InvalidGraph as error:
                view.unreadable = str(error)  # the run continues without it
        return self._ask_about(run, event, kind.STARTED)

    def _charge(self, run: RunState, run_id: str, usage: Usage | None, *, left: bool = False) -> None:
        self.charges.append(charge(run, run_id, self.rules_of(run).accounts, usage, self.position, left=left))

    def _account_reached(self, run: RunState, event: BudgetReached) -> list[Decision]:
        run.session_closed = run.session_closed or (event.account.startswith("session:") and event.rung in CLOSED)
        last_event_ms = self.view.last_event_ms
        found = self._ask_about(run, event, kind.ACCOUNT)
        run.at_ms = last_event_ms or run.at_ms  # other runs' spend is no activity of this run
        return found

    def next_deadline(self, run: RunState) -> Due | None:
        """Return the first deadline of a run that sends no further event; None if it has none."""
        return None if run.finished or run.halted >= 0 else next_due(run, self.rules_of(run), self._fault)

    def _fault(self, code: str, problem: Exception) -> None:
        times = self.faults[code] = self.faults.get(code, 0) + 1
        if self.on_fault is not None:
            self.on_fault(code, times, problem)

    def _turn_started(self, run: RunState, event: TurnStarted) -> list[Decision]:
        set_scope(run, event, self.rules_of)
        found = self._ask_about(run, event, kind.CLOCK)
        run.set_open_turns(start_turn(run.open_turns, event, self.view))
        return found

    def _deadline(self, run: RunState, event: Deadline) -> list[Decision]:
        """Decide on the silence so far, which is no activity. One that comes early is dropped: it may come again."""
        now_ms, last_event_ms = run.at_ms, self.view.last_event_ms
        if event.due_ms > now_ms:
            if event.event_id:
                run.event_ids.drop_last()  # its own id, added last
            run.at_ms = last_event_ms
            return []
        found = [] if run.finished or run.halted >= 0 else self._ask_about(run, event, kind.CLOCK)
        run.checked_ms = max(run.checked_ms, now_ms)
        run.at_ms = last_event_ms or now_ms
        return found

    def _commanded(self, run: RunState, event: Event) -> list[Decision]:
        """Apply a command. A finished run is halted, too: its id may be used again."""
        refused = refuse_command(run, event)
        if refused is not None:
            self.refused = None if refused is KNOWN else refused
            return []
        if type(event) is OperatorResume and run.halted >= 0:
            resume(run, event.grant or {}, self.rules_of(run).budgets | run.scope.budgets, self.view.last_event_ms)
        elif type(event) is OperatorResume:  # nothing to resume
            run.ignored_events += 1
            return []
        return self._ask_about(run, event, kind.COMMAND)
