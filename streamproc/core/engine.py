"""`step(state, event, rules) → decisions`: the product, as one pure function.

The carrier of events (worker, Monitor, scan, replay) owns the states and the positions; the engine owns nothing
but what can be computed again: tags of names and the rules of each scope.
"""

from __future__ import annotations

from typing import Final, Protocol

import xxhash

from streamproc.budgets import declared
from streamproc.core.clock import AT_MS_MAX, rfc3339
from streamproc.core.cycles import cycle_of, declare, hand_over
from streamproc.core.decision import Decision, Evidence, Finding, Level, Trigger, hex16
from streamproc.core.habits import (
    NAME_SHOWN,
    count_hop,
    near_one,
    note_finder,
    observe_monologue,
    observe_query,
    observe_tools,
)
from streamproc.core.ladder import admit
from streamproc.core.ledger import count_turn, spend
from streamproc.core.progress import (
    observe_artifact,
    observe_errors,
    observe_metrics,
    observe_tests,
    remember,
    said_again,
)
from streamproc.core.room import make_room
from streamproc.core.rules import Rules
from streamproc.core.run import HASH, IDS_MAX, NODES_MAX, TAG, Cycle, NodeState, RunState, begin_again
from streamproc.core.status import Status, status_of
from streamproc.core.view import Hop, View
from streamproc.core.window import TALK, note_progress, observe_calls, observe_said, push, settle_pending
from streamproc.errors import InvalidGraph
from streamproc.wire import Event, OperatorStop, RunFinished, RunStarted, Turn, UserMessage

NAME_SEED: Final = 1  # a node that says a node's name says a text: the two must not have the same hash
TASK: Final = "task\0"  # a worker is often named for its task: the two must not cancel each other out
NAMES_MAX: Final = 65_536  # node names whose tags are kept ready; past it, all are computed again


class RulesOf(Protocol):
    """Where the engine gets the rules of a scope from: the policy."""

    def rules(self, workflow: str, tenant: str, tier: str) -> Rules: ...


class Engine:
    """The detectors, under a policy. One engine serves any number of runs; it is not for several threads at once."""

    def __init__(self, policy: RulesOf) -> None:
        self._policy = policy
        self._tags: dict[str, int] = {}
        self._rules: dict[tuple[str, str, str], Rules] = {}
        self._view = View()

    def tag(self, name: str) -> int:
        """The 32-bit tag of a name."""
        tag = self._tags.get(name)
        if tag is None:
            if len(self._tags) >= NAMES_MAX:
                self._tags.clear()
            digest = xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass"), seed=NAME_SEED)
            tag = self._tags[name] = digest & TAG or 1
        return tag

    def rules_of(self, run: RunState) -> Rules:
        """The rules for a run's scope."""
        scope = (run.workflow, run.tenant, run.tier)
        rules = self._rules.get(scope)
        if rules is None:
            if len(self._rules) >= NAMES_MAX:
                self._rules.clear()
            rules = self._rules[scope] = self._policy.rules(*scope)
        return rules

    def step(self, run: RunState, event: Event, at_ms: int | None) -> list[Decision]:
        """Take in one event at log time `at_ms` (None: the run's last known time) and say what is to be told.

        `run` is changed in place. Decisions come without topic, partition and offset: the carrier adds those.
        """
        if event.event_id and self._repeated(run, event.event_id):
            run.duplicates += 1
            return []
        if at_ms is not None and run.at_ms < at_ms <= AT_MS_MAX:
            run.at_ms = at_ms
            run.started_ms = run.started_ms or at_ms
        if type(event) is Turn:
            if run.finished:
                run.late += 1
                return []
            return self._turn(run, event)
        return self._other(run, event)

    def status(self, run: RunState, run_id: str, halt: Decision | None = None) -> Status:
        """The whole latest status of a run; `halt` is the decision that has just halted it, if one has.

        A run that was halted before keeps the status that says why: do not overwrite it without `halt`.
        """
        limit = run.budgets.get("maxCycleIterations") or self.rules_of(run).budgets.get("maxCycleIterations")
        return status_of(run, run_id, halt, limit)

    def _repeated(self, run: RunState, event_id: str) -> bool:
        try:
            digest = xxhash.xxh3_64_intdigest(event_id.encode())  # naming an error handler would cost 150 ns
        except UnicodeEncodeError:
            digest = xxhash.xxh3_64_intdigest(event_id.encode("utf-8", "surrogatepass"))
        ids = run.ids
        if digest in ids:
            return True
        ids[digest] = 0
        if len(ids) > IDS_MAX:
            del ids[next(iter(ids))]
        return False

    # Turns.

    def _turn(self, run: RunState, turn: Turn) -> list[Decision]:
        if turn.workflow or turn.tenant or turn.user or turn.tier:
            _take_scope(run, turn)
        rules = self._rules.get((run.workflow, run.tenant, run.tier)) or self.rules_of(run)
        view = self._view
        view.begin(run, turn, rules)
        self._observe(view, rules)
        run.turns = view.index + 1
        run.previous, run.previous_name = view.node_tag, turn.node[:NAME_SHOWN]
        found: list[Decision] = []
        if view.kinds:
            for detector, limits in rules.detectors(view.kinds):
                finding = detector.check(view, limits)
                if finding is not None and admit(run, finding, view.index):
                    found.append(self._decide(run, turn, rules, finding, view.cycle))
        make_room(run, len(turn.calls))
        return found

    def _observe(self, view: View, rules: Rules) -> None:
        """Take the turn into the run's memory, and note which kinds of evidence it brought."""
        run, turn, index = view.run, view.turn, view.index
        tags = self._tags
        tag = view.node_tag = tags.get(turn.node) or self.tag(turn.node)
        node = view.node = run.nodes.get(tag) or self._new_node(run, tag)
        node.last = index
        usage = turn.usage
        view.counts = count_turn(run, tag, usage.duration_ms if usage is not None else 0)
        if usage is not None:
            spend(run, usage)
        if run.pending:
            waiting, _, since = run.pending
            view.periods += settle_pending(run, tag)
            if run.found == since:
                note_finder(run, waiting, since)
        from_ = turn.from_
        source = (tags.get(from_) or self.tag(from_)) if from_ else run.previous
        if source and (source != tag or from_):
            view.iterated = hand_over(run, source, tag, run.at_ms)
            if run.chosen != (source << 32 | tag):
                view.hop = Hop(from_ or run.previous_name, turn.node, count_hop(run, source, tag, index))
        run.chosen = 0
        if turn.next:
            chosen = self.tag(turn.next)
            view.hop = Hop(turn.node, turn.next, count_hop(run, tag, chosen, index))
            run.chosen = tag << 32 | chosen
        if run.cycles:
            view.cycle = cycle_of(run, tag)
        if turn.calls:
            actor = tag ^ self.tag(TASK + turn.task_id) if turn.task_id else tag  # who calls, and for what
            observed = observe_calls(run, node, actor, turn, index, run.at_ms, rules.still_poll)
            view.repeated = observed.repeated
            view.periods += observed.periods
            view.stale = observed.stale
            view.tools = observe_tools(run, turn, index, self.tag)
        left = turn.artifact or turn.docs
        if left is not None or turn.tests is not None or turn.errors is not None or turn.progress:
            self._observe_results(view, rules, turn, tag, node)
        self._observe_content(view, turn, tag, node)
        self._observe_habits(view, turn, tag, node)
        if run.found == index:
            note_finder(run, tag, index)
        if run.news == index:
            view.forget_loops()
        view.note_kinds()

    def _observe_habits(self, view: View, turn: Turn, tag: int, node: NodeState) -> None:
        run, index, output = view.run, view.index, turn.output
        alone = not (turn.calls or turn.tests or turn.artifact or turn.structured or turn.docs)
        if run.monologue is not None or (output is not None and alone):
            view.monologue = observe_monologue(run, tag, output if alone else None, index)
        if turn.query is not None:
            view.query = observe_query(node, turn.query, index)
        if output is not None or turn.structured is not None:
            node.answered = True
            if output is not None and output.sim and run.found == index:
                view.near = near_one(run, output.sim, index)

    def _observe_results(self, view: View, rules: Rules, turn: Turn, tag: int, node: NodeState) -> None:
        run, index, cycle = view.run, view.index, view.cycle
        # Stamps of turns outside cycles are negative, so that none equals an iteration of a cycle found later.
        stamp = cycle.iterations if cycle is not None else -2 - index
        worked = -1 if cycle is not None else node.call_news
        if turn.progress:
            view.flat = observe_metrics(
                run, turn.progress, index, self.tag, rules.lower_is_better, stamp, max(run.progress, worked)
            )
        if turn.tests is not None:
            observe_tests(run, node, tag, turn.tests, index, stamp, max(run.progress, worked))
        if turn.artifact is not None or turn.docs is not None:
            period = observe_artifact(run, node, tag, turn, index, stamp, max(run.progress, worked))
            if period is not None:
                view.periods += (period,)
        if turn.errors is not None:
            view.failed = observe_errors(node, turn.errors, index, max(run.progress, node.call_news))

    def _observe_content(self, view: View, turn: Turn, tag: int, node: NodeState) -> None:
        """Take in what was said. Streaks come last: what is new in this turn has been noted by then."""
        run, index = view.run, view.index
        output = turn.output if not turn.calls else None  # a text beside calls is narration
        left = turn.structured or turn.artifact or turn.docs
        topic = self._topic(turn)
        if output is not None and node.called >= 0 and left is None and turn.tests is None:
            said = (tag ^ output.norm ^ topic) & HASH
            if period := push(run, TALK, said & TAG & ~1, index):
                view.periods += (period,)
            run.pending = [tag, said, index]
        elif output is not None or left is not None:
            view.periods += observe_said(run, tag, turn, topic, index)
        if output is not None:
            remember(run.outputs, output.norm)
            streak = node.output = said_again(node.output, output.norm ^ topic, index, max(run.news, node.called))
            if streak.count > 1:
                view.said += (streak,)
        if turn.structured is not None:
            streak = node.structured = said_again(node.structured, turn.structured.norm ^ topic, index, run.news)
            if streak.count > 1:
                view.said += (streak,)

    def _topic(self, turn: Turn) -> int:
        """What the words of a turn are about, where it says so: the same words about another thing are not the same."""
        topic = self.tag(TASK + turn.task_id) if turn.task_id else 0
        if turn.query is not None:
            topic ^= turn.query.norm >> 4
        if turn.errors is not None and turn.errors.count:
            topic ^= turn.errors.norm >> 5
        return topic

    def _new_node(self, run: RunState, tag: int) -> NodeState:
        if len(run.nodes) >= NODES_MAX:
            del run.nodes[min(run.nodes, key=lambda known: run.nodes[known].last)]
            run.evicted += 1
        node = run.nodes[tag] = NodeState()
        return node

    # Other events.

    def _other(self, run: RunState, event: Event) -> list[Decision]:
        if type(event) is RunStarted:
            return self._started(run, event)
        if type(event) is RunFinished:
            run.finished = True
        elif type(event) is UserMessage:
            if not run.finished:
                note_finder(run, 0, run.turns)
                note_progress(run, run.turns)  # streaks assume that nobody spoke: they start again
                run.pending = []
        elif type(event) is OperatorStop:
            return self._stopped(run, event)
        else:
            run.noted += 1
        return []

    def _started(self, run: RunState, event: RunStarted) -> list[Decision]:
        if run.finished:
            begin_again(run)  # a run id that is used again must not stay unguarded
        _take_scope(run, event)
        if event.budgets:
            run.budgets = run.budgets | declared(event.budgets)
        if event.graph:
            try:
                declare(run, event.graph, self.tag)
            except InvalidGraph:
                run.noted += 1  # `graph check` and the publisher say what is wrong; the run goes on without it
        return []

    def _stopped(self, run: RunState, event: OperatorStop) -> list[Decision]:
        if run.finished:
            run.late += 1
            return []
        reason = f": {event.reason}" if event.reason else ""
        finding = Finding(
            code="OPERATOR001",
            level=Level.HALT,
            loop=0,
            message=f"Stopped by {event.by or 'an operator'}{reason}.",
            evidence=Evidence(kind="operator_stop", by=event.by or None, reason=event.reason or None),
            reason="user_stop",
            status="stopped",
        )
        if not admit(run, finding, run.turns):
            return []
        return [self._decide(run, event, self.rules_of(run), finding, None)]

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
            id=_identity(event.run_id, run.again, finding, index, rules.policy.hash),
            type=finding.type or ("loop.halted" if halts else "budget.level" if budget else "loop.warning"),
            run_id=event.run_id,
            code=finding.code,
            severity=finding.level.name.lower(),
            message=finding.message,
            workflow=run.workflow or None,
            tenant=run.tenant or None,
            user=run.user or None,
            cycle_id=hex16(cycle.id) if cycle is not None else None,
            node=event.node or None,
            task_id=event.task_id or None,
            halt_reason=finding.reason if halts else None,
            terminal_status=finding.status if halts else None,
            action=action,
            suggested_actions=suggested,
            evidence=evidence,
            trigger=Trigger(event_id=event.event_id, turn=index),
            onset=finding.onset if finding.onset >= 0 else None,
            policy=rules.policy,
            at=rfc3339(run.at_ms) if run.at_ms else None,
            labels=event.labels,
        )


def _identity(run_id: str, again: int, finding: Finding, index: int, policy_hash: str) -> str:
    """The same log and policy give the same id: nothing of the carrier goes in. A run id that is used again
    (`again` times so far) must not get the ids of the run before: readers would take its halt for a duplicate."""
    text = f"{run_id}\0{again}\0{finding.code}\0{finding.loop}\0{int(finding.level)}\0{index}\0{policy_hash}"
    return xxhash.xxh3_128_hexdigest(text.encode("utf-8", "surrogatepass"))


def _take_scope(run: RunState, event: Event) -> None:
    """A run's scope is what was said first."""
    run.workflow = run.workflow or event.workflow
    run.tenant = run.tenant or event.tenant
    run.user = run.user or event.user
    run.tier = run.tier or event.tier
