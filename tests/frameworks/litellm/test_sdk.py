"""The adapter of LiteLLM's SDK: the real SDK and its providers, with a model on a port of this machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import litellm
import pytest

from streamproc import Halted, Monitor, ProviderUnavailable, Watch
from streamproc.fingerprint.requests import request_of
from tests.frameworks.litellm.loops import PROMPT, STUCK, WAYS, Agent, heard, watching
from tests.integrations.model_api import ModelAPI
from tests.integrations.model_server import serving
from tests.waiting import until, wait_until


@pytest.fixture(autouse=True)
def without_callbacks() -> None:
    forget_callbacks()


def forget_callbacks() -> None:
    """LiteLLM copies callbacks into lists of its own, and nothing takes them out."""
    for name, value in vars(litellm).items():
        if name.endswith(("callback", "callbacks")) and isinstance(value, list):
            value.clear()
    litellm.suppress_debug_info = True


@pytest.mark.parametrize("way", WAYS)
def test_a_stuck_loop_is_stopped_at_its_third_repeat(way: str) -> None:
    watch, agent = Watch(), Agent(way)
    watching(watch, run_id="r1")
    with pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        agent.run()
    assert (agent.tool_calls, len(agent.api.requests), watch.faults) == (3, 3, 0)


@pytest.mark.parametrize("way", WAYS)
def test_an_honest_loop_ends_by_itself_and_its_usage_counts_once(way: str) -> None:
    watch = Watch()
    agent = Agent(way, lambda number: f"{20 - number} failed", times=6, parallel=2)
    fed = watching(watch, run_id="r1", node="coder")
    assert agent.run() == "All tests pass."
    heard(fed, "output")
    assert (agent.tool_calls, watch.faults) == (12, 0)
    assert [len(turn.get("tool_calls", ())) for turn in fed] == [2] * 6 + [0]
    assert [call["id"] for turn in fed[:2] for call in turn["tool_calls"]] == ["c0-0", "c0-1", "c1-0", "c1-1"]
    used = [turn.get("usage", {}) for turn in fed]
    for name, of_one in (("input_tokens", 10), ("output_tokens", 5), ("cached_tokens", 4)):
        assert sum(usage.get(name, 0) for usage in used) == 7 * of_one


def test_a_turn_has_what_the_hooks_know() -> None:
    fed = watching(Watch(), run_id="r1", node="coder")
    agent = Agent("async openai", times=1, model="openai/gpt-4o")
    agent.run()
    heard(fed, "output")
    usage = {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 4, "cost_usd": "7e-05"}
    call = {"id": "c0-0", "name": "run", "args": '{"cmd": "pytest"}', "result": STUCK}
    request = request_of(PROMPT["content"])
    assert fed == [
        {"type": "turn", "run_id": "r1", "node": "coder", "event_id": fed[0]["event_id"], "tool_calls": [call],
         "request": request, "model": "openai/gpt-4o", "usage": usage},
        {"type": "turn", "run_id": "r1", "node": "coder", "output": "All tests pass.", "request": request,
         "model": "gpt", "provider": "openai", "usage": usage},
    ]  # fmt: skip


def test_what_a_model_says_beside_its_calls_is_part_of_the_turn() -> None:
    fed = watching(Watch(), run_id="r1")
    call = {"id": "c0", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    said = {"role": "assistant", "content": "I run the tests.", "tool_calls": [call]}
    litellm.completion("openai/gpt", [PROMPT, said, {"role": "tool", "tool_call_id": "c0", "content": STUCK}],
                       mock_response="ok")  # fmt: skip
    assert fed[0]["output"] == "I run the tests."


@pytest.mark.parametrize("way", [way for way in WAYS if "async" in way])
def test_a_warning_is_told_to_the_model_once(way: str) -> None:
    agent = Agent(way, times=2)
    watching(Watch(on_warn="tell"), run_id="r1")
    agent.run()
    assert ["same result" in str(request) for request in agent.api.requests] == [False, False, True]
    assert "same result" not in str(agent.messages)  # the loop's own list stays as it is


@pytest.mark.parametrize("way", ["async openai", "async streamed openai", "async responses"])
def test_a_halt_may_end_a_loop_as_an_answer_of_its_model(way: str) -> None:
    watch, agent = Watch(on_halt="end"), Agent(way)
    fed = watching(watch, run_id="r1")
    assert agent.run().startswith("run r1 is halted (LOOP003): run returned")
    assert (agent.tool_calls, len(agent.api.requests), watch.faults, len(fed)) == (3, 3, 0, 3)


@pytest.mark.parametrize("way", ["openai", "async anthropic", "async streamed responses"])
@pytest.mark.parametrize("method", ["turn", "spent", "run_id", "nudge"])
def test_a_fault_of_ours_changes_nothing(way: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a fault")

    watch, agent = Watch(on_warn="tell"), Agent(way, times=2)
    monkeypatch.setattr(watch, method, broken)
    watching(watch, run_id="r1")
    assert agent.run() == "All tests pass."
    assert watch.faults > 0 or (method, way) == ("nudge", "openai")  # synchronous calls are told nothing


@pytest.mark.parametrize("way", ["openai", "async openai"])
def test_a_fault_of_ours_is_raised_on_demand_as_far_as_litellm_lets_it(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a fault")

    watch, agent = Watch(fail="closed"), Agent(way, times=2)
    monkeypatch.setattr(watch, "run_id", broken)
    watching(watch, run_id="r1")
    if "async" in way:
        with pytest.raises(RuntimeError, match="a fault"):
            agent.run()
    else:
        assert agent.run() == "All tests pass."  # LiteLLM catches it, and the page says so
    assert watch.faults > 0


@pytest.mark.parametrize("way", ["openai", "async openai"])
def test_a_resumed_loop_repeats_no_tool_call(way: str) -> None:
    monitor, agent = Monitor(), Agent(way, times=4)
    watching(Watch(monitor), run_id="r1")
    with pytest.raises(Halted):
        agent.run()
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert agent.run() == "All tests pass."
    assert agent.tool_calls == 4


@pytest.mark.parametrize("way", ["openai", "async openai", "async responses"])
@pytest.mark.parametrize("name", [
    lambda value: {"litellm_session_id": value}, lambda value: {"metadata": {"session_id": value}},
    lambda value: {"litellm_trace_id": value},
], ids=["session", "metadata", "trace"])  # fmt: skip
def test_the_session_is_the_run(way: str, name: Callable[[str], dict[str, Any]]) -> None:
    fed = watching(Watch())
    for value in ("s1", "s2"):
        Agent(way, times=2, **name(value)).run()
    with pytest.raises(Halted, match="run s3 is halted"):
        Agent(way, **name("s3")).run()
    assert {turn["run_id"] for turn in fed} == {"s1", "s2", "s3"}


def test_the_run_of_the_context_counts_more_than_the_session() -> None:
    watch = Watch()
    fed = watching(watch)
    with watch.run("r7", user="ada"):
        Agent("async openai", times=2, litellm_session_id="s1").run()
    assert {event["run_id"] for event in fed} == {"r7"}
    assert fed[0] == {"type": "run.started", "run_id": "r7", "user": "ada"}


@pytest.mark.parametrize("way", ["openai", "async openai"])
def test_loops_without_a_name_are_not_taken_for_one_run(way: str, caplog: pytest.LogCaptureFixture) -> None:
    watch = Watch()
    fed = watching(watch)
    for _ in range(2):
        agent = Agent(way, times=4)
        agent.run()
        assert agent.tool_calls == 4
    assert (fed, watch.faults) == ([], 0)
    assert [record.message for record in caplog.records if record.name == "streamproc.integrations"] == [
        "calls of models without the id of a run or a session are not watched"
    ]


def test_messages_may_be_given_by_position() -> None:
    watch = Watch(on_warn="tell")
    fed = watching(watch, run_id="r1")
    call = {"id": "c0", "type": "function", "function": {"name": "run", "arguments": "{}"}}
    messages: list[Any] = [PROMPT]

    async def loop() -> None:
        for number in range(5):
            await litellm.acompletion("openai/gpt", messages, mock_response="ok", tools=[])
            messages.append({"role": "assistant", "tool_calls": [{**call, "id": f"c{number}"}]})
            messages.append({"role": "tool", "tool_call_id": f"c{number}", "content": STUCK})

    with pytest.raises(Halted):
        asyncio.run(loop())
    assert sum("tool_calls" in turn for turn in fed) == 3
    assert watch.warning("r1") is not None  # it cannot be told, and is left for the caller


def test_a_task_group_wraps_what_stops_one_of_its_tasks() -> None:
    watching(Watch())
    stopped = []

    async def loop(run_id: str, address: str) -> None:
        await Agent("async openai", litellm_session_id=run_id)._arun(address)

    async def both() -> None:
        with serving(ModelAPI()) as address:
            try:
                async with asyncio.TaskGroup() as group:
                    for run_id in ("r1", "r2"):
                        group.create_task(loop(run_id, address))
            except* Halted as halted:
                stopped.extend(halted.exceptions)

    asyncio.run(both())
    assert stopped


def test_a_router_stops_too() -> None:
    watching(Watch(), run_id="r1")
    agent = Agent("async openai")
    with serving(agent.api) as address:
        of_model = {"model": "openai/gpt", "api_base": f"{address}/v1", "api_key": "x"}
        router = litellm.Router(model_list=[{"model_name": "m", "litellm_params": of_model}], num_retries=3)

        async def loop() -> None:
            while True:
                agent._heard(await router.acompletion(model="m", messages=agent.messages))

        with pytest.raises(Halted):
            asyncio.run(loop())
    assert (agent.tool_calls, len(agent.api.requests)) == (3, 3)


def test_a_loop_that_only_talks_is_stopped() -> None:
    fed = watching(Watch(), run_id="r1")

    async def loop() -> int:
        for number in range(20):
            try:
                await litellm.acompletion(model="openai/gpt", messages=[PROMPT], mock_response="I try again.")
            except Halted:
                return number
            await until(lambda: len(fed) > number, what="the answer is logged")  # noqa: B023 (it is called here)
        return 20

    assert asyncio.run(loop()) == 3


def test_an_answer_from_a_cache_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(litellm, "cache", litellm.Cache(type="local"))
    fed = watching(Watch(), run_id="r1")

    async def ask() -> None:
        for number in range(3):
            await litellm.acompletion(model="openai/gpt", messages=[PROMPT], mock_response="yes", caching=True)
            await until(lambda: len(fed) > number, what="the answer is logged")  # noqa: B023 (it is called here)

    asyncio.run(ask())
    assert ["usage" in turn for turn in fed] == [True, False, False]


def test_workers_that_share_a_run_feed_each_result_once() -> None:
    """A request goes to any of them, and may be sent again to another one."""
    texts = ["I read the log.", "The login needs a token", "Yes", "12 of 14 pass now, look", "Done: see the report"]
    feds = []
    agent = Agent("openai", str, times=4)
    agent.run()
    for _ in range(2):
        fed = watching(Watch(), run_id="r1")
        feds.append(fed)
        for end, text in zip(range(1, len(agent.messages), 2), texts, strict=True):
            litellm.completion(model="openai/gpt", messages=agent.messages[:end], mock_response=text)
    turns = [[turn for turn in fed if "tool_calls" in turn] for fed in feds]
    assert [[call["id"] for turn in one for call in turn["tool_calls"]] for one in turns] == [
        ["c0-0", "c1-0", "c2-0", "c3-0"]
    ] * 2
    ids = [[turn["event_id"] for turn in one] for one in turns]
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == 4
    late = watching(Watch(), run_id="r1")
    for end in (3, 7):
        litellm.completion(model="openai/gpt", messages=agent.messages[:end], mock_response="ok")
    assert [turn["event_id"] for turn in late if "tool_calls" in turn] == [ids[0][0], ids[0][2]]


def test_a_provider_of_ones_own_is_seen_by_asynchronous_calls_only() -> None:
    """LiteLLM gives no hook before a synchronous call of a `CustomLLM`; the page says so."""

    class Played(litellm.CustomLLM):
        def completion(self, *args: Any, **more: Any) -> Any:
            return litellm.ModelResponse(choices=[{"message": {"content": "yes"}}])

        async def acompletion(self, *args: Any, **more: Any) -> Any:
            return self.completion()

    litellm.custom_provider_map = [{"provider": "played", "custom_handler": Played()}]
    fed = watching(Watch(), run_id="r1")
    litellm.completion(model="played/x", messages=[PROMPT])

    async def ask() -> None:
        await litellm.acompletion(model="played/x", messages=[PROMPT])
        await until(lambda: fed, what="the answer is logged")

    asyncio.run(ask())
    assert [turn["output"] for turn in fed] == ["yes"]


class Provider(ModelAPI):
    """Refuses calls until it is told to answer."""

    refuses = True

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        if not self.refuses:
            return super()._answer(request)
        self.requests.append({})
        error = {"error": {"message": "Too many requests.", "type": "rate_limit_error", "code": "429"}}
        return httpx2.Response(429, json=error)


@pytest.mark.parametrize("way", ["openai", "async openai", "async anthropic"])
def test_calls_wait_while_their_provider_refuses_those_of_other_runs(way: str) -> None:
    monitor = Monitor({"name": "p", "providers": {"min_calls": 6, "cool_down_s": 1}})
    api = Provider(0)
    name = "anthropic/claude" if "anthropic" in way else "openai/gpt"

    def ask(address: str, run_id: str) -> Any:
        base = address if "anthropic" in way else f"{address}/v1"
        given = {"api_base": base, "api_key": "x", "max_retries": 0, "metadata": {"session_id": run_id}}
        if "async" not in way:
            return litellm.completion(name, [PROMPT], **given)
        return asyncio.run(ask_in_loop(given))

    async def ask_in_loop(given: dict[str, Any]) -> Any:
        answer = await litellm.acompletion(model=name, messages=[PROMPT], **given)
        await until(lambda: not monitor.providers(), what="the breaker is closed")  # a task logs the answer
        return answer

    watches = [watching_as(monitor, "report")]
    with serving(api) as address:
        for number in range(6):
            with pytest.raises(litellm.RateLimitError):
                ask(address, f"r{number % 3}")
        wait_until(monitor.providers, what="the breaker is open")
        assert [(one.provider, one.state) for one in monitor.providers()] == [(name, "open")]
        if "async" in way:  # LiteLLM swallows what a synchronous call raises there
            watches.append(watching_as(monitor, "raise"))
            with pytest.raises(ProviderUnavailable, match=f"{name} is open: 6 of 6 calls of 3 runs failed"):
                ask(address, "r9")
        assert len(api.requests) == 6
        api.refuses = False
        watches.append(watching_as(monitor, "wait"))
        assert ask(address, "r1").choices[0].message.content == "All tests pass."
        wait_until(lambda: not monitor.providers(), what="the breaker is closed")
    assert len(api.requests) == 7
    assert [watch.faults for watch in watches] == [0] * len(watches)


def watching_as(monitor: Monitor, on_provider: Any) -> Watch:
    """Take a new callback in place of the one before."""
    forget_callbacks()
    watch = Watch(monitor, on_provider=on_provider)
    watching(watch)
    return watch
