"""The automata of the masks, run in pure Python: what `scan.pyx` does with them, with its steps counted."""

from __future__ import annotations

from typing import NamedTuple

from deploy.compiled.tables import BEYOND, Automaton, CharTable


class Found(NamedTuple):
    """Where the matches of a pattern begin and end, and how many characters were read to find them."""

    spans: list[tuple[int, int]]
    steps: int


def category(char: str) -> str:
    if char.isdecimal():
        return "digits"
    if char.isalnum():
        return "words"
    return "spaces" if char.isspace() else "others"


def end_of_match(table: CharTable, text: str, start: int) -> tuple[int, int]:
    """Return where the match that begins here ends (-1: there is none), and how many characters were read."""
    state, last = 1, -1
    for place in range(start, len(text)):
        char = ord(text[place])
        kind = table.kind[char] if char < 128 or char in table.named else table.kind[BEYOND[category(text[place])]]
        value = table.next[state * table.classes + kind]
        if value & 1:
            last = place
        state = value >> 1
        if not state:
            return last, place - start + 1
    ended = table.next[state * table.classes + table.classes - 1] & 1
    return len(text) if ended else last, len(text) - start


def may_begin(automaton: Automaton, text: str, start: int) -> bool:
    if text[start] > "\x7f" or not automaton.begins[ord(text[start])]:
        return False
    if not start:
        return automaton.starts_text
    before = text[start - 1]
    return bool(automaton.follows[ord(before)] if before < "\x80" else automaton.follows_beyond[category(before)])


def search(automaton: Automaton, text: str) -> Found:
    spans, steps, start = [], 0, 0
    while start < len(text):
        stop = -1
        steps += 1
        if may_begin(automaton, text, start):
            for table in (*automaton.ahead, automaton):
                stop, read = end_of_match(table, text, start + (table is not automaton))
                steps += read
                if stop < 0:
                    break
        if stop >= 0:
            spans.append((start, stop))
        start = max(start + 1, stop)
    return Found(spans, steps)
