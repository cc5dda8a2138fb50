"""Sessions of the coding agent pi: `~/.pi/agent/sessions/<folder>/<time>_<session>.jsonl`, and its output as JSON."""

from __future__ import annotations

import re
from typing import Any, Final

from streamproc.importers.content import at_path, exited, items, mapping, string, sums_at, text_of
from streamproc.importers.event_limits import fit_usage
from streamproc.importers.imported import Format, Import, any_row, id_hash
from streamproc.importers.log_file import LogFile
from streamproc.importers.raw_turns import RecordReader, RunScope, name, scope_name, time_ms

NAME: Final = "pi"
NODE: Final = "pi"
MESSAGES: Final = ("message", "message_end")  # the second one in the output of `pi --mode json`
# States of the session, parts of messages that follow as a whole, and what extensions keep.
ASIDE: Final = frozenset({
    "model_change", "thinking_level_change", "label", "custom", "custom_message", "agent_start", "agent_end",
    "turn_start", "turn_end", "message_start", "message_update", "tool_execution_start", "tool_execution_update",
    "tool_execution_end", "auto_retry_start", "auto_retry_end", "auto_compaction_start", "auto_compaction_end",
})  # fmt: skip
# Commands that a person ran, what extensions tell the model, and summaries, which have entries of their own.
ROLES_ASIDE: Final = frozenset({"bashExecution", "custom", "hookMessage", "branchSummary", "compactionSummary"})
USAGE: Final = {
    "input_tokens": ("input", "cacheRead", "cacheWrite"), "output_tokens": ("output",), "cached_tokens": ("cacheRead",),
    "cache_write_tokens": ("cacheWrite",),
}  # fmt: skip
EXIT: Final = re.compile(r"(?:\A|\n\n)Command exited with code (\d{1,9})\Z")
FULL_OUTPUT: Final = re.compile(r"\. Full output: [^\n\]]*\]\Z")  # the file's name is another one each time
# What stands at the end of the result of a call that a person has stopped, or gone past.
STOPPED: Final = ("Command aborted", "Operation aborted", "Skipped due to queued user message.")


def is_entry(row: dict[str, Any]) -> bool:
    """Whether a row begins a session, or is an answer of the model or of a tool in one."""
    if row.get("type") == "session":
        return isinstance(row.get("id"), str) and isinstance(row.get("cwd"), str)
    message = row.get("message")
    if row.get("type") not in MESSAGES or not isinstance(message, dict):
        return False
    if message.get("role") == "assistant":
        return isinstance(message.get("content"), list) and "stopReason" in message
    return message.get("role") == "toolResult" and isinstance(message.get("toolCallId"), str)


class PiSession(RecordReader):
    """A session that is read: a turn for each answer of the model."""

    name = NAME

    def __init__(self, log: LogFile, reading: Import) -> None:
        super().__init__(log, reading)
        self._session = ""  # until the log has one
        self._takers = {"user": self._heard, "assistant": self._said, "toolResult": self._returned}

    def record(self, row: dict[str, Any], number: int) -> None:
        kind = row.get("type")
        if kind == "session":
            self._begun(row)
        elif kind in MESSAGES or kind in ("compaction", "branch_summary"):
            self._entry(row, number)
        elif kind == "session_info":
            self.tally.name(self._scope().run_id, title=row.get("name"), chosen=True)
        elif not isinstance(kind, str) or kind not in ASIDE:
            self.tally.ignore(kind)

    def _begun(self, row: dict[str, Any]) -> None:
        self.buffer.end_runs()
        self._session = string(row.get("id")) or self._session
        self.tally.name(self._scope().run_id, project=row.get("cwd"))

    def _entry(self, row: dict[str, Any], number: int) -> None:
        message = mapping(row.get("message"))
        stamp = row.get("timestamp") or message.get("timestamp")
        # A fork begins with a copy of its parent's entries. Those of the first version have no ids.
        entry_id = string(row.get("id")) or f"{id_hash(repr(message or row)):x}"
        if not self.reading.is_new(f"{NAME} {entry_id} {stamp}"):
            self.tally.repeated += 1
            return
        at, event_id = time_ms(stamp), f"{self._scope().run_id}/{entry_id}"
        if row["type"] == "compaction":
            self.buffer.compacted(self._scope(), number, event_id, at, before=row.get("tokensBefore"))
        elif row["type"] == "branch_summary":  # a person went back to an earlier entry
            self.buffer.user_message(self._scope(), number, event_id, at)
        elif (taken := self._takers.get(string(message.get("role")))) is not None:
            taken(message, number, event_id, at)
        elif string(message.get("role")) not in ROLES_ASIDE:
            self.tally.ignore(message.get("role"))

    def _scope(self) -> RunScope:
        self._session = self._session or self.reading.run_name(self.log)
        return RunScope(name(self._session), NODE, scope_name(self._session))

    def _heard(self, message: dict[str, Any], number: int, event_id: str, at: int | None) -> None:
        self.tally.name(self._scope().run_id, prompt=text_of(message.get("content")))
        self.buffer.user_message(self._scope(), number, event_id, at)

    def _said(self, message: dict[str, Any], number: int, event_id: str, at: int | None) -> None:
        scope, reason = self._scope(), message.get("stopReason")
        model, provider = name(message.get("model")), name(message.get("provider"))
        turn = self.buffer.begin(scope.run_id, number, scope.event(event_id, node=NODE, model=model, provider=provider))
        turn.happened(at)
        used = sums_at(message.get("usage"), USAGE) | {"cost_usd": at_path(message, "usage.cost.total")}
        turn.event["usage"] = fit_usage(used)
        if reason == "length":
            turn.event["stop_reason"] = reason
        for block in map(mapping, items(message.get("content"))):
            if block.get("type") == "text":
                turn.say(string(block.get("text")).strip())
            elif block.get("type") == "toolCall" and reason not in ("error", "aborted"):  # such calls are not made
                self.buffer.call(turn, string(block.get("id")), block.get("name"), block.get("arguments"))
        if reason == "error":
            text = string(message.get("errorMessage")) or "error"
            turn.event["errors"] = [{"message": text, "class": "api_error"}]
        elif reason == "aborted":
            self.buffer.user_message(scope, number, f"{event_id}/aborted", at)

    def _returned(self, message: dict[str, Any], _number: int, _event_id: str, at: int | None) -> None:
        call_id = string(message.get("toolCallId"))
        text = FULL_OUTPUT.sub("]", text_of(message.get("content")))
        if message.get("isError") is not True:
            self.buffer.answer(call_id, text, at)
        elif text.endswith(STOPPED):
            self.buffer.release(call_id, at)
        else:
            code = EXIT.search(text)
            text = exited(text[: code.start()], int(code[1])) if code else text
            self.buffer.answer(call_id, text or "failed", at, failed=True)


PLACES: Final = (".pi/agent/sessions/*/*.jsonl",)
FORMAT: Final = Format(NAME, "pi sessions", any_row(is_entry), PiSession.read, PLACES)
