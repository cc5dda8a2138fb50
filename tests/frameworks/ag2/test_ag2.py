"""The middleware for AG2: the real framework, with models that are played and without network."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from ag2 import Agent, AgentReply, MemoryStream, ToolResult
from ag2.events import (
    BaseEvent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResultEvent,
    ToolResultsEvent,
    Usage,
)
from ag2.middleware import BaseMiddleware, Middleware
from ag2.testing import TestConfig
from ag2.tools import tool
from ag2.tools.final import ClientTool

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.ag2 import Breaker, tokens
from tests.integrations import commands
from tests.integrations.commands import STEPS, ran
from tests.integrations.examples import printed, run_blocks, shown
from tests.integrations.fed import break_down, fed_by, recorded

run = tool(commands.run)


class Model(TestConfig):
    """A model that is a function of the events that it is sent."""

    def __init__(self, answer: Callable[[Sequence[BaseEvent]], ModelResponse]) -> None:
        super().__init__()
        self.answer = answer

    def create(self) -> Any:
        async def client(messages: Sequence[BaseEvent], context: Any, **_: Any) -> ModelResponse:
            response = self.answer(messages)
            if response.message is not None:
                await context.send(response.message)  # as clients that stream do
            return response

        return client


def at(events: Sequence[BaseEvent]) -> int:
    """How many tools have returned."""
    return sum(len(event.results) for event in events if isinstance(event, ToolResultsEvent))


def calls(*cmds: str, name: str = "run", **more: Any) -> ModelResponse:
    """A model's answer that calls a tool, once for each command."""
    asked = [ToolCallEvent(name, arguments=f'{{"cmd": "{cmd}"}}') for cmd in cmds]
    return ModelResponse(tool_calls=ToolCallsEvent(asked), **more)


def calling(cmds: list[str], *breakers: Any, name: str = "run", node: str = "coder", **more: Any) -> Agent[Any]:
    """An agent that runs these commands, one after another, and then says that it is done."""

    def answer(events: Sequence[BaseEvent]) -> ModelResponse:
        done = at(events)
        return ModelResponse(ModelMessage("Done.")) if done >= len(cmds) else calls(cmds[done], name=name)

    return Agent(node, config=Model(answer), **({"tools": [run], "middleware": breakers} | more))


def stuck(*breakers: Breaker) -> Agent[Any]:
    return calling(["pytest"] * STEPS, *breakers)


def honest(*breakers: Breaker) -> Agent[Any]:
    return calling([f"pytest {number}" for number in range(STEPS)], *breakers)


async def asked(agent: Agent[Any], **options: Any) -> Any:
    return (await agent.ask("Fix it.", **options)).body


async def scoped(agent: Agent[Any], **options: Any) -> Any:
    async with agent.run("Fix it.", **options) as turn:
        return (await turn.result()).body


async def streamed(agent: Agent[Any], **options: Any) -> Any:
    async with agent.run("Fix it.", **options) as turn:
        with turn.stream.join() as events:
            turn.start()
            assert isinstance(await anext(events), BaseEvent)
        return (await turn.result()).body


ways = pytest.mark.parametrize("way", [asked, scoped, streamed])


@ways
async def test_a_stuck_agent_is_stopped_at_its_third_repeat(way: Callable[..., Any]) -> None:
    breaker = Breaker(run_id="r1")
    with pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        await way(stuck(breaker))
    assert (ran, breaker.watch.faults) == (["pytest"] * 3, 0)


@ways
async def test_an_honest_agent_is_left_alone(way: Callable[..., Any]) -> None:
    breaker = Breaker()
    assert await way(honest(breaker)) == "Done."
    assert (len(ran), breaker.watch.faults) == (STEPS, 0)


@ways
async def test_a_fault_of_ours_changes_nothing(way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker(run_id="r1")
    break_down(breaker.watch, monkeypatch)
    assert await way(stuck(breaker)) == "Done."
    assert (len(ran), breaker.watch.faults >= STEPS) == (STEPS, True)
    assert isinstance(breaker.watch.last_fault, ZeroDivisionError)


async def test_a_backend_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker(run_id="r1")
    monkeypatch.setattr(breaker.watch._backend, "feed", lambda _: 1 / 0)
    assert await asked(stuck(breaker)) == "Done."
    assert (len(ran), breaker.watch.faults) == (STEPS, STEPS + 1)


@ways
async def test_a_resumed_run_repeats_no_tool_call(way: Callable[..., Any]) -> None:
    monitor, stream = Monitor(), MemoryStream()
    agent = calling(["pytest"] * 3 + ["git diff"], Breaker(Watch(monitor), run_id="r1"))
    with pytest.raises(Halted):
        await way(agent, stream=stream)
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert await asyncio.wait_for(way(agent, stream=stream), 10) == "Done.", "the stream is not locked"
    assert ran == ["pytest"] * 3 + ["git diff"]


@pytest.mark.parametrize("said", ["", "I look."])
async def test_what_the_caller_executes_belongs_to_the_answer_that_asked(said: str) -> None:
    """Else the words beside each call would be an answer that repeats itself."""
    function = {"name": "poll", "description": "Polls.", "parameters": {"type": "object", "properties": {}}}
    breaker, stream = Breaker(run_id="r1"), MemoryStream()
    fed = recorded(breaker.watch)
    model = Model(lambda _: calls("7", name="poll", message=ModelMessage(said) if said else None))
    tools = [ClientTool({"type": "function", "function": function})]
    agent = Agent("coder", config=model, tools=tools, middleware=[breaker])
    reply = await agent.ask("Watch it.", stream=stream)
    for number in range(1, 9):
        [call] = reply.response.tool_calls.calls
        results = ToolResultsEvent([ToolResultEvent.from_call(call, f"{number} of 12")])
        reply = await agent.resume(*await stream.history.get_events(), results, stream=stream)
    assert [(turn.get("output", ""), turn["tool_calls"][0]["result"]) for turn in fed] == [
        (said, f"{number} of 12") for number in range(1, 9)
    ]


async def test_a_run_is_resumed_from_its_events() -> None:
    monitor, stream = Monitor(), MemoryStream()
    agent = calling(["pytest"] * 3 + ["git diff"], Breaker(Watch(monitor), run_id="r1"))
    with pytest.raises(Halted):
        await asked(agent, stream=stream)
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    reply = await asyncio.wait_for(agent.resume(*await stream.history.get_events(), stream=stream), 10)
    assert (reply.body, ran) == ("Done.", ["pytest"] * 3 + ["git diff"])


@ways
async def test_a_run_ends_with_an_answer_where_that_is_wanted(way: Callable[..., Any]) -> None:
    monitor, stream = Monitor(), MemoryStream()
    agent = calling(["pytest"] * 3 + ["git diff"], Breaker(Watch(monitor, on_halt="end"), run_id="r1"))
    assert (await way(agent, stream=stream)).startswith("HALTED: run returned the same result")
    assert ran == ["pytest"] * 3
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert await way(agent, stream=stream) == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]


async def test_a_halt_while_the_model_answers_executes_no_tool() -> None:
    monitor, stream = Monitor(), MemoryStream()
    breaker = Breaker(Watch(monitor), run_id="r1")
    fed = fed_by(breaker.watch)

    def answer(events: Sequence[BaseEvent]) -> ModelResponse:
        if at(events) == 2:
            return ModelResponse(ModelMessage("Done."))
        monitor.feed(type="operator.stop", run_id="r1", by="ada", reason="stop")
        return calls("pytest", "git diff")

    agent = Agent("coder", config=Model(answer), tools=[run], middleware=[breaker])
    with pytest.raises(Halted, match="run r1 is halted"):
        await asked(agent, stream=stream)
    assert ran == []
    [results] = [event for event in await stream.history.get_events() if isinstance(event, ToolResultsEvent)]
    assert [result.result.parts[0].content[:20] for result in results.results] == ["Not executed: run r1"] * 2
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="go on")
    assert await asked(agent, stream=stream) == "Done."
    assert [(turn["node"], turn["output"]) for turn in fed] == [("coder", "Done.")]


async def test_two_calls_are_two_runs() -> None:
    breaker = Breaker()
    agent = calling(["pytest"] * 2, breaker)
    for way in (asked, scoped, streamed) * 2:
        assert await way(agent) == "Done."
    assert await asyncio.gather(*(asked(agent) for _ in range(3))) == ["Done."] * 3
    assert breaker.watch.faults == 0


async def test_calls_of_one_stream_are_one_run() -> None:
    def answer(events: Sequence[BaseEvent]) -> ModelResponse:
        return ModelResponse(ModelMessage("Done.")) if isinstance(events[-1], ToolResultsEvent) else calls("pytest")

    agent = Agent("coder", config=Model(answer), tools=[run], middleware=[Breaker()])
    reply: AgentReply[Any, Any] = await agent.ask("Again.")
    reply = await reply.ask("Again.")
    with pytest.raises(Halted, match=f"run {reply.context.stream.id} is halted"):
        await reply.ask("Again.")


async def test_an_instance_has_its_name_no_longer_than_its_turn() -> None:
    fed = fed_by((breaker := Breaker(run_id="r1")).watch)

    async def fails(events: Sequence[BaseEvent], context: Any, **_: Any) -> ModelResponse:
        raise ConnectionError("no model")

    broken = Model(lambda _: calls())
    broken.create = lambda: fails  # type: ignore[method-assign]
    for _ in range(2):
        with pytest.raises(ConnectionError):
            await asked(Agent("coder", config=broken, middleware=[breaker]))
    assert await asyncio.gather(*(asked(calling(["ls"], breaker)) for _ in range(2))) == ["Done."] * 2
    assert await asked(calling([], breaker)) == "Done."
    assert sorted(turn["node"] for turn in fed) == ["coder"] * 3 + ["coder/2"] * 2
    assert fed[-1]["node"] == "coder"


async def test_the_run_of_a_context_comes_first() -> None:
    breaker = Breaker()
    with breaker.watch.run("r7"), pytest.raises(Halted, match="run r7 is halted"):
        await asked(stuck(breaker))


@pytest.mark.parametrize("by", ["as_tool", "a tool"])
async def test_an_agent_that_a_tool_runs_belongs_to_the_run(by: str) -> None:
    breaker = Breaker()

    @tool
    async def fix(objective: str) -> str:
        """Fix it."""
        return str(await asked(stuck(breaker)))

    delegated = fix if by == "a tool" else stuck(breaker).as_tool(description="Fix it.", name="fix")
    call = ToolCallEvent("fix", arguments='{"objective": "Fix it."}')
    lead = Agent(
        "lead",
        config=Model(lambda _: ModelResponse(tool_calls=ToolCallsEvent([call]))),
        tools=[delegated],
        middleware=[breaker],
    )
    stream = MemoryStream()
    with pytest.raises(Halted, match=f"run {stream.id} is halted"):
        await asyncio.wait_for(asked(lead, stream=stream), 10)
    assert ran == ["pytest"] * 3


async def test_a_warning_is_told_to_the_model_once() -> None:
    told: list[str] = []
    cmds = ["pytest", "pytest", "git diff", "git log"]

    def answer(events: Sequence[BaseEvent]) -> ModelResponse:
        told.append(events[-1].parts[0].content if isinstance(events[-1], ModelRequest) else "")
        return ModelResponse(ModelMessage("Done.")) if at(events) == len(cmds) else calls(cmds[at(events)])

    stream = MemoryStream()
    agent = Agent("coder", config=Model(answer), tools=[run], middleware=[Breaker(on_warn="tell")])
    assert await asked(agent, stream=stream) == "Done."
    assert told[0] == "Fix it."
    assert [bool(sentence) for sentence in told[1:]] == [False, True, False, False], "after the second result"
    assert told[2].startswith("run returned the same result")
    assert sum(isinstance(event, ModelRequest) for event in await stream.history.get_events()) == 1


async def test_a_halt_leaves_a_task_group() -> None:
    seen = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(asked(stuck(Breaker(run_id="r1"))))
    except* Halted as halts:
        seen = [halt.run_id for halt in halts.exceptions]  # type: ignore[attr-defined]
    assert seen == ["r1"]


async def test_a_tool_that_fails_is_seen() -> None:
    @tool
    def broken(cmd: str) -> str:
        """Fail."""
        ran.append(cmd)
        raise FileNotFoundError("no such file")

    fed = fed_by((breaker := Breaker(run_id="r1")).watch)
    assert await asked(calling(["ls"], breaker, name="broken", tools=[broken])) == "Done."
    [call] = fed[0]["tool_calls"]
    assert (call["name"], call["args"], call["error"]) == ("broken", {"cmd": "ls"}, "no such file")
    with pytest.raises(Halted):
        await asked(calling(["ls"] * STEPS, Breaker(), name="broken", tools=[broken]))
    assert len(ran) == 4


async def test_a_tool_that_does_not_exist_is_seen() -> None:
    called = 0

    def answer(_: Sequence[BaseEvent]) -> ModelResponse:
        nonlocal called
        called += 1
        return calls("ls", name="missing") if called <= STEPS else ModelResponse(ModelMessage("Done."))

    with pytest.raises(Halted):
        await asked(Agent("coder", config=Model(answer), tools=[run], middleware=[Breaker()]))
    assert called == 3


async def test_a_result_of_other_middleware_is_seen() -> None:
    class Refuses(BaseMiddleware):
        async def on_tool_execution(self, call_next: Any, event: ToolCallEvent, context: Any) -> Any:
            raise PermissionError("not allowed")

    fed = fed_by((breaker := Breaker(run_id="r1")).watch)
    assert await asked(calling(["ls"], Middleware(Refuses), breaker)) == "Done."
    assert [call["error"] for call in fed[0]["tool_calls"]] == ["not allowed"]
    assert ran == []


async def test_results_are_fed_without_what_changes_each_time() -> None:
    @tool
    def look(cmd: str) -> Any:
        """Look."""
        return {"json": {"failed": 2}, "parts": ToolResult("two", {"failed": 2}), "nothing": None}[cmd]

    fed = fed_by((breaker := Breaker(run_id="r1")).watch)
    assert await asked(calling(["json", "parts", "nothing"], breaker, name="look", tools=[look])) == "Done."
    results = [turn["tool_calls"][0]["result"] for turn in fed[:3]]
    assert results == [{"failed": 2}, ["two", {"failed": 2}], "None"]


async def test_a_turn_has_what_the_hooks_know() -> None:
    fed = fed_by((breaker := Breaker(run_id="r1")).watch)
    known: dict[str, Any] = {"model": "m1", "provider": "p1"}
    usage = Usage(prompt_tokens=20.0, completion_tokens=3.0, cache_read_input_tokens=8.0)

    def answer(events: Sequence[BaseEvent]) -> ModelResponse:
        if at(events):
            return ModelResponse(ModelMessage("Done."), usage=usage, **known)
        call = ToolCallEvent("run", id="c1", arguments='{"cmd": "ls"}')
        return ModelResponse(ModelMessage("I look."), tool_calls=ToolCallsEvent([call]), usage=usage, **known)

    assert await asked(Agent("coder", config=Model(answer), tools=[run], middleware=[breaker])) == "Done."
    known |= {"type": "turn", "run_id": "r1", "node": "coder"}
    known["usage"] = {"input_tokens": 20, "output_tokens": 3, "cached_tokens": 8, "cache_write_tokens": 0}
    call = {"id": "c1", "name": "run", "args": {"cmd": "ls"}, "result": "the result of ls"}
    assert len({turn.pop("request") for turn in fed}) == 1
    assert fed == [known | {"output": "I look.", "tool_calls": [call]}, known | {"output": "Done."}]


def test_tokens_beside_the_others_are_added() -> None:
    usage = Usage(20, 3, cache_read_input_tokens=8, cache_creation_input_tokens=4, thinking_tokens=2)
    counted = {name: tokens(ModelResponse(usage=usage, provider=name)) for name in ("openai", "anthropic", "google")}
    assert counted == {
        "openai": {"input_tokens": 20, "output_tokens": 3, "cached_tokens": 8, "cache_write_tokens": 4},
        "anthropic": {"input_tokens": 32, "output_tokens": 3, "cached_tokens": 8, "cache_write_tokens": 4},
        "google": {"input_tokens": 20, "output_tokens": 5, "cached_tokens": 8, "cache_write_tokens": 4},
    }


def test_the_page_shows_what_the_example_prints() -> None:
    assert printed("ag2_agent.py") == shown("ag2.md")


def test_the_blocks_of_the_page_work() -> None:
    run_blocks("ag2.md")
