"""What is kept of each run while the engine steps over its log: numbers of every turn, texts of some.

Memory: about 40 bytes for each turn. Texts are kept of the first turns, of the last ones, and of those that a decision
names; beyond `TEXTS_MAX` characters over all runs, runs without decisions lose theirs first.
"""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from streamproc.core.decision import Decision
from streamproc.core.records import TAG
from streamproc.core.signals.open_turns import node_of
from streamproc.core.status import is_unpublished
from streamproc.model.budgets import find_budget
from streamproc.model.wire import FAILED, FAILED_RETRYABLE, FAILED_RUN, Event, Turn
from streamproc.report.model import KINDS, BudgetUse, ErrorShown, TurnKind
from streamproc.report.noted import NotedEvents

if TYPE_CHECKING:
    from streamproc.core.engine import Engine
    from streamproc.core.run_state import RunState
    from streamproc.core.scope import Scope
    from streamproc.model.turn_texts import TurnTexts
    from streamproc.model.wire import Usage

_USED: Final[dict[str, Callable[[RunState], int]]] = {
    "maxSteps": lambda run: run.turns,
    "maxCostUsd": lambda run: run.ledger.cost_usd_micro,
    "maxRuntimeMs": lambda run: run.at_ms - run.started_ms if run.started_ms else 0,
    "maxTurnsPerNode": lambda run: max((one.turns for one in run.node_counts.rows), default=0),
    "maxRuntimeMsPerNode": lambda run: max((one.runtime_ms for one in run.node_counts.rows), default=0),
    "maxCycleIterations": lambda run: max((one.iterations for one in run.cycles.table.rows), default=0),
    "maxCycleRuntimeMs": lambda run: max(
        (run.at_ms - one.since_ms for one in run.cycles.table.rows if one.since_ms), default=0
    ),
    "maxCycleCost": lambda run: max(
        (run.ledger.cost_usd_micro - one.spent_before for one in run.cycles.table.rows if one.spent_before >= 0),
        default=0,
    ),
    "maxRounds": lambda run: run.round,
}
"""What a run has used of its own budgets. Those of sessions, users and tenants are spent by other runs, too."""

HEAD: Final = 24  # first turns whose texts are kept
TAIL: Final = 320  # last turns whose texts are kept
PINNED_MAX: Final = 400  # turns that decisions name whose texts are kept
DECISIONS_MAX: Final = 400  # of a run that are kept; the first halt always is
ERRORS_MAX: Final = 400  # of a run: the last ones, and the first
EDGES_MAX: Final = 400  # handovers between different pairs of nodes
NODES_MAX: Final = 60_000  # node names of a run
TRENDS_MAX: Final = 20_000
TEXTS_MAX: Final = 64_000_000  # characters over all runs
_FAILURES: Final = (FAILED, FAILED_RETRYABLE, FAILED_RUN)
_CODE: Final = {kind: number for number, kind in enumerate(KINDS)}


def budget_uses(run: RunState, budgets: Mapping[str, int], usage: Usage | None) -> Iterator[BudgetUse]:
    """Yield the budgets in force that a run's own state can tell about, in the order of the policy."""
    for name, limit in budgets.items():
        if name == "maxTokens":
            used = 0 if usage is None else usage.total_tokens or usage.input_tokens + usage.output_tokens
        elif name in _USED:
            used = _USED[name](run)
        else:
            continue
        yield BudgetUse(name=name, unit=find_budget(name).unit, used=used, limit=limit)


class Place(NamedTuple):
    """Where an event stands in its log: `number` counts lines, steps or offsets; `log` is the number of the file or the
    partition."""

    log: int
    number: int
    unit: str


class Detail(NamedTuple):
    """A turn with its texts (None: the log has none) and its fingerprints."""

    turn: Turn
    texts: TurnTexts | None


class CycleSeen(NamedTuple):
    """A cycle as the engine knew it: node names, the node at which iterations count first."""

    key: int
    nodes: tuple[str, ...]
    iterations: int


class RunHistory:
    """One run. `turns` counts those of its current life: a run id may be used again."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.begin_life(0)

    def begin_life(self, life: int) -> None:
        """Forget everything: the run id is used again after its run has finished."""
        self.life = life
        self.turns = self.last_discovery = 0
        self.at, self.tokens, self.cost = array("q"), array("q"), array("q")
        self.kinds, self.node_numbers = bytearray(), array("I")
        self.places, self.unit = array("q"), ""
        self.nodes: dict[str, int] = {}
        self.names: list[str] = []  # of the nodes, in the order of their first turns
        self.details: dict[int, Detail] = {}
        self.tail: deque[int] = deque()
        self.pinned: set[int] = set()
        self.size = 0  # characters of texts
        self.decisions: list[Decision] = []
        self.decisions_left_out = 0
        self.halt: Decision | None = None
        self.asked: Counter[int] = Counter()  # events by the kinds of evidence that they brought
        self.edges: Counter[tuple[str, str]] = Counter()
        self.previous_node = ""
        self.pending_kind = -1  # of the last turn, if it was a text that may yet turn out to be a message
        self.cycles: tuple[CycleSeen, ...] = ()
        self.budgets: tuple[BudgetUse, ...] = ()
        self.budgets_at_halt: tuple[BudgetUse, ...] = ()
        self.cycles_at_halt: tuple[CycleSeen, ...] = ()
        self.edges_at_halt: Counter[tuple[str, str]] = Counter()
        self.trend: list[tuple[int, int]] = []
        self.noted = NotedEvents()
        self.errors: deque[ErrorShown] = deque(maxlen=ERRORS_MAX)
        self.spent = (0, 0)
        self.scope: Scope | None = None
        self.finished = self.has_content = False
        self.unpublished = False  # only commands name the run
        self.open_nodes: tuple[str, ...] = ()  # of turns that have begun and not ended
        self.first_event: Place | None = None
        self.last_event: Place | None = None

    # -- one event

    def note(self, engine: Engine, run: RunState, event: Event, place: Place, texts: TurnTexts | None) -> None:
        """Record an event that the engine has just applied; `run` is the state after it."""
        if run.id_reuses != self.life:
            self.begin_life(run.id_reuses)
        self.first_event, self.last_event = self.first_event or place, place
        self.finished = bool(run.finished)
        self.scope = run.scope
        self.open_nodes = tuple(node_of(one) for one in run.cold.open_turns) if run.turns_open else ()
        self.unpublished = is_unpublished(run)
        self.noted.note(event, self.turns, run.at_ms, f"{place.unit} {place.number}")
        view = engine.view
        if getattr(view, "event", None) is event:
            self.asked[view.kinds] += 1
        if type(event) is Turn and run.turns == self.turns + 1:
            self._note_turn(run, event, place, texts)
            if view.budgets:
                self.budgets = tuple(budget_uses(run, view.budgets, event.usage))
            if view.iterated is not None:
                self.note_cycles(engine, run)

    def _note_turn(self, run: RunState, turn: Turn, place: Place, texts: TurnTexts | None) -> None:
        index = self.turns
        self.turns += 1
        novelty = run.novelty
        if self.pending_kind >= 0 and self.previous_node != turn.node:
            self.kinds[-1] = self.pending_kind  # it was a message: only now the next node is known
        pending = run.pending
        self.pending_kind = -1
        if pending.node and pending.turn == index:
            self.pending_kind = _CODE["repeat" if novelty.seen.has(pending.value & TAG) else "new"]
        if self.nodes.get(turn.node) is None and len(self.nodes) < NODES_MAX:
            self.nodes[turn.node] = len(self.nodes)
            self.names.append(turn.node)
        self.node_numbers.append(self.nodes.get(turn.node, 0))
        self.kinds.append(_CODE[_kind(run, turn, index)])
        self.at.append(run.at_ms)
        self.places.append(place.number)
        self.unit = place.unit
        spent = run.ledger.total_tokens, run.ledger.cost_usd_micro
        self.tokens.append(max(0, spent[0] - self.spent[0]))
        self.cost.append(max(0, spent[1] - self.spent[1]))
        self.spent = spent
        source = turn.from_ or self.previous_node
        if source and (turn.from_ or source != turn.node):
            edge = (source, turn.node)
            if edge in self.edges or len(self.edges) < EDGES_MAX:
                self.edges[edge] += 1
        self.previous_node = turn.node
        if turn.tests is not None and len(self.trend) < TRENDS_MAX:
            self.trend.append((index, turn.tests.failing))
        if (errors := turn.errors or turn.call_errors) is not None and errors.count:
            self.errors.append(
                ErrorShown(turn=index, node=turn.node, text=errors.excerpt, error_class=errors.error_class)
            )
        self._keep(index, Detail(turn, texts))

    def add_texts(self, event_id: str, texts: TurnTexts | None) -> None:
        """Add what a turn said, as the guard of a halted run reports it, unless its own event says so."""
        at = next((at for at, one in self.details.items() if one.turn.event_id == event_id and one.texts is None), None)
        if at is not None and texts is not None:
            self.details[at] = self.details[at]._replace(texts=texts)
            self.has_content = True
            self.size += texts.size

    def _keep(self, index: int, detail: Detail) -> None:
        self.details[index] = detail
        if detail.texts is not None:
            self.has_content = True
            self.size += detail.texts.size
        if index < HEAD:
            return
        self.tail.append(index)
        if len(self.tail) > TAIL:
            self._drop(self.tail.popleft())

    def _drop(self, index: int) -> None:
        if index in self.pinned:
            return
        detail = self.details.pop(index, None)
        if detail is not None and detail.texts is not None:
            self.size -= detail.texts.size

    def note_cycles(self, engine: Engine, run: RunState) -> None:
        """Record the cycles that the engine knows in this run."""
        names = {engine.names.tag(name): name for name in self.nodes}
        self.cycles = tuple(
            CycleSeen(cycle.key, _ring(cycle.anchor, cycle.members.listed(), names), cycle.iterations)
            for cycle in run.cycles.table.rows
        )

    def decided(self, decision: Decision) -> None:
        """Record a decision on this run."""
        if decision.severity == "halt" and self.halt is None:
            self.halt, self.budgets_at_halt = decision, self.budgets
            self.cycles_at_halt, self.edges_at_halt = self.cycles, self.edges.copy()
        elif len(self.decisions) >= DECISIONS_MAX:
            self.decisions_left_out += 1
            return
        self.decisions.append(decision)
        self._pin(named_turns(decision))

    def _pin(self, turns: Iterable[int]) -> None:
        for turn in turns:
            for near in range(max(0, turn - 2), turn + 3):
                if len(self.pinned) < PINNED_MAX:
                    self.pinned.add(near)

    def drop_texts(self) -> int:
        """Forget all texts, and return how many characters they were."""
        size, self.size = self.size, 0
        self.details = {index: Detail(detail.turn, None) for index, detail in self.details.items()}
        return size

    # -- what is read of it

    def node(self, index: int) -> str:
        """Return the node of a turn."""
        return self.names[self.node_numbers[index]]

    def place(self, index: int) -> str:
        """Return the place of a turn in its log, such as `line 812`."""
        return f"{self.unit} {self.places[index]}"

    def kind(self, index: int) -> TurnKind:
        """Return the kind of a turn."""
        return KINDS[self.kinds[index]]


def _kind(run: RunState, turn: Turn, index: int) -> TurnKind:
    """Return what the engine made of a turn. An error is shown as such, whether or not it is new."""
    if (turn.errors is not None and turn.errors.count) or (
        turn.calls and all(call.outcome in _FAILURES for call in turn.calls)
    ):
        return "error"
    if run.novelty.last_discovery == index:
        return "new"
    if run.novelty.last_news == index:
        return "waiting"
    if run.pending.turn == index and run.pending.node:
        return "narration"
    evidence = (turn.calls, turn.output, turn.structured, turn.artifact, turn.docs, turn.tests, turn.query)
    return "repeat" if any(evidence) else "other"


def _ring(anchor: int, members: list[int], names: dict[int, str]) -> tuple[str, ...]:
    found = [names[tag] for tag in members if tag in names and tag != anchor]
    return (names[anchor], *sorted(found)) if anchor in names else tuple(sorted(found))


def named_turns(decision: Decision) -> list[int]:
    """Return the turns that a decision names: its trigger, the onset, and its evidence."""
    found = list(decision.evidence.turns or ()) if decision.evidence is not None else []
    if decision.onset is not None:
        found.append(decision.onset)
    if decision.turn is not None:
        found.append(decision.turn)
    return sorted(set(found))
