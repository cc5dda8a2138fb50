"""States are read and written by several threads of a process, each with its own runs."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.feeding import Feed

THREADS = 4
TIMES = 400


@pytest.mark.long
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
        feed, workflow = Feed(), f"w{time}-" * (number + 1)
        feed.raw({"type": "run.started", "workflow": workflow})
        run = feed.state
        run.turns = number
        for event in range(number * 5):
            run.event_ids.push(event)
        run.cold.node_names.update(dict.fromkeys(range(number * 3), "n" * number))
        feed.restart()
        again = feed.state
        if (again.turns, again.event_ids.size, again.scope.workflow) != (number, number * 5, workflow):
            return False
    return True
