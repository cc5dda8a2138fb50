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


def a_silent_session(script: Script) -> None:
    """A session that is polled and prints nothing; its answer repeats its handle."""
    session = script.dice.randrange(10, 99_999)
    for _ in range(script.times(2, 9)):
        script.call("write_stdin", {"session_id": session, "chars": ""}, f"[session {session}] (no new output)")
    script.call("write_stdin", {"session_id": session, "chars": ""}, script.words.text(1))


def a_sleep_before_each_look(script: Script) -> None:
    """A command that sleeps and looks, or sleeps and looks in turn, at something that says nothing about itself."""
    seconds, look = script.dice.choice((30, 60, 300)), f"tail -n 1 {script.words.path()}.log"
    apart, same = script.dice.random() < 0.5, script.words.sentence()
    for last in (*[same] * script.times(2, 9), script.words.text(1)):
        if apart:
            script.call("bash", {"command": f"sleep {seconds}"}, "")
        script.call("bash", {"command": look if apart else f"sleep {seconds}; {look}"}, last)


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
    a_background_job, a_silent_session, a_sleep_before_each_look, a_long_test_command, a_long_poll,
    a_search_for_the_right_path, a_tool_that_hangs, acknowledgements,
)  # fmt: skip
