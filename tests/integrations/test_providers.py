"""Clients that ask the breaker of their provider, against a server that refuses their calls."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from streamproc import Monitor, ProviderUnavailable
from streamproc.integrations.watch import Watch
from streamproc.model.call_errors import call_fields

anthropic = pytest.importorskip("anthropic")
MODEL = "claude-next"


class Provider(BaseHTTPRequestHandler):
    """Answers, or refuses with 429."""

    refuses, calls = True, 0

    def do_POST(self) -> None:
        Provider.calls += 1
        self.rfile.read(int(self.headers["content-length"]))
        answer: dict[str, Any] = {"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}
        if not Provider.refuses:
            answer = {
                "id": "m", "type": "message", "role": "assistant", "model": f"{MODEL}-20250929",
                "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
                "usage": {"input_tokens": 1, "output_tokens": 1},
            }  # fmt: skip
        body = json.dumps(answer).encode()
        self.send_response(429 if Provider.refuses else 200)
        self.send_header("retry-after", "1")
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def address() -> Iterator[str]:
    Provider.refuses, Provider.calls = True, 0
    server = ThreadingHTTPServer(("127.0.0.1", 0), Provider)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def ask(address: str, watch: Watch, run_id: str) -> Any:
    from streamproc.integrations.anthropic import watched

    client = anthropic.Anthropic(api_key="x", base_url=address, max_retries=0)
    messages = [{"role": "user", "content": "hello"}]
    return watched(client, run_id=run_id, watch=watch).messages.create(model=MODEL, max_tokens=5, messages=messages)


def test_calls_stop_while_the_provider_refuses_them_and_go_on_when_it_answers(address: str) -> None:
    monitor = Monitor({"name": "p", "providers": {"min_calls": 6, "cool_down_s": 1}})
    reporting, raising, waiting = (Watch(monitor, on_provider=one) for one in ("report", "raise", "wait"))  # type: ignore[arg-type]
    for number in range(6):
        with pytest.raises(anthropic.RateLimitError):
            ask(address, reporting, f"r{number % 3}")
    with pytest.raises(ProviderUnavailable, match=f"127.0.0.1/{MODEL} is open: 6 of 6 calls of 3 runs failed"):
        ask(address, raising, "r9")
    assert Provider.calls == 6
    Provider.refuses = False
    assert ask(address, waiting, "r1").content[0].text == "hi"
    assert monitor.providers() == []
    assert Provider.calls == 7
    assert [watch.faults for watch in (reporting, raising, waiting)] == [0, 0, 0]


def test_what_an_exception_says_of_the_provider() -> None:
    class Response:
        status_code = 529
        headers = {"retry-after-ms": "1500"}  # noqa: RUF012

    class OverloadedError(Exception):
        response = Response()

    class APIConnectionError(Exception): ...

    assert call_fields(OverloadedError()) == {
        "error_class": "OverloadedError", "status": 529, "retry_after": 1.5
    }  # fmt: skip
    assert call_fields(APIConnectionError())["retryable"] is True
    assert call_fields(TimeoutError())["retryable"] is True
    assert call_fields(KeyError("a"))["retryable"] is False
