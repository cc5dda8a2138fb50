"""TASK001 to TASK008: moves that a board of tickets must refuse. All of them are warnings, because the run has other
tasks: the board blocks the transition, not the run."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding

WAY = ("READY", "LOCKED", "IMPLEMENTING", "QA_REVIEW", "VALIDATION", "DOCUMENTATION", "CI_REVIEW", "COMMIT", "DONE")
APPROVED = {"verdict": "APPROVED", "items": [{"name": "tests", "status": True}]}
NO_VERDICT = {"items": [{"name": "tests", "status": True}]}
POOR = {"verdict": "APPROVED", "items": [{"name": "tests", "status": False}]}
BOARD = tuple(f"TASK00{number}" for number in range(1, 9))


def task_name(script: Script) -> str:
    """Return a ticket id that is unique in this run."""
    return f"T-{script.next}-{script.dice.randrange(1000)}"


def move(script: Script, task: str, source: str, target: str, **more: Any) -> None:
    """Write one transition, by default with the evidence that its guard requires."""
    if (source, target) == ("QA_REVIEW", "VALIDATION"):
        more = {"dod": APPROVED} | more
    script.add({"type": "task.transition", "task_id": task, "from": source, "to": target, **more})


def work_on(script: Script, task: str, *states: str) -> None:
    """Move a task from state to state, with work in between."""
    for source, target in pairwise(states):
        move(script, task, source, target)
        if script.chance(0.4):
            finding(script)


def swinging(script: Script) -> None:
    """TASK001: a task moves from work to review and back, three times."""
    task = task_name(script)
    work_on(script, task, *WAY[:3])
    with script.loop("TASK001", warn=3, also=BOARD) as loop:
        for count in range(1, 4):
            for source, target in (("IMPLEMENTING", "QA_REVIEW"), ("QA_REVIEW", "REWORK"), ("REWORK", "IMPLEMENTING")):
                move(script, task, source, target)
                loop.counted(count if target == "IMPLEMENTING" else 0)


def blocked_chain(script: Script) -> None:
    """TASK002: three tasks, each of which depends on the one before, are blocked."""
    tasks = [task_name(script) + name for name in "abc"]
    for task, before in zip(tasks, [None, *tasks], strict=False):
        needs = {"dependencies": [before]} if before else {}
        script.add({"type": "task.created", "task_id": task, **needs})
    script.dice.shuffle(tasks)
    with script.loop("TASK002", warn=3, also=BOARD) as loop:
        for count, task in enumerate(tasks, start=1):
            script.add({"type": "task.transition", "task_id": task, "from": "READY", "to": "BLOCKED"})
            loop.counted(count)


def oversized_batch(script: Script) -> None:
    """TASK003: an agent gets four tasks in one cycle, or six in SPEC, in one delivery or in two."""
    spec = script.chance(0.3)
    tasks = [f"{task_name(script)}-{number}" for number in range(6 if spec else script.dice.randint(4, 9))]
    phase = "SPEC" if spec else "BUILD"
    batch = {"type": "task.delegated", "agent": script.agent, "phase": phase}
    first = script.dice.randrange(1, 5 if spec else 3) if script.chance(0.5) else 0  # in two deliveries of one cycle
    if first:
        script.add(batch | {"tasks": tasks[:first]})
    with script.loop("TASK003", warn=1) as loop:
        script.add(batch | {"tasks": tasks[first:]})
        loop.counted(1)


def state_skipped(script: Script) -> None:
    """TASK004: a task skips a state."""
    task, place = task_name(script), script.dice.randrange(len(WAY) - 2)
    work_on(script, task, *WAY[: place + 1])
    with script.loop("TASK004", warn=1, also=BOARD) as loop:
        target = WAY[script.dice.randrange(place + 2, len(WAY))]
        script.add({"type": "task.transition", "task_id": task, "from": WAY[place], "to": target, "dod": APPROVED})
        loop.counted(1)


def not_done(script: Script) -> None:
    """TASK005: a task passes the review without a report, or with a failing one."""
    task = task_name(script)
    work_on(script, task, *WAY[:4])
    with script.loop("TASK005", warn=1, also=BOARD) as loop:
        move(
            script,
            task,
            "QA_REVIEW",
            "VALIDATION",
            dod=script.dice.choice((POOR, None, {"verdict": "REJECTED"}, NO_VERDICT)),
        )
        loop.counted(1)


def not_initialised(script: Script) -> None:
    """TASK006: work starts on a module without a checklist."""
    task = task_name(script)
    script.add({"type": "task.created", "task_id": task, "module": script.words.name()})
    work_on(script, task, *WAY[:2])
    with script.loop("TASK006", warn=1, also=BOARD) as loop:
        move(script, task, "LOCKED", "IMPLEMENTING")
        loop.counted(1)


def not_designed(script: Script) -> None:
    """TASK007: work on a user interface starts before its design is done."""
    task = task_name(script)
    script.add({"type": "task.created", "task_id": f"{task}-design"})
    script.add({"type": "task.created", "task_id": task, "ui_touching": True, "dependencies": [f"{task}-design"]})
    work_on(script, task, *WAY[:2])
    with script.loop("TASK007", warn=1, also=BOARD) as loop:
        move(script, task, "LOCKED", "IMPLEMENTING")
        loop.counted(1)


def rejected_again_and_again(script: Script) -> None:
    """TASK008: a task is rejected three times."""
    task = task_name(script)
    with script.loop("TASK008", warn=3, also=(*BOARD, "ERROR002")) as loop:
        for count in range(1, 4):
            verdict = {"verdict": "REJECTED", "validator": "qa", "reason": script.words.sentence()}
            script.add({"type": "task.verdict", "task_id": task, **verdict})
            loop.counted(count)
            if count < 3:
                finding(script)


KINDS = (
    swinging, blocked_chain, oversized_batch, state_skipped, not_done, not_initialised, not_designed,
    rejected_again_and_again,
)  # fmt: skip


def all_the_way(script: Script) -> None:
    """Tasks reach the end, some after a rework or two."""
    for _ in range(script.times(1, 3)):
        task = task_name(script)
        reworks = ("QA_REVIEW", "REWORK", "IMPLEMENTING") * script.dice.choice((0, 0, 1, 2))
        work_on(script, task, *WAY[:3], *reworks, *WAY[3:])
        script.add({"type": "cycle.completed", "completed": 1})


def small_batches(script: Script) -> None:
    """Three tasks at once, five in SPEC."""
    for _ in range(script.times(2, 6)):
        size, phase = script.dice.choice(((3, "BUILD"), (1, "BUILD"), (2, "VALIDATE"), (5, "SPEC")))
        tasks = [f"{task_name(script)}-{number}" for number in range(size)]
        script.add({"type": "task.delegated", "agent": script.agent, "tasks": tasks, "phase": phase})
        finding(script)


def batches_by_cycle(script: Script) -> None:
    """Two or three tasks in each cycle, one of them delivered later; all are done when it ends."""
    for _ in range(script.times(2, 4)):
        tasks = [f"{task_name(script)}-{number}" for number in range(script.dice.randint(2, 3))]
        for batch in (tasks[:-1], tasks[-1:]):
            script.add({"type": "task.delegated", "agent": script.agent, "tasks": batch, "phase": "BUILD"})
        for task in tasks:
            work_on(script, task, *WAY)
        script.add({"type": "cycle.completed", "completed": len(tasks)})


def another_board(script: Script) -> None:
    """A tracker with four states of its own, in which cards occasionally move back."""
    for _ in range(script.times(2, 5)):
        card = task_name(script)
        for source, target in (("Backlog", "Doing"), ("Doing", "Review"), ("Review", "Doing"), ("Doing", "Shipped")):
            script.add({"type": "task.transition", "task_id": card, "from": source, "to": target})
            finding(script)


def two_rejections(script: Script) -> None:
    """Several tasks are rejected twice, then approved."""
    for _ in range(script.times(1, 4)):
        task = task_name(script)
        for verdict in ("REJECTED", "REJECTED", "APPROVED"):
            script.add({"type": "task.verdict", "task_id": task, "verdict": verdict, "reason": script.words.sentence()})
            finding(script)


FRAGMENTS = (all_the_way, small_batches, batches_by_cycle, another_board, two_rejections)
