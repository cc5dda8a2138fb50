"""Healthy reading: pages, re-read files, repeated searches."""

from __future__ import annotations

from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import finding, narrate


def paging(script: Script) -> None:
    """One long file, page by page, with empty pages at the end."""
    path = script.words.path()
    pages = script.times(4, 20)
    for page in range(pages):
        narrate(script, 0.1)
        text = script.words.code(6) if page < pages - 2 else "(end of file)"
        script.call("read_file", {"path": path, "offset": page * 100, "limit": 100}, text)


def reading_again_between_findings(script: Script) -> None:
    """The same file several times, each time after something new."""
    path, text = script.words.path(), script.words.code(6)
    for _ in range(script.times(3, 10)):
        script.call("read_file", {"path": path}, text)
        for _ in range(script.times(1, 3)):
            finding(script)


def twice_over_the_same_files(script: Script) -> None:
    """Everything is read twice."""
    files = [(script.words.path(), script.words.code()) for _ in range(script.times(2, 25))]
    for _ in range(2):
        for path, text in files:
            narrate(script, 0.1)
            script.call("read_file", {"path": path}, text)
    finding(script)


def a_look_at_several_old_things(script: Script) -> None:
    """The agent re-reads four or five known items before it continues."""
    for _ in range(5):
        finding(script)
    for made in script.dice.sample(script.made[-5:], script.times(3, 5)):
        script.again(made)
    finding(script)


def the_same_call_twice_in_a_row(script: Script) -> None:
    """Three re-reads, at different places."""
    for _ in range(3):
        finding(script)
        script.again(script.made[-1])
        script.call("edit_file", {"path": script.words.path(), "text": script.words.code()}, "ok")


def a_search_that_narrows(script: Script) -> None:
    """Different searches without a match, until one finds something."""
    for _ in range(script.times(2, 9)):
        script.call("search", {"query": script.words.query()}, "No results found.")
    script.call("search", {"query": script.words.query()}, script.words.text(3))


FRAGMENTS = (
    paging, reading_again_between_findings, twice_over_the_same_files, a_look_at_several_old_things,
    the_same_call_twice_in_a_row, a_search_that_narrows,
)  # fmt: skip
