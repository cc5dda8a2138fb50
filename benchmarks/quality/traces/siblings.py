"""Healthy parallel work: the same call by several nodes at once."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding


def _made(tool: str, args: object, result: object) -> dict[str, object]:
    return {"name": tool, "args": args, "result": result}


def in_one_turn(script: Script) -> None:
    """Many equal calls in one turn, which form one multiset."""
    for _ in range(script.times(1, 4)):
        call = _made("fetch", {"url": f"https://{script.words.noun()}.example"}, script.words.text(2))
        script.add({"node": script.agent, "tool_calls": [call] * script.times(3, 8)})


def answers_that_differ_in_one_turn(script: Script) -> None:
    """Samples drawn side by side from one source."""
    url = {"url": f"https://{script.words.noun()}.example"}
    for _ in range(script.times(1, 4)):
        calls = [_made("sample", url, script.words.sentence()) for _ in range(script.times(3, 8))]
        script.add({"node": script.agent, "tool_calls": calls})


def agents_that_read_the_same_file(script: Script) -> None:
    """A team starts, and each member reads the task."""
    path, text = script.words.path(), script.words.text(5)
    nodes = script.team(script.times(3, 6))
    for node in nodes:
        script.call("read_file", {"path": path}, text, node=node)
    for node in nodes:
        script.say(node, script.words.text(2))


def workers_that_start_alike(script: Script) -> None:
    """Workers on parallel branches share their first steps, then diverge."""
    steps = [(f"read_{script.words.noun()}", script.words.code(3)) for _ in range(script.times(2, 4))]
    nodes = script.team(script.times(3, 5))
    for node in nodes:
        for tool, text in steps:
            script.call(tool, {}, text, node=node)
    for node in nodes:
        script.call("write_file", {"path": script.words.path(), "text": script.words.code()}, "ok", node=node)


def workers_of_one_name(script: Script) -> None:
    """A fan-out: one node runs once for each task, and all tasks start alike."""
    (node,) = script.team(1)
    tasks = [f"T-{number}" for number in range(script.times(3, 8))]
    guide = script.words.text(4)
    for task in tasks:
        script.call("read_guide", {}, guide, node=node, task_id=task)
    for task in tasks:
        script.call("read_file", {"path": script.words.path()}, script.words.code(), node=node, task_id=task)


def answers_that_agree(script: Script) -> None:
    """A vote: several nodes give the same answer once each."""
    answer = script.words.sentence()
    for node in script.team(script.times(3, 6)):
        script.say(node, answer)
    finding(script)


FRAGMENTS = (
    in_one_turn, answers_that_differ_in_one_turn, agents_that_read_the_same_file, workers_that_start_alike,
    workers_of_one_name, answers_that_agree,
)  # fmt: skip
