"""The bounded memory of one run, and how it is stored.

Every collection has a cap, with the reason beside it. When a collection is full, its oldest entry is dropped and
`evicted` counts it. Hashes that are only compared within windows and sets are stored as 32-bit *tags*: each comparison
matches by accident once in 4·10⁹, and a halt needs several matches in a row. Answers of calls keep all 64 bits.

States are stored by position (`array_like`): field names are free to change, their order and types are not.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.board.state import Board

TAG: Final = 0xFFFFFFFF
HASH: Final = 0xFFFFFFFFFFFFFFFF  # publishers in other languages may send more than 64 bits; the state holds 64

SEEN_MAX: Final = 96  # tags known to the run; must hold three rounds of the longest period (16) of two streams
CALLS_MAX: Final = 12  # calls stored with their answers; LOOP003 looks back over ten
IDS_MAX: Final = 24  # event ids; a producer resends what was in flight, which is a handful
NODES_MAX: Final = 8  # nodes with full memory; most teams of agents are smaller
COUNTS_MAX: Final = 32  # nodes with turn and time counters
EDGES_MAX: Final = 24  # handovers stored to find cycles
CYCLES_MAX: Final = 6  # cycles followed at the same time
MEMBERS_MAX: Final = 8  # members of a cycle known by tag; in a larger cycle, any handover to the anchor counts
EPISODES_MAX: Final = 24  # loops already reported
TASKS_MAX: Final = 8  # tasks with a token budget; a batch has at most five
RECENT_MAX: Final = 5  # hashes shown as loop evidence
PACE_MAX: Final = 7  # turns whose median is the current pace: three expensive turns by chance do not change it
OPEN_MAX: Final = 6  # turns that started and have not ended: one a node at a time, and few nodes work at once
COMMANDS_MAX: Final = 32  # ids of operators' commands: few people command one run within the validity of a signature
OCCURRENCES_MAX: Final = 10  # of one call with one answer: the window of LOOP003
STATE_VERSION: Final = 1

UNBOUND: Final = 1  # value of `owner`: the first event had no token, so tokens mean nothing

# Bytes that an addition takes off `size_left` (see `size_budget`): encoded, with the largest numbers.
ID_BYTES: Final = 10
SEEN_BYTES: Final = 6
CALL_BYTES: Final = 68
OCCURRENCE_BYTES: Final = 10
WINDOW_BYTES: Final = 10  # one more element or period, or an empty window


class HashWindow(msgspec.Struct, array_like=True):
    """The last 16 tags of one stream of hashes, and the periods with which they repeat."""

    tags: list[int] = []
    turns: list[int] = []  # the turn of each tag
    active: dict[int, list[int]] = {}  # by period: [tags in a row equal to the one a period before, turn of onset]

    def clear(self) -> None:
        """Remove all tags and periods."""
        if self.tags:
            self.tags.clear()
            self.turns.clear()
            self.active.clear()


class CallMemory(msgspec.Struct, array_like=True):
    """The latest answers to one call (tool and arguments) of one node, for one task."""

    exact: int  # hash of the last answer, byte for byte
    norm: int  # hash of the last answer without volatile parts such as time stamps; 0: no answer was reported
    exact_run: int = 1  # how often in a row the answer was the same byte for byte
    call_turns: list[int] = []  # when it gave this answer, counted in call turns ...
    turns: list[int] = []  # ... and the turn index of each of these times
    live: bool = False  # its answer once changed while nothing else did: a poll
    still: int = 1  # how often in a row the answer was the same while nothing new was found elsewhere
    still_since_ms: int = 0  # log time of the first of them
    longest_still: int = 0  # the most times that an earlier answer stayed the same before it changed
    longest_still_ms: int = 0  # and the longest time
    known: int = 0  # answers since it changed back to one given before, with nothing new since; 0: it did not
    known_since: int = 0  # turn in which it gave the answer before that


class Streak(msgspec.Struct, array_like=True):
    """The same value several times in a row."""

    value: int  # tag or count that repeats
    count: int = 1  # how many times
    first: int = 0  # turn of the first time
    stamp: int = -1  # iteration in which it was last counted: once an iteration


class Said(msgspec.Struct, array_like=True):
    """The same text or structured output of a node several times in a row: each count has its own `Gate`."""

    value: int  # tag of the text
    count: int = 1  # how many times, behind the gate of LOOP001
    first: int = 0  # turn of the first time
    stamp: int = -1  # nothing reads it; it keeps the positions of the fields after it
    own: int = 1  # how many times in the node's own turns, whatever words others found
    own_first: int = 0  # turn of the first of these


class SuiteTrack(msgspec.Struct, array_like=True):
    """The results of one test suite, as one node reports them."""

    same: Streak  # the same set of failing tests
    flat: Streak  # iterations without fewer failures than ever
    best_failing: int  # fewest failing tests so far
    best_passed: int  # most passing tests so far; -1: not reported
    total: int  # size of the suite, which identifies it; -1: not reported
    unpassed: int = 0  # iterations in a row in which no test passed


class Metric(msgspec.Struct, array_like=True):
    """A named metric of a node, with its sign changed if it should fall: higher is always better."""

    best: float  # best value so far
    lowest: float  # worst value so far
    count: int = 0  # iterations since the best value
    falls: int = 0  # how many of them were each lower than any before
    first: int = 0  # turn of the best value, or of the last work that started the count again
    stamp: int = -1  # iteration in which it was last counted


class Tool(msgspec.Struct, array_like=True):
    """The latest answers of one tool, whatever its arguments were."""

    failures: list[int] = []  # error tag of each of the last calls; 0: it succeeded
    turns: list[int] = []  # the turn of each of them
    answer: int = 0  # tag of the last answer
    key: int = 0  # tag of the last call's arguments
    same: int = 0  # calls in close succession that had different arguments and the same answer
    first: int = 0  # turn of the first of them
    call_turn: int = 0  # when the tool was last called, counted in call turns
    keys: list[int] = []  # of each of the last calls, 16 bits of the hash of its arguments
    varied: bool = False  # whether it has given two different answers in a row


class Monologue(msgspec.Struct, array_like=True):
    """Consecutive turns of one node that consist of almost the same text and nothing else."""

    node: int  # tag of the node
    value: int  # tag of the last text
    sim: int  # its SimHash; 0: too short for one
    count: int  # turns so far
    first: int  # turn of the first of them
    size: int = 0  # characters of the last text
    grown: int = 0  # characters by which the text has grown; -1: it has shrunk once
    loose: bool = False  # whether a short text was only similar, not equal


class TextStreak(msgspec.Struct, array_like=True):
    """Consecutive turns of one node that consist of a text and nothing else, in whatever words."""

    node: int  # tag of the node
    topic: int  # tag of the task; 0: none
    first: int  # turn of the first of them
    count: int = 1  # turns so far
    pages: int = 0  # those whose text is a page or longer
    size: int = 0  # characters of the last text
    not_longer: int = 0  # turns whose text was not longer than the one before; a draft has few


class Messages(msgspec.Struct, array_like=True):
    """The messages of people, and who has answered them."""

    count: int = 0  # messages so far; those with the same text in a row are one
    text: int = 0  # tag of the last text; 0: not known
    worked: int = -1  # last turn with a result
    answered: int = 0  # number of the last message that a node answered in other words than before
    by: int = 0  # tag of that node


class NodeState(msgspec.Struct, array_like=True):
    """The recent activity of one node."""

    last_turn: int = 0  # its last turn
    last_call: int = -1  # its last turn with calls
    last_call_news: int = -1  # its last turn in which a call returned something new
    output: Said | None = None  # the same text
    structured: Said | None = None  # the same structured output
    artifact: Streak | None = None  # the same artifact or page
    tests: SuiteTrack | None = None  # the test suite that it reported last
    errors: Streak | None = None  # the same reported errors
    other_suite: SuiteTrack | None = None  # the suite before that, for nodes that run two in turn
    query: Streak | None = None  # the same or nearly the same query
    query_simhash: int = 0  # SimHash of the last query
    text_simhash: int = 0  # SimHash of its last text
    has_answered: bool = False  # whether it has answered its last query
    reply: Streak | None = None  # the same text to different messages of people; `stamp` is the message
    attempts: Streak | None = None  # the same failure, whatever was reported in between; only if every error counts
    attempted: list[int] = []  # tags of [tool, call] of the last failure as a call; empty: it was reported as an error


class Cycle(msgspec.Struct, array_like=True):
    """A cycle of the workflow graph. Each handover to `anchor` completes an iteration."""

    id: int  # `cycle_hash` of its nodes and edges
    anchor: int  # tag of the node at which iterations are counted
    over: int  # tag of the anchor edge's source if that edge was declared; 0: any member
    members: list[int]  # tags of its nodes, `MEMBERS_MAX` at most
    many: bool = False  # whether it has more nodes than that
    iterations: int = 0  # completed so far
    since_ms: int = 0  # log time from which its runtime counts
    spent_before: int = 0  # micro-USD that the run had spent before it; -1: a declared cycle not yet entered


class Ledger(msgspec.Struct, array_like=True):
    """Spend so far, in integers: tokens, micro-USD, ms."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    total_tokens: int = 0
    cost_usd_micro: int = 0
    duration_ms: int = 0
    unpriced: int = 0  # turns that reported usage without a price


class TaskTokens(msgspec.Struct, array_like=True):
    """The token budget of one task."""

    limit: int  # tokens
    used: int = 0  # tokens
    rung: int = 0  # how many levels of `task_tokens.RUNGS` it has reached
    since: int = 0  # turn from which it counts


class SpendRate(msgspec.Struct, array_like=True):
    """The cost of single turns: of the latest ones, and of all those before."""

    unit: int  # MONEY (micro-USD) or TOKENS
    last: list[int] = []  # the cost of each of the last few turns
    turns: int = 0  # number of turns before those
    total: int = 0  # their cost
    since_ms: int = 0  # log time at which the current window began; 0: no turn had a log time
    spent: int = 0  # cost of the turns in it


class OpenTurn(msgspec.Struct, array_like=True):
    """A turn that started and has not ended."""

    node: int  # tag; 0: not reported
    task: int  # tag; 0: not reported
    name: str  # the node's name, for messages
    started_ms: int  # log time of its start


class RunState(msgspec.Struct, array_like=True):
    """Everything that is kept of a run between two events. Turns are indices from 0; -1 means never."""

    version: int = STATE_VERSION  # layout of this array; others are not read
    partition: int = -1  # of the turns topic; -1: not on Kafka
    offset: int = -1  # of the last event applied
    turns: int = 0  # number of turns
    call_turns: int = 0  # number of turns with calls, without those in which only the infrastructure failed
    started_ms: int = 0  # log time of the first event
    at_ms: int = 0  # log time of the last event
    finished: bool = False  # whether `run.finished` arrived
    halted: int = -1  # turn of the last halt
    halted_loop_seen: int = -1  # last turn in which a loop that was halted was seen again
    halt_code: str = ""  # detector of the first halt
    severity: int = 0  # highest `Level` reported
    workflow: str = ""  # scope, fixed by the first event that names it
    tenant: str = ""
    user: str = ""
    tier: str = ""  # assigned by the policy, or named by a run that is believed
    budgets: dict[str, int] = {}  # limits that the run declared, where the policy permits, with what was granted since
    event_ids: dict[int, int] = {}  # hashes of recent event ids, oldest first (values unused): duplicates are skipped
    seen: dict[int, int] = {}  # tags of what the run has had before, least recent first (values unused)
    last_news: int = -1  # last turn with something new, or with a poll: repeats from before it do not count
    last_discovery: int = -1  # last turn with something new, not counting polls
    last_progress: int = -1  # last turn in which a measured value was better than ever
    last_answer_change: int = -1  # last turn in which a call returned something else than before
    last_measurement: int = -1  # last turn with a metric value or changed answer that was new to the run
    previous_node: int = 0  # tag of the last turn's node
    previous_node_name: str = ""  # its name, shortened, for messages
    pending_text: list[int] = []  # [node tag, text hash, turn] of a text that is a message or narration: not yet known
    calls: dict[int, CallMemory] = {}  # by hash of call, node and task, least recent first
    hash_windows: dict[int, HashWindow] = {}  # by stream (`periods`)
    node_counts: dict[int, list[int]] = {}  # by node tag: [turns, runtime in ms]
    nodes: dict[int, NodeState] = {}  # by tag
    edges: dict[int, int] = {}  # handovers by edge (source tag << 32 | target tag), least recent first
    cycles: list[Cycle] = []  # declared, or found from handovers
    ledger: Ledger = msgspec.field(default_factory=Ledger)  # spend of the whole run
    episodes: dict[int, int] = {}  # by tag of detector and loop: the highest `Level` reported, oldest first
    recent_outputs: list[int] = []  # hashes of the last texts, shown with a halt
    recent_artifacts: list[int] = []  # hashes of the last artifacts and pages, shown with a halt
    recent_failing_sets: list[int] = []  # hashes of the last sets of failing tests, shown with a halt
    recent_failing_counts: list[int] = []  # the last numbers of failing tests, shown as the failing trend
    metrics: dict[int, Metric] = {}  # by tag of name and node, oldest first
    tools: dict[int, Tool] = {}  # by name tag, least recent first
    failed_turns: int = 0  # turns in a row whose calls all failed
    excused_failures: int = 0  # the part of them up to the last command that failed with a new error: work continues
    failing_since: int = -1  # turn of the first of them
    retries: int = 0  # turns in a row in which calls met retryable errors and none was answered
    stale_bits: int = 0  # the last six call turns, a bit each, newest lowest: 1 if it brought nothing new
    stale_since: int = -1  # turn of the first stale call turn after six that were not
    last_success: int = -1  # last turn with progress, or in which a call that did not fail returned something new
    recent_simhashes: list[list[int]] = []  # [SimHash, turn] of the last long texts
    monologue: Monologue | None = None  # the monologue in progress
    fruitless_handovers: dict[int, list[int]] = {}  # by edge: [count, last turn, bits (`handovers`), first turn]
    chosen_edge: int = 0  # edge that the last turn, of a routing node, chose; 0: none
    last_finder: list[int] = msgspec.field(default_factory=lambda: [0, -1, -1])  # see `handovers.note_finder`
    round: int = 0  # highest round reported
    duplicates: int = 0  # events skipped because their id was known
    late: int = 0  # events after `run.finished`
    evicted: int = 0  # entries dropped from full collections
    size_left: int = 0  # bytes that may be added before the state is measured again (`size_budget`)
    ignored_events: int = 0  # events that have no meaning here, such as a resume of a run that is not halted
    unused: dict[str, list[int]] = {}  # nothing reads or writes it; it keeps the positions of the fields after it
    id_reuses: int = 0  # how often the run id was used again after its run had finished
    board: Board | None = None  # tasks, from the first event about one
    open_turns: list[OpenTurn] = []  # started and not ended, oldest first
    checked_ms: int = 0  # latest deadline that the detectors were asked about
    pace: SpendRate | None = None  # cost of single turns
    unacknowledged_halt: int = -1  # turn of a halt that nothing acknowledged yet; -2: reported (`escalation`)
    resumes: int = 0  # how often an operator resumed the run
    probation: list[int] = []  # [first turn after probation, iterations completed on it]; empty: not on probation
    session: str = ""  # session that the run belongs to
    task: int = 0  # tag of the task that the run was started for; 0: none
    task_tokens: dict[int, TaskTokens] = {}  # by task tag, oldest first
    child: bool = False  # whether another run started it
    charged: bool = False  # whether its accounts know it
    session_closed: bool = False  # whether its session takes no new work
    started: bool = False  # whether `run.started` has arrived; a later one changes nothing
    named_tier: str = ""  # tier that the run named, whether or not it counts
    capped: int = 0  # budgets that the run declared above the policy's limit, as bits (`scope.capped_budgets`)
    command_ids: dict[int, int] = {}  # tags of the ids of operators' commands, with the time of each
    commands_since_ms: int = 0  # the latest time among the commands that were forgotten; 0: none was
    owner: int = 0  # hash of the token that the run is bound to; 0: no event yet
    strangers: int = 0  # events refused for want of that token
    writes: Streak | None = None  # the same call that writes a text, in a row; `stamp` is unused
    text_streak: TextStreak | None = None  # the text-only turns in progress
    text_turns: list[int] = []  # the last two text-only turns without a hand-over: it may wait for a person
    messages: Messages | None = None  # of people; None: there was none
    declared: int = 0  # budgets in force that the run declared itself, as bits (`scope.BUDGET_BITS`)
    granted: int = 0  # budgets that an operator raised, likewise
    last_result: int = -1  # last turn with a result that was new, or with a poll: `last_news` without words of nodes
    recent_calls: list[list[int]] = []  # see `recent_calls`; only if the policy's gate of LOOP003 is not `any`
    checks_rounds: bool = False  # whether a convergence or consensus was reported: such turns check the round
    unknown_tier: bool = False  # whether the run named a tier that the policy does not have, and is believed
    node_names: dict[int, str] = {}  # by node tag, shortened: names for the counters of edges, oldest first


_KEPT: Final = (
    "partition", "offset", "event_ids", "workflow", "tenant", "user", "named_tier", "session", "child",
    "session_closed", "command_ids", "commands_since_ms", "owner", "strangers",
)  # fmt: skip


def reset_run(run: RunState) -> None:
    """Start a new life under a run id that is reused, unless the run is halted (the caller checks that).

    The position in the log, known event ids, log time, scope and the rest of a probation stay.
    """
    fresh = RunState(**{name: getattr(run, name) for name in _KEPT}, id_reuses=run.id_reuses + 1)
    fresh.started_ms = fresh.at_ms = run.at_ms
    if run.probation:
        fresh.probation = [max(0, run.probation[0] - run.turns), 0]
    for name in RunState.__struct_fields__:
        setattr(run, name, getattr(fresh, name))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RunState)


def dump(state: RunState) -> bytes:
    """Return the state as MessagePack, at most 4 KiB."""
    return _encoder.encode(state)


def load(raw: bytes) -> RunState:
    """Read a stored state. Raises `msgspec.DecodeError` for anything that `dump` did not write."""
    try:
        return _decoder.decode(raw)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec lets Python's own errors through
        raise msgspec.DecodeError(str(error)) from None
