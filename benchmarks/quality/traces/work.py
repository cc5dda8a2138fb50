"""Plain healthy work of a lone agent: each step finds or creates something new."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script


def narrate(script: Script, probability: float = 0.5) -> None:
    """Perhaps write a text between two calls, as models do."""
    if script.chance(probability):
        script.say(script.agent, script.words.sentence())


def finding(script: Script) -> None:
    """Write something new, which ends any streak."""
    script.call("read_file", {"path": script.words.path()}, script.words.code(5))


def plain_steps(script: Script) -> None:
    """Reads, searches, edits and runs, sometimes with text in between."""
    for _ in range(script.times(3, 14)):
        narrate(script, 0.3)
        _step(script)


def _step(script: Script) -> None:
    words = script.words
    match script.dice.randrange(5):
        case 0:
            finding(script)
        case 1:
            hits = "\n".join(f"{words.path()}: {words.sentence()}" for _ in range(script.times(1, 4)))
            script.call("search", {"query": words.query()}, hits)
        case 2:
            script.call("edit_file", {"path": words.path(), "text": words.code()}, f"edited: {words.name()}")
        case 3:
            script.call("bash", {"command": f"python -m {words.name()}"}, words.text(3))
        case _:
            script.call("list_files", {"path": words.path()}, "\n".join(words.path() for _ in range(5)))


def talk(script: Script) -> None:
    """A few nodes that only talk and never repeat themselves."""
    nodes = script.team(script.times(2, 4))
    for number in range(script.times(4, 16)):
        script.say(nodes[number % len(nodes)], script.words.text(2))
