"""What is usual for each workflow, measured on recorded runs: the numbers that a policy may hold runs against.

Measured once and written into a policy, not learned on the way: then a run is decided upon by its own log and the
policy alone, and `scan`, a replay and every worker decide alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import ceil
from statistics import median_low
from typing import Final, NamedTuple

from streamproc.model.raw_events import RawTurn
from streamproc.replay.source import Source

MULTIPLE: Final = 3  # of the p99: what policies are offered for a beginning
RUNS_FEW: Final = 100  # the longest of fewer runs is what their p99 is


class Usual(NamedTuple):
    """A workflow: how many runs have times and how long 99 of 100 of them took; how many turns have a price, and what
    the middle one costs. Zero where nothing is known."""

    workflow: str
    runs: int
    p99_s: int
    turns: int
    micro_usd_per_turn: int


@dataclass
class _Run:
    workflow: str = ""
    first_ms: int = 0
    last_ms: int = 0
    costs: list[int] = field(default_factory=list)


def usual(sources: Iterable[Source]) -> Iterator[Usual]:
    """What is usual, by workflow (empty: runs that name none). Raises what `Source` raises."""
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
    for workflow in sorted({run.workflow for run in runs.values()}):
        yield _usual_of(workflow, [run for run in runs.values() if run.workflow == workflow])


def _usual_of(workflow: str, runs: list[_Run]) -> Usual:
    took_ms = sorted(run.last_ms - run.first_ms for run in runs if run.last_ms > run.first_ms)
    costs = [cost for run in runs for cost in run.costs]
    return Usual(
        workflow,
        len(took_ms),
        ceil(took_ms[ceil(len(took_ms) * 0.99) - 1] / 1000) if took_ms else 0,
        len(costs),
        median_low(costs) if costs else 0,
    )


def policy_lines(found: Iterable[Usual]) -> Iterator[str]:
    """The lines for a policy file; runs that name no workflow come first, and hold for all."""
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


def _settings(one: Usual) -> Iterator[str]:
    few = "; too few for a p99, so this is the longest" if one.runs < RUNS_FEW else ""
    if one.p99_s:
        yield f"  BUDGET006: {{ p99_s: {one.p99_s}, p99_multiple: {MULTIPLE} }} # of {one.runs} runs{few}"
    else:
        yield "  BUDGET006: {} # no run has times"
    if one.micro_usd_per_turn:
        yield f"  BUDGET011: {{ usual_micro_usd_per_turn: {one.micro_usd_per_turn} }} # the median of {one.turns} turns"
    else:
        yield "  BUDGET011: {} # no turn has a price"


def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'
