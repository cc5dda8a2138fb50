"""The capability for pydantic-ai: the real framework, with function models and without network."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import BaseModel
from pydantic_ai import (
    Agent,
    ApprovalRequired,
    CallDeferred,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    capture_run_messages,
)
from pydantic_ai.exceptions import RunCancelled
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from streamproc import Halted, Monitor, Watch
from streamproc.integrations._requests import request_of
from streamproc.integrations.pydantic_ai import Breaker
from tests.integrations.commands import STEPS, ran, run
from tests.integrations.examples import printed, shown
from tests.integrations.fed import break_down, fed_by, recorded


def calling(cmds: list[str], *breakers: Breaker, tool: str = "run", **more: Any) -> Agent[None, Any]:
    """An agent that runs these commands, one after another, and then says that it is done."""

    def at(messages: list[ModelMessage]) -> int:
        return sum(isinstance(part, ToolReturnPart) for message in messages for part in message.parts)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if at(messages) == len(cmds):
            return ModelResponse(parts=[TextPart("Done.")])
        return ModelResponse(parts=[ToolCallPart(tool, {"cmd": cmds[at(messages)]})])

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str | dict[int, DeltaToolCall]]:
        if at(messages) == len(cmds):
            yield "Done."
        else:
            yield {0: DeltaToolCall(tool, f'{{"cmd": "{cmds[at(messages)]}"}}', tool_call_id=f"c{at(messages)}")}

    options = {"name": "coder", "tools": [run], "capabilities": breakers} | more
    return Agent(FunctionModel(answer, stream_function=stream), **options)


def stuck(*breakers: Breaker) -> Agent[None, Any]:
    return calling(["pytest"] * STEPS, *breakers)


def honest(*breakers: Breaker) -> Agent[None, Any]:
    return calling([f"pytest {number}" for number in range(STEPS)], *breakers)


def blocking(agent: Agent[None, Any]) -> Any:
    with asyncio.Runner() as loop:  # run_sync takes the loop of its thread and would leave one open
        asyncio.set_event_loop(loop.get_loop())
        return agent.run_sync("Fix it.").output


async def awaited(agent: Agent[None, Any], prompt: str | None = "Fix it.", **options: Any) -> Any:
    return (await agent.run(prompt, **options)).output


async def streamed(agent: Agent[None, Any], prompt: str | None = "Fix it.", **options: Any) -> Any:
    async with agent.run_stream(prompt, **options) as result:
        return await result.get_output()


async def events(agent: Agent[None, Any], prompt: str | None = "Fix it.", **options: Any) -> Any:
    async with agent.run_stream_events(prompt, **options) as stream:
        return [event async for event in stream][-1].result.output  # type: ignore[union-attr]


async def iterated(agent: Agent[None, Any], prompt: str | None = "Fix it.", **options: Any) -> Any:
    async with agent.iter(prompt, **options) as nodes:
        async for _ in nodes:
            pass
    return nodes.result.output


def in_a_loop(way: Callable[..., Any]) -> Callable[..., Any]:
    return lambda agent: asyncio.run(way(agent))


ASYNC = [awaited, streamed, events, iterated]
ways = pytest.mark.parametrize(
    "way", [blocking, *map(in_a_loop, ASYNC)], ids=["sync", "async", "stream", "events", "iter"]
)


@ways
def test_a_stuck_agent_is_stopped_at_its_third_repeat(way: Callable[..., Any]) -> None:
    with pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        way(stuck(Breaker(run_id="r1")))
    assert ran == ["pytest"] * 3


@ways
def test_an_honest_agent_is_left_alone(way: Callable[..., Any]) -> None:
    breaker = Breaker()
    assert way(honest(breaker)) == "Done."
    assert (len(ran), breaker.watch.faults) == (STEPS, 0)


@ways
def test_a_fault_of_ours_changes_nothing(way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker(run_id="r1")
    break_down(breaker.watch, monkeypatch)
    assert way(stuck(breaker)) == "Done."
    assert len(ran) == STEPS
    assert isinstance(breaker.watch.last_fault, ZeroDivisionError)


@pytest.mark.parametrize("way", ASYNC)
async def test_a_resumed_run_repeats_no_tool_call(way: Callable[..., Any]) -> None:
    monitor = Monitor()
    agent = calling(["pytest"] * 3 + ["git diff"], Breaker(Watch(monitor), run_id="r1"))
    with capture_run_messages() as messages, pytest.raises(Halted):
        await way(agent)
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert await way(agent, None, message_history=messages) == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]


@pytest.mark.parametrize("way", ASYNC)
async def test_a_run_ends_as_cancelled_where_that_is_wanted(way: Callable[..., Any]) -> None:
    monitor = Monitor()
    agent = calling(["pytest"] * 3 + ["git diff"], Breaker(Watch(monitor, on_halt="end"), run_id="r1"))
    with pytest.raises(RunCancelled) as cancelled:
        await way(agent)
    assert ran == ["pytest"] * 3
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert await way(agent, None, message_history=cancelled.value.all_messages()) == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]


async def test_two_calls_are_two_runs() -> None:
    breaker = Breaker()
    agent = calling(["pytest"] * 2, breaker)
    for _ in range(3):
        assert await awaited(agent) == "Done."
    assert await asyncio.gather(*(awaited(agent) for _ in range(3))) == ["Done."] * 3
    for _ in range(3):
        assert await iterated(agent) == "Done."
        assert await streamed(agent) == "Done."
    assert breaker.watch.faults == 0


async def test_calls_of_one_conversation_are_one_run() -> None:
    agent = calling(["pytest"] * 2, Breaker())
    assert await awaited(agent, conversation_id="chat 7") == "Done."
    with pytest.raises(Halted, match="run chat 7 is halted"):
        await awaited(agent, conversation_id="chat 7")


async def test_the_run_of_a_context_comes_first() -> None:
    breaker = Breaker()
    with breaker.watch.run("r7"), pytest.raises(Halted, match="run r7 is halted"):
        await awaited(stuck(breaker), conversation_id="chat 7")


async def test_an_agent_that_a_tool_runs_belongs_to_the_run() -> None:
    breaker = Breaker()

    async def fix(cmd: str) -> str:
        return str(await awaited(stuck(breaker)))

    lead = calling(["pytest"], breaker, tool="fix", tools=[fix], name="lead")
    with pytest.raises(Halted, match="run chat 7 is halted"):
        await awaited(lead, conversation_id="chat 7")
    assert ran == ["pytest"] * 3


@pytest.mark.parametrize("way", ASYNC)
async def test_a_warning_is_told_to_the_model_once(way: Callable[..., Any]) -> None:
    agent = calling(["pytest", "pytest", "git diff", "git log"], Breaker(on_warn="tell"))
    with capture_run_messages() as messages:
        assert await way(agent) == "Done."
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    told = [[part.content for part in request.parts if isinstance(part, SystemPromptPart)] for request in requests]
    assert [len(sentences) for sentences in told] == [0, 0, 0, 1, 0, 0], "after the second result"
    assert told[3][0].startswith("run returned the same result")


async def test_a_halt_leaves_a_task_group() -> None:
    seen = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(awaited(stuck(Breaker(run_id="r1"))))
    except* Halted as halts:
        seen = [halt.run_id for halt in halts.exceptions]  # type: ignore[attr-defined]
    assert seen == ["r1"]


@pytest.mark.parametrize("error", [ModelRetry("no such file"), ValueError("no such file")])
async def test_a_tool_that_fails_is_seen(error: Exception) -> None:
    def broken(cmd: str) -> str:
        ran.append(cmd)
        raise error

    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    with pytest.raises(Exception, match=r"no such file|broken"):
        await awaited(calling(["ls"] * STEPS, breaker, tool="broken", tools=[broken]))
    [call] = fed[0]["tool_calls"]
    assert (call["name"], call["args"]) == ("broken", {"cmd": "ls"})
    assert call["error"].startswith("no such file")


async def test_a_tool_that_always_asks_for_a_retry_is_stopped() -> None:
    def broken(cmd: str) -> str:
        ran.append(cmd)
        raise ModelRetry("no such file")

    with pytest.raises(Halted):
        await awaited(calling(["ls"] * STEPS, Breaker(), tool="broken", tools=[broken], retries=STEPS))
    assert len(ran) == 3


async def test_arguments_that_are_never_valid_are_stopped() -> None:
    agent = Agent(
        FunctionModel(lambda *_: ModelResponse(parts=[ToolCallPart("run", '{"cmd": 7}')])),
        tools=[run],
        retries=STEPS,
        capabilities=[Breaker()],
    )
    with pytest.raises(Halted):
        await awaited(agent)
    assert ran == []


async def test_a_call_that_waits_for_approval_is_no_result() -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)

    def deploy(ctx: RunContext[None], cmd: str) -> str:
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return "deployed"

    agent = calling(["now"], breaker, tool="deploy", tools=[deploy], output_type=[str, DeferredToolRequests])
    first = await agent.run("Deploy it.")
    assert fed == []
    [waiting] = first.output.approvals
    results = first.output.build_results(approvals={waiting.tool_call_id: True})
    assert (await agent.run(message_history=first.all_messages(), deferred_tool_results=results)).output == "Done."
    assert [turn.get("tool_calls", [{}])[0].get("result") for turn in fed] == ["deployed", None]


@pytest.mark.parametrize("kind", ["calls", "approvals"])
async def test_what_the_caller_answers_belongs_to_the_answer_that_asked(kind: str) -> None:
    """Else the words beside each call would be an answer that repeats itself."""

    def poll(ctx: RunContext[None], cmd: str) -> str:
        if kind == "calls":
            raise CallDeferred
        if not ctx.tool_call_approved:
            raise ApprovalRequired
        return f"{polls} of 12"

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart("I look."), ToolCallPart("poll", {"cmd": "7"})])

    breaker, polls = Breaker(run_id="r1"), 0
    fed = recorded(breaker.watch)
    agent = Agent(FunctionModel(answer), tools=[poll], capabilities=[breaker], output_type=[str, DeferredToolRequests])
    result = await agent.run("Watch it.")
    for polls in range(1, 9):
        [call] = getattr(result.output, kind)
        found = {call.tool_call_id: True if kind == "approvals" else f"{polls} of 12"}
        results = DeferredToolResults(**{kind: found})
        result = await agent.run(message_history=result.all_messages(), deferred_tool_results=results)
    assert [(turn["output"], turn["tool_calls"][0]["result"]) for turn in fed] == [
        ("I look.", f"{number} of 12") for number in range(1, 9)
    ]


class Verdict(BaseModel):
    passed: bool


async def test_a_turn_has_what_the_hooks_know() -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    usage = RequestUsage(input_tokens=20, output_tokens=3, cache_read_tokens=8)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        call = ToolCallPart("run", {"cmd": "ls"}, "c1")
        if len(messages) > 1:
            call = ToolCallPart(info.output_tools[0].name, {"passed": True}, "c2")
        text = [] if len(messages) > 1 else [TextPart("I look.")]
        return ModelResponse(parts=[*text, call], usage=usage, provider_name="p1")

    agent = Agent(
        FunctionModel(answer, model_name="m1"), name="coder", tools=[run], output_type=Verdict, capabilities=[breaker]
    )
    assert (await awaited(agent)).passed
    known: dict[str, Any] = {"type": "turn", "run_id": "r1", "node": "coder", "model": "m1", "provider": "p1"}
    known["request"] = request_of("Fix it.")
    known["usage"] = {"input_tokens": 20, "output_tokens": 3, "cached_tokens": 8, "cache_write_tokens": 0}
    call = {"id": "c1", "name": "run", "args": {"cmd": "ls"}, "result": "the result of ls"}
    assert fed == [
        known | {"output": "I look.", "tool_calls": [call]},
        known | {"structured_output": {"passed": True}},
    ]


def test_the_page_shows_what_the_example_prints() -> None:
    assert printed("pydantic_ai_agent.py") == shown("pydantic_ai.md")
