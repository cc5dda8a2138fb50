"""Healthy repair work: the same test after each edit, until it passes."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate, plain_steps


def _edit(script: Script, answer: str = "ok") -> None:
    script.call("edit_file", {"path": script.words.path(), "text": script.words.code()}, answer)


def new_output_after_each_edit(script: Script) -> None:
    """The same test after each edit, with new output."""
    names = script.words.test_ids(script.times(3, 9))
    while names:
        narrate(script, 0.3)
        _edit(script)
        script.call("bash", {"command": "pytest -q"}, script.words.report(names, 20))
        names.pop(script.dice.randrange(len(names)))


def the_same_failure_after_different_edits(script: Script) -> None:
    """One stubborn test, with a different attempt each time: five at most, because a sixth is LOOP012."""
    report = script.words.report(script.words.test_ids(1), 12)
    for _ in range(script.times(3, 5)):
        narrate(script, 0.3)
        _edit(script)
        script.call("bash", {"command": "pytest -q"}, report)
    _edit(script)
    script.call("bash", {"command": "pytest -q"}, "12 passed")


def a_lone_agent_that_reports_its_tests(script: Script) -> None:
    """The same by an agent that also reports the failing tests."""
    failed = script.words.test_ids(2)
    for _ in range(script.times(3, 7)):
        _edit(script)
        finding(script)
        script.tested(script.agent, failed, 12)
    _edit(script)
    script.tested(script.agent, failed[:1], 12)
    _edit(script)
    script.tested(script.agent, [], 12)


def always_green(script: Script) -> None:
    """Small steps, each followed by the same passing test."""
    for _ in range(script.times(3, 12)):
        _edit(script)
        script.call("bash", {"command": "ruff check"}, "All checks passed!")
        script.call("bash", {"command": "pytest -q"}, "12 passed")


def long_debugging(script: Script) -> None:
    """Dozens of turns on one bug: reads, edits, errors of many kinds, reruns and re-reads."""
    report = script.words.report(script.words.test_ids(2), 30)
    for number in range(script.times(6, 30)):
        match script.dice.randrange(6):
            case 0 | 1:
                _edit(script)
                script.call("bash", {"command": "pytest -x"}, report)
            case 2:
                script.call("bash", {"command": f"python -c '{script.words.name()}()'"}, script.words.error())
            case 3 if len(script.made) > 4:
                script.again(script.dice.choice(script.made[-5:]))
            case 4:
                script.fail("bash", {"command": script.words.name()}, script.words.error())
            case _:
                plain_steps(script)
        finding(script)
        if number % 5 == 4:
            report = script.words.report(script.words.test_ids(2), 30)
    script.call("bash", {"command": "pytest -x"}, "30 passed")


def errors_on_the_way(script: Script) -> None:
    """A few different failing calls, with a successful one after three at most."""
    for _ in range(script.times(2, 5)):
        for _ in range(script.times(1, 3)):
            script.fail(script.words.noun(), {"name": script.words.name()}, script.words.error())
        finding(script)


def restarting_a_server(script: Script) -> None:
    """Start the server, get a refused connection, change something, and repeat."""
    for _ in range(script.times(3, 8)):
        script.call("bash", {"command": "make restart"}, "restarted")
        script.call("bash", {"command": "curl localhost:8080/health"}, "curl: (7) Failed to connect: refused")
        script.call("bash", {"command": "tail server.log"}, script.words.text(2))
        _edit(script)
    script.call("bash", {"command": "curl localhost:8080/health"}, "healthy")


def errors_in_one_frame(script: Script) -> None:
    """Each repair gets further; the tracebacks only share the first line of every traceback."""
    executor, repairer = script.team(2)
    path = script.words.path()
    for line in range(script.times(3, 6)):
        head = f'Traceback (most recent call last):\n  File "/app/{path}", line {40 + line}, in main\n'
        script.add({"node": executor, "errors": [f"{head}    {script.words.name()}()\n{script.words.error()}"]})
        script.call("edit_file", {"path": path, "line": line}, script.words.code(1), node=repairer)
    script.add({"node": executor, "errors": []})


FRAGMENTS = (
    new_output_after_each_edit, the_same_failure_after_different_edits, a_lone_agent_that_reports_its_tests,
    always_green, long_debugging, errors_on_the_way, restarting_a_server,
    errors_in_one_frame,
)  # fmt: skip
