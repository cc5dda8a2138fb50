"""STALL005 to STALL007 and ERROR004: tasks that do not move, turns that do not end."""

from __future__ import annotations

from benchmarks.quality.traces.script import START_MS, Script

TURN_TIMEOUT_MS = 600_000


def stalled_task(script: Script) -> None:
    """STALL005: a task in progress for more than two cycles of BUILD and VALIDATE, while the others are completed and
    the run continues."""
    task = f"T-{script.dice.randrange(100, 999)}"
    script.add({"type": "task.transition", "task_id": task, "from": "ready", "to": "in_progress"})
    with script.loop("STALL005", warn=3) as loop:
        for count in range(1, script.times(3, 5) + 1):
            other = f"T-{1000 + count}"
            moved = {"task_id": other, "from": "in_progress", "to": "completed"}
            script.add({"type": "task.transition", **moved})
            script.add({"type": "cycle.completed", "transitions": [moved]})
            loop.counted(count)


def zero_progress_cycle(script: Script) -> None:
    """STALL006: a cycle of BUILD and VALIDATE without a completed task."""
    task = f"T-{script.dice.randrange(100, 999)}"
    with script.loop("STALL006", halt=1) as loop:
        moved = {"task_id": task, "from": "ready", "to": "in_progress"}
        script.add({"type": "task.transition", **moved})
        script.add({"type": "cycle.completed", "transitions": [moved]})
        loop.counted(1)


def a_turn_that_never_ends(script: Script) -> None:
    """STALL007: a turn is started and has not ended at the worker's deadline after ten minutes."""
    (node,) = script.team(1)
    last = START_MS + 10**9 + script.dice.randrange(10**6)
    with script.loop("STALL007", halt=1, also=("BUDGET001",)) as loop:
        script.add({"type": "turn.started", "node": node, "at": last})
        script.add({"type": "deadline", "at": last + TURN_TIMEOUT_MS + script.dice.randrange(1, 60_000)})
        loop.counted(1)


def failed_tasks(script: Script) -> None:
    """ERROR004: three tasks fail in a row. A notification."""
    with script.loop("ERROR004", warn=3) as loop:
        for count in range(1, script.times(3, 5) + 1):
            task = f"T-{1000 + count}"
            script.add({"type": "task.transition", "task_id": task, "from": "in_progress", "to": "failed"})
            loop.counted(count)


KINDS = (stalled_task, zero_progress_cycle, a_turn_that_never_ends, failed_tasks)
