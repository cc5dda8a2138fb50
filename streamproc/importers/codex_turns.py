"""Turns of Codex, which writes no ids of responses: where one ends is read from what follows. What its tools returned
is read without the envelope that the harness puts around it."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from streamproc.importers.content import exited, first_text, string, text_of
from streamproc.importers.raw_turns import PendingTurn, RunScope, TurnBuffer, is_too_deep, name
from streamproc.model.expansion import parsed

BODY: Final = "Output:\n"  # ends the header of an envelope
HEADER_MAX: Final = 400  # characters
# The header's lines: ids of chunks, times and counts differ between equal results.
HEADER: Final = re.compile(
    r"(?:(?:Chunk ID: .*|Wall time:? .*|Original token count: \d+|Total output lines: \d+"
    r"|Process running with session ID .*|Script running with cell ID .*|Script completed"
    r"|(?P<code>(?:Process exited with code|Exit code:) -?\d{1,9})|(?P<failed>Script (?:failed|terminated)))?\n)*"
)
RUNNING: Final = ("Process running with session ID", "Script running with cell ID")
TRUNCATED: Final = re.compile(r"…\d+ (tokens|chars|lines|bytes) truncated…")
# How the answer begins of a call that could not be made.
REFUSED: Final = (
    "failed to parse function arguments", "failed to parse exec_command arguments", "unsupported call",
    "unsupported custom tool call", "exec_command failed", "write_stdin failed", "execution error", "failed in sandbox",
    "apply_patch verification failed", "tool call error", "err: ", "Script error:",
)  # fmt: skip
DECLINED: Final = re.compile(r"(?:exec command |patch |MCP tool call |command )?(?:rejected|aborted) by user\b")


class CodexTurns:
    """The turns of one run.

    A turn ends where the tokens of its response are counted, or where a text or a call comes after all of its calls
    have results. Old versions count the tokens before they write the response, newer ones after it.
    """

    def __init__(self, scope: RunScope, buffer: TurnBuffer) -> None:
        self.buffer, self.scope = buffer, scope
        self.model = ""
        self.provider = ""
        self._sealed = True  # the next part begins a new turn
        self._items = 0  # since the last prompt
        self._counted: dict[str, int] = {}  # the usage of the response that follows
        self._precise = False  # whether the present turn began after its usage, and so ends at the next one

    def say(self, text: str, number: int, at: int | None) -> None:
        """Add a text of the agent."""
        turn = self._present()
        said = turn is not None and bool(turn.texts)
        self._part(number, at, ends=said or (turn is not None and turn.answered)).say(text)

    def has_said(self, text: str) -> bool:
        """Whether the present response has this text."""
        turn = self._present()
        return turn is not None and not turn.answered and text in turn.texts

    def call(self, call_id: str, tool: str, args: Any, number: int, at: int | None, *, waits: bool = True) -> None:
        """Add a call."""
        turn = self._present()
        turn = self._part(number, at, ends=turn is not None and turn.answered)
        self.buffer.call(turn, call_id, tool, args, waits=waits)

    def answer(self, call_id: str, answer: ToolAnswer, number: int, at: int | None) -> None:
        """Add the result of a call."""
        self.buffer.answer(call_id, answer.text, at, failed=answer.failed)
        if answer.declined:
            self.prompt(number, at)

    def reason(self) -> None:
        """Take that the model thinks: with all calls answered, that is a new response."""
        turn = self._present()
        if turn is not None and turn.answered and not self._precise:
            self._sealed = True

    def prompt(self, number: int, at: int | None) -> None:
        """Add a message of a person."""
        self._spend_rest(number, at)
        self.buffer.user_message(self.scope, number, self._event_id(number), at)
        self._sealed, self._items = True, 0

    def compacted(self, before: int, number: int, at: int | None) -> None:
        """Add that the context was compacted; `before` is its size in tokens."""
        self.buffer.compacted(self.scope, number, self._event_id(number), at, before=before)
        self._sealed = True

    def continued(self, by: str, reason: str, number: int, at: int | None) -> None:
        """Add that the run was about to stop, and was sent on."""
        self._spend_rest(number, at)
        self.buffer.continued(self.scope, number, self._event_id(number), at, by=by, reason=reason)
        self._sealed, self._items = True, 0

    def count(self, usage: dict[str, int], number: int, at: int | None) -> None:
        """Take the usage of a response."""
        turn = self._present()
        if self._items == 0 or self._precise:
            self._spend_rest(number, at)
            self._counted, self._sealed = usage, True
        elif turn is not None and not turn.event.get("usage"):
            turn.event["usage"] = usage
            self._sealed = True
        else:  # a response without a part that is written, such as the summary of a compaction
            self._begin(number, at).event["usage"] = usage
            self._sealed = True

    def total(self, usage: dict[str, int], number: int, at: int | None) -> None:
        """Take what the responses since the last prompt have used together."""
        turn = self._last_turn()
        if turn is None:
            turn = self._begin(number, at)
        turn.event["usage"] = usage

    def failure(self, text: str, kind: str, number: int, at: int | None, *, retryable: bool | None = None) -> None:
        """Add a turn in which the API failed. Without `retryable`, its text decides."""
        error = {"message": text or kind, "class": kind}
        self._begin(number, at).event["errors"] = [error if retryable is None else error | {"retryable": retryable}]
        self._sealed = True

    def end(self, number: int) -> None:
        """Take the end of the log."""
        self._spend_rest(number, None)

    def _part(self, number: int, at: int | None, *, ends: bool) -> PendingTurn:
        """Return the turn that a part belongs to; `ends` says whether the part cannot be the present turn's."""
        turn = self._present()
        if turn is None or (ends and not self._precise):
            turn = self._begin(number, at)
            self._precise = bool(self._counted)
            if self._counted:
                turn.event["usage"], self._counted = self._counted, {}
        self._sealed = False
        self._items += 1
        turn.happened(at)
        return turn

    def _present(self) -> PendingTurn | None:
        """Return the turn that further parts may belong to."""
        return None if self._sealed else self._last_turn()

    def _last_turn(self) -> PendingTurn | None:
        turn = self.buffer.last(self.scope.run_id)
        return None if turn is None or turn.event.get("type") else turn

    def _begin(self, number: int, at: int | None) -> PendingTurn:
        fields = {"node": name(self.scope.node, "codex"), "model": name(self.model), "provider": name(self.provider)}
        turn = self.buffer.begin(self.scope.run_id, number, self.scope.event(self._event_id(number), **fields))
        turn.happened(at)
        self._precise = False
        return turn

    def _spend_rest(self, number: int, at: int | None) -> None:
        """Add the usage of a response of which nothing else was written."""
        if self._counted:
            self._begin(number, at).event["usage"] = self._counted
            self._counted = {}

    def _event_id(self, number: int) -> str:
        return f"{name(self.scope.run_id)}/{number}"


def difference(usage: dict[str, int], former: dict[str, int]) -> dict[str, int]:
    """Return what was used since a former total."""
    rest = {name: number - former.get(name, 0) for name, number in usage.items()}
    return {name: number for name, number in rest.items() if number > 0}


class ToolAnswer(NamedTuple):
    """The result of a call."""

    text: str
    failed: bool = False
    declined: bool = False  # a person stopped or declined the call


def answer_of(output: Any) -> ToolAnswer:
    """Return the result that `function_call_output.output` holds: a text, content blocks, or an old object."""
    if isinstance(output, dict):
        text = text_of(output.get("content", output.get("output", output)))
        return unwrapped(text)._replace(failed=output.get("success") is False)
    text = text_of(output)
    inner = parsed(text) if text.startswith("{") else None
    if isinstance(inner, dict) and "output" in inner and isinstance(inner.get("metadata"), dict):
        code = inner["metadata"].get("exit_code")
        body = "" if is_too_deep(inner) else text_of(inner["output"])
        failed = isinstance(code, int) and not isinstance(code, bool) and code != 0
        return ToolAnswer(exited(_tidy(body), code), failed)
    return unwrapped(text)


def unwrapped(text: str) -> ToolAnswer:
    """Return a result without the lines of its header."""
    head, found, body = text.partition(BODY)
    match = HEADER.fullmatch(head) if found and head and len(head) <= HEADER_MAX else None
    if match is None:
        if DECLINED.match(text):
            return ToolAnswer(DECLINED.match(text)[0], declined=True)  # type: ignore[index]
        return ToolAnswer(_tidy(text), failed=text.startswith(REFUSED))
    code = int(match["code"].rpartition(" ")[2]) if match["code"] else 0
    failed = match["failed"] is not None or code != 0
    running = [line for line in head.splitlines() if line.startswith(RUNNING)]
    if running:  # what it has written so far; that it goes on, and its handle, make the next look at it a poll
        return ToolAnswer(_tidy("\n".join([*running, body])))
    return ToolAnswer(exited(_tidy(body), code), failed)


def _tidy(text: str) -> str:
    """Return a text without the size of what was cut out of it, which counts what differs between equal results."""
    return TRUNCATED.sub(r"…\1 truncated…", text) if "truncated…" in text else text


def arguments_of(arguments: Any) -> Any:
    """Return the arguments of a call, which are JSON in a text; as a text if they are nested too deeply."""
    found = parsed(arguments)
    return arguments if is_too_deep(found) else found


def tool_name(item: dict[str, Any]) -> str:
    """Return the name of a tool: that of a server's tool begins with its namespace."""
    tool, space = string(item.get("name")), string(item.get("namespace"))
    if not space:
        return tool
    return f"{space}{tool}" if space.endswith(("__", ".", "/")) else f"{space}__{tool}"


def spawned_agent(output: Any) -> str:
    """Return the id of the sub-agent that a call has started, as far as its result says."""
    return first_text(parsed(text_of(output)), "agent_id", "thread_id")
