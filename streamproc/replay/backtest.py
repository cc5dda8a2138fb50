"""Step many policies over one log, and compare what each would have halted.

Policies are stepped side by side: each event is decoded once. Several processes share the policies; where there are
fewer policies than processes, they share the runs, too. Runs that pay into one account stay together, so the decisions
are those of one process.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from multiprocessing import get_context
from operator import add
from pathlib import Path
from typing import Final, NamedTuple

from streamproc.core.compiled import core_kind
from streamproc.core.decision import Decision
from streamproc.core.kept_runs import OBJECTS_MAX, KeptRuns
from streamproc.core.local_accounts import LocalAccounts
from streamproc.core.scope import short_name
from streamproc.model.wire import Event, OperatorResume
from streamproc.policy import Policy, load_policy
from streamproc.policy.variants import Settings, variant
from streamproc.replay.scan import Spent
from streamproc.replay.spool import SpooledRun, spooled

# Events times policies: below it, starting processes takes longer than the work.
INLINE_STEPS: Final = 500_000 if core_kind() == "compiled" else 30_000
LEFT_OUT: Final = 65_535  # part of a run that no process steps
OWNERS: Final = ("maxuser", "maxtenant")  # budgets that runs share without naming a session


@dataclass(frozen=True, slots=True)
class Candidate:
    """How a process makes a policy: the name of a preset or a file, and settings on top. None: the default policy."""

    source: str | None
    settings: Settings = field(default_factory=dict)

    def load(self) -> Policy:
        """Return the policy. Raises `InvalidPolicy`."""
        return variant(load_policy(self.source), self.settings)


class RunHalt(NamedTuple):
    """The first halt of a run under one policy, and what came after it: turns, tokens and micro-USD that the log has
    from there, up to an operator's resume or the end."""

    code: str
    turn: int
    turns_after: int
    tokens_after: int
    micro_usd_after: int


@dataclass(slots=True)
class PolicyResult:
    """What one policy decides on a log."""

    halts: dict[str, RunHalt] = field(default_factory=dict)
    warned: int = 0  # runs with a warning
    tokens: int = 0
    micro_usd: int = 0

    def add(self, other: PolicyResult) -> None:
        """Add the result of other runs."""
        self.halts |= other.halts
        self.warned += other.warned
        self.tokens += other.tokens
        self.micro_usd += other.micro_usd


@dataclass(slots=True)
class _Halted:
    code: str
    turn: int
    since: Spent | None  # what the run had spent when it was halted; None: it goes on after a resume
    after: Spent  # spent while it was halted before

    def close(self, now: Spent) -> None:
        if self.since is not None:
            self.after = Spent(*map(add, self.after, now.since(self.since)))
            self.since = None


class PolicyReplay:
    """Steps the log under one of `policies` policies, which share the memory for runs."""

    def __init__(self, policy: Policy, policies: int = 1) -> None:
        self._runs: KeptRuns[str] = KeptRuns(policy.engine(), max(1, OBJECTS_MAX // policies))
        self._accounts = LocalAccounts(self._runs)
        self._halted: dict[str, _Halted] = {}
        self._warned: set[str] = set()

    def step(self, event: Event, at_ms: int | None) -> None:
        """Step one event."""
        for decision in self._accounts.step(event, at_ms):
            if decision.severity == "halt":
                self._halt(decision)
            elif decision.severity == "warn":
                self._warned.add(decision.run_id)
        if type(event) is OperatorResume and (halted := self._halted.get(event.run_id)) is not None:
            run = self._runs.read(event.run_id)
            if run is not None and run.halted < 0:
                halted.close(Spent.by(run))

    def _halt(self, decision: Decision) -> None:
        known = self._halted.get(decision.run_id)
        run = self._runs.read(decision.run_id)
        assert run is not None
        if known is None:
            self._halted[decision.run_id] = _Halted(decision.code, decision.turn or 0, Spent.by(run), Spent())
        elif known.since is None:
            known.since = Spent.by(run)

    def result(self, runs: Iterable[str]) -> PolicyResult:
        """Return what was decided on these runs."""
        found = PolicyResult()
        for run_id in runs:
            run = self._runs.read(run_id)
            if run is None:
                continue
            spent = Spent.by(run)
            found.tokens += spent.tokens
            found.micro_usd += spent.cost_usd_micro
            found.warned += run_id in self._warned
            if (halted := self._halted.get(run_id)) is not None:
                halted.close(spent)
                found.halts[run_id] = RunHalt(halted.code, halted.turn, *halted.after)
        return found


class _Job(NamedTuple):
    path: Path
    candidates: list[Candidate]
    hashes: list[str]
    parts: array[int]
    part: int
    reported: list[str]


def _work(job: _Job) -> list[PolicyResult]:
    policies = [candidate.load() for candidate in job.candidates]
    for policy, known in zip(policies, job.hashes, strict=True):
        if policy.hash != known:
            raise RuntimeError(f"policy {policy.name} has changed while it was tried")
    replays = [PolicyReplay(policy, len(policies)) for policy in policies]
    for _, event, at_ms in spooled(job.path, job.parts, job.part):
        for each in replays:
            each.step(event, at_ms)
    return [each.result(job.reported) for each in replays]


def backtest(
    path: Path,
    runs: Sequence[SpooledRun],
    candidates: Sequence[Candidate],
    *,
    events: int,
    chosen: set[str] | None = None,
    processes: int = 1,
) -> list[PolicyResult]:
    """Return the result of each policy on a spool. `chosen` are the runs that count (None: all).

    Runs that pay into an account of a chosen one are stepped, too, and not reported.
    """
    policies = [candidate.load() for candidate in candidates]
    if events * len(candidates) < INLINE_STEPS:
        processes = 1
    owners = any(_has_owner_budgets(policy) for policy in policies)
    parts_count = max(1, processes // len(candidates))
    parts = partition(runs, parts_count, chosen=chosen, owners=owners)
    parts_count = len({part for part in parts if part != LEFT_OUT}) or 1
    groups = min(len(candidates), max(1, processes // parts_count))
    jobs = []
    for part in range(parts_count):
        own = [
            run.run_id
            for number, run in enumerate(runs)
            if parts[number] == part and (chosen is None or run.run_id in chosen)
        ]
        for group in range(groups):
            members = slice(group, None, groups)
            hashes = [policy.hash for policy in policies[members]]
            jobs.append(_Job(path, list(candidates[members]), hashes, parts, part, own))
    results = [PolicyResult() for _ in candidates]
    if len(jobs) == 1:
        done = [_work(jobs[0])]
    else:
        # Not forked: a process of a connected client has threads.
        with ProcessPoolExecutor(min(processes, len(jobs)), get_context("spawn")) as pool:
            done = list(pool.map(_work, jobs))
    for number, found in enumerate(done):
        for index, result in enumerate(found):
            results[index * groups + number % groups].add(result)
    return results


def partition(
    runs: Sequence[SpooledRun], parts: int, *, chosen: set[str] | None = None, owners: bool = True
) -> array[int]:
    """Return the part of each run, from 0, so that runs which may pay into one account are in one part and parts have
    about the same number of turns. Runs that share nothing with a chosen one are left out.

    `owners`: whether users and tenants have budgets. Runs always share the budget of their session.
    """
    groups = _accounts_of(runs, owners=owners)
    turns: Counter[int] = Counter()
    wanted = set()
    for group, run in zip(groups, runs, strict=True):
        turns[group] += run.turns + 1
        if chosen is None or run.run_id in chosen:
            wanted.add(group)
    loads = [0] * parts
    place: dict[int, int] = {}
    for group, count in turns.most_common():
        if group in wanted:
            least = loads.index(min(loads))
            loads[least] += count
            place[group] = least
    return array("H", (place.get(group, LEFT_OUT) for group in groups))


def _accounts_of(runs: Sequence[SpooledRun], *, owners: bool) -> list[int]:
    """Return for each run the number of its group: runs that an account connects, directly or through others."""
    above = list(range(len(runs)))

    def top(number: int) -> int:
        while above[number] != number:
            above[number] = number = above[above[number]]
        return number

    first: dict[str, int] = {}
    for number, run in enumerate(runs):
        # The first run of a session may name it by its own id.
        accounts = [f"session:{short_name(name)}" for name in (run.run_id, run.session) if name]
        if owners:
            accounts += [f"{kind}:{name}" for kind, name in (("user", run.user), ("tenant", run.tenant)) if name]
        for account in accounts:
            above[top(number)] = top(first.setdefault(account, number))
    return [top(number) for number in range(len(runs))]


def _has_owner_budgets(policy: Policy) -> bool:
    names = (name for layer in policy.layers for _, overlay in layer.overlays() for name in overlay.budgets)
    return any(name.replace("_", "").lower().startswith(OWNERS) for name in names)
