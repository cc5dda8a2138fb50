"""Sessions of GitHub Copilot CLI: `~/.copilot/session-state/<session>/events.jsonl`, and its output as JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from streamproc.importers.content import at_path, first_text, items, mapping, string, text_of, with_media
from streamproc.importers.imported import Format, Import
from streamproc.importers.log_file import STDIN, LogFile, Sample
from streamproc.importers.raw_turns import PendingTurn, RecordReader, RunScope, name, session_scope, time_ms, tokens

NAME: Final = "copilot-cli"
NODE: Final = "copilot"
EVENTS: Final = "events"  # the file is named so in each session's directory
KINDS: Final = frozenset({
    "session.start", "session.resume", "user.message", "assistant.message", "assistant.turn_start",
    "tool.execution_start", "tool.execution_complete",
})  # fmt: skip
# Kinds of records about the session, its display and its rights, without a part in what the agents did.
ASIDE: Final = (
    "session.", "assistant.", "tool.", "system.", "hook.", "permission.", "skill.", "subagent.", "user_input.",
    "elicitation.", "external_tool.", "command.", "mcp.", "pending_messages.", "exit_plan_mode.", "sampling.",
)  # fmt: skip
DECLINED: Final = "rejected"  # the code of the error of a call that a person declined; a rule's is "denied"


def matches(sample: Sample) -> bool:
    """Whether the rows are events of a session."""
    if sample.document is not None:
        return _is_event(sample.document)
    return any(map(_is_event, sample.rows))


def _is_event(row: Any) -> bool:
    return isinstance(row, dict) and isinstance(row.get("data"), dict) and string(row.get("type")) in KINDS


class CopilotSession(RecordReader):
    """A session that is read: a turn for each response of the model. A sub-agent has its own run."""

    name = NAME

    def __init__(self, log: LogFile, reading: Import) -> None:
        super().__init__(log, reading)
        self._session = log.stem
        if self._session == EVENTS and log.path != STDIN:
            self._session = Path(log.path).resolve().parent.name
        self._model = ""
        self._agents: dict[str, str] = {}  # names of sub-agents, by the calls that started them and by their own ids
        self._takers = {
            "session.start": self._begun, "session.model_change": self._changed_model,
            "subagent.started": self._started_agent, "user.message": self._heard, "abort": self._stopped,
            "assistant.message": self._response, "tool.execution_start": self._started,
            "tool.execution_complete": self._ended, "session.error": self._failed,
            "session.compaction_complete": self._compacted,
        }  # fmt: skip

    def record(self, row: dict[str, Any], number: int) -> None:
        if not isinstance(row.get("data"), dict):
            self.tally.ignore(row.get("type"))
            return
        kind, event_id = string(row.get("type")), string(row.get("id"))
        if kind in KINDS and event_id and not self.reading.is_new(f"{NAME} {self._session} {event_id}"):
            self.tally.repeated += 1
        elif (taken := self._takers.get(kind)) is not None:
            taken(row, row["data"], number, time_ms(row.get("timestamp")))
        elif not kind.startswith(ASIDE):
            self.tally.ignore(kind)

    def _begun(self, _row: dict[str, Any], data: dict[str, Any], _number: int, _at: int | None) -> None:
        self._session = string(data.get("sessionId")) or self._session
        self._model = string(data.get("selectedModel"))
        self.tally.name(self._scope({"data": {}}).run_id, project=at_path(data, "context.cwd"))

    def _changed_model(self, row: dict[str, Any], data: dict[str, Any], _number: int, _at: int | None) -> None:
        if not _agent_of(row):
            self._model = string(data.get("newModel"))

    def _started_agent(self, row: dict[str, Any], data: dict[str, Any], _number: int, _at: int | None) -> None:
        kind = first_text(data, "agentName", "agentDisplayName")
        for one in (data.get("toolCallId"), data.get("parentToolCallId"), data.get("agentId"), row.get("agentId")):
            if isinstance(one, str) and one:
                self._agents[one] = kind or one

    def _heard(self, row: dict[str, Any], data: dict[str, Any], number: int, at: int | None) -> None:
        self.tally.name(self._scope(row).run_id, prompt=data.get("content"))
        if _agent_of(row):
            self.reading.asked(self._scope(row).run_id, text_of(data.get("content")))
        if not _agent_of(row) and string(data.get("source")) in ("", "user"):
            self._stopped(row, data, number, at)

    def _stopped(self, row: dict[str, Any], _data: dict[str, Any], number: int, at: int | None) -> None:
        self.buffer.user_message(self._scope(row), number, string(row.get("id")), at)

    def _compacted(self, row: dict[str, Any], data: dict[str, Any], number: int, at: int | None) -> None:
        if data.get("success") is not False:
            before, after = data.get("preCompactionTokens"), data.get("postCompactionTokens")
            self.buffer.compacted(self._scope(row), number, string(row.get("id")), at, before=before, after=after)

    def _failed(self, row: dict[str, Any], data: dict[str, Any], number: int, at: int | None) -> None:
        kind = string(data.get("errorType")) or "session.error"
        error = {"message": string(data.get("message")) or kind, "class": kind, "retryable": kind != "authentication"}
        self._begin(row, number, string(row.get("id")), at).event["errors"] = [error]

    def _scope(self, row: dict[str, Any]) -> RunScope:
        agent = _agent_of(row)
        return session_scope(name(self._session), agent, self._agents.get(agent, agent) if agent else NODE)

    def _begin(self, row: dict[str, Any], number: int, event_id: str, at: int | None, key: str = "") -> PendingTurn:
        scope = self._scope(row)
        model = string(row["data"].get("model")) or self._model
        turn = self.buffer.begin(
            scope.run_id, number, scope.event(event_id, node=name(scope.node, NODE), model=name(model)), key
        )
        turn.happened(at)
        return turn

    def _response(self, row: dict[str, Any], data: dict[str, Any], number: int, at: int | None) -> None:
        key = string(data.get("messageId"))
        turn = self.buffer.response(self._scope(row).run_id, key) if key else None
        if turn is None:
            turn = self._begin(row, number, key or string(row.get("id")), at, key)
        turn.say(text_of(data.get("content")).strip())
        if output := tokens(data.get("outputTokens")):
            turn.event["usage"] = {"output_tokens": output}
        for found in map(mapping, items(data.get("toolRequests"))):
            self.buffer.call(turn, string(found.get("toolCallId")), found.get("name"), found.get("arguments"))

    def _started(self, row: dict[str, Any], data: dict[str, Any], number: int, at: int | None) -> None:
        """Take that a call has started: some versions say only here what it is, or with which arguments."""
        call_id = string(data.get("toolCallId"))
        call = self.buffer.waiting_call(call_id)
        if not call:
            turn = self.buffer.last(self._scope(row).run_id)
            if turn is None or turn.answered or turn.event.get("type"):
                turn = self._begin(row, number, string(row.get("id")), at)
            self.buffer.call(turn, call_id, data.get("toolName"), data.get("arguments"))
        elif call.get("args") is None:
            call["args"] = data.get("arguments")

    def _ended(self, row: dict[str, Any], data: dict[str, Any], number: int, at: int | None) -> None:
        call_id = string(data.get("toolCallId"))
        error = mapping(data.get("error"))
        if error.get("code") == DECLINED:
            self.buffer.release(call_id, at)
            self.buffer.user_message(self._scope(row), number, string(row.get("id")), at)
        elif data.get("success") is False:
            self.buffer.answer(call_id, string(error.get("message")) or "failed", at, failed=True)
        elif "result" in data:
            result = data["result"]
            content = result["content"] if isinstance(result, dict) and "content" in result else result
            self.buffer.answer(call_id, with_media(text_of(content), at_path(result, "contents")), at)
        else:
            self.buffer.release(call_id, at)  # the log has not kept it


def _agent_of(row: dict[str, Any]) -> str:
    """Return what identifies the sub-agent of a record; empty for the session's own agent."""
    return first_text(row, "agentId", "data.parentToolCallId", "data.agentId")


PLACES: Final = (".copilot/session-state/*/events.jsonl", ".copilot/session-state/*.jsonl")
FORMAT: Final = Format(NAME, "GitHub Copilot CLI sessions", matches, CopilotSession.read, PLACES)
