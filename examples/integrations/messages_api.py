"""Anthropic's Messages API on loopback, with a function in place of a model: for agents that run in a process of
their own, such as those of the Claude Agent SDK."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

USAGE = {"input_tokens": 52, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 8, "output_tokens": 20}


def text(said: str) -> dict:
    return {"type": "text", "text": said}


def use(name: str, call_id: str, **arguments: object) -> dict:
    return {"type": "tool_use", "id": call_id, "name": name, "input": arguments}


@contextmanager
def serving(model: Callable[[dict], list[dict]]) -> Iterator[str]:
    """Answer requests with the blocks that `model` returns for them. Yields the URL."""
    numbers = iter(range(1_000_000))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            whole = response(request["model"], f"msg_{next(numbers)}", model(request))
            lines = [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events(whole)]
            is_stream = request.get("stream")
            try:
                self.send_response(200)
                self.send_header("content-type", "text/event-stream" if is_stream else "application/json")
                self.end_headers()
                self.wfile.write(("".join(lines) if is_stream else json.dumps(whole)).encode())
            except OSError:
                pass  # the client has gone: it was interrupted

        def do_HEAD(self) -> None:
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def response(model: str, number: str, blocks: list[dict]) -> dict:
    calls = any(block["type"] == "tool_use" for block in blocks)
    stop = {"stop_reason": "tool_use" if calls else "end_turn", "stop_sequence": None}
    return {
        "id": number, "type": "message", "role": "assistant", "model": model, "content": blocks, "usage": USAGE
    } | stop  # fmt: skip


def events(whole: dict) -> Iterator[dict]:
    yield {"type": "message_start", "message": {**whole, "content": [], "usage": {**USAGE, "output_tokens": 1}}}
    for index, block in enumerate(whole["content"]):
        if block["type"] == "text":
            empty, delta = text(""), {"type": "text_delta", "text": block["text"]}
        else:
            empty, delta = {**block, "input": {}}, {"type": "input_json_delta"}
            delta["partial_json"] = json.dumps(block["input"])
        yield {"type": "content_block_start", "index": index, "content_block": empty}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": USAGE["output_tokens"]}}
    yield {"type": "message_stop"}
