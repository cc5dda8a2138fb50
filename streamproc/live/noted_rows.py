"""What a transcript says besides turns: compactions, what sent the agent on, and why its last answer ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from streamproc.fingerprint.reviews import stop_reason
from streamproc.importers.claude_messages import CALL_BLOCKS, HOOK_FEEDBACK, is_text
from streamproc.importers.codex import HOOK_PROMPT
from streamproc.importers.content import at_path, items, mapping, string, text_of

NOTED_MAX: Final = 64  # events between two hooks

RawEvent = dict[str, Any]


class NotedRows:
    """Reads rows of the transcript of Claude Code or Codex, and keeps what they say until it is taken.

    What comes after the last answer is kept back: hooks of a CLI run beside each other, and what one of them says about
    an answer may be written before another one has heard of that answer.
    """

    def __init__(self) -> None:
        self._found: list[RawEvent] = []
        self._ready = 0  # of those, how many came before the last answer
        self._context = 0  # tokens that the model read last
        self._response = ""  # of Claude Code: the last one, ...
        self._has_said = False  # ... whether it has a text or a call ...
        self._ended = ""  # ... and why it ended

    def read(self, row: Mapping[str, Any]) -> None:
        """Take a row."""
        kind = row.get("type")
        found: RawEvent | None = None
        if row.get("isSidechain") is True:
            return
        if kind == "assistant":
            self._answered(mapping(row.get("message")))
            self._ready = len(self._found)
        elif kind == "system" and row.get("subtype") == "compact_boundary":
            sizes = mapping(row.get("compactMetadata"))
            found = _compacted(sizes.get("trigger"), sizes.get("preTokens"), sizes.get("postTokens"))
        elif kind == "user" and (told := HOOK_FEEDBACK.match(text_of(at_path(row, "message.content")))):
            found = _continued(told[1], told.string[told.end() :].strip())
        elif kind == "event_msg" and at_path(row, "payload.type") == "token_count":
            self._context = at_path(row, "payload.info.last_token_usage.input_tokens") or self._context
        elif kind == "compacted":
            found = _compacted("", self._context, None)
        elif kind == "response_item" and at_path(row, "payload.role") != "user":
            self._ready = len(self._found)
        elif kind == "response_item":
            reasons = HOOK_PROMPT.findall(text_of(at_path(row, "payload.content")))
            found = _continued("Stop hook", "\n".join(reason for _, reason in reasons)) if reasons else None
        if found is not None and len(self._found) < NOTED_MAX:
            self._found.append(found)

    def _answered(self, message: Mapping[str, Any]) -> None:
        response = string(message.get("id"))
        if response != self._response:
            self._response, self._has_said, self._ended = response, False, ""
        blocks = items(message.get("content"))
        self._has_said |= any(string(mapping(one).get("type")) in CALL_BLOCKS for one in blocks)
        self._has_said |= bool(text_of([one for one in blocks if is_text(one)]).strip())
        self._ended = string(message.get("stop_reason")) or self._ended

    def take(self) -> list[RawEvent]:
        """Return the events before the last answer that were not taken before, without their run."""
        found, self._found = self._found[: self._ready], self._found[self._ready :]
        self._ready = 0
        return found

    def take_ended(self) -> str:
        """Return why the last answer ended, if not as usual; once."""
        ended, self._ended = stop_reason(self._ended, is_empty=not self._has_said), ""
        return ended


def _compacted(trigger: Any, before: Any, after: Any) -> RawEvent:
    sizes = {"before_tokens": before, "after_tokens": after}
    known = {name: size for name, size in sizes.items() if type(size) is int and size > 0}
    return {"type": "context.compacted", "trigger": string(trigger), **known}


def _continued(by: str, reason: str) -> RawEvent:
    return {"type": "run.continued", "by": by, "reason": reason}
