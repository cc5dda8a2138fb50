"""Events of `codex exec --json`: a different format from the rollouts that Codex keeps of the same session."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from streamproc.importers.codex_turns import CodexTurns, ToolAnswer, difference
from streamproc.importers.content import at_path, exited, first_text, mapping, string, text_of
from streamproc.importers.imported import Format, Import, any_row
from streamproc.importers.log_file import LogFile
from streamproc.importers.raw_turns import RecordReader, RunScope, scope_name, time_ms, usage_of

NAME: Final = "codex-exec"
NODE: Final = "codex"
ITEMS: Final = frozenset({"item.started", "item.updated", "item.completed"})
ASIDE: Final = frozenset({"item.plan.delta", "request_user_input", "turn.interrupted"})
# The plan and its state, warnings, and what the model thinks.
ITEMS_ASIDE: Final = frozenset({"todo_list", "plan", "error"})
CALLS: Final = frozenset({"command_execution", "mcp_tool_call", "file_change", "web_search", "collab_tool_call"})
ARGUMENTS: Final = {"command_execution": "command", "file_change": "changes", "web_search": "query"}
DETAILS: Final = frozenset({"id", "type", "item_type", "status", "aggregated_output", "exit_code", "agents_states"})


def is_event(row: dict[str, Any]) -> bool:
    """Whether a row is an event of a thread or of its items."""
    if "run_id" in row or not isinstance(kind := row.get("type"), str):
        return False
    if kind == "thread.started":
        return isinstance(row.get("thread_id"), str)
    return kind in ITEMS and isinstance(row.get("item"), dict)


class ExecOutput(RecordReader):
    """An output that is read."""

    name = NAME

    def __init__(self, log: LogFile, reading: Import) -> None:
        super().__init__(log, reading)
        thread = Path(log.path).name.partition(".")[0] or "unknown"
        self.turns = CodexTurns(RunScope(thread, NODE, scope_name(thread)), self.buffer)
        self._calls: set[str] = set()  # items that have begun
        self._totals: dict[str, dict[str, int]] = {}  # tokens by thread, until its last prompt was answered
        self._error = ""
        self.timed = False

    def record(self, data: dict[str, Any], number: int) -> None:
        kind, at = data.get("type"), time_ms(data.get("timestamp"))
        self.timed |= at is not None
        if kind in ("thread.started", "session.created"):
            self._thread(first_text(data, "thread_id", "session_id"))
        elif kind == "turn.started":
            self.turns.prompt(number, at)
        elif kind == "turn.completed":
            self._completed(data, number, at)
        elif kind in ("error", "turn.failed"):
            self._failed(kind, data, number, at)
        elif isinstance(kind, str) and kind in ITEMS:
            self._item(kind, mapping(data.get("item")), number, at)
        elif not (isinstance(kind, str) and kind in ASIDE):
            self.tally.ignore(kind)

    def _thread(self, thread: str) -> None:
        self.buffer.end_runs()
        self._calls.clear()  # ids of items begin again
        self._error = ""
        if thread:
            self.turns = CodexTurns(RunScope(thread, NODE, scope_name(thread)), self.buffer)

    def _completed(self, data: dict[str, Any], number: int, at: int | None) -> None:
        """Take the tokens of the thread so far: they are not counted for each response."""
        thread, total = self.turns.scope.run_id, usage_of(data.get("usage"))
        former = self._totals.get(thread, {})
        restarted = any(total.get(part, 0) < number for part, number in former.items())
        used = total if restarted else difference(total, former)
        if used:
            self.turns.total(used, number, at)
        self._totals[thread] = total

    def _failed(self, kind: str, data: dict[str, Any], number: int, at: int | None) -> None:
        """Take an error. That of a turn repeats the last one of the stream."""
        text = first_text(data, "error.message", "message")
        if kind == "turn.failed" and text and text == self._error:
            self.tally.repeated += 1
            return
        self._error = text
        self.turns.failure(text, "turn_failed" if kind == "turn.failed" else "stream_error", number, at)

    def _item(self, event: str, item: dict[str, Any], number: int, at: int | None) -> None:
        kind = first_text(item, "type", "item_type")
        if kind in CALLS:
            self._call(event, kind, item, number, at)
        elif kind in ("agent_message", "assistant_message"):
            if event == "item.completed":
                self.turns.say(string(item.get("text")).strip(), number, at)
        elif kind == "reasoning":
            self.turns.reason()
        elif kind not in ITEMS_ASIDE:
            self.tally.ignore(kind or item.get("type"))

    def _call(self, event: str, kind: str, item: dict[str, Any], number: int, at: int | None) -> None:
        item_id = string(item.get("id"))
        if not item_id or item_id not in self._calls:
            self._calls.add(item_id)
            self.turns.call(item_id or f"line {number}", *tool_of(kind, item), number, at, waits=kind != "web_search")
        if event == "item.completed":
            self._calls.discard(item_id)
            if (answer := answer_of(kind, item)) is not None:
                self.turns.answer(item_id or f"line {number}", answer, number, at)


def tool_of(kind: str, item: dict[str, Any]) -> tuple[str, Any]:
    """Return the name of an item's tool and its arguments."""
    if kind in ARGUMENTS:
        return kind, item.get(ARGUMENTS[kind])
    if kind == "mcp_tool_call":
        return f"mcp__{string(item.get('server'))}__{string(item.get('tool'))}", item.get("arguments")
    return string(item.get("tool")) or kind, {part: value for part, value in item.items() if part not in DETAILS}


def answer_of(kind: str, item: dict[str, Any]) -> ToolAnswer | None:
    """Return the result of an item; None for a search, whose results are not in the log."""
    status, code = item.get("status"), item.get("exit_code")
    failed = status in ("failed", "errored") or (isinstance(code, int) and code != 0)
    if status == "declined":
        return ToolAnswer("declined", declined=True)
    if kind == "command_execution":
        return ToolAnswer(exited(string(item.get("aggregated_output")), code), failed)
    if kind == "mcp_tool_call":
        text = first_text(item, "error.message") or text_of(at_path(item, "result.content"))
        return ToolAnswer(text, failed or bool(mapping(item.get("error"))))
    if kind == "file_change":
        return ToolAnswer(string(status) or "completed", failed)
    if kind == "collab_tool_call":
        return ToolAnswer(text_of(item.get("agents_states")), failed)
    return None


FORMAT: Final = Format(NAME, "events of codex exec --json", any_row(is_event), ExecOutput.read)
