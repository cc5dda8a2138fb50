"""Healthy reversals: one step back is not a loop."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding


def words_taken_back(script: Script) -> None:
    """A, B, A again, then C."""
    (node,) = script.team(1)
    first, second, third = (script.words.text(2) for _ in range(3))
    for text in (first, second, first, third):
        script.say(node, text)


def an_edit_undone(script: Script) -> None:
    """A patch, another one, the first again, then a third."""
    (coder,) = script.team(1)
    first, second, third = (script.words.patch() for _ in range(3))
    for patch in (first, second, first, third):
        script.say(coder, script.words.sentence(), artifact=patch)


def an_edit_undone_by_calls(script: Script) -> None:
    """Edit, test, undo the edit, test again, then try something else."""
    path = script.words.path()
    edit = {"path": path, "text": script.words.code()}
    for _ in range(script.times(1, 3)):
        script.call("edit_file", edit, "ok")
        script.call("bash", {"command": "pytest"}, script.words.report(script.words.test_ids(2), 9))
        script.call("bash", {"command": f"git checkout {path}"}, "Updated 1 path")
        finding(script)


def two_ways_compared(script: Script) -> None:
    """Two variants are measured one after another, and the better one is kept."""
    coder, judge = script.team(2)
    ways = [script.words.patch() for _ in range(2)]
    for way, score in ((ways[0], 0.4), (ways[1], 0.6), (ways[0], 0.4)):
        script.say(coder, script.words.sentence(), artifact=way)
        script.say(judge, script.words.sentence(), progress={"speed": score})


def a_patch_that_stays(script: Script) -> None:
    """The coder leaves its patch unchanged while the verifier finds fewer failures."""
    coder, verifier = script.team(2)
    patch, names = script.words.patch(), script.words.test_ids(5)
    for left in range(5, -1, -1):
        script.say(coder, script.words.sentence(), artifact=patch)
        script.tested(verifier, names[:left], 9)


FRAGMENTS = (words_taken_back, an_edit_undone, an_edit_undone_by_calls, two_ways_compared, a_patch_that_stays)
