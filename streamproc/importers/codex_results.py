"""What a tool of Codex returned, without the envelope that the harness puts around it."""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from streamproc.importers.content import exited, first_text, string
from streamproc.importers.raw_turns import is_too_deep, result_text
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


class ToolAnswer(NamedTuple):
    """The result of a call."""

    text: str
    failed: bool = False
    declined: bool = False  # a person stopped or declined the call


def answer_of(output: Any) -> ToolAnswer:
    """Return the result that `function_call_output.output` holds: a text, content blocks, or an old object."""
    if isinstance(output, dict):
        text = result_text(output.get("content", output.get("output", output)))
        return unwrapped(text)._replace(failed=output.get("success") is False)
    text = result_text(output)
    inner = parsed(text) if text.startswith("{") else None
    if isinstance(inner, dict) and "output" in inner and isinstance(inner.get("metadata"), dict):
        code = inner["metadata"].get("exit_code")
        body = "" if is_too_deep(inner) else result_text(inner["output"])
        return ToolAnswer(exited(_tidy(body), code), failed=_is_failure(code))
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


def _is_failure(code: Any) -> bool:
    return isinstance(code, int) and not isinstance(code, bool) and code != 0


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
    return first_text(parsed(result_text(output)), "agent_id", "thread_id")
