"""The log of a process on standard error, for people or, as JSON, for a program: one line a record."""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime
from typing import Any, Final, Literal

from streamproc.model.escaping import LogFormatter

LogStyle = Literal["text", "json"]

# A value in a message, and what names it: `run=%s`, or `partition %d`.
VALUE: Final = re.compile(r"%%|(?:\b(\w+)=|\b(run|code|turn|partition|worker) )?%[-#0 +]*\d*(?:\.\d+)?[a-zA-Z]")
OWN: Final = frozenset({"at", "level", "logger", "message", "exception"})


class JsonLogFormatter(logging.Formatter):
    """Writes each record as one JSON object: `at`, `level`, `logger` and `message`, with the values that the message
    names, such as `run`, `code`, `turn`, `partition` and `trace_id`, as fields of their own.

    `fields` are in every line.
    """

    def __init__(self, **fields: Any) -> None:
        super().__init__()
        self._fields = fields

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record. It is ASCII, so nothing in it acts on a terminal."""
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        row = {"at": at, "level": record.levelname.lower(), "logger": record.name, "message": record.getMessage()}
        row |= self._fields | named_values(record)
        if record.exc_info:
            row["exception"] = self.formatException(record.exc_info)
        return json.dumps(row, default=str)


def named_values(record: logging.LogRecord) -> dict[str, Any]:
    """Return the values that the message of a record names."""
    args = record.args if isinstance(record.args, tuple) else ()
    names = [found[1] or found[2] for found in VALUE.finditer(str(record.msg)) if found[0] != "%%"]
    if len(names) != len(args):
        return {}
    return {
        name: value if isinstance(value, int | float | None) else str(value)
        for name, value in zip(names, args, strict=True)
        if name and name not in OWN
    }


def log_to_stderr(level: str, style: LogStyle, worker: str = "") -> logging.Handler:
    """Log to standard error from now on, and return the handler. `worker` is the number of one of several workers."""
    handler = logging.StreamHandler()
    if style == "json":
        handler.setFormatter(JsonLogFormatter(**({"worker": worker} if worker else {})))
    else:
        prefix = f"worker {worker} " if worker else ""
        handler.setFormatter(LogFormatter(f"%(asctime)s {prefix}%(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    return handler
