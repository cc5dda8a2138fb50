"""`watched` clients of OpenAI and Anthropic: the real SDKs, with a model in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import anthropic
import openai
import pytest

from streamproc import Halted, Monitor, Watch
from streamproc.integrations import anthropic as anthropic_adapter, openai as openai_adapter
from streamproc.integrations._clients import Loop
from streamproc.integrations._history import CallResult, RequestedCall, results
from tests.integrations.fed import recorded
from tests.integrations.model_api import ModelAPI

STUCK = "2 failed: test_login, test_logout"
PROMPT = {"role": "user", "content": "fix the tests"}


class Agent:
    """A plain loop around one API: synchronous or not, streamed or not."""

    def __init__(self, api: ModelAPI, way: str, result: Callable[[int], str] = lambda number: STUCK) -> None:
        self.api, self.way, self.result = api, way, result
        self.tool_calls = 0
        self.messages: list[Any] = [PROMPT]
        sdk, client = ("anthropic", "Anthropic") if "messages" in way else ("openai", "OpenAI")
        self.is_async = way.startswith("async")
        make = getattr({"anthropic": anthropic, "openai": openai}[sdk], f"{'Async' * self.is_async}{client}")
        self.client = make(
            api_key="x", max_retries=0, http_client=api.async_client() if self.is_async else api.client()
        )
        self.adapter: Any = {"anthropic": anthropic_adapter, "openai": openai_adapter}[sdk]

    def watched(self, *args: Any, **more: Any) -> Agent:
        self.client = self.adapter.watched(self.client, *args, **more)
        return self

    def run(self) -> Any:
        return asyncio.run(self._run())

    async def _run(self) -> Any:
        ask = {"chat": self._chat, "responses": self._responses, "messages": self._message}[self.way.split()[-1]]
        while (said := await ask()) is None:
            assert len(self.api.requests) < 50
        return said

    def _results(self, calls: list[Any], made: Callable[[Any, str], dict[str, Any]]) -> list[dict[str, Any]]:
        results = []
        for call in calls:
            self.tool_calls += 1
            results.append(made(call, self.result(self.tool_calls)))
        return results

    async def _chat(self) -> str | None:
        request = {"model": "gpt", "messages": self.messages}
        completions = self.client.chat.completions
        if "streamed" in self.way:
            final = await self._through(completions.stream(**request), "get_final_completion")
        else:
            final = await self._got(completions.create(**request))
        said = final.choices[0].message
        calls = said.tool_calls or []
        self.messages.append(said)
        self.messages += self._results(
            calls, lambda call, text: {"role": "tool", "tool_call_id": call.id, "content": text}
        )
        return None if calls else said.content

    async def _responses(self) -> str | None:
        request = {"model": "gpt", "input": self.messages}
        if "streamed" in self.way:
            stream = await self._got(self.client.responses.create(**request, stream=True))
            events = [event async for event in stream] if self.is_async else list(stream)
            output = events[-1].response.output
        else:
            output = (await self._got(self.client.responses.create(**request))).output
        calls = [item for item in output if item.type == "function_call"]
        self.messages += output + self._results(
            calls, lambda call, text: {"type": "function_call_output", "call_id": call.call_id, "output": text}
        )
        return None if calls else output[0].content[0].text

    async def _message(self) -> str | None:
        request = {"model": "claude", "max_tokens": 9, "messages": self.messages}
        if "streamed" in self.way:
            final = await self._through(self.client.messages.stream(**request), "get_final_message")
        else:
            final = await self._got(self.client.messages.create(**request))
        calls = [block for block in final.content if block.type == "tool_use"]
        results = self._results(
            calls, lambda call, text: {"type": "tool_result", "tool_use_id": call.id, "content": text}
        )
        self.messages += [{"role": "assistant", "content": final.content}, {"role": "user", "content": results}]
        return None if calls else final.content[0].text

    async def _got(self, answer: Any) -> Any:
        return await answer if isinstance(answer, Awaitable) else answer

    async def _through(self, manager: Any, final: str) -> Any:
        if not self.is_async:
            with manager as stream:
                return getattr(stream, final)()
        async with manager as stream:
            return await getattr(stream, final)()


WAYS = [
    f"{first}{second}{api}"
    for first in ("", "async ")
    for second in ("", "streamed ")
    for api in ("chat", "responses", "messages")
]


@pytest.mark.parametrize("way", WAYS)
def test_a_stuck_loop_is_stopped_at_its_third_repeat(way: str) -> None:
    watch, api = Watch(), ModelAPI()
    agent = Agent(api, way).watched("r1", node="coder", watch=watch)
    with pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        agent.run()
    assert (agent.tool_calls, len(api.requests), watch.faults) == (3, 3, 0)


@pytest.mark.parametrize("way", WAYS)
def test_an_honest_loop_ends_by_itself_and_its_usage_counts(way: str) -> None:
    watch, api = Watch(), ModelAPI(times=6, parallel=2)
    fed = recorded(watch)
    agent = Agent(api, way, lambda number: f"{20 - number} failed").watched("r1", node="coder", watch=watch)
    assert agent.run() == "All tests pass."
    assert (agent.tool_calls, watch.faults) == (12, 0)
    assert [len(turn.get("tool_calls", ())) for turn in fed] == [2] * 6 + [0]
    assert [call["id"] for turn in fed[:2] for call in turn["tool_calls"]] == ["c0-0", "c0-1", "c1-0", "c1-1"]
    args = [call["args"] for turn in fed for call in turn.get("tool_calls", ())]
    assert all((json.loads(one) if isinstance(one, str) else one) == {"cmd": "pytest"} for one in args)
    assert fed[-1]["output"] == "All tests pass."
    assert {turn["model"] for turn in fed} == {"claude" if "messages" in way else "gpt"}
    for turn in fed:
        if way not in ("streamed chat", "async streamed chat"):
            assert turn["usage"] == {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 4}


@pytest.mark.parametrize("way", WAYS)
def test_a_warning_is_told_to_the_model_once(way: str) -> None:
    api = ModelAPI(times=2)
    agent = Agent(api, way).watched("r1", watch=Watch(on_warn="tell"))
    agent.run()
    assert ["same result" in str(request) for request in api.requests] == [False, False, True]
    assert "same result" not in str(agent.messages)  # the loop's own list stays as it is


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("method", ["turn", "spent", "run_id", "nudge", "check"])
def test_a_fault_of_ours_changes_nothing(way: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a fault")

    watch, api = Watch(on_warn="tell"), ModelAPI(times=2)
    monkeypatch.setattr(watch, method, broken)
    agent = Agent(api, way).watched(watch=watch)
    assert agent.run() == "All tests pass."
    assert watch.faults > 0


@pytest.mark.parametrize("way", WAYS)
def test_a_resumed_loop_repeats_no_tool_call(way: str) -> None:
    monitor, api = Monitor(), ModelAPI(times=4)
    agent = Agent(api, way).watched("r1", watch=Watch(monitor))
    with pytest.raises(Halted):
        agent.run()
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert agent.run() == "All tests pass."
    assert agent.tool_calls == 4


@pytest.mark.parametrize("way", ["chat", "responses", "messages"])
def test_another_process_that_takes_over_feeds_only_what_is_new(way: str) -> None:
    agent, watch = Agent(ModelAPI(times=3), way, str), Watch()
    agent.run()
    del agent.messages[-2 if way == "messages" else -1 :]
    fed = recorded(watch)
    agent.api.times = 0
    agent.watched("r1", watch=watch).run()
    assert [call["id"] for turn in fed for call in turn.get("tool_calls", ())] == ["c2-0"]
    assert fed[0]["tool_calls"][0]["name"] == "run"


def test_copies_are_watched_and_the_client_itself_is_not() -> None:
    agent, watch = Agent(ModelAPI(), "chat"), Watch()
    plain = agent.client
    agent.watched("r1", watch=watch)
    agent.client = agent.client.with_options(timeout=3).copy(max_retries=1)
    with pytest.raises(Halted):
        agent.run()
    plain.chat.completions.create(model="gpt", messages=[PROMPT])
    one, other = agent.adapter.watched(plain), agent.adapter.watched(agent.client, "r2", watch=watch)
    one.chat.completions.create(model="gpt", messages=[PROMPT])
    other.chat.completions.create(model="gpt", messages=[PROMPT])  # r1 is halted, and r2 is not


def test_two_clients_without_ids_are_two_runs() -> None:
    watch = Watch()
    fed = recorded(watch)
    for _ in range(2):
        Agent(ModelAPI(times=2), "messages").watched(watch=watch).run()
    with watch.run("r7"):
        Agent(ModelAPI(times=2), "messages").watched(watch=watch).run()
    assert [turn["run_id"] for turn in fed] == [fed[0]["run_id"]] * 3 + [fed[3]["run_id"]] * 3 + ["r7"] * 3
    assert len({turn["run_id"] for turn in fed}) == 3


def test_calls_that_nothing_answers_are_turns_too() -> None:
    watch, api = Watch(), ModelAPI()
    fed = recorded(watch)
    client = openai_adapter.watched(Agent(api, "chat").client, "r1", watch=watch)
    for _ in range(3):
        client.chat.completions.create(model="gpt", messages=[PROMPT])
    assert [turn["tool_calls"][0]["args"] for turn in fed] == ['{"cmd": "pytest"}'] * 2
    assert all("usage" in turn for turn in fed)


def test_a_stored_conversation_has_its_calls_in_the_answers_only() -> None:
    watch, api = Watch(), ModelAPI()
    fed = recorded(watch)
    client = openai_adapter.watched(Agent(api, "responses").client, "r1", watch=watch)
    first = client.responses.create(model="gpt", input="fix the tests")
    result = {"type": "function_call_output", "call_id": "c0-0", "output": [{"type": "input_text", "text": STUCK}]}
    client.responses.create(model="gpt", input=iter([result]), previous_response_id=first.id)
    assert api.requests[1]["input"] == [result]
    assert fed[0]["tool_calls"] == [{"id": "c0-0", "name": "run", "args": '{"cmd": "pytest"}', "result": STUCK}]


def test_a_result_that_is_an_error_is_one() -> None:
    watch, api = Watch(), ModelAPI(times=1)
    fed = recorded(watch)
    client = anthropic_adapter.watched(Agent(api, "messages").client, "r1", watch=watch)
    said = client.messages.create(model="claude", max_tokens=9, messages=[PROMPT])
    failed = {"type": "tool_result", "tool_use_id": "c0-0", "content": "no such file", "is_error": True}
    history = [PROMPT, {"role": "assistant", "content": said.content}, {"role": "user", "content": [failed]}]
    client.messages.create(model="claude", max_tokens=9, messages=history)
    assert fed[0]["tool_calls"][0] | {"args": 0} == {
        "id": "c0-0", "name": "run", "args": 0, "result": "no such file", "error": True
    }  # fmt: skip


def test_the_history_of_a_request_of_autogen_is_read() -> None:
    asked = {"type": "AssistantMessage", "content": [{"id": "c1", "name": "run", "arguments": "{}"}]}
    returned = {"type": "FunctionExecutionResultMessage", "content": [{"call_id": "c1", "content": "2", "name": "run"}]}
    failed = {
        "type": "FunctionExecutionResultMessage",
        "content": [{"call_id": "c2", "content": "no", "is_error": True}],
    }
    said = {"type": "AssistantMessage", "content": "Two."}
    assert results({"messages": [asked, returned, said, failed]}) == [
        CallResult("c1", "2", False, RequestedCall("c1", "run", "{}"), new=False),
        CallResult("c2", "no", True, None),
    ]


def test_a_stream_that_is_dropped_counts_as_far_as_it_was_read() -> None:
    watch = Watch()
    fed = recorded(watch)
    client = openai_adapter.watched(Agent(ModelAPI(times=0), "chat").client, "r1", watch=watch)
    with client.chat.completions.create(model="gpt", messages=[PROMPT], stream=True) as stream:
        for chunk in stream:
            if chunk.choices[0].delta.content:
                break
    assert [turn["output"] for turn in fed] == ["All tests "]


def test_raw_responses_pass() -> None:
    agent = Agent(ModelAPI(), "chat").watched("r1")
    raw = agent.client.chat.completions.with_raw_response.create(model="gpt", messages=[PROMPT])
    with agent.client.chat.completions.with_streaming_response.create(model="gpt", messages=[PROMPT]) as streamed:
        assert streamed.parse().model == raw.parse().model == "gpt"


def test_loops_that_share_a_run_feed_each_result_once() -> None:
    """Any of them gets a request: one that an earlier request had, or that is sent again, is no second turn."""
    monitor = Monitor()
    feds, loops = [], []
    for _ in range(2):
        watch = Watch(monitor)
        feds.append(recorded(watch))
        loops.append(Loop(None, "agent", watch, shared=True))
    messages: list[Any] = [PROMPT]
    for number in range(4):
        call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages += [
            {"role": "assistant", "content": f"Attempt {number}", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": f"{20 - number} failed"},
        ]
        for loop in (loops, loops[:1], loops[1:], loops)[number]:
            loop.heard("r1", {"messages": messages})
    turns = [[(turn["tool_calls"][0]["id"], turn["output"]) for turn in fed] for fed in feds]
    assert turns[0] == [("c0", "Attempt 0"), ("c1", "Attempt 1"), ("c3", "Attempt 3")]
    assert turns[1] == [("c0", "Attempt 0"), ("c2", "Attempt 2"), ("c3", "Attempt 3")]
    assert len({turn["event_id"] for fed in feds for turn in fed}) == 4


def test_a_task_group_wraps_what_stops_one_of_its_tasks() -> None:
    stopped = []

    async def both() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    group.create_task(Agent(ModelAPI(), "async messages").watched()._run())
        except* Halted as halted:
            stopped.extend(halted.exceptions)

    asyncio.run(both())
    assert stopped
