"""The bounded memory of one run, and how it is stored.

Every collection has a cap beside its reason; past a cap the oldest entry goes and `evicted` counts it. Hashes that
are only compared inside rings and sets are kept as 32-bit *tags*: an accidental match needs one chance in 4·10⁹ for
each comparison, and a halt needs several in a row. What a call answered is kept in full.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.board.state import Board

TAG: Final = 0xFFFFFFFF
HASH: Final = 0xFFFFFFFFFFFFFFFF  # publishers in other languages may send more than 64 bits; the state holds 64

SEEN_MAX: Final = 96  # things known to this run; must hold three rounds of the longest period (16) of two streams
CALLS_MAX: Final = 12  # calls remembered with their answers; LOOP003 looks back over ten
IDS_MAX: Final = 24  # event ids; a producer repeats what was in flight, and that is a handful
NODES_MAX: Final = 8  # nodes with full memory; teams of agents are mostly smaller
COUNTS_MAX: Final = 32  # nodes with turn and time counters
EDGES_MAX: Final = 24  # hand-overs remembered to find cycles
CYCLES_MAX: Final = 6  # cycles followed at the same time
MEMBERS_MAX: Final = 8  # members of a cycle known by tag; a larger cycle takes any hand-over to its anchor
EPISODES_MAX: Final = 24  # loops already reported
TASKS_MAX: Final = 8  # tasks with a token budget; a batch is at most five
RECENT_MAX: Final = 5  # hashes shown as loop evidence
PACE_MAX: Final = 7  # turns whose median is the present pace: three that are dear, by chance, do not move it
OPEN_MAX: Final = 6  # turns that were started and not ended: a node has one at a time, and few nodes work at once
OCCURRENCES_MAX: Final = 10  # of one call with one answer: the window of LOOP003
STATE_VERSION: Final = 1

# What they are charged with where they are added (`room.py`): bytes of the encoded state, in the largest numbers.
ID_BYTES: Final = 10
SEEN_BYTES: Final = 6
CALL_BYTES: Final = 60
OCCURRENCE_BYTES: Final = 10
RING_BYTES: Final = 10  # one more element, or period, or an empty ring


class HashWindow(msgspec.Struct, array_like=True):
    """The last 16 tags of a stream, their turns, and for each period p that still holds: how many tags in a row
    equalled the one p before (`active[p][0]`) and the turn where the loop began (`active[p][1]`)."""

    tags: list[int] = []
    turns: list[int] = []
    active: dict[int, list[int]] = {}

    def clear(self) -> None:
        """Begin again."""
        if self.tags:
            self.tags.clear()
            self.turns.clear()
            self.active.clear()


class CallMemory(msgspec.Struct, array_like=True):
    """What one call (tool and arguments) answered lately. `steps` counts call turns, `turns` all turns; `still` is
    how often in a row the answer stayed while nothing new happened elsewhere."""

    exact: int
    norm: int
    exact_run: int = 1
    steps: list[int] = []
    turns: list[int] = []
    live: bool = False
    still: int = 1
    still_since_ms: int = 0
    longest_still: int = 0
    longest_still_ms: int = 0


class Streak(msgspec.Struct, array_like=True):
    """The same value again and again: how often, since which turn, and in which iteration it was last counted."""

    value: int
    count: int = 1
    first: int = 0
    stamp: int = -1


class TestTrack(msgspec.Struct, array_like=True):
    """A node's test results: the same failing set in a row, and the best so far."""

    same: Streak
    flat: Streak
    best_failing: int
    best_passed: int
    total: int
    unpassed: int = 0


class Metric(msgspec.Struct, array_like=True):
    """A named metric of a node, turned so that higher is better: the best and the least so far; iterations since the
    best (`falls`: how many of them were each lower than ever), since which turn, when last counted."""

    best: float
    least: float
    count: int = 0
    falls: int = 0
    first: int = 0
    stamp: int = -1


class Tool(msgspec.Struct, array_like=True):
    """How one tool answered its last calls: failure signatures (0: none) and turns; how many calls with other
    arguments had the same answer, with hardly another call in between (`step`: the last call turn), since which
    turn."""

    failures: list[int] = []
    turns: list[int] = []
    answer: int = 0
    key: int = 0
    same: int = 0
    first: int = 0
    step: int = 0


class Monologue(msgspec.Struct, array_like=True):
    """Turns of one node that are nothing but almost the same text, of this size; by how many characters it has
    grown (-1: it once shrank); whether any of them was a short text that was only alike."""

    node: int
    value: int
    sim: int
    count: int
    first: int
    size: int = 0
    grown: int = 0
    loose: bool = False


class NodeState(msgspec.Struct, array_like=True):
    """What one node did lately."""

    last: int = 0
    called: int = -1
    call_news: int = -1
    output: Streak | None = None
    structured: Streak | None = None
    artifact: Streak | None = None
    tests: TestTrack | None = None
    errors: Streak | None = None
    suite: TestTrack | None = None
    query: Streak | None = None
    query_sim: int = 0
    said: int = 0
    answered: bool = False


class Cycle(msgspec.Struct, array_like=True):
    """A cycle of the graph. An iteration is one delivery to `anchor`, over `over` where that edge was declared."""

    id: int
    anchor: int
    over: int
    members: list[int]
    many: bool = False
    iterations: int = 0
    since_ms: int = 0
    spent_before: int = 0


class Ledger(msgspec.Struct, array_like=True):
    """Spend so far, in integers: tokens, micro-USD, ms. `unpriced` counts turns that had usage but no price."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    total_tokens: int = 0
    cost_usd_micro: int = 0
    duration_ms: int = 0
    unpriced: int = 0


class TaskTokens(msgspec.Struct, array_like=True):
    """Tokens of one task: the budget, what is used, how many rungs were reached, and since which turn it counts."""

    limit: int
    used: int = 0
    rung: int = 0
    since: int = 0


class SpendRate(msgspec.Struct, array_like=True):
    """What turns cost: `unit` is MONEY (micro-USD) or TOKENS; the last few, and number and sum of those before."""

    unit: int
    last: list[int] = []
    turns: int = 0
    total: int = 0


class OpenTurn(msgspec.Struct, array_like=True):
    """A turn that was started and has not ended: its node and task (0: none) as tags, the node's name for messages,
    the log time of its start."""

    node: int
    task: int
    name: str
    started_ms: int


class RunState(msgspec.Struct, array_like=True):
    """All that is kept of a run between two events."""

    version: int = STATE_VERSION
    partition: int = -1
    offset: int = -1
    turns: int = 0
    steps: int = 0
    started_ms: int = 0
    at_ms: int = 0
    finished: bool = False
    halted: int = -1
    echo: int = -1
    halt_code: str = ""
    severity: int = 0
    workflow: str = ""
    tenant: str = ""
    user: str = ""
    tier: str = ""
    budgets: dict[str, int] = {}
    ids: dict[int, int] = {}
    seen: dict[int, int] = {}
    news: int = -1
    found: int = -1
    progress: int = -1
    moved: int = -1
    measured: int = -1
    previous: int = 0
    previous_name: str = ""
    pending: list[int] = []
    calls: dict[int, CallMemory] = {}
    rings: dict[int, HashWindow] = {}
    counts: dict[int, list[int]] = {}
    nodes: dict[int, NodeState] = {}
    edges: dict[int, int] = {}
    cycles: list[Cycle] = []
    ledger: Ledger = msgspec.field(default_factory=Ledger)
    episodes: dict[int, int] = {}
    outputs: list[int] = []
    artifacts: list[int] = []
    failing: list[int] = []
    trend: list[int] = []
    metrics: dict[int, Metric] = {}
    tools: dict[int, Tool] = {}
    failures: int = 0
    footing: int = 0
    failing_since: int = -1
    retries: int = 0
    stale: int = 0
    stale_since: int = -1
    worked: int = -1
    sims: list[list[int]] = []
    monologue: Monologue | None = None
    hops: dict[int, list[int]] = {}
    chosen: int = 0
    finder: list[int] = msgspec.field(default_factory=lambda: [0, -1, -1])
    round: int = 0
    duplicates: int = 0
    late: int = 0
    evicted: int = 0
    room: int = 0
    noted: int = 0
    own: dict[str, list[int]] = {}
    again: int = 0
    board: Board | None = None
    begun: list[OpenTurn] = []
    checked_ms: int = 0
    pace: SpendRate | None = None
    unheeded: int = -1
    resumes: int = 0
    probation: list[int] = []
    session: str = ""
    task: int = 0
    task_tokens: dict[int, TaskTokens] = {}
    child: bool = False
    charged: bool = False
    closed: bool = False


def begin_again(run: RunState) -> None:
    """Forget the run that had this id before; what was applied of the log stays known, and its time."""
    fresh = RunState(partition=run.partition, offset=run.offset, ids=run.ids, again=run.again + 1)
    fresh.started_ms = fresh.at_ms = run.at_ms
    for name in RunState.__struct_fields__:
        setattr(run, name, getattr(fresh, name))


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RunState)


def dump(state: RunState) -> bytes:
    """The state as MessagePack, at most 4 KiB."""
    return _encoder.encode(state)


def load(raw: bytes) -> RunState:
    """A stored state. Raises `msgspec.DecodeError` for anything that `dump` did not write."""
    try:
        return _decoder.decode(raw)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec lets Python's own errors through
        raise msgspec.DecodeError(str(error)) from None
