"""Fingerprinted events: the records of the turns topic, and the input of the core.

Users send raw turns (`streamproc.model.raw_events`); the publisher replaces their content by the numbers below. One
type serves both the wire and the core, so the worker decodes each record once and converts nothing.

Hashes are JSON integers, not hex text: `int(text, 16)` costs about 110 ns, and a turn has four to eight hashes.
Control events, which people read, show them in hex. In a language whose JSON numbers are floats, configure the parser
to read 64-bit integers.

Their parts are in `streamproc.model.wire_parts`.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Union

import msgspec

from streamproc.model.wire_parts import (
    ANSWERED as ANSWERED,
    BATCH_MAX as BATCH_MAX,
    CUT_OFF as CUT_OFF,
    EDITS as EDITS,
    EMPTY as EMPTY,
    FAILED as FAILED,
    FAILED_RETRYABLE as FAILED_RETRYABLE,
    FAILED_RUN as FAILED_RUN,
    HAND_OVER_MAX as HAND_OVER_MAX,
    ITEMS_MAX as ITEMS_MAX,
    LONG_ANSWER as LONG_ANSWER,
    MALFORMED as MALFORMED,
    NO_ANSWER as NO_ANSWER,
    PAIRS_MAX as PAIRS_MAX,
    PASSED as PASSED,
    SEVERITIES as SEVERITIES,
    WAITS as WAITS,
    WRITES as WRITES,
    Batch as Batch,
    Call as Call,
    Content as Content,
    Count as Count,
    Errors as Errors,
    Excerpt as Excerpt,
    Hash as Hash,
    Id as Id,
    Issue as Issue,
    Items as Items,
    Name as Name,
    Pairs as Pairs,
    Scope as Scope,
    Tests as Tests,
    Usage as Usage,
)

WIRE_VERSION: Final = 1
PUBLISHER_HEADER: Final = "publisher"  # of a record: who published it, by its own words


class Event(msgspec.Struct, kw_only=True, omit_defaults=True, tag_field="type", gc=False):
    """Fields that every event of a run may carry. The scope is normally sent once, on ``run.started``. An event is no
    part of a cycle of objects, so the garbage collector need not look at it.

    `token` shows that an event comes from the publishers of its run, if the run is bound to one (`core.refusal`), and
    `session_token` that the run belongs to its session (`core.session_tree`).
    """

    type: ClassVar[str] = ""  # of each kind: its tag

    w: Annotated[int, msgspec.Meta(ge=1, le=WIRE_VERSION)]
    run_id: Id
    node: Name = ""
    event_id: Name = ""
    at: int | None = None
    seq: int | None = None
    workflow: Scope = ""
    tenant: Scope = ""
    user: Scope = ""
    tier: Scope = ""
    agent: Scope = ""
    task_id: Scope = ""
    session_id: Scope = ""
    parent_run_id: Name = ""
    labels: Annotated[dict[str, str], Pairs] | None = None
    token: Scope = ""
    session_token: Scope = ""


class Turn(Event, tag="turn", kw_only=True, omit_defaults=True):
    """One turn: what one node of a workflow did."""

    node: Id
    from_: Name = msgspec.field(default="", name="from")
    output: Content | None = None
    structured: Content | None = None
    artifact: Content | None = None
    docs: Content | None = None
    query: Content | None = None
    tests: Tests | None = None
    progress: Annotated[dict[Scope, float], Items] | None = None
    errors: Errors | None = None
    calls: Annotated[tuple[Call, ...], Items] = ()
    usage: Usage | None = None
    next: Name = ""
    round: int | None = None
    convergence: float | None = None
    consensus: float | None = None
    model: Name = ""
    provider: Name = ""
    content: dict[str, Any] | None = None
    call_errors: Errors | None = None  # of failed calls, in a turn that reports no errors itself; class: the first tool
    request: Hash = 0  # of what the turn answers, such as a prompt or an item
    stop_reason: Scope = ""  # why the answer ended, if not as usual: CUT_OFF, EMPTY, MALFORMED or another word
    findings: Annotated[tuple[Issue, ...], Items] | None = None  # of a review: those that are open; (): none


class RunStarted(Event, tag="run.started", kw_only=True, omit_defaults=True):
    """A run starts: its graph, its budgets (integers: turns, iterations, micro-USD, ms), its scope, what it was asked.

    With a `parent_run_id` it is the birth of a child.
    """

    graph: dict[str, Any] | None = None
    budgets: Annotated[dict[str, int], Pairs] | None = None
    prompt: Content | None = None


class RunFinished(Event, tag="run.finished", kw_only=True, omit_defaults=True):
    """A run ended by itself."""

    status: Excerpt = ""


class UserMessage(Event, tag="user.message", kw_only=True, omit_defaults=True):
    """A person sent a message: streaks that assume an unattended run restart from zero."""


class ContextCompacted(Event, tag="context.compacted", kw_only=True, omit_defaults=True):
    """The context of an agent was compacted. Sizes are in tokens (None: not known); `trigger` is ``auto``, ``manual``
    or a word of the tool."""

    trigger: Scope = ""
    before_tokens: Count | None = None
    after_tokens: Count | None = None


class RunContinued(Event, tag="run.continued", kw_only=True, omit_defaults=True):
    """A run was about to stop and was sent on, not by a person: `by` a Stop hook, for instance, for a `reason`."""

    by: Scope = ""
    reason: Content | None = None


class OperatorEvent(Event, kw_only=True, omit_defaults=True):
    """A command of a person to one run: by whom, why, and the signature (`streamproc.fleet.signing`)."""

    by: Excerpt = ""
    reason: Excerpt = ""
    issuer: Scope = ""
    signature: Scope = ""


class OperatorStop(OperatorEvent, tag="operator.stop", kw_only=True, omit_defaults=True):
    """A person stops this run."""


class OperatorResume(OperatorEvent, tag="operator.resume", kw_only=True, omit_defaults=True):
    """A person resumes a run and lifts the decision `halt`. `grant` adds to its budgets (see `RunStarted.budgets`)."""

    grant: Annotated[dict[str, int], Pairs] | None = None
    halt: Scope = ""


class Feedback(OperatorEvent, tag="feedback", kw_only=True, omit_defaults=True):
    """A person's `verdict` on a run's halt (`decision`; empty: the last): ``false-alarm`` or ``right``."""

    verdict: Scope = ""
    decision: Scope = ""


class HaltAcknowledged(Event, tag="halt.acknowledged", kw_only=True, omit_defaults=True):
    """A person acknowledges a run's halt and takes care of it."""

    by: Excerpt = ""
    reason: Excerpt = ""


class BudgetReached(Event, tag="budget.reached", kw_only=True, omit_defaults=True):
    """An account that this run spends from has reached a mark of its budget. Published by workers to the run's log.

    `account` is ``session:ID``, ``user:ID`` or ``tenant:ID``; amounts are in `unit`, ``tokens`` or ``micro_usd``. Or it
    is ``tree:PROOF/ID``, the runs of a session (`core.session_tree`): `about` is the run that it concerns, `runs` are
    others, and `reason` is the code of the detector that halted it.
    """

    account: Name = ""
    window: Scope = ""
    unit: Scope = ""
    used: Count = 0
    limit: Count = 0
    rung: Scope = ""
    since_ms: int = 0
    per_minute: Count = 0
    unpriced: Count = 0
    about: Name = ""
    runs: Annotated[tuple[Name, ...], Batch] = ()
    reason: Scope = ""


class ModelCalled(Event, tag="model.called", kw_only=True, omit_defaults=True):
    """A call of a model, or (`waits`) a caller that waits until its provider may be called. No part of the run's state.

    `outcome` is ANSWERED, FAILED (the provider's answer is an error) or FAILED_RETRYABLE (429, 5xx, a time-out);
    `permit` is the id under which the caller has waited.
    """

    model: Name = ""
    provider: Name = ""
    outcome: Annotated[int, msgspec.Meta(ge=NO_ANSWER, le=FAILED_RUN)] = ANSWERED
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] = 0
    error_class: Name = ""
    retry_after_ms: Count = 0
    duration_ms: Count = 0
    permit: Scope = ""
    waits: bool = False


class TurnStarted(Event, tag="turn.started", kw_only=True, omit_defaults=True):
    """A node starts a turn: the turn's clock runs until a turn of this node (and task) ends."""


class Deadline(Event, tag="deadline", kw_only=True, omit_defaults=True):
    """Log time has reached `due_ms`, and an event expected since `since_ms` (epoch ms) is missing.

    `about` is the detector that set the deadline. Published by workers; it does not count as activity of the run.
    """

    about: Scope = ""
    since_ms: int = 0
    due_ms: int = 0


class Proof(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Evidence of a guard, without texts: whether it passed, its failing items, all its items, its verdict if any, and
    the task or the module that it says it is of."""

    passed: bool
    failing: Annotated[tuple[Name, ...], Batch] = ()
    items: Annotated[tuple[Name, ...], Batch] = ()
    verdict: Name = ""
    subject: Scope = ""


class BoardEvent(Event, kw_only=True, omit_defaults=True):
    """Fields that every board event may carry: proofs by the names of their guards, and who approved an exception."""

    evidence: Annotated[dict[str, Proof], Pairs] | None = None
    approved_by: Scope = ""


class TaskCreated(BoardEvent, tag="task.created", kw_only=True, omit_defaults=True):
    """A task was added to the board. An empty `state` means the board's first state."""

    depends_on: Annotated[tuple[Scope, ...], Batch] = ()
    phase: Scope = ""
    module: Scope = ""
    ui_touching: bool | None = None
    kind: Scope = ""
    priority: Scope = ""
    state: Scope = ""


class TaskDelegated(BoardEvent, tag="task.delegated", kw_only=True, omit_defaults=True):
    """An agent was given `count` tasks at once; `tasks` has the first 256 ids."""

    tasks: Annotated[tuple[Scope, ...], Batch] = ()
    count: Count = 0
    phase: Scope = ""
    max_token_budget: Count | None = None


class TaskTransition(BoardEvent, tag="task.transition", kw_only=True, omit_defaults=True):
    """A task changed its state, as reported by an agent or tracker."""

    from_: Scope = msgspec.field(default="", name="from")
    to: Scope = ""
    failure_class: Scope = ""
    module: Scope = ""
    ui_touching: bool | None = None
    reason: Scope = ""


class TaskVerdict(BoardEvent, tag="task.verdict", kw_only=True, omit_defaults=True):
    """A validator's verdict on a task: APPROVED or REJECTED; `reason` is a redacted excerpt of the report."""

    verdict: Scope = ""
    validator: Name = ""
    reason: Scope = ""
    failure_class: Scope = ""
    findings: Annotated[tuple[Issue, ...], Items] | None = None


class CycleCompleted(BoardEvent, tag="cycle.completed", kw_only=True, omit_defaults=True):
    """A cycle of the board is complete. `completed` is None if it was not sent; `moved` has (task, state) pairs."""

    cycle: Scope = ""
    completed: Count | None = None
    moved: Annotated[tuple[tuple[Scope, Scope], ...], Batch] = ()
    phase: Scope = ""


class DecisionRecorded(BoardEvent, tag="decision.recorded", kw_only=True, omit_defaults=True):
    """A person decided about a task; `approved_by` is their name, `reason` a redacted excerpt."""

    decision: Scope = ""
    reason: Scope = ""


BOARD_KINDS: Final = (TaskCreated, TaskDelegated, TaskTransition, TaskVerdict, CycleCompleted, DecisionRecorded)
OPERATOR_KINDS: Final = (OperatorStop, OperatorResume)
ASIDE: Final = frozenset({Feedback, ModelCalled})  # what no state of a run knows of
TYPED: Final = (
    Turn, RunStarted, RunFinished, UserMessage, TurnStarted, Deadline, BudgetReached, *OPERATOR_KINDS, HaltAcknowledged,
    *BOARD_KINDS, Feedback, ContextCompacted, RunContinued, ModelCalled,
)  # fmt: skip
KINDS: Final[dict[str, type[Event]]] = {str(kind.__struct_config__.tag): kind for kind in TYPED}
for _tag, _kind in KINDS.items():
    _kind.type = _tag


class _Versioned(msgspec.Struct):
    w: Any = None


_Union: Any = Union[*TYPED]
_decoder: msgspec.json.Decoder[Event] = msgspec.json.Decoder(_Union)
_versions: msgspec.json.Decoder[_Versioned] = msgspec.json.Decoder(_Versioned)
_encoder = msgspec.json.Encoder()


def decode(raw: bytes) -> Event:
    """Read a fingerprinted event. Raises `msgspec.DecodeError` (or its `ValidationError`) for anything else."""
    try:
        return _decoder.decode(raw)
    except (UnicodeDecodeError, RecursionError) as error:  # msgspec does not wrap these
        raise msgspec.DecodeError(str(error)) from None


def version_of(raw: bytes) -> int | None:
    """Return the version of the wire format that a record claims; None if it is raw, or no JSON object."""
    try:
        version = _versions.decode(raw).w
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return version if type(version) is int else None


def encode(event: Event) -> bytes:
    """Write a fingerprinted event as one line of JSON."""
    return _encoder.encode(event)
