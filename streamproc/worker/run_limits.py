"""How many runs, and how many decoded states, each partition of a worker may keep."""

from __future__ import annotations

import time
from collections.abc import Callable

from streamproc.core.run_state import RunState
from streamproc.core.states import new_states
from streamproc.worker.limits import ACTIVE_RUNS_MAX, RUNS_MAX


class RunLimits:
    """The number of runs of the whole worker, and of those and of decoded states that each partition may keep."""

    def __init__(self) -> None:
        self.runs = 0
        self.runs_max = self.runs_share = RUNS_MAX
        self.evicted = 0  # runs removed before their expiry because of the run limit
        self.forgotten_halts = 0  # the halted ones among them: more were halted than have room as stubs
        self.active_share = ACTIVE_RUNS_MAX // 2
        self.now_ms: Callable[[], int] = lambda: int(time.monotonic() * 1000)
        self.states = new_states()
        self.due_ms: Callable[[RunState], int] = lambda _state: 0  # the deadline of a silent run

    def share(self, partitions: int) -> None:
        """Divide the runs and the active states among partitions; each keeps as many cached ones."""
        self.runs_share = max(1, self.runs_max // max(1, partitions))
        self.active_share = max(1, ACTIVE_RUNS_MAX // 2 // max(1, partitions))
