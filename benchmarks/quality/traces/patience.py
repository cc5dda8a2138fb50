"""Healthy work that looks like waiting for ever, searching for ever or writing for ever."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import narrate


def a_background_job(script: Script) -> None:
    """A job that says at every poll that it runs, until it ends."""
    job = f"{script.dice.getrandbits(24):06x}"
    says = script.dice.choice((
        "<status>running</status>", f"Process running with session ID {job}", '{"state":"QUEUED"}', "still in progress",
        '{"StackStatus":"CREATE_IN_PROGRESS"}', "state: provisioning", "db Up 5 s (health: starting)",
        "activating", "web-6f 0/1 ContainerCreating 0 10s", "Waiting for deployment web to finish: 1 of 4 is ready...",
    ))  # fmt: skip
    for _ in range(script.times(2, 9)):
        narrate(script, 0.2)
        script.call("poll_job", {"id": job}, says)
    script.call("poll_job", {"id": job}, script.words.text(1))


def a_silent_wait(script: Script) -> None:
    """A session that is polled and prints nothing, with its handle in the answer, or a look after a sleep at a log that
    says nothing about its state; the sleep may be a call of its own."""
    session, sleep = script.dice.randrange(10, 99_999), script.dice.choice(("", "sleep 30", "sleep 5m"))
    log, apart = f"tail -n 1 {script.words.path()}.log", script.chance(0.5)
    for count in reversed(range(script.times(3, 10))):
        if not sleep:
            answer = f"[session {session}] (no new output)" if count else script.words.text(1)
            script.call("write_stdin", {"session_id": session, "chars": ""}, answer)
            continue
        if apart:
            script.call("bash", {"command": sleep}, "")
        answer = f"epoch {session}" if count else script.words.text(1)
        script.call("bash", {"command": log if apart else f"{sleep}; {log}"}, answer)


def a_long_test_command(script: Script) -> None:
    """The same long test command several times, with other failures each time."""
    command = {"command": "pytest -q " + " ".join(f"tests/{name}_test.py" for name in script.words.nouns(12))}
    for number in range(script.times(3, 9)):
        script.call("bash", command, f"{script.dice.randrange(1, 90)} failed, {number} errors, {script.words.noun()}")


def a_long_poll(script: Script) -> None:
    """A loop of the shell that waits for a line of a log."""
    log = f"/var/log/{script.words.path()}.log"
    command = {
        "command": f"until grep -q finished {log}; do sleep 5; done & sleep 60; tail -n 3 {log}; wc -l {log} # {log}"
    }
    for number in range(script.times(3, 9)):
        script.call("bash", command, f"{script.words.sentence()}\n{number * 17} lines")


def a_search_for_the_right_path(script: Script) -> None:
    """Guesses that fail alike until one is right."""
    tool, error = script.words.name(), "no such file or directory"
    for number in range(script.times(2, 5)):
        script.fail(tool, {"path": f"{script.words.path()}/{number}"}, error)
    script.call(tool, {"path": script.words.path()}, script.words.code(3))


def a_tool_that_hangs(script: Script) -> None:
    """A tool that does not return for a while, whatever it is asked."""
    error = script.dice.choice((
        "timed out: bash has not returned", "command timed out after 120 s", "tool did not respond",
    ))  # fmt: skip
    for _ in range(script.times(2, 9)):
        script.fail("bash", {"command": script.words.sentence()}, error)
    script.call("bash", {"command": script.words.sentence()}, script.words.text(1))


def acknowledgements(script: Script) -> None:
    """A tool that answers every call alike, whatever it is asked to write."""
    tool = script.words.name()
    for number in range(script.times(6, 30)):
        script.call(tool, {"path": f"{script.words.path()}/{number}", "text": script.words.code(2)}, "ok")


FRAGMENTS = (
    a_background_job, a_silent_wait, a_long_test_command, a_long_poll, a_search_for_the_right_path,
    a_tool_that_hangs, acknowledgements,
)  # fmt: skip
