"""States are read and written by several threads of a process, each with its own runs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

from streamproc.core.run_state import RunState, dump, load
from streamproc.core.scope import Scope

THREADS = 4
TIMES = 400


def test_threads_do_not_disturb_each_other() -> None:
    """The interpreter changes the thread within a state: its scope is read and its cold part written in Python."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            assert list(pool.map(_keeps_its_runs, range(THREADS))) == [True] * THREADS
    finally:
        sys.setswitchinterval(before)


def _keeps_its_runs(number: int) -> bool:
    for time in range(TIMES):
        run = RunState()
        run.turns = number
        for event in range(number * 5):
            run.event_ids.push(event)
        run.set_scope(Scope(workflow=f"{number} {time}" * (number + 1)))
        run.cold.node_names.update(dict.fromkeys(range(number * 3), "n" * number))
        raw = dump(run)
        again = load(raw)
        if (again.turns, again.event_ids.size, again.scope) != (number, number * 5, run.scope) or dump(again) != raw:
            return False
    return True
