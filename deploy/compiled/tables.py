"""Automata of the patterns in `fingerprint/mask.py`. `scan.pyx` runs them, and finds the matches that `re` finds, in
one step a character.

A pattern becomes a table ``next[state, class of the character]``. Classes hold characters that the pattern does not
tell apart; those beyond ASCII fall into digits, other word characters, white space, the rest, and each one that the
pattern names. What `re` would try first wins, so a state is an ordered list of places in the pattern, and what is
behind a match is dropped. Only what the patterns use is understood; anything else raises `Unsupported`.

A pattern may start with characters and a look at what is before them (`[0-9a-f](?<![a-z][0-9a-f])`), and then look
ahead: these become a set of characters that must (not) come before, and tables of their own.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Callable, Iterable
from re import _constants as c, _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

BEYOND: Final = {"digits": 0x660, "words": 0xE9, "spaces": 0xA0, "others": 0x2027}  # an example of each
CASELESS: Final = (0x130, 0x131, 0x17F, 0x212A)  # letters beyond ASCII that (?i) takes for letters of ASCII
STATES_MAX: Final = 32_767  # a state and a bit fit 16 bits


class Unsupported(ValueError):
    """A part of a pattern that has no automaton here."""


def takes(item: Any, char: int, *, caseless: bool = False) -> bool:
    """Return whether one element of a parsed pattern takes a character."""
    op, argument = item
    if op is c.LITERAL:
        return _equal(argument, char, caseless)
    if op is c.NOT_LITERAL:
        return not _equal(argument, char, caseless)
    if op is c.ANY:
        return char != ord("\n")
    if op is not c.IN:
        raise Unsupported(f"{op} where one character is expected")
    negated = argument[0][0] is c.NEGATE
    return any(_in(kind, what, char, caseless) for kind, what in argument[negated:]) != negated


def _equal(one: int, other: int, caseless: bool) -> bool:
    if not caseless:
        return one == other
    return re.fullmatch(re.escape(chr(one)), chr(other), re.IGNORECASE) is not None


def _in(kind: Any, what: Any, char: int, caseless: bool) -> bool:
    if kind is c.LITERAL:
        return _equal(what, char, caseless)
    if kind is c.RANGE and not caseless and what[1] < 128:
        return bool(what[0] <= char <= what[1])
    if kind is c.CATEGORY and what in _CATEGORIES:
        return _CATEGORIES[what](chr(char))
    raise Unsupported(f"{kind} {what} in a set")


def _is_word(char: str) -> bool:
    return char.isalnum() or char == "_"


_CATEGORIES: Final[dict[Any, Callable[[str], bool]]] = {
    c.CATEGORY_DIGIT: str.isdecimal,
    c.CATEGORY_NOT_DIGIT: lambda char: not char.isdecimal(),
    c.CATEGORY_SPACE: str.isspace,
    c.CATEGORY_NOT_SPACE: lambda char: not char.isspace(),
    c.CATEGORY_WORD: _is_word,
    c.CATEGORY_NOT_WORD: lambda char: not _is_word(char),
}


def _named(parsed: Any) -> Iterable[int]:
    """Yield the characters beyond ASCII that a part of a parsed pattern names."""
    if isinstance(parsed, tuple) and len(parsed) == 2 and parsed[0] in (c.LITERAL, c.NOT_LITERAL):
        if parsed[1] > 127:
            yield parsed[1]
    elif isinstance(parsed, (tuple, list, parser.SubPattern)):
        for part in parsed:
            yield from _named(part)


class _Program:
    """A pattern as instructions, each of which names those after it.

    ("take", set, next), ("split", [first choice, second, ...]), ("after", set, next): the character just taken is in
    the set, ("edge", next): a word starts or ends here, ("end", next), ("match",).
    """

    def __init__(self, items: list[Any], chars: list[int]) -> None:
        self._chars = chars
        self._caseless = False
        self.code: list[tuple[Any, ...]] = [("match",)]
        self.start = self._sequence(items, 0)

    def _add(self, *one: Any) -> int:
        self.code.append(one)
        return len(self.code) - 1

    def _set(self, item: Any) -> frozenset[int]:
        return frozenset(char for char in self._chars if takes(item, char, caseless=self._caseless))

    def _sequence(self, items: Iterable[Any], then: int) -> int:
        for item in reversed(list(items)):
            then = self._one(item, then)
        return then

    def _one(self, item: Any, then: int) -> int:
        op, argument = item
        if op in (c.LITERAL, c.NOT_LITERAL, c.IN, c.ANY):
            return self._add("take", self._set(item), then)
        if op is c.SUBPATTERN:
            _, added, removed, body = argument
            if removed or added & ~re.IGNORECASE:
                raise Unsupported(f"flags {added}, {removed}")
            outer, self._caseless = self._caseless, self._caseless or bool(added)
            start = self._sequence(body, then)
            self._caseless = outer
            return start
        if op is c.BRANCH:
            return self._add("split", [self._sequence(branch, then) for branch in argument[1]])
        if op is c.AT and argument is c.AT_BOUNDARY:
            return self._add("edge", then)
        if op is c.AT and argument is c.AT_END_STRING:
            return self._add("end", then)
        if op is c.ASSERT and argument[0] == -1 and len(argument[1]) == 1:
            return self._add("after", self._set(argument[1][0]), then)
        if op in (c.MAX_REPEAT, c.MIN_REPEAT):
            return self._repeat(argument, then, greedy=op is c.MAX_REPEAT)
        raise Unsupported(f"{op} {argument}")

    def _repeat(self, argument: Any, then: int, *, greedy: bool) -> int:
        least, most, body = argument
        order = 1 if greedy else -1
        if most is c.MAXREPEAT:
            loop = self._add()
            self.code[loop] = ("split", [self._sequence(body, loop), then][::order])
            then = loop
        else:
            end = then
            for _ in range(most - least):
                then = self._add("split", [self._sequence(body, then), end][::order])
        for _ in range(least):
            then = self._sequence(body, then)
        return then


class CharTable:
    """The automaton of a pattern.

    `next[state * classes + class]` holds the state after a character, doubled, 0 if all is over, plus 1 if a match
    ended before that character. The last class is the end of the text. State 0 is no state.
    """

    def __init__(self, pattern: str | list[Any]) -> None:
        items = list(parser.parse(pattern)) if isinstance(pattern, str) else pattern
        self.named = sorted(set(_named(items)) | set(CASELESS))
        self._chars = [*range(128), *BEYOND.values(), *self.named]
        self._program = _Program(items, self._chars)
        self._word = frozenset(char for char in self._chars if _is_word(chr(char)))
        self._looks = [one[1] for one in self._program.code if one[0] == "after"] + [self._word]
        self.kind = self._kinds()
        """The class of each character in ASCII, of each that is named, and of the examples beyond ASCII."""
        self.classes = max(self.kind.values()) + 2
        self.next = array("H", [0] * self.classes)
        self._fill()

    def _kinds(self) -> dict[int, int]:
        sets = [one[1] for one in self._program.code if one[0] == "take"] + self._looks
        seen: dict[tuple[bool, ...], int] = {}
        return {char: seen.setdefault(tuple(char in one for one in sets), len(seen)) for char in self._chars}

    def _fill(self) -> None:
        example = {kind: char for char, kind in self.kind.items()}
        known: dict[tuple[Any, ...], int] = {}
        todo: list[tuple[tuple[int, ...], int | None]] = []

        def state(places: tuple[int, ...], before: int | None) -> int:
            key = places, before is not None and tuple(before in one for one in self._looks)
            if key not in known:
                known[key] = len(known) + 1
                todo.append((places, before))
            return known[key]

        state((self._program.start,), None)
        for places, before in todo:  # grows meanwhile
            for kind in range(self.classes):
                char = example.get(kind)
                after, matched = self._step(places, before, char)
                self.next.append((state(after, char) if after else 0) << 1 | matched)
        if len(known) > STATES_MAX:
            raise Unsupported(f"{len(known)} states")

    def _step(self, places: tuple[int, ...], before: int | None, char: int | None) -> tuple[tuple[int, ...], int]:
        """Return the places after a character, and whether a match ends before it."""
        seen: set[int] = set()
        after: dict[int, None] = {}
        stack = list(reversed(places))
        while stack:
            place = stack.pop()
            if place in seen:
                continue
            seen.add(place)
            op, *arguments = self._program.code[place]
            if op == "match":
                return tuple(after), 1
            if op == "split":
                stack += reversed(arguments[0])
            elif op == "after":
                if before in arguments[0]:
                    stack.append(arguments[1])
            elif op == "edge":
                if (before in self._word) != (char in self._word):
                    stack.append(arguments[0])
            elif op == "end":
                if char is None:
                    stack.append(arguments[0])
            elif char in arguments[0]:
                after[arguments[1]] = None
        return tuple(after), 0


class Automaton(CharTable):
    """The automaton of a pattern that is searched for: also what its first character is, and what surrounds it."""

    def __init__(self, pattern: str) -> None:
        items = list(parser.parse(pattern))
        first = items[0]
        look = next((place for place, item in enumerate(items) if _looks_back(items, place)), None)
        before = None if look is None else items.pop(look)
        self.ahead = []
        """What must follow the first character, too."""
        while len(items) > 1 and items[1][0] is c.ASSERT and items[1][1][0] == 1:
            self.ahead.append(CharTable(list(items.pop(1)[1][1])))
        super().__init__(items)
        self.begins = bytes(takes(first, char) for char in range(128))
        """For each character in ASCII, whether a match may begin with it; no match begins with another one."""
        if any(takes(first, char) for char in self._chars[128:]) or (before is not None and [*_named(before)]):
            raise Unsupported("a start beyond ASCII, or one before it")
        one = None if before is None else next(iter(before[1][1]))
        negated = before is not None and before[0] is c.ASSERT_NOT
        may = {char: one is None or takes(one, char) != negated for char in self._chars}
        self.follows = bytes(may[char] for char in range(128))
        """For each character in ASCII, whether a match may begin after it."""
        self.follows_beyond = {name: may[char] for name, char in BEYOND.items()}
        self.starts_text = before is None or negated


def _looks_back(items: list[Any], place: int) -> bool:
    """Return whether an item looks back at all items before it and at one character before them."""
    op, argument = items[place]
    if op not in (c.ASSERT, c.ASSERT_NOT) or argument[0] != -1:
        return False
    body = list(argument[1])
    return len(body) == place + 1 and body[1:] == items[:place]


def written() -> str:
    """Return the tables of `mask.py` as source text, which `scan.pyx` includes."""
    from streamproc.fingerprint import mask

    lines = [f"AUTOMATA = {{{', '.join(f'{name!r}: {_literal(Automaton(found))}' for name, found in mask.SEARCHED)}}}"]
    lines += [f"TABLES = {{{', '.join(f'{name!r}: {_literal(CharTable(found))}' for name, found in mask.ASKED)}}}"]
    return "\n".join([*lines, ""])


def _literal(table: CharTable) -> dict[str, Any]:
    found: dict[str, Any] = {
        "next": table.next.tobytes(),
        "classes": table.classes,
        "kind": bytes(table.kind[char] for char in range(128)),
        "beyond": [table.kind[char] for char in BEYOND.values()],
        "named": [(char, table.kind[char]) for char in table.named],
    }
    if isinstance(table, Automaton):
        found |= {
            "begins": table.begins,
            "follows": table.follows,
            "follows_beyond": [table.follows_beyond[name] for name in BEYOND],
            "starts_text": table.starts_text,
            "ahead": [_literal(one) for one in table.ahead],
        }
    return found
