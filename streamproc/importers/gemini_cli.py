"""Sessions of Gemini CLI: one JSON document (`chats/session-….json`), or a record a line (`.jsonl`, from 0.40 on)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, Final

from streamproc.importers.content import at_path, exited, items, mapping, media_text, string, sums_at, text_of, utc
from streamproc.importers.event_limits import fit_to_limits, name
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_file import LogFile, Sample

NAME: Final = "gemini-cli"
UNIT: Final = "message"
MODEL: Final = "gemini"  # the type of what the model says
SPOKEN: Final = (MODEL, "model")  # the second one in some sessions of 2025, with `parts` in place of `content`
SKIPPED: Final = ("info", "warning")  # messages of the program to the person
USAGE: Final = {
    "input_tokens": ("input", "tool"), "output_tokens": ("output", "thoughts"), "cached_tokens": ("cached",)
}  # fmt: skip
# What the shell tool writes around the output of a command. Ids of processes differ between equal results.
SHELL_HEAD: Final = re.compile(r"(?:Command: .{0,20000}?\nDirectory: [^\n]*\n)?(?:Output|Stdout): ", re.DOTALL)
SHELL_TAIL: Final = re.compile(
    r"(?:(?:\A|\n)(?:(?:Error|Stderr|Signal|Background PIDs): (?:\(none\)|\(empty\)|[\d, ]+)"
    r"|Exit Code: (?:\(none\)|(?P<code>-?\d{1,9}))|Process Group PGID: [^\n]*))+\s*\Z"
)

# What it puts around the answer of a tool that may have read anything, and after it, from a hook.
UNTRUSTED: Final = ("<untrusted_context>\n", "\n</untrusted_context>")
HOOK_CONTEXT: Final = ("\n\n<hook_context>", "</hook_context>")
ADVICE: Final = "System: Potential loop detected."  # what its own check for loops tells the model


def matches(sample: Sample) -> bool:
    """Whether the file is a session, or its rows are those of one."""
    document = sample.document
    if isinstance(document, dict):
        messages = items(document.get("messages"))
        return "sessionId" in document and ("projectHash" in document or any(map(_is_of_model, messages)))
    return document is None and any(_is_of_model(row) or _is_head(row) for row in sample.rows)


def _is_head(row: Any) -> bool:
    return isinstance(row, dict) and "sessionId" in row and "projectHash" in row


def _is_of_model(row: Any) -> bool:
    return isinstance(row, dict) and row.get("type") == MODEL and "content" in row and "id" in row


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield a turn for each message of the model, with its calls and their results. The run is the session."""
    document = log.document()
    tally = reading.tally(NAME)
    head = mapping(document)
    messages: dict[str, tuple[int, dict[str, Any]]] = {}  # a message is written again when its calls have ended
    rows = enumerate(items(head.get("messages")), start=1) if document is not None else log.rows()
    for number, row in rows:
        if not isinstance(row, dict):
            tally.ignore(type(row).__name__)
        elif _is_head(row):
            head = row
        elif "$set" not in row:
            message_id = name(row.get("id")) or f"#{number}"
            messages[message_id] = messages.get(message_id, (number,))[0], row
    session = name(head.get("sessionId")) or reading.run_name(log)
    unit = UNIT if document is not None else "line"
    prompt: dict[str, Any] = {}  # the last one of a person
    for message_id, (number, message) in messages.items():
        if message.get("type") == "user":
            if not _is_prompt(message, prompt):
                if _is_of_hook(message, prompt) and reading.is_new(f"{NAME} {session} {message_id}"):
                    sent_on: dict[str, Any] = {
                        "type": "run.continued",
                        "run_id": session,
                        "event_id": f"{session}/{message_id}",
                    }
                    sent_on |= {"at": utc(message.get("timestamp")), "by": "AfterAgent hook", "node": MODEL}
                    yield Imported(fit_to_limits(sent_on | {"reason": text_of(message.get("content"))}), number, unit)
                continue
            prompt = message
        if not reading.is_new(f"{NAME} {session} {message_id}"):
            tally.repeated += 1
            continue
        for event in _events(message, session, message_id, tally):
            yield Imported(fit_to_limits(event), number, unit)


def _is_prompt(message: dict[str, Any], former: dict[str, Any]) -> bool:
    """Whether a person has written a message: not the results of calls, nor what sends the model on in its turn."""
    content = message.get("content")
    if items(content) and all("functionResponse" in mapping(part) for part in items(content)):
        return False
    return not text_of(content).startswith(ADVICE) and not _is_of_hook(message, former)


def _is_of_hook(message: dict[str, Any], former: dict[str, Any]) -> bool:
    """Whether a message is the reason of a hook to go on: it is shown as the prompt before it."""
    text, shown = text_of(message.get("content")), text_of(message.get("displayContent"))
    before = text_of(former.get("displayContent")) or text_of(former.get("content"))
    return bool(shown) and shown == before and text not in (shown, text_of(former.get("content")))


def _events(message: dict[str, Any], session: str, message_id: str, tally: ImportTally) -> Iterator[dict[str, Any]]:
    kind, at = message.get("type"), utc(message.get("timestamp"))
    heard = {"type": "user.message", "run_id": session, "at": at}
    if kind == "user":
        tally.name(session, prompt=text_of(message.get("content")))
        yield heard
    elif kind == "error" or kind in SPOKEN:
        turn: dict[str, Any] = {"run_id": session, "node": MODEL, "event_id": f"{session}/{message_id}", "at": at}
        if kind == "error":
            text = text_of(message.get("content"))
            if "API Error" in text:  # others answer what the person typed, or are about the program
                yield turn | {"errors": [{"message": text, "class": "api_error", "retryable": True}]}
            return
        requested = [mapping(call) for call in items(message.get("toolCalls"))]
        ended = [done for call in requested if (done := utc(call.get("timestamp"))) is not None]
        yield turn | {
            "at": max(ended, default=at),
            "output": text_of(message["content"] if "content" in message else message.get("parts")),
            "tool_calls": [_call(call) for call in requested],
            "model": string(message.get("model")),
            "usage": sums_at(message.get("tokens"), USAGE),
        }
        if any(call.get("status") == "cancelled" for call in requested):
            yield heard  # a person declined a call
    elif kind not in SKIPPED:
        tally.ignore(kind)


def _call(call: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"name": call.get("name"), "id": string(call.get("id")), "args": call.get("args")}
    status = call.get("status")
    if status not in ("success", "error") or call.keys().isdisjoint(("result", "resultDisplay")):
        return found  # a person declined it, or the log does not have its result
    text, code = unwrapped(_returned(call))
    found["error" if status == "error" or code else "result"] = exited(text, code)
    return found


def _returned(call: dict[str, Any]) -> str:
    """Return what a tool gave to the model; if the log has not kept that, what it showed to the person."""
    parts = []
    for part in items(call.get("result")):
        response = mapping(at_path(part, "functionResponse.response"))
        if response:
            parts.append(text_of(next((response[key] for key in ("output", "error") if key in response), response)))
        elif isinstance(part, dict) and "inlineData" in part:
            parts.append(media_text("image", part["inlineData"]))
        elif "functionResponse" not in mapping(part):
            parts.append(text_of(part))
    return "\n".join(parts) if parts else text_of(call.get("resultDisplay"))


def unwrapped(text: str) -> tuple[str, int]:
    """Return what a tool gave without what stands around it, and the exit code of a command; 0 if it has none."""
    if text.endswith(HOOK_CONTEXT[1]):
        text = text[: max(text.rfind(HOOK_CONTEXT[0]), 0)] or text
    text = text.removeprefix(UNTRUSTED[0]).removesuffix(UNTRUSTED[1])
    head = SHELL_HEAD.match(text)
    if head is None:
        return text, 0
    body = text[head.end() :]
    tail = SHELL_TAIL.search(body)
    return (body, 0) if tail is None else (body[: tail.start()], int(tail["code"] or 0))


PLACES: Final = (".gemini/tmp/*/chats/session-*.json", ".gemini/tmp/*/chats/session-*.jsonl")
FORMAT: Final = Format(NAME, "Gemini CLI sessions", matches, read, PLACES)
