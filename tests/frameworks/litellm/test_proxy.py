"""The adapter in LiteLLM's proxy: the real proxy on a port of this machine, called by OpenAI's client."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import openai
import pytest
from litellm.proxy._types import ProxyException, UserAPIKeyAuth

from streamproc import Watch
from streamproc.integrations.litellm import Breaker
from tests.docs.pages import ROOT
from tests.frameworks.litellm.loops import PROMPT, STUCK
from tests.integrations.model_api import ModelAPI
from tests.integrations.model_server import serving
from tests.waiting import wait_until

CONFIG = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/gpt-4o, api_key: fake, {model}}}
litellm_settings:
  callbacks: {callback}
  telemetry: false
general_settings: {general}
"""
OPEN = "{dangerously_permit_weak_or_unset_master_key: true}"
MASTER_KEY = "sk-2rT9wqLx7VbK4nZ8mYpC3sHdJ6fGaE1u"
OWN = """
from streamproc.integrations.litellm import Breaker

breaker = Breaker(on_halt="end", on_warn="tell")
by_key = Breaker(unnamed="key")
"""


class Proxies(NamedTuple):
    """A proxy with the callback that the page names, and one with options, whose model is `api`."""

    plain: str
    optioned: str
    keyed: str
    api: ModelAPI


@pytest.fixture(scope="module")
def proxies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxies]:
    folder, api = tmp_path_factory.mktemp("proxy"), ModelAPI(times=0)
    (folder / "own_callback.py").write_text(OWN)
    with ExitStack() as stack:
        model = stack.enter_context(serving(api))
        addresses = [
            stack.enter_context(Proxy(folder, name, settings))
            for name, settings in {
                "plain": {
                    "callback": "streamproc.integrations.litellm.breaker",
                    "model": 'mock_response: "ok"',
                    "general": OPEN,
                },
                "optioned": {"callback": "own_callback.breaker", "model": f"api_base: {model}/v1", "general": OPEN},
                "keyed": {
                    "callback": "own_callback.by_key",
                    "model": 'mock_response: "ok"',
                    "general": "{master_key: os.environ/LITELLM_MASTER_KEY}",
                },
            }.items()
        ]
        for address in addresses:
            ready(address)
        yield Proxies(*addresses, api)


class Proxy:
    """A proxy of LiteLLM as its command starts it, until the end."""

    def __init__(self, folder: Path, name: str, settings: dict[str, str]) -> None:
        config = folder / f"{name}.yaml"
        config.write_text(CONFIG.format(**settings))
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        command = [str(Path(sys.executable).with_name("litellm")), "--config", str(config), "--host", "127.0.0.1"]
        self.command = [*command, "--port", str(self.port)]
        self.log = (folder / f"{name}.log").open("w")
        self.needs_key = settings["general"] != OPEN

    def __enter__(self) -> str:
        environment = {key: value for key, value in os.environ.items() if key != "STREAMPROC_BROKERS"}
        environment |= {"PYTHONPATH": str(ROOT), "HOME": str(Path(self.log.name).parent)}
        environment |= {"LITELLM_MASTER_KEY": MASTER_KEY} if self.needs_key else {}
        self.process = subprocess.Popen(self.command, env=environment, stdout=self.log, stderr=subprocess.STDOUT)
        return f"http://127.0.0.1:{self.port}"

    def __exit__(self, *problem: object) -> None:
        self.process.terminate()
        self.process.wait(30)
        self.log.close()


def ready(address: str) -> None:
    """Wait until a proxy serves."""

    def serves() -> bool:
        try:
            return httpx.get(f"{address}/health/liveliness").is_success
        except httpx.HTTPError:
            return False

    wait_until(serves, 120, f"the proxy at {address}", every_s=0.1)


def client(address: str, key: str = "x", **headers: str) -> openai.OpenAI:
    headers = {name.replace("_", "-"): value for name, value in headers.items()}
    return openai.OpenAI(api_key=key, base_url=f"{address}/v1", default_headers=headers)


def worked(of: openai.OpenAI, times: int = 8, *, stuck: bool = True, **more: Any) -> list[Any]:
    """Return the messages of a loop whose tool is called at each answer."""
    messages: list[Any] = [PROMPT]
    for number in range(times):
        answer = of.chat.completions.create(model="m", messages=messages, **more)
        list(answer) if more.get("stream") else None
        function = {"name": "run", "arguments": '{"cmd": "pytest"}'}
        call = {"id": f"c{number}", "type": "function", "function": function}
        result = STUCK if stuck else f"{20 - number} failed"
        messages += [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": result},
        ]
    return messages


@pytest.mark.parametrize("more", [{}, {"stream": True}], ids=["whole", "streamed"])
@pytest.mark.parametrize(("headers", "run_id"), [
    ({"x_streamproc_run_id": "run-7"}, "run-7"),
    ({"x_litellm_session_id": "session-7", "x_streamproc_run_id": "run-8"}, "run-8"),
    ({"x_litellm_session_id": "session-7"}, "session-7"),
    ({"traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"}, "4bf92f3577b34da6a3ce929d0e0e4736"),
], ids=["run", "run-and-session", "session", "trace"])  # fmt: skip
def test_a_stuck_run_is_rejected_with_its_reason(
    proxies: Proxies, headers: dict[str, str], run_id: str, more: dict[str, Any]
) -> None:
    if more:  # a run of its own
        headers = {name: value.replace("7", "9").replace("8", "9") for name, value in headers.items()}
        run_id = run_id.replace("7", "9").replace("8", "9")
    with pytest.raises(openai.BadRequestError) as rejected:
        worked(client(proxies.plain, **headers), **more)
    assert rejected.value.status_code == 400
    assert rejected.value.type == "run_halted"
    assert f"run {run_id} is halted (LOOP003): run returned the same result" in rejected.value.message
    assert rejected.value.response.headers["x-streamproc-halted"] == "LOOP003"


def test_a_halted_run_stays_rejected_and_a_fresh_one_is_served(proxies: Proxies) -> None:
    with pytest.raises(openai.BadRequestError):
        worked(client(proxies.plain, x_streamproc_run_id="stuck"))
    halted, fresh = {"x-streamproc-run-id": "stuck"}, {"x-streamproc-run-id": "fresh"}
    requests: dict[str, dict[str, Any]] = {
        "chat/completions": {"messages": [PROMPT]},
        "messages": {"messages": [PROMPT], "max_tokens": 9},
        "responses": {"input": "fix the tests"},
    }
    for path, request in requests.items():
        for headers, status in ((halted, 400), (fresh, 200)):
            answer = httpx.post(
                f"{proxies.plain}/v1/{path}", json={"model": "m", **request}, headers=headers, timeout=60
            )
            assert answer.status_code == status
            assert answer.headers.get("x-streamproc-halted") == ("LOOP003" if status == 400 else None)
            assert ("run stuck is halted" in answer.text) == (status == 400)


def test_an_honest_run_is_served(proxies: Proxies) -> None:
    messages = worked(client(proxies.optioned, x_streamproc_run_id="honest"), stuck=False)
    assert len(messages) == 17


@pytest.mark.parametrize("more", [{}, {"stream": True}], ids=["whole", "streamed"])
def test_without_the_id_of_a_run_nothing_is_watched(proxies: Proxies, more: dict[str, Any]) -> None:
    assert len(worked(client(proxies.plain), **more)) == 17


def test_unnamed_requests_of_a_key_are_one_run_and_its_administrator_resumes_it(proxies: Proxies) -> None:
    with pytest.raises(openai.BadRequestError, match=r"run key \S+ is halted \(LOOP003\)"):
        worked(client(proxies.keyed, MASTER_KEY))
    with pytest.raises(openai.BadRequestError, match="is halted"):
        worked(client(proxies.keyed, MASTER_KEY), 1)
    assert len(worked(client(proxies.keyed, MASTER_KEY, x_streamproc_resume="looked at"), 1)) == 3


def test_nobody_else_resumes_a_run() -> None:
    of = Breaker()
    for number in range(3):
        asked(of, UserAPIKeyAuth(), "r1", number)
    for key in (UserAPIKeyAuth(), UserAPIKeyAuth(user_role="internal_user")):
        with pytest.raises(ProxyException, match="run r1 is halted"):
            asked(of, key, "r1", 3, resume="me")
    asked(of, UserAPIKeyAuth(user_role="proxy_admin"), "r1", 3, resume="looked at")
    assert of.watch.halted("r1") is None


def test_a_proxy_with_options_tells_the_warning_once_and_ends_with_an_answer(proxies: Proxies) -> None:
    before = len(proxies.api.requests)
    of_run = client(proxies.optioned, x_streamproc_run_id="told")
    messages = worked(of_run, 3)
    told = ["same result" in str(request) for request in proxies.api.requests[before:]]
    assert told == [False, False, True]
    sentence = "run told is halted (LOOP003): run returned the same result"
    ended = of_run.chat.completions.create(model="m", messages=messages)
    assert ended.choices[0].message.content.startswith(sentence)
    chunks = of_run.chat.completions.create(model="m", messages=messages, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks).startswith(sentence)
    assert of_run.responses.create(model="m", input="go on").output_text.startswith(sentence)
    body = {"model": "m", "max_tokens": 9, "messages": [PROMPT]}
    answer = httpx.post(
        f"{proxies.optioned}/v1/messages", json=body, headers={"x-streamproc-run-id": "told"}, timeout=60
    )
    assert answer.json()["content"][0]["text"].startswith(sentence)
    assert len(proxies.api.requests) == before + 3


def asked(of: Breaker, key: UserAPIKeyAuth, run_id: str, number: int = 0, resume: str = "") -> Any:
    """Call the hook as the proxy does, with the history of `number` calls."""
    data: dict[str, Any] = {"model": "m", "litellm_call_id": str(number), "messages": [PROMPT]}
    headers = {"x-streamproc-run-id": run_id} | ({"x-streamproc-resume": resume} if resume else {})
    data["proxy_server_request"] = {"headers": headers}
    for at in range(number):
        call = {"id": f"c{at}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        data["messages"] += [
            {"role": "assistant", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{at}", "content": STUCK},
        ]
    return data, asyncio.run(of.async_pre_call_hook(key, None, data, "acompletion"))


def test_the_user_and_the_team_of_the_key_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    watch, fed = Watch(), []
    monkeypatch.setattr(watch._backend, "feed", fed.append)
    of = Breaker(watch)
    for number in range(2):
        asked(of, UserAPIKeyAuth(user_id="ada", team_id="compilers"), "r1", number)
    asked(of, UserAPIKeyAuth(), "r2")
    assert fed[0] == {"type": "run.started", "run_id": "r1", "user": "ada", "tenant": "compilers"}
    assert [event["type"] for event in fed] == ["run.started", "turn"]


@pytest.mark.parametrize("method", ["run_id", "started", "turn"])
def test_a_fault_of_ours_changes_no_request(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a fault")

    watch = Watch()
    monkeypatch.setattr(watch, method, broken)
    of = Breaker(watch)
    for number in range(3):
        data, sent = asked(of, UserAPIKeyAuth(user_id="ada"), "r1", number)
        assert sent in (None, data)
    assert watch.faults > 0


def test_nothing_else_than_a_rejection_is_raised_in_a_proxy() -> None:
    """`Halted` is no `Exception`: there it would end more than a request."""
    of = Breaker()
    for number in range(3):
        asked(of, UserAPIKeyAuth(), "r1", number)
    with pytest.raises(ProxyException, match="run r1 is halted"):
        asked(of, UserAPIKeyAuth(), "r1", 3)
    call = {"litellm_session_id": "r1", "litellm_params": {"litellm_session_id": "r1"}, "messages": [PROMPT]}
    assert asyncio.run(of.async_pre_call_deployment_hook(call, None)) is None
    of.log_pre_api_call("m", [PROMPT], call)
