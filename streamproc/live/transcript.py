"""What a session has spent, and what else hooks do not tell, from the end of its transcript.

Claude Code and Gemini CLI write the usage of each response, some more than once; Codex writes the total of the session.
Of its texts, only what a Stop hook told the agent is read. A transcript that cannot be read adds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import orjson

from streamproc.importers.content import at_path, string, sums_at
from streamproc.importers.gemini_cli import USAGE
from streamproc.importers.log_bytes import open_regular
from streamproc.importers.raw_turns import usage_of
from streamproc.live.noted_rows import NotedRows
from streamproc.model.newest import Newest

BYTES_MAX: Final = 16_777_216  # read at a time; of a longer end, what comes before is passed over
RESPONSES_MAX: Final = 256  # whose usage may still be written again
TOTAL: Final = "total"  # the only response of a session that has totals

Usage = dict[str, int]


class TranscriptTail:
    """The end of one transcript, from where it was last read."""

    def __init__(self, path: str, *, from_end: bool) -> None:
        self.model = ""
        self.noted = NotedRows()
        self._path = Path(path)
        self._offset = 0
        self._rest = b""
        self._kept: Usage = {}
        self._counted: Newest[str, Usage] = Newest(RESPONSES_MAX)
        if from_end:  # of a session that was resumed: what it has spent before is not of these turns
            self.take()
            self.noted = NotedRows()

    def take(self) -> Usage:
        """Return what was spent since the last time, as the fields of a turn's usage."""
        spent, self._kept = self._kept, {}
        for row in self._rows():
            self.noted.read(row)
            response, usage = self._usage(row)
            before = self._counted.get(response, {})
            for name, amount in usage.items():
                more = amount - before.get(name, 0)
                if more > 0:
                    spent[name] = spent.get(name, 0) + more
            if usage:
                self._counted[response] = usage
        return spent

    def keep(self, usage: Usage) -> None:
        """Give back what was taken and belongs to no turn: it goes with the next one."""
        self._kept = usage

    def _rows(self) -> Iterator[Mapping[str, Any]]:
        try:
            with open_regular(self._path) as file:
                size = file.seek(0, 2)
                if size < self._offset:
                    self._offset, self._rest = 0, b""
                begin = max(self._offset, size - BYTES_MAX)
                if begin > self._offset:
                    self._rest = b""
                file.seek(begin)
                found = file.read(size - begin)
                self._offset = size
        except (OSError, ValueError):  # no path can have such characters
            return
        *lines, self._rest = (self._rest + found).split(b"\n")
        for line in lines:
            try:
                row = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if isinstance(row, dict):
                yield row

    def _usage(self, row: Mapping[str, Any]) -> tuple[str, Usage]:
        """Return the response that a record is about, and its usage so far; nothing for other records."""
        kind = row.get("type")
        if kind == "assistant":
            self.model = string(at_path(row, "message.model")) or self.model
            return string(at_path(row, "message.id")), usage_of(at_path(row, "message.usage"))
        if kind == "event_msg" and at_path(row, "payload.type") == "token_count":
            return TOTAL, usage_of(at_path(row, "payload.info.total_token_usage"))
        if kind == "gemini":
            self.model = string(row.get("model")) or self.model
            return string(row.get("id")), sums_at(row.get("tokens"), USAGE)
        return "", {}
