r"""Escapes the characters of untrusted text that a terminal, a log or a chat service would act on.

Run ids, names, labels, reasons and error excerpts come from agents. A control character in them moves a terminal's
cursor, a line break forges a log line, a bidirectional override reorders what people read, an `@everyone` alerts a
whole channel. Every exit for people passes text through here. Records and JSON keep their exact values.
"""

from __future__ import annotations

import logging
import re
import unicodedata
from types import TracebackType
from typing import Final

# Letters and marks that show nothing, and could therefore make two different names look the same.
INVISIBLE: Final = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\uffa0\U000e0100-\U000e01ef]")
# Where a space takes the meaning from `@everyone`, `<!channel>`, `[text](link)`, `https://…` and `www.…`.
ACTIVE: Final = re.compile(r"(?<=[@<])(?=\S)|(?<=\])(?=[(\[:])|(?=://)|(?<=www\.)(?=\S)", re.IGNORECASE)
INDENT: Final = "    "  # of a traceback in a log, so that none of its lines looks like a log line


def escape(text: str, keep: str = "") -> str:
    r"""Return the text with unprintable characters as escapes, such as ``\n``, ``\x1b`` or ``\u202e``.

    These are control characters, line and paragraph separators, bidirectional and zero-width characters, lone
    surrogates and unassigned code points. Spaces of other scripts stay, as do the characters in `keep`.
    """
    if _is_printable(text):
        return text
    return "".join(one if one in keep or _is_plain(one) else _escaped(one) for one in text)


def _is_printable(text: str) -> bool:
    return text.isprintable() and (text.isascii() or INVISIBLE.search(text) is None)


def _is_plain(character: str) -> bool:
    return _is_printable(character) or unicodedata.category(character) == "Zs"


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def escape_json(text: str) -> str:
    r"""Return a JSON text with the same value, in which unprintable characters are ``\u`` escapes.

    JSON itself escapes only the control characters below U+0020. The text must be a single line.
    """
    if _is_printable(text):
        return text
    return "".join(one if _is_plain(one) else _json_escaped(one) for one in text)


def _json_escaped(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))


def inert(text: str) -> str:
    """Return escaped text without mentions, links and embedded content in a chat, a mail or a web page.

    A space separates the signs that services act on: ``@ everyone``, ``< !channel>``, ``https ://``, ``] (``. Apprise
    escapes Markdown and HTML for the services that render it, but has no switch for mentions and links.
    """
    return ACTIVE.sub(" ", escape(text))


def indented(text: str) -> str:
    """Return a traceback of several lines, each escaped and indented."""
    return "\n".join(INDENT + escape(line) for line in text.split("\n"))


class LogFormatter(logging.Formatter):
    """Writes each record as one line, whatever its arguments contain; the lines of a traceback follow, indented."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        """Return the line of a record."""
        record.message = escape(record.message)
        return super().formatMessage(record)

    def formatException(  # noqa: N802  # logging's name
        self, ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]
    ) -> str:
        """Return the traceback of an exception."""
        return indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802  # logging's name
        """Return a stack."""
        return indented(super().formatStack(stack_info))
