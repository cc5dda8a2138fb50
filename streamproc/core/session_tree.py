"""The tree of runs of one session: its state, and what its runs report. `tree_step` applies that.

A run's worker reports its birth and what becomes of it (`TreeEntry`); `step_tree` applies that to the tree and returns
events for the runs concerned. It is pure. The tree is stored as an account of its own (`core.accounts`), so it is
published, stored and committed as accounts are, and each answer is an event in the log of the run that it concerns.

A tree is named by the session *and* by the proof that its runs carry (`Scope.proof`, a hash of the session's token):
a run without the proof is in another tree, whichever session it names, and counts nothing in this one.

A birth above a limit is refused: the newborn halts, and is counted nowhere. After too many refused births, the whole
session halts and is *closed*: it takes no births until an operator resumes one of its runs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Annotated, Final

import msgspec
import xxhash

from streamproc.model.wire_parts import Hash, Whole

RUNS_MAX: Final = 4_096  # runs kept of a session: those that are over are dropped first
NAMES_BYTES_MAX: Final = 400_000  # bytes of their names: a stored tree stays below the size of a record
PROMPTS_MAX: Final = 64  # different prompts that are counted
SIBLINGS_MAX: Final = 20  # finished siblings that an event names, and children of which a parent is told
DEPTH_MAX: Final = 256  # ancestors that are walked: parents that name each other end here
NEAR_BITS: Final = 3  # of 64 in which the SimHashes of almost equal prompts may differ

HOP_MS: Final = 10_000
WINDOW_HOPS: Final = 6  # the last minute
HISTORY_HOPS: Final = 60  # ten minutes, with which the last minute is compared

RUNS, ALIVE, DEPTH, BIRTHS, SAME = "runs", "alive", "depth", "births", "same"
BUDGETS: Final[Mapping[str, str]] = {
    RUNS: "maxSessionRuns", ALIVE: "maxConcurrentRuns", DEPTH: "maxDepth", BIRTHS: "maxSpawnsPerMinute",
    SAME: "maxSameChildren",
}  # fmt: skip
"""The budget of each unit that a tree counts."""
PACE, PERIODS, HANDOVERS, PARENT, CHILD = "pace", "periods", "handovers", "parent", "child"
WINDOW_OF: Final = {ALIVE: "now", BIRTHS: "minute", PACE: "minute"}

WARNING, RESTRICT, REJECTED, EXCEEDED = "warning", "restrict", "rejected", "exceeded"
"""Levels: near a limit, a child was refused, the newborn is refused, the session is halted."""

# States of a run, as its worker reports them.
WORKING, FINISHED, HALTED, SILENT, REFUSED = range(5)
SHARED: Final = ("BUDGET009", "BUDGET010", "TREE")
"""Codes of halts that concern the parent as well, which learns of them by itself."""
LIVING: Final = (WORKING, SILENT)
STATE_NAMES: Final = ("working", "finished", "halted", "silent", "refused")
CONTINUE, FINISH, STOP = "continue", "finish", "stop"
"""What becomes of the descendants of a run that halts: nothing, they may finish and start no other, or they halt."""


class TreeRules(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What the policy says about trees, in the scope of one run."""

    limits: dict[str, Whole] = {}  # by unit
    levels: dict[str, tuple[Whole, Whole]] = {}  # by unit: percent that warns, refused births that halt; missing: off
    overridable: list[str] = []  # units whose limit a run may raise
    children: str = FINISH
    pace: list[Whole] = []  # nested births a minute, their multiple of the mean before, births by newborns; empty: off
    loops: list[Whole] = []  # periods that warn, that halt, and equal ends that warn, that halt; handovers that warn


read_rules: Final = lru_cache(maxsize=256)(msgspec.json.Decoder(TreeRules).decode)


def rules_as_stored(rules: TreeRules) -> msgspec.Raw:
    """Return rules as statements carry them. Those of a scope are written once, and read once, for all its runs."""
    return msgspec.Raw(msgspec.json.encode(rules))


NOTHING: Final = TreeRules()
NO_RULES: Final = rules_as_stored(NOTHING)


class TreeEntry(msgspec.Struct, array_like=True, gc=False):
    """What a run's worker reports of it after one event."""

    run_id: str
    offset: Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]  # of the event in its partition; -1: it stands in no log
    at_ms: Whole
    state: Annotated[int, msgspec.Meta(ge=WORKING, le=SILENT)]
    born: bool
    parent: str = ""
    agent: str = ""
    prompt: Hash = 0  # of the normalised prompt; 0: not known
    sim: Hash = 0  # its SimHash
    digest: Hash = 0  # of the last text; 0: none
    reason: str = ""  # code of the detector that halted it, or that reports it as silent
    declared: dict[str, Whole] = {}  # limits that the run declared, by unit

    def check(self) -> None:
        """Raise `msgspec.ValidationError` if it says what no worker reports."""
        if (self.prompt | self.sim | self.digest) >> 64:
            raise msgspec.ValidationError("prompt, sim and digest are hashes of 64 bits")
        if self.declared and not self.declared.keys() <= BUDGETS.keys():
            raise msgspec.ValidationError(f"declared: there are limits of {', '.join(BUDGETS)}")


class TreeRun(msgspec.Struct, array_like=True, gc=False):
    """A run in the tree."""

    name: str
    partition: int
    parent: int = 0  # tag; 0: none
    depth: int = 0
    state: int = WORKING
    agent: str = ""
    prompt: int = 0
    born_ms: int = 0
    fate: str = ""  # of its descendants, once it is halted
    told: int = 0  # children whose halt or silence it was told of
    reason: str | None = None  # of its own halt or silence, if that concerns its parent
    stopped: bool = False  # whether it was told to halt with an ancestor


class Loops(msgspec.Struct, array_like=True, gc=False):
    """What is kept of the ends of runs (`tree_loops`)."""

    steps: list[int] = []  # of the last ends
    agents: list[int] = []  # of the same
    known: list[int] = []  # different steps, the latest last
    edges: dict[int, int] = {}  # handovers since the last new step, by edge
    times: int = 0  # how often the steps have repeated
    period: int = 0
    level: str = ""  # what was reported of it
    told: bool = False  # whether a run was told of that


class SessionTree(msgspec.Struct, array_like=True, gc=False):
    """The state of a tree, stored by position."""

    at_ms: int = 0
    runs: dict[int, TreeRun] = {}  # by tag, oldest first
    born: int = 0  # births that were taken
    alive: int = 0
    peak: int = 0  # the most that were alive at once
    names_bytes: int = 0
    refused: dict[str, int] = {}  # births, by unit
    warned: dict[str, int] = {}  # by unit: log time of the warning
    declared: dict[str, int] = {}  # by unit: the lowest limit that a run declared
    closed: str = ""  # the unit that closed it
    hops: list[list[int]] = []  # [number, births, those at depth 2 or more, those by runs younger than a minute]
    prompts: list[list[int]] = []  # [hash, SimHash, births], the last used one last
    loops: Loops = msgspec.field(default_factory=Loops)
    evicted: int = 0
    # Tags of runs that are not known, and that others named as their parents, oldest first; None: not noted yet.
    awaited: list[int] | None = None


@lru_cache(maxsize=16_384)
def tag_of(name: str) -> int:
    """Return the number by which a tree knows a run; 0 for no name."""
    return xxhash.xxh3_64_intdigest(name.encode("utf-8", "surrogatepass")) >> 1 if name else 0


def ancestors(tree: SessionTree, run: TreeRun) -> Iterator[TreeRun]:
    """Yield the known ancestors of a run, its parent first."""
    one = tree.runs.get(run.parent)
    for _ in range(DEPTH_MAX):
        if one is None or one is run:
            return
        yield one
        one = tree.runs.get(one.parent)


def descendants(tree: SessionTree, run: TreeRun) -> Iterator[TreeRun]:
    """Yield the known descendants of a run, level by level."""
    children: dict[int, list[TreeRun]] = {}
    for one in tree.runs.values():
        children.setdefault(one.parent, []).append(one)
    level, seen = [run], {id(run)}
    while level:
        level = [one for above in level for one in children.get(tag_of(above.name), ()) if id(one) not in seen]
        seen.update(map(id, level))
        yield from level


def forget(tree: SessionTree, tag: int) -> None:
    run = tree.runs.pop(tag, None)
    if run is not None:
        tree.names_bytes -= len(run.name)
        tree.alive -= run.state in LIVING


def await_birth(tree: SessionTree, tag: int) -> None:
    """Note that a run which is not known may have children here: its birth is looked at for them."""
    awaited = awaited_births(tree)
    if tag not in awaited:
        awaited.append(tag)
        del awaited[:-RUNS_MAX]


def awaited_births(tree: SessionTree) -> list[int]:
    """Return the tags of unknown runs that may have children here."""
    if tree.awaited is None:  # stored by an earlier version
        parents = dict.fromkeys(run.parent for run in tree.runs.values() if run.parent)
        tree.awaited = [parent for parent in parents if parent not in tree.runs]
    return tree.awaited


def make_room(tree: SessionTree, runs_max: int | None = None) -> None:
    """Drop the oldest runs that are over, then the oldest ones, while there are too many."""
    most = RUNS_MAX if runs_max is None else runs_max
    while len(tree.runs) > most or tree.names_bytes > NAMES_BYTES_MAX:
        some_over = tree.alive < len(tree.runs)
        over = (tag for tag, run in tree.runs.items() if run.state not in LIVING) if some_over else iter(())
        tag = next(over, next(iter(tree.runs)))
        forget(tree, tag)
        tree.evicted += 1
        await_birth(tree, tag)
