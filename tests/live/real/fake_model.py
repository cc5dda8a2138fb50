"""A model on loopback for coding CLIs: Anthropic Messages, OpenAI Responses and Gemini, with and without a stream.

The first part of a path names the session's play, `http://127.0.0.1:PORT/NAME/…`, and the rest is the provider's. What
the model knows it reads from the request, so sessions may run at once, and be resumed.
"""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple

from tests.live.real.scenarios import HELP, PROMPT, Heard, Play, Step

Json = dict[str, Any]
SHELLS: Final = ("Bash", "exec_command", "shell_command", "shell", "run_shell_command")
AGENTS: Final = ("Agent", "Task")  # what Claude Code has called the tool that starts a sub-agent
OPENAI_AGENTS: Final = "multi_agent_v1"  # the namespace of the tools for sub-agents in Codex
NO_SPEAKER: Final = '{"reasoning": "it has ended", "next_speaker": "user"}'  # to what Gemini CLI asks beside
_numbers = itertools.count(1)


class Reply(NamedTuple):
    """The answer to a request: a document, or the events of a stream with their names."""

    document: Json
    events: tuple[tuple[str, Json], ...] = ()


class FakeModel:
    """The server. `plays` are the sessions that it knows, by the names in their paths."""

    def __init__(self) -> None:
        self.plays: dict[str, Play] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def serving(self) -> Iterator[FakeModel]:
        """Answer requests until the block ends."""
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def reply(self, path: str, request: Json) -> Reply:
        """Return what a provider would answer."""
        name, _, rest = path.strip("/").partition("/")
        play = self.plays[name]
        if "count_tokens" in rest:
            return Reply({"input_tokens": 10})
        if "/messages" in rest:
            return _of_anthropic(play, request)
        if "/responses" in rest:
            return _of_openai(play, request)
        if "countTokens" in rest:
            return Reply({"totalTokens": 10})
        if "enerateContent" in rest:
            return _of_gemini(play, request, streams="streamGenerateContent" in rest)
        return Reply({})


def _handler(model: FakeModel) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

        def do_HEAD(self) -> None:
            self._send(b"", "application/json")

        def do_GET(self) -> None:
            self._send(b'{"data": [], "models": []}', "application/json")

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            try:
                found = model.reply(self.path.partition("?")[0], json.loads(body or b"{}"))
            except (KeyError, ValueError):
                self.send_error(404)
                return
            if found.events:
                lines = (
                    f"event: {name}\n" * bool(name) + f"data: {json.dumps(data)}\n\n" for name, data in found.events
                )
                self._send("".join(lines).encode(), "text/event-stream")
            else:
                self._send(json.dumps(found.document).encode(), "application/json")

        def _send(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.end_headers()
            self.wfile.write(body)

    return Handler


# -- Anthropic Messages


def _of_anthropic(play: Play, request: Json) -> Reply:
    tools = [tool.get("name") for tool in request.get("tools") or []]
    step = play.step(_heard_by_anthropic(request)) if SHELLS[0] in tools else Step(text="A session")
    number = next(_numbers)
    block: Json
    if step.command:
        inner = {"command": step.command, "description": "Look"}
        block = {"type": "tool_use", "id": f"toolu_{number:020d}", "name": SHELLS[0], "input": inner}
    elif step.agent:
        tool = next(name for name in AGENTS if name in tools)
        inner = {"description": "Help", "prompt": step.agent, "subagent_type": "general-purpose"}
        block = {"type": "tool_use", "id": f"toolu_{number:020d}", "name": tool, "input": inner}
    else:
        block = {"type": "text", "text": step.text}
    reason = "tool_use" if step.command or step.agent else "end_turn"
    head = {
        "id": f"msg_{number:020d}", "type": "message", "role": "assistant", "model": request.get("model", "model"),
        "content": [], "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 10, "output_tokens": 5},
    }  # fmt: skip
    if not request.get("stream"):
        return Reply(head | {"content": [block], "stop_reason": reason})
    if step.command or step.agent:
        start, delta = block | {"input": {}}, {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
    else:
        start, delta = block | {"text": ""}, {"type": "text_delta", "text": step.text}
    ended = {"delta": {"stop_reason": reason, "stop_sequence": None}, "usage": {"output_tokens": 5}}
    parts: list[Json] = [
        {"type": "message_start", "message": head},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", **ended},
        {"type": "message_stop"},
    ]
    return Reply({}, tuple((part["type"], part) for part in parts))


def _heard_by_anthropic(request: Json) -> Heard:
    results: list[str] = []
    helps = False
    for message in request.get("messages") or []:
        content = message.get("content")
        for block in [{"type": "text", "text": content}] if isinstance(content, str) else content or []:
            if block.get("type") == "tool_result":
                results.append(_text(block.get("content")))
            elif message.get("role") == "user" and PROMPT in _text(block.get("text")):
                results, helps = [], HELP in _text(block.get("text"))
    return Heard(tuple(results), helps)


# -- OpenAI Responses


def _of_openai(play: Play, request: Json) -> Reply:
    tools = [tool.get("name") or tool.get("type") for tool in request.get("tools") or []]
    shell = next((name for name in SHELLS if name in tools), "")
    step = play.step(_heard_by_openai(request)) if shell else Step(text="A session")
    number = next(_numbers)
    if step.command:
        given = {"exec_command": {"cmd": step.command}, "shell_command": {"command": step.command}}
        arguments = json.dumps(given.get(shell, {"command": ["sh", "-c", step.command]}))
        item: Json = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": shell,
                      "arguments": arguments, "status": "completed"}  # fmt: skip
    elif step.agent or step.wait_for:
        name, arguments = (
            ("wait_agent", {"targets": [step.wait_for]}) if step.wait_for else ("spawn_agent", {"message": step.agent})
        )
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name,
                "namespace": OPENAI_AGENTS, "arguments": json.dumps(arguments), "status": "completed"}  # fmt: skip
    else:
        said = {"type": "output_text", "text": step.text, "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "status": "completed", "content": [said]}
    usage = {
        "input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_tokens_details": {"cached_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }  # fmt: skip
    whole = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": [item], "usage": usage}
    if not request.get("stream"):
        return Reply(whole)
    parts: list[Json] = [
        {"type": "response.created", "response": whole | {"status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": whole},
    ]
    return Reply({}, tuple((part["type"], part) for part in parts))


def _heard_by_openai(request: Json) -> Heard:
    results: list[str] = []
    helps = False
    given = request.get("input")
    for item in given if isinstance(given, list) else []:
        if item.get("type") in ("function_call_output", "custom_tool_call_output"):
            results.append(_text(item.get("output")))
        elif item.get("role") == "user" and PROMPT in _text(item.get("content")):
            results, helps = [], HELP in _text(item.get("content"))
    return Heard(tuple(results), helps)


# -- Gemini


def _of_gemini(play: Play, request: Json, *, streams: bool) -> Reply:
    tools = [one.get("name") for tool in request.get("tools") or [] for one in tool.get("functionDeclarations") or []]
    step = play.step(_heard_by_gemini(request)) if SHELLS[-1] in tools else Step(text=NO_SPEAKER)
    if step.command:
        part: Json = {"functionCall": {"name": SHELLS[-1], "args": {"command": step.command}}}
    elif step.agent:
        part = {"functionCall": {"name": "invoke_agent", "args": {"agent_name": "generalist", "prompt": step.agent}}}
    else:
        part = {"text": step.text}
    document = {
        "candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
    }
    return Reply({}, (("", document),)) if streams else Reply(document)


def _heard_by_gemini(request: Json) -> Heard:
    results: list[str] = []
    helps = False
    for content in request.get("contents") or []:
        for part in content.get("parts") or []:
            if "functionResponse" in part:
                results.append(json.dumps(part["functionResponse"].get("response"), ensure_ascii=False))
            elif content.get("role") == "user" and PROMPT in _text(part.get("text")):
                results, helps = [], HELP in _text(part.get("text"))
    return Heard(tuple(results), helps)


def _text(content: Any) -> str:
    """Return a text, or those of blocks."""
    if isinstance(content, list):
        return "\n".join(_text(block.get("text")) for block in content if isinstance(block, dict))
    return content if isinstance(content, str) else ""
