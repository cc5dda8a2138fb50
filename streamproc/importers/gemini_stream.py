"""Output of Gemini CLI without a terminal: `gemini -p … --output-format stream-json`."""

from __future__ import annotations

import re
from typing import Any, Final

from streamproc.importers.content import exited, first_text, mapping, string
from streamproc.importers.gemini_cli import MODEL, unwrapped
from streamproc.importers.imported import Format, Import, any_row
from streamproc.importers.log_file import LogFile
from streamproc.importers.raw_turns import PendingTurn, RecordReader, RunScope, name, scope_name, time_ms, tokens

NAME: Final = "gemini-stream"
SHELL: Final = "run_shell_command"
# Of most tools the output is a line for the person, such as "Read lines 1-20 of 90": what the model saw is not in the
# output, and may have changed between two equal lines.
SUMMARISED: Final = frozenset({
    "read_file", "read_many_files", "list_directory", "glob", "grep_search", "search_file_content", "write_file",
    "replace", "google_web_search", "web_fetch", "save_memory", "activate_skill", "get_internal_docs",
})  # fmt: skip
EMPTY: Final = "(empty)"  # what the model is told of a command without output
EXIT: Final = re.compile(r"Command exited with code: (-?\d{1,9})")  # in place of no output
INTERRUPTED: Final = "Command cancelled by user."
DENIED: Final = "policy_violation"  # a rule or a hook has refused the call
# How a run may end that is no failure: a person has stopped it, or it has reached a limit that a person has set.
ENDED: Final = frozenset({"FatalCancellationError", "FatalTurnLimitedError"})
LIMIT: Final = "Maximum session turns exceeded"


def is_of_stream(row: dict[str, Any]) -> bool:
    """Whether a row begins a run, or is a call or its result."""
    kind = row.get("type")
    if kind == "init":
        return isinstance(row.get("session_id"), str) and "model" in row and "run_id" not in row
    return kind in ("tool_use", "tool_result") and isinstance(row.get("tool_id"), str) and "timestamp" in row


class GeminiStream(RecordReader):
    """An output that is read: a turn for each answer of the model, which ends with the first result of a call."""

    name = NAME

    def __init__(self, log: LogFile, reading: Import) -> None:
        super().__init__(log, reading)
        self._session = ""  # until a row has one
        self._model = ""
        self._is_copy = False  # whether this run was read before, from another file
        self._tools: dict[str, str] = {}  # names of tools by the ids of calls without a result
        self._answer: PendingTurn | None = None  # the one that further rows add to
        self._pieces: list[str] = []  # of its text
        self._takers = {
            "init": self._begun, "message": self._said, "tool_use": self._called, "tool_result": self._returned,
            "error": self._complained, "result": self._ended,
        }  # fmt: skip

    def record(self, row: dict[str, Any], number: int) -> None:
        taken = self._takers.get(string(row.get("type")))
        if taken is None:
            self.tally.ignore(row.get("type"))
            return
        if row["type"] == "init":
            self._is_copy = not self.reading.is_new(f"{NAME} {row.get('session_id')} {row.get('timestamp')}")
        if self._is_copy:
            self.tally.repeated += 1
        else:
            taken(row, number, time_ms(row.get("timestamp")))

    def end(self) -> None:
        self._close()

    def _scope(self) -> RunScope:
        self._session = self._session or self.reading.run_name(self.log)
        return RunScope(name(self._session), MODEL, scope_name(self._session))

    def _event_id(self, number: int, at: int | None) -> str:
        return f"{self._session}/{at or ''}/{number}"  # a session that goes on may have lines in several files

    def _begun(self, row: dict[str, Any], _number: int, _at: int | None) -> None:
        self._close()
        self.buffer.end_runs()
        self._tools.clear()
        self._session = string(row.get("session_id")) or self._session
        self._model = string(row.get("model"))

    def _said(self, row: dict[str, Any], number: int, at: int | None) -> None:
        text = string(row.get("content"))
        if row.get("role") == "user":
            self._close()
            scope = self._scope()
            self.tally.name(scope.run_id, prompt=text)
            self.buffer.user_message(scope, number, self._event_id(number, at), at)
        elif row.get("role") != "assistant":
            self.tally.ignore(row.get("role"))
        else:
            if not row.get("delta") and self._pieces:
                self._close()  # a whole message, and not the rest of the one before
            self._present(number, at)
            self._pieces.append(text)

    def _called(self, row: dict[str, Any], number: int, at: int | None) -> None:
        call_id = string(row.get("tool_id")) or f"line {number}"
        self._tools[call_id] = string(row.get("tool_name"))
        self.buffer.call(self._present(number, at), call_id, row.get("tool_name"), row.get("parameters"))

    def _returned(self, row: dict[str, Any], _number: int, at: int | None) -> None:
        self._close()  # calls are made when the answer is complete
        call_id = string(row.get("tool_id"))
        answer = answer_of(self._tools.pop(call_id, ""), row)
        if answer is None:
            self.buffer.release(call_id, at)
        else:
            self.buffer.answer(call_id, answer[0], at, failed=answer[1])

    def _complained(self, row: dict[str, Any], number: int, at: int | None) -> None:
        """Take an error. A warning is for the person, and an answer that is none ends the run."""
        text = string(row.get("message"))
        if row.get("severity") == "error" and text != LIMIT:
            self._failed(text, "invalid_stream", number, at)

    def _ended(self, row: dict[str, Any], number: int, at: int | None) -> None:
        """Take the end of the run: its tokens, which are not counted for each answer, and what has failed."""
        if used := usage_of(mapping(row.get("stats"))):
            turn = self.buffer.last(self._scope().run_id)
            if turn is None or turn.event.get("type"):
                turn = self._begin(number, at)
            turn.event["usage"] = used
        self._close()
        kind = first_text(row, "error.type")
        if row.get("status") == "error" and row.get("error") and kind not in ENDED:
            self._failed(first_text(row, "error.message"), kind or "error", number, at)

    def _failed(self, text: str, kind: str, number: int, at: int | None) -> None:
        self._close()
        # The program ends with a fatal error for what does not change by itself: a login, its settings, a full disk.
        error = {"message": text or kind, "class": kind, "retryable": not kind.startswith("Fatal")}
        self._begin(number, at).event["errors"] = [error]

    def _begin(self, number: int, at: int | None) -> PendingTurn:
        scope = self._scope()
        event = scope.event(self._event_id(number, at), node=MODEL, model=name(self._model))
        turn = self.buffer.begin(scope.run_id, number, event)
        turn.happened(at)
        return turn

    def _present(self, number: int, at: int | None) -> PendingTurn:
        """Return the turn of the present answer; a new one if the last one is complete."""
        if self._answer is None:
            self._answer = self._begin(number, at)
        self._answer.happened(at)
        return self._answer

    def _close(self) -> None:
        """End the present answer: its pieces are one text."""
        if self._answer is not None:
            self._answer.say("".join(self._pieces).strip())
        self._answer = None
        self._pieces.clear()


def answer_of(tool: str, row: dict[str, Any]) -> tuple[str, bool] | None:
    """Return the result of a call, and whether it is an error; None if the output does not tell it."""
    if row.get("status") == "error":
        if first_text(row, "error.type") == DENIED:
            return None
        text, code = unwrapped(first_text(row, "error.message", "output"))
        return exited(text, code), True
    shown = row.get("output")
    if not isinstance(shown, str) or tool in SUMMARISED:
        return None  # what an edit has changed is left out; so is what a person has cancelled
    if tool != SHELL:
        return unwrapped(shown)[0], False
    if shown.startswith(INTERRUPTED):
        return None
    if (ended := EXIT.fullmatch(shown)) is not None:
        return exited(EMPTY, int(ended[1])), True
    text, code = unwrapped(shown)  # it has an envelope only if the program looks for its own faults
    return exited(text or EMPTY, code), bool(code)


def usage_of(stats: dict[str, Any]) -> dict[str, int]:
    """Return the tokens of a run. What the model has thought counts in the total only."""
    sent, received, total = (tokens(stats.get(part)) for part in ("input_tokens", "output_tokens", "total_tokens"))
    used = {"input_tokens": sent, "output_tokens": max(received, total - sent)}
    used["cached_tokens"] = tokens(stats.get("cached"))
    return used if any(used.values()) else {}


FORMAT: Final = Format(NAME, "Gemini CLI's stream-json output", any_row(is_of_stream), GeminiStream.read)
