"""Clients that ask the breaker of their provider, against a server that refuses their calls."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest

from streamproc import Monitor, ProviderUnavailable
from streamproc.integrations.watch import Watch
from streamproc.model.call_errors import call_fields
from tests.integrations.model_server import serving

anthropic = pytest.importorskip("anthropic")
MODEL = "claude-next"


class Provider:
    """Answers, or refuses with 429."""

    def __init__(self) -> None:
        self.refuses, self.calls = True, 0

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.calls += 1
        if self.refuses:
            error = {"type": "rate_limit_error", "message": "slow down"}
            return httpx2.Response(429, json={"type": "error", "error": error}, headers={"retry-after": "1"})
        return httpx2.Response(200, headers={"retry-after": "1"}, json={
            "id": "m", "type": "message", "role": "assistant", "model": f"{MODEL}-20250929",
            "content": [{"type": "text", "text": "hi"}], "stop_reason": "end_turn",
            "usage": {"input_tokens": 1, "output_tokens": 1},
        })  # fmt: skip


def ask(address: str, watch: Watch, run_id: str) -> Any:
    from streamproc.integrations.anthropic import watched

    client = anthropic.Anthropic(api_key="x", base_url=address, max_retries=0)
    messages = [{"role": "user", "content": "hello"}]
    return watched(client, run_id=run_id, watch=watch).messages.create(model=MODEL, max_tokens=5, messages=messages)


def test_calls_stop_while_the_provider_refuses_them_and_go_on_when_it_answers() -> None:
    provider = Provider()
    monitor = Monitor({"name": "p", "providers": {"min_calls": 6, "cool_down_s": 1}})
    reporting, raising, waiting = (Watch(monitor, on_provider=one) for one in ("report", "raise", "wait"))  # type: ignore[arg-type]
    with serving(provider) as address:
        for number in range(6):
            with pytest.raises(anthropic.RateLimitError):
                ask(address, reporting, f"r{number % 3}")
        with pytest.raises(ProviderUnavailable, match=f"127.0.0.1/{MODEL} is open: 6 of 6 calls of 3 runs failed"):
            ask(address, raising, "r9")
        assert provider.calls == 6
        provider.refuses = False
        assert ask(address, waiting, "r1").content[0].text == "hi"
        assert monitor.providers() == []
        assert provider.calls == 7
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
