"""LOOP003 and ERROR005 beyond plain repeats: waiting for ever, known answers, a file that grows, guesses."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import narrate

ALSO = ("LOOP002",)


def endless_wait(script: Script) -> None:
    """A job that says from the first poll on that it runs, and never ends. Halt at ten polls and ten minutes."""
    job, says = (
        script.words.name(),
        script.dice.choice(("still running", "status: pending", "<status>running</status>")),
    )
    with script.loop("LOOP003", halt=10, also=ALSO) as loop:
        for count in range(1, script.times(10, 40) + 1):
            if count > 1:
                script.wait(70_000)  # nine pauses of more than ten minutes
            narrate(script, 0.2)
            script.call("get_status", {"job_id": job}, says)
            loop.counted(count)


def a_job_that_is_over(script: Script) -> None:
    """A job that has ended, or a session that is unknown, asked again and again: its handle is no sign of life."""
    job = f"{script.words.name()}-7"
    says = script.dice.choice((
        f"Unknown job: {job}", f"{job} has already exited.", f'{{"job_id": "{job}", "state": "FAILED"}}',
    ))  # fmt: skip
    with script.loop("LOOP003", warn=2, halt=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 20) + 1):
            script.call("get_status", {"job_id": job}, says)
            loop.counted(count)


def known_answers(script: Script) -> None:
    """A call that changes back and forth between two answers. Warn at ten known ones, halt at 25."""
    args, answers = {"path": script.words.path()}, [script.words.text(1), script.words.text(2)]
    with script.loop("LOOP003", warn=10, halt=25, also=ALSO) as loop:
        now, same = 0, 1
        for count in range(-1, script.times(25, 60) + 1):
            script.call("inspect", args, answers[now])
            loop.counted(count)
            now, same = (now, same + 1) if count > 1 and same < 3 and script.chance(0.4) else (1 - now, 1)


def growing_file(script: Script) -> None:
    """The same long text, inserted again and again. Warn 3, halt 5 in a row."""
    args = {"path": script.words.path(), "insert_line": 4, "insert_text": script.words.code(12)}
    lines = script.dice.randrange(20, 400)
    with script.loop("LOOP003", warn=3, halt=5, also=ALSO) as loop:
        for count in range(1, script.times(5, 30) + 1):
            narrate(script, 0.3)
            lines += 12
            script.call("edit_file", args, f"inserted; the file has {lines} lines")
            loop.counted(count)


def same_guesses(script: Script) -> None:
    """ERROR005: the same three arguments in turn, the same error. Warn 3, halt 4."""
    tool, error = script.words.name(), script.words.error()
    guesses = [f"{script.words.query()} {number}" for number in range(3)]
    with script.loop("ERROR005", warn=3, halt=4, also=(*ALSO, "LOOP003", "ERROR003")) as loop:
        for count in range(1, script.times(4, 12) + 1):
            script.fail(tool, {"query": guesses[count % 3]}, error)
            loop.counted(count)


KINDS = (endless_wait, a_job_that_is_over, known_answers, growing_file, same_guesses)
