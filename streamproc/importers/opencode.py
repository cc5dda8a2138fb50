"""Sessions of OpenCode: what `opencode export` and `opencode run --format json` print, and the store on disk.

Since 1.2 the store is the SQLite database `opencode.db`; before, it was a JSON file for each session, message and part.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from streamproc.errors import InvalidEvent, Problem
from streamproc.fingerprint.reviews import stop_reason
from streamproc.importers.content import at_path, first_text, items, mapping, string, sums_at, with_media
from streamproc.importers.event_limits import fit_to_limits, name
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_bytes import open_regular, read_beside
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.raw_turns import is_too_deep

if TYPE_CHECKING:
    import sqlite3

NAME: Final = "opencode"
DATABASE: Final = "opencode.db"
SQLITE: Final = b"SQLite format 3\x00"
BESIDE: Final = frozenset({"message", "part", "session_diff", "project", "todo"})  # in the store of before 1.2
STREAMED: Final = frozenset({"step_start", "step_finish", "text", "reasoning", "tool_use", "error"})
# How the error of a call begins that a person declined or stopped.
DECLINED: Final = ("The user rejected permission", "Tool execution aborted", "The user dismissed")
ABORTED: Final = "MessageAbortedError"
USAGE: Final = {
    "input_tokens": ("input", "cache.read", "cache.write"), "output_tokens": ("output", "reasoning"),
    "cached_tokens": ("cache.read",),
}  # fmt: skip
# Parts without a share in what the agent did.
ASIDE: Final = frozenset({"reasoning", "step-start", "snapshot", "patch", "file", "agent", "compaction", "subtask"})


def matches(sample: Sample) -> bool:
    """Whether a log is a session, the database, or a small file of the store beside a session."""
    path = Path(sample.path)
    if path.name == DATABASE or is_beside(path):
        return True
    if sample.document is not None:
        found = mapping(sample.document)
        return _is_session(found) or ("messages" in found and _is_info(mapping(found.get("info"))))
    return any(_is_streamed(row) for row in sample.rows)


def is_beside(path: Path) -> bool:
    """Whether a file of the store is not a session's: sessions are read with their messages and parts."""
    parts = path.parts
    place = len(parts) - 1 - parts[::-1].index("storage") if "storage" in parts else len(parts)
    return len(parts) > place + 2 and parts[place + 1] in BESIDE and path.suffix == ".json"


def _is_session(found: dict[str, Any]) -> bool:
    known = string(found.get("id")).startswith("ses") and "time" in found
    return known and ("directory" in found or "projectID" in found or "title" in found)


def _is_info(found: dict[str, Any]) -> bool:
    """Whether an object is about a session, the id of which may have been redacted."""
    return _is_session(found) or {"id", "time", "directory", "projectID"} <= found.keys()


def _is_streamed(row: Any) -> bool:
    return isinstance(row, dict) and "sessionID" in row and "part" in row and string(row.get("type")) in STREAMED


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each step of a model, with its calls and their results. A sub-agent's session has a parent."""
    path = Path(log.path)
    if path.name == DATABASE:
        yield from _database(path, reading)
        return
    if is_beside(path):
        return
    document = mapping(log.document())
    if "messages" in document:
        info = mapping(document.get("info"))
        if not _session_id(info.get("id")):
            info = {**info, "id": reading.run_name(log)}
        yield from SessionReader(info, reading).turns(items(document["messages"]))
    elif document:
        yield from SessionReader(document, reading).turns(_stored(path, string(document.get("id"))))
    else:
        yield from _streamed(log, reading)


def _stored(session: Path, session_id: str) -> Iterator[dict[str, Any]]:
    """Yield the messages of a session of the store of before 1.2: `session/<project>/<id>.json`."""
    storage = session.resolve().parent.parent.parent
    for file in sorted((storage / "message" / session_id).glob("*.json")):
        parts = []
        for part in sorted((storage / "part" / file.stem).glob("*.json")):
            with suppress(OSError, ValueError):
                parts.append(read_beside(part))
        with suppress(OSError, ValueError):
            yield {"info": read_beside(file), "parts": parts}


def _database(path: Path, reading: Import) -> Iterator[Imported]:
    """Yield the turns of all sessions of a database. Raises `InvalidEvent` if it cannot be read."""
    import sqlite3  # some builds of Python lack it, and other logs need none

    with open_regular(path) as file:
        if file.read(len(SQLITE)) != SQLITE:
            raise InvalidEvent([Problem("file", "it is no SQLite database", "leave it out", str(path))])
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as database:
            rows = database.execute("SELECT id, parent_id, directory, title FROM session ORDER BY time_created, id")
            for session_id, parent, directory, title in rows.fetchall():
                info = {"id": session_id, "parentID": parent, "directory": directory, "title": title}
                yield from SessionReader(info, reading).turns(_messages(database, session_id))
    except sqlite3.Error as error:
        remedy = "export sessions with `opencode export`, and scan these"
        raise InvalidEvent([Problem("file", f"the database cannot be read: {error}", remedy, str(path))]) from None


def _messages(database: sqlite3.Connection, session_id: str) -> Iterator[dict[str, Any]]:
    query = "SELECT id, data FROM message WHERE session_id = ? ORDER BY time_created, id"
    for message_id, data in database.execute(query, (session_id,)):
        parts = database.execute("SELECT data FROM part WHERE message_id = ? ORDER BY id", (message_id,))
        yield {"info": {**mapping(_json(data)), "id": message_id}, "parts": [_json(part) for (part,) in parts]}


def _json(data: Any) -> Any:
    try:
        return orjson.loads(data)
    except (orjson.JSONDecodeError, TypeError):
        return None


def _streamed(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield the turns of a printed session: each line is a part that is complete. The prompt is not printed."""
    sessions: dict[str, SessionReader] = {}
    for row in log.rows():
        data = mapping(row.data)
        session_id = string(data.get("sessionID"))
        session = sessions.setdefault(session_id, SessionReader({"id": session_id}, reading, "line"))
        if data.get("type") == "error":
            error = mapping(data.get("error"))
            yield from session.failed(error, row.number, data.get("timestamp"))
        elif "part" in data:
            yield from session.part(mapping(data["part"]), row.number, data.get("timestamp"))
    for session in sessions.values():
        yield from session.end()


class SessionReader:
    """A session that is read, part by part. A step of the model is a turn: it ends where its tokens are counted."""

    def __init__(self, info: dict[str, Any], reading: Import, unit: str = "message") -> None:
        self._reading, self._unit = reading, unit
        self._tally: ImportTally = reading.tally(NAME)
        self._is_child = bool(info.get("parentID"))
        self.run_id = name(info.get("id")) or "unnamed"
        parent = _session_id(info.get("parentID"))
        self._base = {"run_id": self.run_id, "session_id": self.run_id, "parent_run_id": parent}
        self._tally.name(self.run_id, title=_given(info.get("title")), project=info.get("directory"))
        self._message: dict[str, Any] = {}
        self._turn: dict[str, Any] = {}
        self._number = self._steps = 0
        self._context = 0  # tokens that the model read last

    def turns(self, messages: Iterable[Any]) -> Iterator[Imported]:
        """Yield the raw events of messages with their parts."""
        for number, row in enumerate(messages, start=1):
            data = mapping(row)
            info = mapping(data.get("info"))
            if not info or is_too_deep(data):
                self._tally.ignore("message without info" if not info else "nested too deeply")
                continue
            at = mapping(info.get("time"))
            # Ids that were redacted are equal, so the time tells messages apart as well.
            if not self._reading.is_new(f"{NAME} {self.run_id} {info.get('id') or number} {at.get('created')}"):
                self._tally.repeated += 1
                continue
            ended = at.get("completed") or at.get("created")
            if info.get("role") == "user":
                for text in (mapping(part).get("text") for part in items(data.get("parts")) if _is_said(part)):
                    self._tally.name(self.run_id, prompt=text)
                    if self._is_child:
                        self._reading.asked(self.run_id, string(text))
                yield from self._compactions(items(data.get("parts")), number, at.get("created"))
                if not self._is_child and any(map(_is_said, items(data.get("parts")))):
                    yield self._heard(number, at.get("created"))
                continue
            self._message, self._steps = info, 0
            for part in items(data.get("parts")):
                yield from self.part(mapping(part), number, ended)
            yield from self.end()
            if error := mapping(info.get("error")):
                yield from self.failed(error, number, ended)

    def part(self, part: dict[str, Any], number: int, at: Any) -> Iterator[Imported]:
        """Take a part of a response, and yield the turn that it ends."""
        self._number = number
        kind = string(part.get("type"))
        turn = self._turn
        if kind == "step-finish":
            turn["usage"] = sums_at(part.get("tokens"), USAGE) | {"cost_usd": part.get("cost")}
            self._context = turn["usage"].get("input_tokens", 0)
            is_empty = not turn.get("output") and not turn.get("tool_calls")
            turn["stop_reason"] = stop_reason(string(part.get("reason")), is_empty=is_empty)
            turn["at"] = _latest(turn.get("at"), at)
            yield from self.end()
        elif kind == "text":
            if not part.get("synthetic"):
                turn["output"] = "\n".join(filter(None, (turn.get("output"), string(part.get("text")))))
                turn["at"] = _latest(turn.get("at"), at_path(part, "time.end") or at)
        elif kind == "tool":
            state = mapping(part.get("state"))
            turn.setdefault("tool_calls", []).append(_call(part, state))
            turn["at"] = _latest(turn.get("at"), at_path(state, "time.end") or at)
            if string(state.get("error")).startswith(DECLINED):
                turn["declined"] = True
        elif kind == "retry":
            turn.setdefault("errors", []).append(_error(mapping(part.get("error"))))
        elif kind not in ASIDE:
            self._tally.ignore(kind)

    def end(self) -> Iterator[Imported]:
        """Yield the turn that is open, if there is one, and the person's word if a call was declined."""
        turn, self._turn = self._turn, {}
        if not turn:
            return
        declined = turn.pop("declined", False)
        self._steps += 1
        message = self._message
        scope = {
            "node": first_text(message, "agent", "mode") or NAME,
            "event_id": f"{message.get('id') or self.run_id}/{self._number}/{self._steps}",
            "model": message.get("modelID"), "provider": message.get("providerID"),
        }  # fmt: skip
        yield Imported(fit_to_limits({**self._base, **scope, **turn}), self._number, self._unit)
        if declined:
            yield self._heard(self._number, turn.get("at"))

    def failed(self, error: dict[str, Any], number: int, at: Any) -> Iterator[Imported]:
        """Yield what ended a response: a failure of the API, or a person."""
        yield from self.end()
        if error.get("name") == ABORTED:
            yield self._heard(number, at)
        elif error:
            self._number, self._turn = number, {"errors": [_error(error)], "at": at}
            yield from self.end()

    def _compactions(self, parts: list[Any], number: int, at: Any) -> Iterator[Imported]:
        """Yield that the context was compacted: the program asks for it in the user's role."""
        for part in map(mapping, parts):
            if part.get("type") == "compaction":
                event = {"type": "context.compacted", "at": at, "before_tokens": self._context or None}
                event["trigger"] = "auto" if part.get("auto") is True else "manual"
                yield Imported(fit_to_limits({**self._base, **event}), number, self._unit)

    def _heard(self, number: int, at: Any) -> Imported:
        return Imported(fit_to_limits({**self._base, "type": "user.message", "at": at}), number, self._unit)


def _session_id(value: Any) -> str:
    """Return the id of a session; empty for one that was redacted."""
    return name(value) if string(value).startswith("ses") else ""


def _given(title: Any) -> str:
    """Return the title of a session, unless it is the one that all have at first."""
    return "" if string(title).startswith(("New session - ", "Child session - ")) else string(title)


def _is_said(part: Any) -> bool:
    """Whether a part of a user's message is a person's: not what the program adds."""
    found = mapping(part)
    return found.get("type") in ("text", "file") and not found.get("synthetic") and not found.get("ignored")


def _latest(before: Any, at: Any) -> Any:
    return max((one for one in (before, at) if isinstance(one, (int, float))), default=None)


def _call(part: dict[str, Any], state: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": part.get("tool"), "id": string(part.get("callID")), "args": state.get("input")}
    if state.get("status") == "completed":
        found["result"] = with_media(string(state.get("output")), state.get("attachments"))
    elif state.get("status") == "error" and not string(state.get("error")).startswith(DECLINED):
        found["error"] = string(state.get("error")) or True
    return found  # one that is declined, pending or running has no result


def _error(error: dict[str, Any]) -> dict[str, Any]:
    data = mapping(error.get("data")) or error
    kind = string(error.get("name")) or "error"
    message = string(data.get("message")) or kind
    return {"message": message, "class": kind, "retryable": data.get("isRetryable") is True}


PLACES: Final = (".local/share/opencode/opencode.db", ".local/share/opencode/storage/session/*/ses*.json")
FORMAT: Final = Format(NAME, "OpenCode sessions", matches, read, PLACES)
