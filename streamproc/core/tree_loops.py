"""Loops over the runs of a session: runs that end in the same way again and again, each of them a new run.

The end of a run is a *step*: its agent, its prompt and its last text. Steps that repeat with a period are a loop if at
least two agents take part, or if one agent gives the same text to the same prompt. A run that begins after its parent
has finished is a *handover* from agent to agent; handovers without a new step in between are counted by edge.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import xxhash

from streamproc.core.session_tree import EXCEEDED, WARNING, Loops, TreeRun

STEPS_MAX: Final = 48  # three periods of 16
PERIOD_MAX: Final = 16
KNOWN_MAX: Final = 64
EDGES_MAX: Final = 32


def hand_over(loops: Loops, source: TreeRun, target: TreeRun) -> int:
    """Count a handover from a finished run to a new one; return how many there were without a new step."""
    if not (source.agent and target.agent):
        return 0
    edge = _hash(f"{source.agent}\0{target.agent}")
    times = loops.edges.pop(edge, 0) + 1
    loops.edges[edge] = times
    if len(loops.edges) > EDGES_MAX:
        del loops.edges[next(iter(loops.edges))]
    return times


def note_end(loops: Loops, run: TreeRun, digest: int, limits: list[int]) -> str:
    """Note how a run has ended; return the level that is new: `warning`, `exceeded`, or nothing."""
    step = _hash(f"{run.agent}\0{run.prompt}\0{digest}")
    if step not in loops.known:
        loops.known.append(step)
        del loops.known[:-KNOWN_MAX]
        loops.edges.clear()
    loops.steps.append(step)
    loops.agents.append(_hash_of_agent(run.agent))
    del loops.steps[:-STEPS_MAX], loops.agents[:-STEPS_MAX]
    loops.times, loops.period = _period(loops)
    warn, halt, same_warn, same_halt, _ = limits
    if loops.period == 1:
        warn, halt = same_warn, same_halt
    reached = ""
    if loops.period and 0 < halt <= loops.times and run.prompt:
        reached = EXCEEDED
    elif loops.period and 0 < warn <= loops.times:
        reached = WARNING
    new = reached if reached != loops.level else ""
    loops.level, loops.told = reached, loops.told and not new
    return new


def _period(loops: Loops) -> tuple[int, int]:
    """Return how often the last steps repeat, and their period: the shortest one with two rounds; 0: none."""
    steps, agents = loops.steps, loops.agents
    if steps[-1] not in steps[-1 - PERIOD_MAX : -1]:
        return 0, 0
    for period in range(1, PERIOD_MAX + 1):
        same = 0
        while same + period < len(steps) and steps[-1 - same] == steps[-1 - same - period]:
            same += 1
        times = same // period + 1
        if times >= 2 and (period == 1 or len(set(agents[-period:])) > 1):
            return times, period
    return 0, 0


def _hash(text: str) -> int:
    return xxhash.xxh3_64_intdigest(text.encode("utf-8", "surrogatepass"))


@lru_cache(maxsize=4_096)
def _hash_of_agent(agent: str) -> int:
    return _hash(agent)
