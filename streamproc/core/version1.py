"""States of version 1, as the release before stored them: MessagePack, by position. Each is read once, when its run
takes its next event, and then stored as version 2.

All fields have defaults: states of earlier releases end before the fields that were added later.
"""

from __future__ import annotations

from typing import Final

import msgspec

from streamproc.core.board.state import Board
from streamproc.core.scope import Scope
from streamproc.core.signals.open_turns import OpenTurn
from streamproc.core.signals.task_tokens import TaskTokens

FIRST_BYTE: Final = b"\xdc"  # a MessagePack array of more than 15 items
VERSION: Final = 1


class OldHead(msgspec.Struct, array_like=True):
    """The first fields of a state, up to the tenant and user of the run."""

    version: int
    partition: int
    offset: int
    turns: int
    call_turns: int
    started_ms: int
    at_ms: int
    finished: bool
    halted: int
    halted_loop_seen: int = -1
    halt_code: str = ""
    severity: int = 0
    workflow: str = ""
    tenant: str = ""
    user: str = ""


class OldWindow(msgspec.Struct, array_like=True):
    """See `HashWindow`; `active`: by period [matches, onset]."""

    tags: list[int] = []
    turns: list[int] = []
    active: dict[int, tuple[int, int]] = {}


class OldCall(msgspec.Struct, array_like=True):
    """See `CallMemory`."""

    exact: int
    norm: int
    exact_run: int = 1
    call_turns: list[int] = []
    turns: list[int] = []
    live: bool = False
    still: int = 1
    still_since_ms: int = 0
    longest_still: int = 0
    longest_still_ms: int = 0
    known: int = 0
    known_since: int = 0


class OldStreak(msgspec.Struct, array_like=True):
    """See `Streak`."""

    value: int
    count: int = 1
    first: int = 0
    stamp: int = -1


class OldSaid(msgspec.Struct, array_like=True):
    """See `Said`."""

    value: int
    count: int = 1
    first: int = 0
    stamp: int = -1
    own: int = 1
    own_first: int = 0


class OldSuite(msgspec.Struct, array_like=True):
    """See `SuiteTrack`."""

    same: OldStreak
    flat: OldStreak
    best_failing: int
    best_passed: int
    total: int
    unpassed: int = 0


class OldMetric(msgspec.Struct, array_like=True):
    """See `Metric`."""

    best: float
    lowest: float
    count: int = 0
    falls: int = 0
    first: int = 0
    stamp: int = -1


class OldTool(msgspec.Struct, array_like=True):
    """See `Tool`."""

    failures: list[int] = []
    turns: list[int] = []
    answer: int = 0
    key: int = 0
    same: int = 0
    first: int = 0
    call_turn: int = 0
    keys: list[int] = []
    varied: bool = False


class OldMonologue(msgspec.Struct, array_like=True):
    """See `Monologue`."""

    node: int
    value: int
    sim: int
    count: int
    first: int
    size: int = 0
    grown: int = 0
    loose: bool = False


class OldTextStreak(msgspec.Struct, array_like=True):
    """See `TextStreak`."""

    node: int
    topic: int
    first: int
    count: int = 1
    pages: int = 0
    size: int = 0
    not_longer: int = 0


class OldMessages(msgspec.Struct, array_like=True):
    """See `Messages`."""

    count: int = 0
    text: int = 0
    worked: int = -1
    answered: int = 0
    by: int = 0


class OldNode(msgspec.Struct, array_like=True):
    """See `NodeState`."""

    last_turn: int = 0
    last_call: int = -1
    last_call_news: int = -1
    output: OldSaid | None = None
    structured: OldSaid | None = None
    artifact: OldStreak | None = None
    tests: OldSuite | None = None
    errors: OldStreak | None = None
    other_suite: OldSuite | None = None
    query: OldStreak | None = None
    query_simhash: int = 0
    text_simhash: int = 0
    has_answered: bool = False
    reply: OldStreak | None = None
    attempts: OldStreak | None = None
    attempted: list[int] = []


class OldCycle(msgspec.Struct, array_like=True):
    """See `Cycle`."""

    id: int
    anchor: int
    over: int
    members: list[int]
    many: bool = False
    iterations: int = 0
    since_ms: int = 0
    spent_before: int = 0


class OldLedger(msgspec.Struct, array_like=True):
    """See `Ledger`."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    total_tokens: int = 0
    cost_usd_micro: int = 0
    duration_ms: int = 0
    unpriced: int = 0


class OldPace(msgspec.Struct, array_like=True):
    """See `Pace`."""

    unit: int
    last: list[int] = []
    turns: int = 0
    total: int = 0
    since_ms: int = 0
    spent: int = 0


class OldRun(OldHead, array_like=True):
    """All fields."""

    tier: str = ""
    budgets: dict[str, int] = {}
    event_ids: dict[int, int] = {}
    seen: dict[int, int] = {}
    last_news: int = -1
    last_discovery: int = -1
    last_progress: int = -1
    last_answer_change: int = -1
    last_measurement: int = -1
    previous_node: int = 0
    previous_node_name: str = ""
    pending_text: list[int] = []
    calls: dict[int, OldCall] = {}
    hash_windows: dict[int, OldWindow] = {}
    node_counts: dict[int, tuple[int, int]] = {}
    nodes: dict[int, OldNode] = {}
    edges: dict[int, int] = {}
    cycles: list[OldCycle] = []
    ledger: OldLedger = msgspec.field(default_factory=OldLedger)
    episodes: dict[int, int] = {}
    recent_outputs: list[int] = []
    recent_artifacts: list[int] = []
    recent_failing_sets: list[int] = []
    recent_failing_counts: list[int] = []
    metrics: dict[int, OldMetric] = {}
    tools: dict[int, OldTool] = {}
    failed_turns: int = 0
    excused_failures: int = 0
    failing_since: int = -1
    retries: int = 0
    stale_bits: int = 0
    stale_since: int = -1
    last_success: int = -1
    recent_simhashes: list[tuple[int, int]] = []
    monologue: OldMonologue | None = None
    fruitless_handovers: dict[int, tuple[int, int, int, int]] = {}
    chosen_edge: int = 0
    last_finder: tuple[int, int, int] = (0, -1, -1)
    round: int = 0
    duplicates: int = 0
    late: int = 0
    evicted: int = 0
    size_left: int = 0
    ignored_events: int = 0
    unused: dict[str, list[int]] = {}
    id_reuses: int = 0
    board: Board | None = None
    open_turns: list[OpenTurn] = []
    checked_ms: int = 0
    pace: OldPace | None = None
    unacknowledged_halt: int = -1
    resumes: int = 0
    probation: list[int] = []
    session: str = ""
    task: int = 0
    task_tokens: dict[int, TaskTokens] = {}
    child: bool = False
    charged: bool = False
    session_closed: bool = False
    started: bool = False
    named_tier: str = ""
    capped: int = 0
    command_ids: dict[int, int] = {}
    commands_since_ms: int = 0
    owner: int = 0
    strangers: int = 0
    writes: OldStreak | None = None
    text_streak: OldTextStreak | None = None
    text_turns: list[int] = []
    messages: OldMessages | None = None
    declared: int = 0
    granted: int = 0
    last_result: int = -1
    recent_calls: list[list[int]] = []
    checks_rounds: bool = False
    unknown_tier: bool = False
    node_names: dict[int, str] = {}


_heads: Final = msgspec.msgpack.Decoder(OldHead)
old_runs: Final = msgspec.msgpack.Decoder(OldRun)


def peek(raw: bytes) -> tuple[OldHead, Scope] | None:
    """Read the first fields of a state, and those of its scope that say who the run belongs to; None if it is none."""
    try:
        head = _heads.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return (head, Scope(head.workflow, head.tenant, head.user)) if head.version == VERSION else None
