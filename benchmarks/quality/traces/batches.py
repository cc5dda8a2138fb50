"""Healthy batch work: different items, the same answer."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate, plain_steps


def files_written(script: Script) -> None:
    """Thirty files are written, each with the answer "ok"."""
    answer = script.dice.choice(("ok", "File written.", "", "1 file changed"))
    for _ in range(script.times(6, 40)):
        narrate(script, 0.1)
        script.call("write_file", {"path": script.words.path(), "text": script.words.code(2)}, answer)


def alike_files_read(script: Script) -> None:
    """A directory of files with equal contents."""
    text = script.words.code(3)
    for number in range(script.times(6, 20)):
        script.call("read_file", {"path": f"fixtures/case_{number}/expected.txt"}, text)


def a_command_over_many_things(script: Script) -> None:
    """The same command for each of many items, without reported answers."""
    tool = script.words.name()
    for _ in range(script.times(5, 20)):
        script.call(tool, {"target": script.words.path()})


def todo_list(script: Script) -> None:
    """A to-do list whose tool always gives the same answer."""
    todos = [script.words.sentence() for _ in range(script.times(3, 9))]
    for done in range(len(todos) + 1):
        state = [{"what": todo, "done": number < done} for number, todo in enumerate(todos)]
        script.call("todo_write", {"todos": state}, "Todos have been modified successfully.")
        for _ in range(script.times(1, 3)):
            finding(script)


def committed_work(script: Script) -> None:
    """Each commit leaves a clean tree and an empty diff."""
    for _ in range(script.times(3, 9)):
        script.call("edit_file", {"path": script.words.path(), "text": script.words.code()}, "ok")
        script.call("bash", {"command": f"git commit -am '{script.words.name()}'"}, "1 file changed")
        script.call("bash", {"command": "git status"}, "nothing to commit, working tree clean")
        empty = script.dice.choice(("", " ", "\n"))
        script.say(script.agent, "Committed.", artifact=empty)


def committed_by_a_team(script: Script) -> None:
    """A coder commits its work and a reviewer accepts it: the diff is empty each time."""
    coder, reviewer = script.team(2)
    for _ in range(script.times(3, 7)):
        script.say(coder, f"Committed: {script.words.sentence()}", artifact="")
        script.say(reviewer, f"Looks good: {script.words.sentence()}")


def tickets_closed(script: Script) -> None:
    """A queue is processed: take the next ticket, read it, close it."""
    for number in range(script.times(4, 12)):
        script.call("next_ticket", {}, {"id": number + 100, "title": script.words.sentence()})
        plain_steps(script) if script.chance(0.2) else finding(script)
        script.call("close_ticket", {"id": number + 100}, {"status": "closed"})


def the_same_verdict_for_each_task(script: Script) -> None:
    """A reviewer approves one task after another in the same words."""
    (reviewer,) = script.team(1)
    verdict = {"verdict": "APPROVED", "reasons": []}
    for number in range(script.times(3, 9)):
        script.add({"node": reviewer, "task_id": f"T-{number}", "structured_output": verdict})


def the_diff_of_every_turn(script: Script) -> None:
    """A harness sends the current diff with every turn; the agent reads for a while before it edits again."""
    for _ in range(script.times(2, 4)):
        patch = script.words.patch()
        for _ in range(script.times(3, 6)):
            path = {"path": script.words.path()}
            script.call("read_file", path, script.words.code(4), artifact=patch)


def the_tests_of_every_turn(script: Script) -> None:
    """A harness sends the latest test report with every turn; the agent reads and edits."""
    names = script.words.test_ids(3)
    for left in (3, 2, 1, 0):
        report = {"failed": names[:left], "passed": 9 - left, "total": 9}
        for _ in range(script.times(3, 6)):
            path = {"path": script.words.path(), "text": script.words.code()}
            script.call("edit_file", path, script.words.sentence(), tests=report)


FRAGMENTS = (
    files_written, alike_files_read, a_command_over_many_things, todo_list, committed_work, committed_by_a_team,
    tickets_closed, the_same_verdict_for_each_task, the_diff_of_every_turn, the_tests_of_every_turn,
)  # fmt: skip
