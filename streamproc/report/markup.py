r"""HTML and SVG as typed text: what is no `Html` yet is escaped when it becomes part of one.

Text of others is shown, never interpreted: `&<>"'` become entities, and control, bidirectional and zero-width
characters become visible escapes, such as ``\u202e``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from html import escape as entities
from typing import Any, Final, Literal

from streamproc.model.escaping import escape
from streamproc.model.formats import clock

VOID: Final = frozenset({"meta", "link", "line", "rect", "circle", "path", "br", "input"})  # written without an end tag
UNCLOSED: Final = frozenset({"meta", "link", "br", "input"})  # of those, written as HTML does
PLAIN: Final = frozenset({"style", "script"})  # their text has no entities


class Html(str):
    """Markup that is safe to write. `+`, `join` and `format` escape everything that is no `Html`."""

    __slots__ = ()

    def __add__(self, other: str) -> Html:
        return Html(str.__add__(self, safe(other)))

    def __radd__(self, other: str) -> Html:
        return Html(str.__add__(safe(other), self))

    def __mod__(self, _other: Any) -> str:
        raise TypeError("Html has no %: use format, which escapes")

    def join(self, parts: Iterable[Any]) -> Html:
        """Return the parts with this markup between them; parts that are no `Html` are escaped."""
        return Html(str.join(self, map(safe, parts)))

    def format(self, *values: Any, **named: Any) -> Html:
        """Fill in values; those that are no `Html` are escaped."""
        return Html(str.format(self, *map(safe, values), **{name: safe(value) for name, value in named.items()}))


NOTHING: Final = Html()


def safe(value: Any) -> Html:
    """Return a value as markup: `Html` as it is, anything else as escaped text."""
    if isinstance(value, Html):
        return value
    return Html(entities(escape(str(value)), quote=True))


def tag(name: str, /, *children: Any, **attributes: Any) -> Html:
    """Return an element. Attributes that are None or False are left out, True has no value; `class_` is `class`, and
    underscores in names become hyphens."""
    parts = ["<", name]
    for key, value in attributes.items():
        if value is True:
            parts += (" ", _named(key))
        elif value is not None and value is not False:
            parts += (" ", _named(key), '="', safe(value), '"')
    if name in VOID and not children:
        parts.append(">" if name in UNCLOSED else "/>")
        return Html("".join(parts))
    parts.append(">")
    parts += children if name in PLAIN else map(safe, children)
    parts += ("</", name, ">")
    return Html("".join(parts))


@cache
def _named(key: str) -> str:
    return _SPELT.get(key, key.rstrip("_").replace("_", "-"))


_SPELT: Final = {"viewBox": "viewBox", "preserveAspectRatio": "preserveAspectRatio"}


def written_lines(text: str) -> Html:
    """Return text with its line breaks and tabs, for a field that shows it as it was written."""
    return Html(entities(escape(text, keep="\n\t"), quote=True))


def foreign(text: Any, *, code: bool = False, class_: str | None = None) -> Html:
    """Return the text of others, isolated in its own direction."""
    return tag("code" if code else "bdi", text, dir="auto", class_=class_)


def moment(at_ms: int, show: Literal["time", "ago", "of-day", "whole"] = "time") -> Html:
    """Return a time in UTC, which the script of the page shows in the reader's zone: the time of day, with the day if
    that is another one (``time``), the age (``ago``), only the time of day, or both. Nothing for 0."""
    text = clock(at_ms)
    if not text:
        return NOTHING
    shown = {"of-day": text[11:], "whole": text}.get(show, f"{text[11:]} UTC")
    return tag("time", shown, datetime=f"{text.replace(' ', 'T')}Z", title=f"{text} UTC", data_show=show)
