"""Edits of JSON as text: what is not changed keeps its bytes. Comments are passed over (JSONC).

A library would write the whole document in a form of its own; these files are their owners'.
"""

from __future__ import annotations

import json
import re
from typing import Any, Final, NamedTuple

_SPACE: Final = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING: Final = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"')
_PLAIN: Final = re.compile(r"[^\s,\]}/]+")


class JsonPart(NamedTuple):
    """A member of an object or an element of an array: where its value is in the text. `name` is empty in arrays."""

    name: str
    start: int  # of the name, or of the value in an array
    value: int  # start of the value
    end: int


class JsonText:
    """A document as text. Raises `ValueError` where it cannot be read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._known: dict[int, tuple[list[JsonPart], int]] = {}  # what `_read` has found
        start = self._skip(0)
        if self._skip(self._end(start)) != len(text):
            raise ValueError("there is something after the end of the JSON")
        self.root = start

    def parts(self, start: int) -> list[JsonPart]:
        """Return the members or elements of the value that starts there; none for a value that has none."""
        return self._read(start)[0] if self.text[start] in "{[" else []

    def member(self, start: int, name: str) -> JsonPart | None:
        """Return a member of the object that starts there. Raises `ValueError` if it is there twice: others read the
        last one."""
        found = [part for part in self.parts(start) if part.name == name]
        if len(found) > 1:
            raise ValueError(f"{name} is there twice: keep one")
        return found[0] if found else None

    def value(self, part: JsonPart) -> Any:
        """Return the value of a part, without its comments."""
        return json.loads(self._bare(part.value))

    def added(self, start: int, name: str, value: Any) -> JsonText:
        """Return the document with a member (or, without a name, an element) at the end of what starts there, in lines
        like those around it."""
        parts = self.parts(start)
        margin = self._margin(parts[-1].start) if parts else self._inner_margin(start)
        text = json.dumps(value, indent=None if margin is None else 2)
        if name:
            text = f"{json.dumps(name)}: {text}"
        if margin is not None:
            text = text.replace("\n", f"\n{margin}")
        if parts:
            end, before, after = parts[-1].end, ", " if margin is None else f",\n{margin}", ""
        else:
            end, before, after = start + 1, "" if margin is None else f"\n{margin}", ""
            if margin is not None and self.text[end : end + 1] != "\n":
                after = f"\n{margin[:-2]}"
        return JsonText(self.text[:end] + before + text + after + self.text[end:])

    def without(self, start: int, gone: JsonPart) -> JsonText:
        """Return the document without a part of what starts there: with the comma before it, or else after it."""
        parts = self.parts(start)
        place = parts.index(gone)
        if place:
            return JsonText(self.text[: parts[place - 1].end] + self.text[gone.end :])
        end = parts[1].start if len(parts) > 1 else gone.end
        return JsonText(self.text[: gone.start] + self.text[end:])

    def _margin(self, place: int) -> str | None:
        """Return the white space before a place that begins a line; None for another one."""
        before = self.text[self.text.rfind("\n", 0, place) + 1 : place]
        return before if "\n" in self.text[:place] and not before.strip() else None

    def _inner_margin(self, start: int) -> str | None:
        """Return the white space before a part of an empty value; None if the document is one line."""
        line = self.text[self.text.rfind("\n", 0, start) + 1 : start]
        return line[: len(line) - len(line.lstrip())] + "  " if "\n" in self.text.rstrip() else None

    def _bare(self, start: int) -> str:
        opening = self.text[start]
        if opening not in "{[":
            return self.text[start : self._end(start)]
        inner = ",".join(
            (f"{json.dumps(part.name)}:" if opening == "{" else "") + self._bare(part.value)
            for part in self.parts(start)
        )
        return f"{opening}{inner}{'}' if opening == '{' else ']'}"

    def _skip(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def _end(self, start: int) -> int:
        if start >= len(self.text):
            raise ValueError("the JSON ends too early")
        if self.text[start] in "{[":
            return self._read(start)[1]
        found = (_STRING if self.text[start] == '"' else _PLAIN).match(self.text, start)
        if found is None:
            raise ValueError(f"there is no value at character {start}")
        json.loads(found[0])
        return found.end()

    def _read(self, start: int) -> tuple[list[JsonPart], int]:
        """Return the parts of an object or array, and where it ends."""
        if start in self._known:
            return self._known[start]
        closing = "}" if self.text[start] == "{" else "]"
        parts: list[JsonPart] = []
        at = self._skip(start + 1)
        while at < len(self.text) and self.text[at] != closing:
            name, begin = "", at
            if closing == "}":
                found = _STRING.match(self.text, at)
                if found is None:
                    raise ValueError(f"there is no name at character {at}")
                name, at = json.loads(found[0]), self._skip(found.end())
                if self.text[at : at + 1] != ":":
                    raise ValueError(f"there is no colon at character {at}")
                at = self._skip(at + 1)
            end = self._end(at)
            parts.append(JsonPart(name, begin, at, end))
            at = self._skip(end)
            if self.text[at : at + 1] == ",":
                at = self._skip(at + 1)
            elif self.text[at : at + 1] != closing:
                raise ValueError(f"there is no comma at character {at}")
        if at >= len(self.text):
            raise ValueError("the JSON ends too early")
        self._known[start] = parts, at + 1
        return parts, at + 1
