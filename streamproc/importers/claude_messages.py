"""Messages of Claude as Claude Code records them: in its session files, and in the output of `stream-json`."""

from __future__ import annotations

import re
from typing import Any, Final

from streamproc.importers.content import at_path, first_text, items, mapping, string, text_of
from streamproc.importers.raw_turns import (
    PendingTurn,
    RecordReader,
    RunScope,
    is_human_text,
    name,
    time_ms,
    usage_of,
)

UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
SYNTHETIC: Final = "<synthetic>"  # the model of answers that Claude Code made up, such as for an error of the API
AGENT_TOOLS: Final = frozenset({"Task", "Agent"})
CALL_BLOCKS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})
UNSAID: Final = frozenset({"thinking", "redacted_thinking", "fallback", "compaction", "container_upload"})
LASTING_ERRORS: Final = frozenset(
    {"authentication_failed", "billing_error", "invalid_request", "oauth_org_not_allowed"}
)

# How user messages begin that the harness wrote.
HARNESS: Final = (
    "<command-name>", "<command-message>", "<local-command-", "<task-notification>", "<bash-input>", "<bash-stdout>",
    "<user-memory-input>", "<teammate-message", "Caveat:", "[Request interrupted by user",
)  # fmt: skip
HOOK_FEEDBACK: Final = re.compile(r"((?:Sub[Aa]gent)?Stop hook) feedback:")  # what an agent is told that it sends on
NOTIFICATION: Final = "task-notification"
NOTIFICATION_MAX: Final = 4_096  # characters: its ids and its summary are in front
# How the result of a call begins that a person declined or stopped.
DECLINED: Final = ("The user doesn't want to", "The user does not want to", "[Request interrupted by user")
# How the result of a call begins that was not made, because another call of its response had failed.
CANCELLED: Final = re.compile(r"(?:<tool_use_error>)?(?:Sibling tool call errored|Cancelled: parallel tool call )")
REMINDER: Final = ("<system-reminder>", "</system-reminder>")
PERSISTED: Final = "<persisted-output>"
SAVED_TO: Final = "saved to: "
AGENT_FOOTER: Final = "\nagentId: "  # below the answer of a sub-agent: its id and its usage


class ClaudeMessages:
    """Turns from messages. A response may come in several records, and results in any order."""

    def __init__(self, reader: RecordReader) -> None:
        self.buffer, self._reading, self._tally = reader.buffer, reader.reading, reader.tally
        self._prompts: dict[str, str] = {}  # what open calls of sub-agents ask for, and their types
        self._notified: dict[str, str] = {}  # by run: what its next response answers

    def is_new(self, row: dict[str, Any], session: str) -> bool:
        """Whether a record was not read before: a resumed session copies those of the former."""
        uuid = string(row.get("uuid"))
        original = first_text(row, "forkedFrom.messageUuid")
        # Only real ids are unique; others come from tests.
        known = uuid if UUID.fullmatch(uuid) else f"{session}/{uuid}"
        if not self._reading.knows(original) and (not uuid or self._reading.is_new(known)):
            return True
        self._tally.repeated += 1
        return False

    def is_unread(self, row: dict[str, Any], session: str) -> bool:
        """Whether a record has a message, and was not read before."""
        if not is_message(row):
            self._tally.ignore(f"{row['type']} without a message")
            return False
        return self.is_new(row, session)

    def assistant(self, scope: RunScope, row: dict[str, Any], number: int) -> None:
        """Add a record of a response."""
        message = mapping(row.get("message"))
        error = row.get("error")
        if row.get("isApiErrorMessage") is True or (isinstance(error, str) and error):
            text = text_of(message.get("content"))
            self.failure(scope, row, number, text, string(error), retryable=string(error) not in LASTING_ERRORS)
            return
        if message.get("model") == SYNTHETIC:
            return
        at = time_ms(row.get("timestamp"))
        key = first_text(row, "message.id", "requestId", "uuid")
        turn = self.buffer.response(scope.run_id, key) if key else None
        if turn is None:
            event = scope.event(key, node=name(scope.node, "main"), model=name(message.get("model")))
            if notification := self._notified.pop(scope.run_id, ""):
                event["request"] = notification
            turn = self.buffer.begin(scope.run_id, number, event, key)
        turn.happened(at)
        turn.event["stop_reason"] = string(message.get("stop_reason")) or turn.event.get("stop_reason", "")
        if usage := usage_of(message.get("usage")):
            turn.event["usage"] = usage
        content = message.get("content")
        for block in [content] if isinstance(content, str) else items(content):
            if is_text(block):
                turn.say(text_of([block]))
            else:
                self._block(turn, mapping(block), at)

    def _block(self, turn: PendingTurn, block: dict[str, Any], at: int | None) -> None:
        kind = string(block.get("type"))
        if kind in CALL_BLOCKS:
            self._call(turn, block)
        elif kind.endswith("_tool_result"):
            self._result(block, at, {})
        elif kind not in UNSAID:
            self._tally.ignore(f"content block {kind}")

    def _call(self, turn: PendingTurn, block: dict[str, Any]) -> None:
        args = block.get("input")
        self.buffer.call(turn, string(block.get("id")), block.get("name"), args)
        if string(block.get("name")) in AGENT_TOOLS:
            asked = mapping(args)
            self._prompts[string(asked.get("prompt"))] = string(asked.get("subagent_type"))

    def user(self, scope: RunScope, row: dict[str, Any], number: int) -> None:
        """Add a record of role user: results of calls, or a message, which may be a person's."""
        content = at_path(row, "message.content")
        at = time_ms(row.get("timestamp"))
        results = [block for block in items(content) if isinstance(block, dict) and block.get("type") == "tool_result"]
        if sent_on := HOOK_FEEDBACK.match(text_of(content)) if not results else None:
            reason = text_of(content)[sent_on.end() :].strip()
            self.buffer.continued(scope, number, string(row.get("uuid")), at, by=sent_on[1], reason=reason)
            return
        declined = False
        for block in results:
            declined |= self._result(block, at, mapping(row.get("toolUseResult", row.get("tool_use_result"))))
        if not results and is_notification(row, content):
            self.notified(scope.run_id, text_of(content))
        asked = not scope.parent_run_id and not results and is_person(row)  # an agent asks what starts a sub-agent
        if declined or (asked and is_human(content)):
            self.buffer.user_message(scope, number, string(row.get("uuid")), at)

    def _result(self, block: dict[str, Any], at: int | None, details: dict[str, Any]) -> bool:
        """Add the result of a call; return whether a person declined or stopped it."""
        call_id = string(block.get("tool_use_id"))
        call = self.buffer.waiting_call(call_id)
        text = without_reminders(text_of(block.get("content")))
        if text.startswith(PERSISTED):
            whole = string(details.get("stdout")) + string(details.get("stderr"))
            text = whole or without_place(text)
        if call.get("name") in AGENT_TOOLS:
            text = text.partition(AGENT_FOOTER)[0]
            asked = mapping(call.get("args"))
            self._prompts.pop(string(asked.get("prompt")), None)
            kind = string(details.get("agentType")) or string(asked.get("subagent_type"))
            if kind and string(details.get("agentId")):
                self._reading.agents.setdefault(details["agentId"], kind)
        failed = block.get("is_error") is True
        if failed and CANCELLED.match(text):
            self.buffer.release(call_id, at)
            return False
        declined = failed and text.startswith(DECLINED)
        self.buffer.answer(call_id, text, at, failed=failed and not declined)
        return declined

    def notified(self, run_id: str, notification: str) -> None:
        """Note that a task in the background has ended: what the run says next is an answer to that."""
        self._notified[run_id] = notification[:NOTIFICATION_MAX]

    def failure(
        self, scope: RunScope, row: dict[str, Any], number: int, text: str, kind: str, *, retryable: bool = True
    ) -> None:
        """Add a turn in which the API failed."""
        error = {"message": text or kind or "api_error", "class": kind or "api_error", "retryable": retryable}
        event = scope.event(string(row.get("uuid")), node=name(scope.node, "main"), errors=[error])
        self.buffer.begin(scope.run_id, number, event).happened(time_ms(row.get("timestamp")))

    def compacted(self, scope: RunScope, row: dict[str, Any], number: int) -> None:
        """Add that the context of an agent was compacted."""
        sizes = mapping(row.get("compactMetadata")) or mapping(row.get("compact_metadata"))
        self.buffer.compacted(
            scope, number, string(row.get("uuid")), time_ms(row.get("timestamp")), trigger=sizes.get("trigger"),
            before=sizes.get("preTokens", sizes.get("pre_tokens")),
            after=sizes.get("postTokens", sizes.get("post_tokens")),
        )  # fmt: skip

    def asked_type(self, prompt: Any) -> str:
        """Return the type of the sub-agent that an open call starts with this prompt."""
        return self._prompts.get(text_of(prompt), "") if isinstance(prompt, (str, list)) else ""


def is_message(row: dict[str, Any]) -> bool:
    """Whether a record has a message that can be read."""
    return isinstance(at_path(row, "message.content"), (str, list))


def is_person(row: dict[str, Any]) -> bool:
    """Whether a record of role user can be a person's: not one that the harness or another agent sent."""
    if row.get("isMeta") or row.get("isCompactSummary") or row.get("isSynthetic"):
        return False
    return first_text(row, "origin.kind") in ("", "human")


def is_notification(row: dict[str, Any], content: Any) -> bool:
    """Whether a record of role user says that a task in the background has ended."""
    return first_text(row, "origin.kind") == NOTIFICATION or text_of(content).startswith(f"<{NOTIFICATION}>")


def is_human(content: Any) -> bool:
    """Whether a message has a part that no harness wrote."""
    if isinstance(content, str):
        content = [content]
    texts = [without_reminders(text_of([block])) if is_text(block) else block for block in items(content)]
    return is_human_text(texts, HARNESS)


def is_text(block: Any) -> bool:
    """Whether a content block is a text."""
    return isinstance(block, str) or (isinstance(block, dict) and block.get("type") == "text")


def without_reminders(text: str) -> str:
    """Return a text without the reminders that the harness adds to it: they differ between equal results."""
    opening, closing = REMINDER
    if opening not in text:
        return text
    kept = []
    while (start := text.find(opening)) >= 0 and (end := text.find(closing, start)) >= 0:
        kept.append(text[:start])
        text = text[end + len(closing) :]
    return "".join([*kept, text]).rstrip()


def without_place(text: str) -> str:
    """Return the excerpt of a long result without the path of the file that has it all, which is always another."""
    head, found, rest = text.partition(SAVED_TO)
    return f"{head.rstrip()}\n{rest.partition(chr(10))[2]}" if found else text
