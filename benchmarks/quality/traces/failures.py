"""ERROR001 to ERROR005, and infrastructure that stays unavailable."""

from __future__ import annotations

from benchmarks.quality.traces.noise import Noise
from benchmarks.quality.traces.retries import TROUBLE
from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate

ALSO = ("LOOP001", "LOOP002", "LOOP003", "LOOP004", "ERROR001", "ERROR003", "ERROR005")


def futile_repair(script: Script) -> None:
    """ERROR001: the error after a repair equals the one before. The second halts."""
    executor, repairer = script.team(2)
    messages = [script.words.error() for _ in range(script.times(1, 5))]
    with script.loop("ERROR001", halt=2, also=ALSO) as loop:
        for count in range(1, script.times(2, 9) + 1):
            script.add({"node": executor, "errors": [{"message": message} for message in messages]})
            loop.counted(count)
            if script.chance(0.5):
                script.call("edit_file", {"path": script.words.path()}, script.words.code(1), node=repairer)
            script.say(repairer, script.words.text(2))


def futile_repair_but_for_noise(script: Script) -> None:
    """ERROR001: ids or times in the message differ."""
    executor, repairer = script.team(2)
    message = f"{script.words.noun()} refused"
    with script.loop("ERROR001", halt=2, also=ALSO) as loop:
        for count in range(1, script.times(2, 5) + 1):
            script.add({"node": executor, "errors": [f"at 10:{count:02d}:{script.dice.randrange(10, 60)} {message}"]})
            loop.counted(count)
            script.say(repairer, script.words.text(2))


def retry_exhausted(script: Script) -> None:
    """ERROR002: a task is retried and fails with the same class of error in different words. The third failure blocks
    it; the run may continue with other tasks."""
    (worker,) = script.team(1)
    task, kind = f"T-{script.dice.randrange(100, 999)}", f"{script.words.noun().title()}Error"
    with script.loop("ERROR002", warn=3, also=ALSO) as loop:
        for count in range(1, script.times(3, 6) + 1):
            failed = {"message": f"{kind}: {script.words.sentence()}", "class": kind}
            script.add({"node": worker, "task_id": task, "errors": [failed]})
            loop.counted(count)


def error_streak(script: Script) -> None:
    """ERROR003: every call fails, each with a different error. Warn 4, halt 8."""
    with script.loop("ERROR003", warn=4, halt=8, also=ALSO) as loop:
        for count in range(1, script.times(8, 20) + 1):
            narrate(script, 0.2)
            script.fail(script.words.name(), {"path": script.words.path()}, script.words.error())
            loop.counted(count)


def recurring_error(script: Script) -> None:
    """ERROR005: one tool fails with the same error, whatever its arguments. Warn 3, halt 6 of its last 8 calls."""
    tool, error = script.words.name(), script.words.error()
    with script.loop("ERROR005", warn=3, halt=6, also=ALSO) as loop:
        for count in range(1, script.times(6, 15) + 1):
            narrate(script, 0.2)
            script.fail(tool, {"query": f"{script.words.query()} {count}"}, error)
            loop.counted(count)


def recurring_error_but_for_noise(script: Script) -> None:
    """ERROR005: with ids or times in the message."""
    tool, error, noise = script.words.name(), script.words.error(), Noise(script.dice)
    with script.loop("ERROR005", warn=3, halt=6, also=ALSO) as loop:
        for count in range(1, script.times(6, 12) + 1):
            script.fail(tool, {"query": f"{script.words.query()} {count}"}, noise(error))
            loop.counted(count)


def recurring_error_among_others(script: Script) -> None:
    """ERROR005: re-reads in between, and the tool itself gives a known answer once."""
    tool, error = script.words.name(), script.words.error()
    query = {"query": script.words.query()}
    script.call(tool, query, "No results found.")
    finding(script)
    (good, old), once = script.made[-2:], script.dice.choice((0, 2, 3))
    with script.loop("ERROR005", warn=3, halt=6, also=(*ALSO, "LOOP009")) as loop:
        for count in range(1, script.times(6, 9) + 1):
            script.fail(tool, {"query": f"{script.words.query()} {count}"}, error)
            loop.counted(count)
            if script.chance(0.4):
                script.again(old)
            if count == once:
                script.again(good)


def recurring_error_while_others_work(script: Script) -> None:
    """ERROR005: other tools return new results in between. That may be healthy work: a warning, no halt."""
    tool, error = script.words.name(), script.words.error()
    with script.loop("ERROR005", warn=3) as loop:
        for count in range(1, script.times(4, 9) + 1):
            finding(script)
            script.fail(tool, {"query": script.words.query()}, error)
            loop.counted(count)


def infrastructure_away(script: Script) -> None:
    """Retryable errors that do not end: a counter of their own, 10, and a pause; never "stuck"."""
    args, trouble = {"prompt": script.words.sentence()}, script.dice.choice(TROUBLE)
    with script.loop("INFRA001", warn=10) as loop:
        for count in range(1, script.times(10, 30) + 1):
            script.fail("llm", args, trouble)
            loop.counted(count)


KINDS = (
    futile_repair, futile_repair_but_for_noise, retry_exhausted, error_streak, recurring_error,
    recurring_error_but_for_noise, recurring_error_among_others, recurring_error_while_others_work, infrastructure_away,
)  # fmt: skip
