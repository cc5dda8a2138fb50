"""The filter line of the terminal screen: `workflow:release code:LOOP003 and any text`."""

from __future__ import annotations

import shlex
from typing import Final

from streamproc.read_model.rows import RunFilter

FIELDS: Final = ("workflow", "tenant", "user", "code", "status")
HINT: Final = "text, workflow:NAME, tenant:NAME, user:NAME, code:LOOP003, status:halted, status:lost"


def parse_filter(text: str) -> RunFilter:
    """Return the filter that a line describes; words without a known name are searched together, as one text."""
    named: dict[str, str] = {}
    words: list[str] = []
    for word in _words(text):
        name, colon, value = word.partition(":")
        if colon and name in FIELDS and value:
            named[name] = value
        else:
            words.append(word)
    return RunFilter(text=" ".join(words), **named)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quotation mark without its partner, while it is being typed
        return text.split()
