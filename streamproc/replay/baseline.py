"""Usual runtime and cost per workflow, measured on recorded runs, as limits for a policy.

The numbers are measured once and written into a policy, not learned by the workers: each decision then depends on the
run's log and the policy alone, and `scan`, a replay and every worker decide alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from statistics import median_low
from typing import Final

import yaml

from streamproc.detectors.round_budget import HARD_CAP, LEAST, Limits as Agreement
from streamproc.model.printed import BaselineOfWorkflow
from streamproc.model.raw_events import RawTurn
from streamproc.policy.files import LIMIT_MAX
from streamproc.replay.source import Source

P99_MULTIPLE: Final = 3  # a first value for BUDGET006
RUNS_FOR_P99: Final = 100  # with fewer runs, the p99 is the longest run
AGREED_SHARE: Final = 0.95  # of deliberations that must have agreed within the proposed rounds


@dataclass
class _Run:
    workflow: str = ""
    first_ms: int = 0
    last_ms: int = 0
    costs: list[int] = field(default_factory=list)
    round: int = 0
    agreed_in: int = 0  # round of the first agreement; 0: none


def usual(sources: Iterable[Source]) -> Iterator[BaselineOfWorkflow]:
    """Measure each workflow; runs without a workflow count as workflow "". Raises what `Source` raises."""
    runs: defaultdict[str, _Run] = defaultdict(_Run)
    for source in sources:
        for line in source:
            raw, run = line.raw, runs[line.raw.run_id]
            run.workflow = run.workflow or raw.workflow
            if raw.at is not None:
                run.first_ms = min(run.first_ms or raw.at, raw.at)
                run.last_ms = max(run.last_ms, raw.at)
            if isinstance(raw, RawTurn) and raw.usage is not None and raw.usage.cost_usd:
                run.costs.append(raw.usage.cost_usd)
            if isinstance(raw, RawTurn):
                _note_round(run, raw)
    for workflow in sorted({run.workflow for run in runs.values()}):
        yield _measure(workflow, [run for run in runs.values() if run.workflow == workflow])


def _note_round(run: _Run, turn: RawTurn) -> None:
    run.round = max(run.round, turn.round or 0)
    agreement = Agreement()
    agreed = (turn.convergence or 0) * 100 > agreement.convergence_percent
    if not run.agreed_in and (agreed or (turn.consensus or 0) * 100 >= agreement.consensus_percent):
        run.agreed_in = run.round


def _rounds_needed(agreed_in: list[int]) -> int:
    """Return a limit on rounds in which nearly all deliberations of a workflow agree, within 5 and 15: the round in
    which 95 of 100 have agreed, and one more, because the last round ends without regard to agreement."""
    if not agreed_in:
        return 0
    usual = sorted(agreed_in)[ceil(len(agreed_in) * AGREED_SHARE) - 1]
    return min(max(usual + 1, LEAST), HARD_CAP)


def _measure(workflow: str, runs: list[_Run]) -> BaselineOfWorkflow:
    runtimes_ms = sorted(run.last_ms - run.first_ms for run in runs if run.last_ms > run.first_ms)
    costs = [cost for run in runs for cost in run.costs]
    p99_s = ceil(runtimes_ms[ceil(len(runtimes_ms) * 0.99) - 1] / 1000) if runtimes_ms else 0
    median = median_low(costs) if costs else 0
    agreed_in = [run.agreed_in for run in runs if run.agreed_in]
    return BaselineOfWorkflow(
        workflow=workflow, runs=len(runtimes_ms), p99_s=min(p99_s, LIMIT_MAX), turns=len(costs),
        micro_usd_per_turn=min(median, LIMIT_MAX), agreed=len(agreed_in), rounds=_rounds_needed(agreed_in),
    )  # fmt: skip


def policy_lines(found: Iterable[BaselineOfWorkflow]) -> Iterator[str]:
    """Return the lines for a policy file. Runs without a workflow come first, as limits for all workflows."""
    headed = False
    for one in found:
        indent = "  " if one.workflow else ""
        if one.workflow and not headed:
            headed = True
            yield "workflows:"
        if one.workflow:
            yield f"  {_quoted(one.workflow)}:"
        yield f"{indent}  detectors:" if one.workflow else "detectors:"
        yield from (f"{indent}{'  ' if one.workflow else ''}{line}" for line in _settings(one))
        if one.rounds:
            budgets = f"budgets: {{ maxRounds: {{ limit: {one.rounds}, overridable: true }} }}"
            yield f"{indent * 2}{budgets} # deliberations that agreed: {one.agreed}"


def _settings(one: BaselineOfWorkflow) -> Iterator[str]:
    few = "; too few for a p99, so this is the longest run" if one.runs < RUNS_FOR_P99 else ""
    if one.p99_s:
        yield f"  BUDGET006: {{ p99_s: {one.p99_s}, p99_multiple: {P99_MULTIPLE} }} # runs measured: {one.runs}{few}"
    else:
        yield "  BUDGET006: {} # no run has times"
    if one.micro_usd_per_turn:
        median = f"usual_micro_usd_per_turn: {one.micro_usd_per_turn}"
        yield f"  BUDGET011: {{ {median} }} # median; turns measured: {one.turns}"
    else:
        yield "  BUDGET011: {} # no turn has a cost"


def _quoted(name: str) -> str:
    """Return a name as YAML on one line, whatever its characters."""
    text: str = yaml.safe_dump(name, default_style='"', allow_unicode=True, width=float("inf"))
    return text.rstrip("\n")
