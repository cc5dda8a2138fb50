"""What a report says, as data: of one run, or of all runs of a log. Every format is made from it.

Turns are indices from 0, times are log times in epoch ms (0: not known), money is in micro-USD. Texts are redacted
excerpts; they may still contain any character, so that each format escapes them in its own way.
"""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from streamproc.core.decision import Decision

TurnKind = Literal["new", "repeat", "narration", "error", "waiting", "other"]
KINDS: Final[tuple[TurnKind, ...]] = ("new", "repeat", "narration", "error", "waiting", "other")
Outcome = Literal["answered", "failed", "no answer"]
Match = Literal["first", "same", "normalised", "near", "different", "unknown"]
Standing = Literal["halted", "warned", "unremarkable"]


class CallShown(msgspec.Struct, frozen=True, kw_only=True):
    """A call of a turn; texts are empty if the log has no content."""

    tool: str
    args: str = ""
    answer: str = ""
    outcome: Outcome = "no answer"


class TurnShown(msgspec.Struct, frozen=True, kw_only=True):
    """A turn of the timeline."""

    turn: int
    node: str
    kind: TurnKind
    at: int = 0
    place: str = ""  # in the log, such as `line 812`
    calls: tuple[CallShown, ...] = ()
    calls_left_out: int = 0
    said: str = ""
    left: str = ""  # the artifact or the page that it produced
    failing: int | None = None  # tests that fail
    error: str = ""
    tokens: int = 0
    cost_usd_micro: int = 0


class EventShown(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened besides turns, or how a turn ended: after so many turns, of what type, in words."""

    turn: int
    kind: str  # the type of the event; `child.born`: the run has started another one
    what: str
    at: int = 0
    place: str = ""


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """When something happened: a turn and its log time."""

    turn: int
    at: int = 0
    place: str = ""


class SpendShown(msgspec.Struct, frozen=True, kw_only=True):
    """What a stretch of turns took."""

    turns: int = 0
    tokens: int = 0
    cost_usd_micro: int = 0
    ms: int = 0  # of log time; 0: not known


class Estimate(msgspec.Struct, frozen=True, kw_only=True):
    """What the rest of a budget would have cost if the loop had gone on as it was."""

    budget: str
    spend: SpendShown
    basis: str  # one sentence: how it was computed


class Occurrence(msgspec.Struct, frozen=True, kw_only=True):
    """One pass through what repeated. `match` compares it with the occurrence before."""

    turn: int
    node: str
    what: str  # the tool, or `output`, `artifact`, `tests`, `error`
    match: Match
    round: int = 1  # of a sequence of several steps
    step: int = 1
    at: int = 0
    place: str = ""
    args: str = ""
    answer: str = ""


class TrendPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A result of tests: how many fail, and the fewest so far."""

    turn: int
    failing: int
    best: int


class BudgetUse(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a budget is used, in its unit."""

    name: str
    unit: str
    used: int
    limit: int


class EdgeCount(msgspec.Struct, frozen=True, kw_only=True):
    """A handover between nodes, and how often it happened."""

    source: str
    target: str
    times: int


class CycleRing(msgspec.Struct, frozen=True, kw_only=True):
    """A cycle of nodes. Only handovers that happened are in it."""

    nodes: tuple[str, ...]
    iterations: int
    edges: tuple[EdgeCount, ...]


class Stretch(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive turns in the drawing of the timeline: the kinds of turns that each node took."""

    first: int
    last: int
    kinds: dict[str, dict[str, int]]  # by node, by kind: number of turns


class ErrorShown(msgspec.Struct, frozen=True, kw_only=True):
    """An error that a turn reported."""

    turn: int
    node: str
    text: str
    error_class: str = ""
    place: str = ""


class DetectorLook(msgspec.Struct, frozen=True, kw_only=True):
    """A detector that reported nothing, and how many events brought evidence of its kinds."""

    code: str
    name: str
    events: int


class PolicyValue(msgspec.Struct, frozen=True, kw_only=True):
    """A value of the policy that counted, and where it stands (empty: the default of the detector)."""

    name: str
    value: str
    place: str = ""


class PolicyShown(msgspec.Struct, frozen=True, kw_only=True):
    """The policy under which the report was made."""

    name: str
    version: str
    hash: str


class Advice(msgspec.Struct, frozen=True, kw_only=True):
    """Something to do: the action's name and a sentence."""

    action: str
    text: str


class BranchShown(msgspec.Struct, frozen=True, kw_only=True):
    """A run of the session's tree: how deep it is, and what it and all `runs` of its branch cost."""

    run_id: str
    depth: int
    state: str  # `running`, `finished` or `halted`, at the end of the log
    turns: int = 0
    cost_usd_micro: int = 0
    runs: int = 1  # it and those below it
    branch_cost_usd_micro: int = 0
    why: str = ""  # code and message of its last decision


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one run."""

    type: Literal["run"] = "run"
    run_id: str
    state: Standing
    sentence: str  # what happened
    workflow: str = ""
    tenant: str = ""
    user: str = ""
    turns_total: int = 0
    first_at: int = 0
    last_at: int = 0
    finished: bool = False
    code: str = ""  # of the decision that the report is about: the halt, or the first warning
    detector: str = ""
    decision_id: str = ""
    terminal_status: str = ""  # as which the run ends; empty if it was not halted
    resumed: str = ""  # that and why an operator has resumed it after the halt, and at which turn
    stop_reason: str = ""
    node: str = ""
    badge: str = ""
    began: Moment | None = None
    warned: Moment | None = None
    halted: Moment | None = None
    last: Moment | None = None
    before: SpendShown = SpendShown()  # up to the onset
    during: SpendShown = SpendShown()  # from the onset to the decision
    after: SpendShown = SpendShown()  # after the decision, as recorded
    total: SpendShown = SpendShown()
    estimate: Estimate | None = None
    occurrences: tuple[Occurrence, ...] = ()
    occurrences_left_out: int = 0
    period: int = 1  # steps of a round
    trend: tuple[TrendPoint, ...] = ()
    budgets: tuple[BudgetUse, ...] = ()
    ring: CycleRing | None = None
    first_error: ErrorShown | None = None
    nodes: tuple[str, ...] = ()
    stretches: tuple[Stretch, ...] = ()
    decisions: tuple[Decision, ...] = ()
    decisions_left_out: int = 0
    turns: tuple[TurnShown, ...] = ()
    events: tuple[EventShown, ...] = ()  # besides turns
    events_left_out: int = 0
    content: bool = False  # whether the log has the texts of turns
    tree: tuple[BranchShown, ...] = ()  # of the session; empty for a run that is alone in it
    tree_left_out: int = 0
    others: tuple[DetectorLook, ...] = ()
    name: str = ""  # by which a person knows it: its title or first prompt, and its project
    policy: PolicyShown
    policy_values: tuple[PolicyValue, ...] = ()
    todo: tuple[Advice, ...] = ()
    reproduce: tuple[str, ...] = ()
    log: str = ""  # where the run stands in its log
    version: str = ""
    notes: tuple[str, ...] = ()


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run in the table of all runs."""

    run_id: str
    state: Standing
    turns: int
    workflow: str = ""
    code: str = ""
    detector: str = ""
    sentence: str = ""
    onset: int | None = None
    decided: int | None = None  # turn of the halt, or of the first warning
    after_onset: SpendShown = SpendShown()  # from the onset to the end of the log
    total: SpendShown = SpendShown()
    name: str = ""
    at: int = 0  # when it began
    place: int = 0  # number of its report in this file, from 1; 0: it has none


class DetectorTally(msgspec.Struct, frozen=True, kw_only=True):
    """What a detector reported over all runs."""

    code: str
    name: str
    runs_halted: int = 0
    runs_warned: int = 0
    decisions: int = 0


class FleetReport(msgspec.Struct, frozen=True, kw_only=True):
    """The report of all runs of a log, the stuck ones first."""

    type: Literal["fleet"] = "fleet"
    sentence: str
    runs_total: int
    halted: int
    warned: int
    turns_total: int
    after_onset: SpendShown = SpendShown()  # of the halted runs
    total: SpendShown = SpendShown()
    detectors: tuple[DetectorTally, ...] = ()
    runs: tuple[RunRow, ...] = ()
    runs_left_out: int = 0
    reports: tuple[RunReport, ...] = ()
    policy: PolicyShown
    reproduce: tuple[str, ...] = ()
    log: str = ""
    version: str = ""
    notes: tuple[str, ...] = ()


Report = RunReport | FleetReport
