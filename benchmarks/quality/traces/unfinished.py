"""STALL005 to STALL007 and ERROR004: tasks that do not move, turns that do not end."""

from __future__ import annotations

from benchmarks.quality.traces.script import START_MS, Script

TURN_TIMEOUT_MS = 600_000
SILENCE_MS = 660_000
AWAY_MS = 4 * 3_600_000


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


def silence_after_a_call(script: Script) -> None:
    """STALL007: a run that sends nothing for eleven minutes after a call, or four hours if a person has spoken. A
    warning: no turn is known to run."""
    last = START_MS + 10**9 + script.dice.randrange(10**6)
    silent_ms = AWAY_MS if script.has_person else SILENCE_MS
    with script.loop("STALL007", warn=1) as loop:
        script.call("read_file", {"path": script.words.path()}, script.words.code(5), at=last)
        script.add({"type": "deadline", "at": last + silent_ms + script.dice.randrange(1, 60_000)})
        loop.counted(1)


def silence_of_a_session(script: Script) -> None:
    """STALL007: a session with a person that sends nothing for four hours. Before, the person may be away."""
    last = START_MS + 10**9 + script.dice.randrange(10**6)
    script.add({"type": "user.message", "at": last - 1_000})
    with script.loop("STALL007", warn=1) as loop:
        script.call("read_file", {"path": script.words.path()}, script.words.code(5), at=last)
        script.add({"type": "deadline", "at": last + AWAY_MS + script.dice.randrange(1, 60_000)})
        loop.counted(1)


def a_person_who_is_away(script: Script) -> None:
    """An agent ends its work, or asks, and a person answers hours later, in a message or in a turn."""
    last = START_MS + 2 * 10**9
    for _ in range(script.times(1, 3)):
        script.say(script.agent, script.words.text(1), at=last)
        script.add({"type": "deadline", "at": last + SILENCE_MS + script.dice.randrange(1, 60_000)})
        last += script.dice.randrange(3_600_000, 36_000_000)
        match script.dice.randrange(3):
            case 0:
                script.add({"type": "user.message", "at": last})
            case 1:
                script.say("user", script.words.text(1), at=last)
        last += 20_000
        script.call("read_file", {"path": script.words.path()}, script.words.code(5), at=last)
        last += 20_000


def failed_tasks(script: Script) -> None:
    """ERROR004: three tasks fail in a row. A notification."""
    with script.loop("ERROR004", warn=3) as loop:
        for count in range(1, script.times(3, 5) + 1):
            task = f"T-{1000 + count}"
            script.add({"type": "task.transition", "task_id": task, "from": "in_progress", "to": "failed"})
            loop.counted(count)


KINDS = (
    stalled_task, zero_progress_cycle, a_turn_that_never_ends, silence_after_a_call, silence_of_a_session, failed_tasks,
)  # fmt: skip
FRAGMENTS = (a_person_who_is_away,)
