"""Output of Claude Code without a terminal: `claude -p --output-format stream-json`, and messages of its SDKs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from streamproc.importers.claude_messages import AGENT_TOOLS, ClaudeMessages, is_message
from streamproc.importers.content import at_path, first_text, items, mapping, string
from streamproc.importers.imported import Format, Import, any_row
from streamproc.importers.log_file import LogFile
from streamproc.importers.raw_turns import RecordReader, RunScope, session_scope

NAME: Final = "claude-stream"
# Status of the run and parts of messages that follow as a whole.
ASIDE: Final = frozenset({
    "stream_event", "rate_limit_event", "tool_progress", "tool_use_summary", "prompt_suggestion", "auth_status",
    "conversation_reset", "keep_alive", "control_request", "control_response", "control_cancel_request",
})  # fmt: skip


def is_of_stream(row: dict[str, Any]) -> bool:
    """Whether a row is one of `stream-json`: like a session file's, with `session_id` instead of `sessionId`."""
    if not isinstance(row.get("session_id"), str) or "run_id" in row:
        return False
    kind = row.get("type")
    if kind in ("system", "result"):
        return isinstance(row.get("subtype"), str)
    return kind in ("assistant", "user") and is_message(row)


class MessageStream(RecordReader):
    """A stream that is read: sessions, their sub-agents, and where the next prompt began."""

    name = NAME

    def __init__(self, log: LogFile, reading: Import) -> None:
        super().__init__(log, reading)
        self.messages = ClaudeMessages(self)
        self._session = Path(log.path).name.partition(".")[0]  # until a row has one
        self._agents: dict[str, str] = {}  # types of sub-agents by the calls that started them
        self.timed = False
        self._ended: set[str] = set()  # sessions that have answered: what follows answers a new prompt

    def record(self, data: dict[str, Any], number: int) -> None:
        kind = data.get("type")
        self._session = string(data.get("session_id")) or self._session
        self.timed |= "timestamp" in data
        if kind in ("assistant", "user"):
            self._message(data, number)
        elif kind == "result":
            self._ended.add(self._session)
        elif kind == "system":
            self._system(data, number)
        elif not isinstance(kind, str) or kind not in ASIDE:
            self.tally.ignore(kind)

    def _message(self, data: dict[str, Any], number: int) -> None:
        if not self.messages.is_unread(data, self._session):
            return
        scope = self._scope(data)
        if data["type"] == "user":
            self.messages.user(scope, data, number)
            return
        self._prompted(scope, number)
        for block in map(mapping, items(at_path(data, "message.content"))):
            if string(block.get("name")) in AGENT_TOOLS and isinstance(block.get("id"), str):
                self._agents[block["id"]] = first_text(block, "input.subagent_type")
                self.reading.asked(f"{self._session}/{block['id']}", first_text(block, "input.prompt"))
        self.messages.assistant(scope, data, number)

    def _prompted(self, scope: RunScope, number: int) -> None:
        """Add the prompt that is not in the log: the session goes on after it has answered."""
        if not scope.parent_run_id and scope.run_id in self._ended:
            self._ended.discard(scope.run_id)
            self.buffer.user_message(scope, number, f"{scope.run_id}/{number}", None)

    def _system(self, data: dict[str, Any], number: int) -> None:
        subtype = data.get("subtype")
        if subtype == "task_notification":
            self._ended.discard(self._session)  # a task in the background wakes the session, not a person
            self.messages.notified(self._scope(data).run_id, f"{data.get('task_id')} {data.get('status')}")
        elif subtype == "compact_boundary":
            if self.messages.is_new(data, self._session):
                self.messages.compacted(self._scope(data), data, number)
        elif subtype == "api_retry":
            status = data.get("error_status")
            text = f"{status} {string(data.get('error'))}" if isinstance(status, int) else string(data.get("error"))
            self.messages.failure(self._scope(data), data, number, text.strip(), "api_error")

    def _scope(self, data: dict[str, Any]) -> RunScope:
        call_id = string(data.get("parent_tool_use_id"))
        return session_scope(self._session, call_id, (self._agents.get(call_id) or call_id) if call_id else "main")


FORMAT: Final = Format(NAME, "Claude Code's stream-json output", any_row(is_of_stream), MessageStream.read)
