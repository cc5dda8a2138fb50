"""Plain lists of chat messages: what a home-made loop, a LangChain dump or a benchmark writes.

One list, messages line by line, or one conversation a line. Such logs have no ids of runs and mostly no times.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from streamproc.importers import mini_swe_agent
from streamproc.importers.content import string
from streamproc.importers.fitting import name
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_file import LogFile, Sample
from streamproc.importers.message_shapes import (
    ASSISTANT,
    SILENT,
    TOOL,
    USER,
    ChatMessage,
    looks_like_message,
    read_message,
)
from streamproc.importers.pairing import Pairing

NAME: Final = "messages"
UNIT: Final = "message"
LISTS: Final = ("messages", "traj", "conversation", "conversations")  # where a conversation keeps its messages
LOOKED_AT: Final = 5  # messages of a conversation by which it is recognised

NO_TOOLS: Final = "no tool calls in these messages: only repeated answers and their order can be judged"
NO_RESULTS: Final = "no tool results in these messages: repeated calls are seen late, by their number alone"


def matches(sample: Sample) -> bool:
    """Whether the log is a list of messages, or of conversations, which are objects that hold such a list; and not one
    that mini-SWE-agent wrote."""
    rows = [row for row in sample.rows if isinstance(row, dict)]
    if not rows or len(rows) < len(sample.rows) or mini_swe_agent.matches(sample):
        return False
    if isinstance(sample.document, dict):
        return _conversation(sample.document) is not None
    if any(_conversation(row) is not None for row in rows):
        return True
    return sum(map(looks_like_message, rows)) * 2 > len(rows)


def _conversation(row: dict[str, Any]) -> list[Any] | None:
    """Return the messages that a row holds; None if it holds none."""
    for key in LISTS:
        messages = row.get(key)
        if isinstance(messages, list) and any(map(looks_like_message, messages[:LOOKED_AT])):
            return messages
    return None


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each answer of a model, paired with the results of its calls. The file's name is the run's; in a
    file of several conversations, each has the number of its row, too."""
    file_run = reading.run_name(log)
    tally, content = reading.tally(NAME), _Content()
    flat: _Conversation | None = None
    for row in log.rows():
        messages = _conversation(row.data) if isinstance(row.data, dict) else None
        if messages is None:
            flat = flat or _Conversation(file_run, {}, tally, content)
            yield from flat.take(row.data, row.number, "line" if log.document() is None else UNIT)
            continue
        run_id = file_run if isinstance(log.document(), dict) else f"{file_run}/{row.number}"
        conversation = _Conversation(run_id, _scope(row.data), tally, content)
        for number, message in enumerate(messages, start=1):
            yield from conversation.take(message, number, UNIT)
        yield from conversation.end()
    if flat is not None:
        yield from flat.end()
    if content.turns and not content.calls:
        tally.notes[NO_TOOLS] = None
    elif content.calls and not content.answers:
        tally.notes[NO_RESULTS] = None


@dataclass(slots=True)
class _Content:
    """What a file holds, to say what cannot be seen."""

    turns: int = 0
    calls: int = 0
    answers: int = 0


def _scope(row: dict[str, Any]) -> dict[str, Any]:
    return {"model": string(row.get("model")), "session_id": name(row.get("session_id") or row.get("thread_id"))}


class _Conversation:
    """The messages of one run."""

    def __init__(self, run_id: str, base: dict[str, Any], tally: ImportTally, content: _Content) -> None:
        self._base = {"run_id": run_id, "node": "assistant", **base}
        self._pairing = Pairing()
        self._tally = tally
        self._is_item = False  # whether the newest turn is of the Responses API, whose next item may belong to it
        self._content = content

    def take(self, row: Any, number: int, unit: str) -> Iterator[Imported]:
        """Read a message; yield the events that are complete."""
        if not isinstance(row, dict):
            self._tally.ignore(type(row).__name__)
            return
        message = read_message(row)
        if message.role == ASSISTANT:
            self._add_turn(message, number, unit)
        elif message.role == USER and not message.results and message.text:
            # Anthropic sends results in the user's role, so what stands beside them is not known to be a person's.
            self._pairing.add_person(self._base["run_id"], number, unit)
        elif message.role not in (USER, TOOL, SILENT):
            self._tally.ignore(row.get("role") or row.get("type"))
        self._is_item = message.is_item or (self._is_item and message.role == SILENT)
        for result in message.results:
            at = message.fields.get("at")
            if self._pairing.answer(result.call_id, result.text, failed=result.failed, at=at, name=result.name):
                self._content.answers += 1
            else:
                self._tally.ignore("result without a call")
        yield from self._pairing.complete()

    def _add_turn(self, message: ChatMessage, number: int, unit: str) -> None:
        self._content.calls += len(message.calls)
        if message.is_item and message.calls and self._is_item and self._pairing.newest is not None:
            for call in message.calls:
                self._pairing.add_call(call)
            return
        turn = {**self._base, **{key: value for key, value in message.fields.items() if value}}
        turn |= {"output": message.text, "tool_calls": message.calls}
        turn["event_id"] = f"{self._base['run_id']}/{number}"  # ids of messages may repeat
        self._content.turns += 1
        self._pairing.add(turn, number, unit)

    def end(self) -> Iterator[Imported]:
        """Yield what is left."""
        return self._pairing.rest()


FORMAT: Final = Format(NAME, "chat messages of OpenAI, Anthropic or LangChain", matches, read)
