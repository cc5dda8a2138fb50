"""Handovers between nodes: how many in a row on one edge brought nothing new, and which node found the last new thing.

With edges *apart*, as a planner needs it, news counts only for the edge that it came back on, also while the planner
waits for several nodes, and each node is judged by the results that it produces: tests, files, or answers.

Memory: `FRUITLESS_MAX` edges with their counts, and the last finder; with edges apart, the names of nodes. Read by
LOOP005.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from streamproc.core.now import Now
from streamproc.core.records import (
    NAME_CHARS,
    TAG,
    Name,
    Record,
    Row,
    Table,
    ccall,
    cclass,
    cfunc,
    final,
    hash64,
    i32,
    u32,
    u64,
)
from streamproc.core.signals.nodes import NodeState, SuiteTrack
from streamproc.model.wire import FAILED, FAILED_RETRYABLE, Call, Turn

FRUITLESS_MAX: Final = 8  # edges with fruitless handovers; past it, the least recent is dropped
_CODER: Final = re.compile("(?<![a-zA-Z])coder|Coder|(?<![A-Z])CODER")  # a node whose work is files
_WRITER: Final = re.compile("(?<![a-zA-Z])writer|Writer|(?<![A-Z])WRITER")  # a node whose work is a text
# Nodes that give work to others.
_PLANNERS: Final = "planner|supervisor|orchestrator|coordinator|manager|router|boss|lead|director|dispatcher"
_PLANNER: Final = re.compile(f"(?<![a-zA-Z])(?:{_PLANNERS})|{_PLANNERS.title()}|(?<![A-Z])(?:{_PLANNERS.upper()})")
_WORKERS: Final = "researcher|coder|verifier|tester|reviewer|qa"  # nodes that are given work
_WORKER: Final = re.compile(f"(?<![a-zA-Z])(?:{_WORKERS})|{_WORKERS.title()}|(?<![A-Z])(?:{_WORKERS.upper()})")
_CHECK: Final = re.compile("^(?:check|Check|CHECK)(?![a-z])|(?i:converge|^consensus$|consensus.?check)")  # no persona
NAMES_MAX: Final = 9  # of nodes: one that hands over on `FRUITLESS_MAX` edges

# Bits of `FruitlessHandovers.bits`.
ANSWER: Final = 1  # they answer handovers in the other direction
OPEN: Final = 2  # the sender has not acted since; only with edges apart
CHOSEN: Final = 4  # a decision chose the edge; only with edges apart
FOUND: Final = 8  # a node that may work for it has found something; only with edges apart
AWAITED: Final = 16  # a decision chose the edge, and its node has not acted since


@final
@cclass
class FruitlessHandovers(Row):
    """Handovers on one edge that brought nothing new. Key: source tag << 32 | target tag."""

    count: u32  # in a row
    last: i32  # turn of the last one; of a decision, the turn after
    bits: u32  # ANSWER, OPEN, CHOSEN, FOUND, AWAITED
    first: i32  # turn of the first one

    @cfunc
    def forgive(self) -> None:
        """Do not count the last one."""
        if self.count:
            self.count -= 1


@cfunc
def edge_of_tags(source: u32, target: u32) -> u64:
    """Return the edge between two nodes."""
    edge: u64 = source
    return edge << 32 | target


@final
@cclass
class Handovers(Record):
    """Who handed over to whom, and who found something."""

    chosen_edge: u64  # edge that the last turn, of a routing node, chose; 0: none
    previous_node: u32  # tag of the last turn's node
    finder: u32  # tag of the node that found the last new thing; 0: more than words, whichever node reported it
    found: i32  # turn in which it did; -1: never
    others_found: i32  # turn in which another node last did; -1: never
    previous_name: Name  # name of the last turn's node, for messages
    fruitless: Table  # of `FruitlessHandovers`

    def __init__(self) -> None:
        self.previous_name, self.fruitless = Name(), Table(FruitlessHandovers, FRUITLESS_MAX)
        super().__init__(self.previous_name, self.fruitless)

    @ccall
    def clear(self) -> None:
        Record.clear(self)
        self.found = self.others_found = -1

    @ccall
    def reset(self, index: i32) -> None:
        """Start all counts again, because a person has spoken in this turn."""
        handover: FruitlessHandovers
        for handover in self.fruitless.rows:
            handover.count = 0
        self.note_finder(0, index)

    @cfunc
    def count(
        self, now: Now, source: u32, target: u32, chosen: bool, nodes: Table | None, answers: bool, works: bool
    ) -> FruitlessHandovers:
        """Count a handover on its edge, and return the edge with those in a row with nothing found in between by any
        node but the sender.

        Handing back to the node that handed over first is an answer and does not count, unless a decision has `chosen`
        it: a moderator may repeat the same few words between new contributions of others.

        With edges apart (`nodes`: those of the run), only what was found before the sender acted again belongs to a
        handover (`end`), and progress in the results of a node that leaves artifacts. Who gives work and who answers is
        then known by names (`answers`, `works`: see `gives_work`), else by decisions and queries, else by who began.
        """
        edge: u64 = edge_of_tags(source, target)
        answer: bool
        worker: NodeState | None
        handover: FruitlessHandovers | None
        if nodes is not None:
            self.end(source, chosen)
            if not answers and not works:
                works, answers = self._gives_work(source, target, nodes), self._gives_work(target, source, nodes)
        handover = self.fruitless.touch(edge)
        if handover is None:
            if nodes is not None:
                answer = answers or (not works and self._hands_out(target))
            else:
                answer = self.fruitless.find(edge_of_tags(target, source)) is not None
            handover = self.fruitless.add(edge)
            handover.bits, handover.first = ANSWER if answer else 0, now.index
        if nodes is not None:
            worker = nodes.find(target)
            if worker is not None and worker.artifact.count and now.novelty.last_progress >= handover.last:
                handover.count = 0
            self._credit(handover)  # if it is still open: the node works on, and names its sender each time
            handover.bits |= OPEN | CHOSEN if chosen else OPEN
        elif (self.found if self.finder != source else self.others_found) >= handover.last:
            handover.count = 0
        if not handover.count:
            handover.first = now.index
        handover.count += 1
        if chosen:
            handover.bits |= AWAITED
        # The words of a decision are not an answer to it.
        handover.last = now.index + 1 if nodes is not None and chosen else now.index
        return handover

    @cfunc
    def arrive(self, edge: u64) -> FruitlessHandovers | None:
        """Return the decision that a turn answers over an edge: it was counted then, and the node that decided may have
        decided about others since. None if there is none."""
        handover: FruitlessHandovers | None = self.fruitless.find(edge)
        if handover is None or not handover.bits & AWAITED:
            return None
        handover.bits = handover.bits & ~AWAITED | OPEN
        return handover

    @cfunc
    def _gives_work(self, source: u32, target: u32, nodes: Table) -> bool:
        """Return whether a node has decided where to go next, or the other one, unlike itself, is asked queries."""
        handover: FruitlessHandovers
        asked: NodeState | None = nodes.find(target)
        asks: NodeState | None = nodes.find(source)
        for handover in self.fruitless.rows:
            if handover.key >> 32 == source and handover.bits & CHOSEN:
                return True
        return asked is not None and asked.query.count > 0 and (asks is None or not asks.query.count)

    @cfunc
    def _hands_out(self, node_tag: u32) -> bool:
        """Return whether a node has given work to others: what it is handed is an answer, perhaps through several
        nodes."""
        handover: FruitlessHandovers
        for handover in self.fruitless.rows:
            if handover.key >> 32 == node_tag and not handover.bits & ANSWER:
                return True
        return False

    @cfunc
    def end(self, source: u32, acts: bool) -> None:
        """End the handovers of a node that acts again: the count of those that something was found after starts again.

        If it does not act (another node says that it comes after it), its decisions stay open: the node that does the
        work may have another name than the one that was chosen, as in a graph within a graph.
        """
        handover: FruitlessHandovers
        for handover in self.fruitless.rows:
            if handover.key >> 32 == source and handover.bits & OPEN and (acts or not handover.bits & CHOSEN):
                handover.bits &= ~OPEN
                self._credit(handover)

    @cfunc
    def _credit(self, handover: FruitlessHandovers) -> None:
        """Start the count of an edge again if something was found for it since its last handover."""
        if handover.bits & FOUND and self.found >= handover.last:
            handover.count = 0
        handover.bits &= ~FOUND

    @cfunc
    def find_for(self, node_tag: u32, index: i32) -> None:
        """Start the counts of open handovers to the node of a find again, and note the find for the handovers of
        senders for whom this node may work: those that have not handed over to it themselves, and decisions whose
        node has not been seen since, if none has chosen this one: it may have another name in its own turns."""
        asked: FruitlessHandovers | None
        handover: FruitlessHandovers
        for handover in self.fruitless.rows:
            if not handover.bits & OPEN or handover.last > index:
                continue
            asked = self.fruitless.find(edge_of_tags(handover.key >> 32, node_tag))
            if asked is handover:
                handover.count = 0
            elif asked is None or not asked.bits & OPEN or (handover.bits & AWAITED and not asked.bits & CHOSEN):
                handover.bits |= FOUND

    @ccall
    def note_finder(self, node_tag: u32, index: i32) -> None:
        """Record the node that found something new in this turn, and when another node last did.

        A tag of 0 stands for evidence that is more than words: it counts whichever node reported it.
        """
        if self.finder != node_tag:
            self.others_found = self.found
        self.finder, self.found = node_tag, index

    @cfunc
    def credit(self, index: i32) -> None:
        """Start the counts of open decisions again for which a node outside of all cycles has found something: the
        cycle of the node that chose it does not know of that."""
        handover: FruitlessHandovers
        for handover in self.fruitless.rows:
            if handover.bits & (OPEN | CHOSEN | FOUND) == OPEN | CHOSEN | FOUND and handover.last <= index:
                handover.count = 0

    def counters(self, names: Mapping[int, str]) -> dict[str, int]:
        """Return the handovers without progress on each edge, such as `planner_to_researcher`, without edges on which
        answers return. `names` are those of nodes that are known, by tag."""
        return {f"{source}_to_{target}": handover.count for handover, source, target in self._named(names)}

    def edge_of(self, names: Mapping[int, str], node_tag: int) -> list[str] | None:
        """Return the names of the last edge on which a node was given work, or, for a node that was given none, on
        which it gave work to another."""
        known = self._named(names)[::-1]
        own = [edge for edge in known if edge[0].key & TAG == node_tag]
        own = own or [edge for edge in known if edge[0].key >> 32 == node_tag]
        return [own[0][1], own[0][2]] if own else None

    def _named(self, names: Mapping[int, str]) -> list[tuple[FruitlessHandovers, str, str]]:
        """Return the edges on which work is given and whose nodes' names are known, oldest first."""
        return [
            (handover, names[handover.key >> 32], names[handover.key & TAG])
            for handover in self.fruitless.rows
            if (not handover.bits & ANSWER or handover.bits & CHOSEN)
            and handover.key >> 32 in names
            and handover.key & TAG in names
        ]


@cfunc
def times_of(handover: FruitlessHandovers, chosen: bool) -> u32:
    """Return how many handovers on an edge were fruitless; answers are not, unless a decision has `chosen` them."""
    return handover.count if chosen or not handover.bits & ANSWER else 0


def name_nodes(names: dict[int, str], source: int, source_name: str, target: int, target_name: str) -> None:
    """Keep the names of the nodes of an edge, for its counter in the status and for messages."""
    for tag, name in ((source, source_name), (target, target_name)):
        if tag not in names:
            names[tag] = name[:NAME_CHARS]
            if len(names) > NAMES_MAX:
                del names[next(iter(names))]


@cfunc
def shows_results(node: NodeState | None) -> bool:
    """Return whether a node reports tests or leaves artifacts, and is judged by them, not by its words. One that is
    asked queries does research: any result that is new counts."""
    return node is not None and not node.query.count and (len(node.suites) > 0 or node.artifact.count > 0)


@cfunc
def says_only(name: str, turn: Turn) -> bool:
    """Return whether a turn of a coder has nothing but words: they are no work, whatever they say, also in the form of
    a structure that names no file. Calls may be, and so may the first file that it leaves."""
    files: bool = turn.structured is not None and turn.structured.about != 0
    return not turn.calls and turn.artifact is None and not files and is_coder(name)


@cfunc
def only_failed(turn: Turn) -> bool:
    """Return whether a turn made calls that all failed: with other arguments they have found no more. Another command
    of a verifier is another result of its tests, also if it fails."""
    call: Call
    for call in turn.calls:
        if call.outcome not in (FAILED, FAILED_RETRYABLE):
            return False
    return bool(turn.calls) and not is_verifier(turn.node)


def is_coder(name: str) -> bool:
    """Return whether a node is a coder by a word of its name: `coder`, `py-coder`, `CoderAgent`, but no `decoder`."""
    return _CODER.search(name) is not None


def is_author(name: str) -> bool:
    """Return whether the work of a node is a file or a text, by its name: a coder or a writer, such as `DocsWriter`."""
    return is_coder(name) or _WRITER.search(name) is not None


def is_verifier(name: str) -> bool:
    """Return whether a node is a verifier by its name."""
    return "verif" in name.lower()


def is_round_check(name: str) -> bool:
    """Return whether a node checks the rounds of a deliberation by its name: `check_convergence`, but no
    `fact_checker` and no `consensus_builder`, which are personas."""
    return _CHECK.search(name) is not None


def gives_work(source: str, target: str) -> bool:
    """Return whether a node gives work to another, by their names: a planner may speak after those whom it asks."""
    plans: bool = _PLANNER.search(source) is not None
    if plans != (_PLANNER.search(target) is not None):
        return plans
    return _WORKER.search(target) is not None and _WORKER.search(source) is None


@cfunc
def failing_set_of(node: NodeState) -> u64:
    """Return the hash of the failing tests that a node reported last; 0: none yet."""
    track: SuiteTrack | None = node.suites.youngest()
    return track.same.value if track is not None else 0


@cfunc
def brought_results(now: Now, had_tests: bool, failing_set: u64, passes: bool) -> bool:
    """Return whether a turn brought a result of its node's kind that differs: of a node that reports tests or leaves
    artifacts, tests unlike those of its last report (`failing_set`), or a file that is new; of others, another query.
    That all tests pass (`passes`) is a result where others have worked since.

    Of a coder a file is new by its name. Any other artifact counts if its content differs from the last one's, a page
    (`docs`) if its content is new, and so do new answers of calls.
    """
    turn: Turn = now.turn
    node: NodeState = now.node
    if not shows_results(node):
        if turn.query is None or not node.query.count or node.query.first != now.index:
            return False
        return now.novelty.remember(node.query.value ^ node.key << 1)  # not one of a few that are asked in turn
    if turn.tests is not None and (
        not had_tests or passes or failing_set_of(node) != failing_set or now.novelty.last_progress == now.index
    ):
        return True
    if turn.artifact is not None and turn.artifact.about and is_coder(turn.node):
        return now.novelty.remember(hash64(turn.artifact.about) ^ node.key)
    if turn.docs is not None and turn.artifact is None:
        return now.novelty.remember(hash64(turn.docs.norm) ^ node.key)
    if turn.artifact is not None and node.artifact.count == 1:
        return True
    return bool(turn.calls) and node.artifact.count > 0 and node.last_call_news == now.index and not is_coder(turn.node)
