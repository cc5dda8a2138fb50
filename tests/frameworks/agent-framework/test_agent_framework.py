"""The middleware for Microsoft Agent Framework: the real framework, with a scripted client and without network."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentExecutor,
    AgentMiddleware,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    FunctionMiddleware,
    FunctionTool,
    InMemoryHistoryProvider,
    Message,
    MiddlewareFailure,
    MiddlewareTermination,
    ResponseStream,
    UserInputRequiredException,
    WorkflowBuilder,
    tool,
)

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.agent_framework import UNSENT, Breaker
from tests.integrations import commands
from tests.integrations.commands import STEPS, ran
from tests.integrations.examples import printed, run_blocks, shown
from tests.integrations.fed import fed_by

run = tool(approval_mode="never_require")(commands.run)


def asking(cmd: str, at: int, name: str = "run") -> Content:
    return Content.from_function_call(call_id=f"c{at}", name=name, arguments=json.dumps({"cmd": cmd}))


class Model(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Asks for one step after another, and then says that it is done. With `stores` it keeps the history itself, as a
    service does, and refuses a request that leaves a call without its result."""

    def __init__(self, steps: list[list[Content]], *, stores: bool = False) -> None:
        super().__init__()
        self.steps = [*steps, [Content.from_text("Done.")]]
        self.stores = self.STORES_BY_DEFAULT = stores
        self.history: list[Message] = []
        self.requests: list[list[Message]] = []
        self.usage: dict[str, int] | None = None
        self.fails = 0

    def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **more: Any) -> Any:
        if self.fails:
            self.fails -= 1
            raise ConnectionError
        self.history = [*self.history, *messages] if self.stores else list(messages)
        self.requests.append(self.history)
        contents = [content for message in self.history for content in message.contents]
        calls = {content.call_id for content in contents if content.type == "function_call"}
        done = [content.call_id for content in contents if content.type == "function_result"]
        assert calls <= set(done), "a call has no result"
        assert not self.stores or len(done) == len(set(done)), "a result was sent twice"
        response = ChatResponse(
            messages=[Message("assistant", self.steps.pop(0) if len(self.steps) > 1 else self.steps[0])],
            conversation_id="conversation" if self.stores else None,
            usage_details=self.usage,
            model="m1",
        )
        self.history = [*self.history, *response.messages]

        async def whole() -> ChatResponse:
            return response

        async def pieces() -> AsyncIterator[Any]:
            for update in response.to_updates():
                yield update

        return ResponseStream(pieces(), finalizer=ChatResponse.from_updates) if stream else whole()


class Again(AgentMiddleware):
    """Calls the agent again if its service fails."""

    async def process(self, context: Any, call_next: Any) -> None:
        try:
            await call_next()
        except ConnectionError:
            await call_next()


def calling(cmds: list[str], *breakers: Any, call: str = "run", **more: Any) -> Agent:
    """An agent that runs these commands, one after another, and then says that it is done."""
    model = Model([[asking(cmd, at, call)] for at, cmd in enumerate(cmds)], stores=more.pop("stores", False))
    return Agent(model, **{"name": "coder", "tools": [run], "middleware": breakers} | more)


def stuck(*breakers: Breaker, **more: Any) -> Agent:
    return calling(["pytest"] * STEPS, *breakers, **more)


def honest(*breakers: Breaker) -> Agent:
    return calling([f"pytest {number}" for number in range(STEPS)], *breakers)


async def awaited(agent: Agent, prompt: str = "Fix it.", **options: Any) -> str:
    return (await agent.run(prompt, **options)).text.strip()


async def streamed(agent: Agent, prompt: str = "Fix it.", **options: Any) -> str:
    return "".join([update.text async for update in agent.run(prompt, stream=True, **options)])


async def final(agent: Agent, prompt: str = "Fix it.", **options: Any) -> str:
    return (await agent.run(prompt, stream=True, **options).get_final_response()).text.strip()


ways = pytest.mark.parametrize("way", [awaited, streamed, final])


@ways
async def test_a_stuck_agent_is_stopped_at_its_third_repeat(way: Callable[..., Any]) -> None:
    agent = stuck(Breaker(run_id="r1"))
    with pytest.raises(Halted, match=r"run r1 is halted \(LOOP003\)"):
        await way(agent)
    assert ran == ["pytest"] * 3
    assert len(agent.client.requests) == 3


@ways
async def test_an_honest_agent_is_left_alone(way: Callable[..., Any]) -> None:
    breaker = Breaker()
    assert await way(honest(breaker)) == "Done."
    assert (len(ran), breaker.watch.faults) == (STEPS, 0)


@ways
@pytest.mark.parametrize("name", ["turn", "spent", "nudge", "check", "run_id"])
async def test_a_fault_of_ours_changes_nothing(
    way: Callable[..., Any], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    breaker = Breaker(run_id="r1")
    monkeypatch.setattr(breaker.watch._backend, "check", lambda _: None)
    monkeypatch.setattr(breaker.watch, name, lambda *_, **__: 1 / 0)
    assert await way(stuck(breaker)) == "Done."
    assert len(ran) == STEPS
    assert await way(calling(["ls"], breaker, call="walk")) == "Done."
    assert isinstance(breaker.watch.last_fault, ZeroDivisionError)


@ways
async def test_a_backend_that_fails_changes_nothing(way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker()
    for name in ("feed", "check", "warning"):
        monkeypatch.setattr(breaker.watch._backend, name, lambda *_: 1 / 0)
    assert await way(stuck(breaker)) == "Done."
    assert len(ran) == STEPS
    assert breaker.watch.faults > STEPS


@ways
@pytest.mark.parametrize("name", ["feed", "check"])
async def test_a_fault_of_ours_ends_the_run_where_that_is_wanted(way: Callable[..., Any], name: str) -> None:
    breaker = Breaker(fail="closed")
    answers = iter([None, None])  # of `check`: as the run and its first request begin
    setattr(breaker.watch._backend, name, lambda _: 1 / 0 if name == "feed" else next(answers))
    with pytest.raises(MiddlewareFailure, match="a step was not watched"):
        await way(stuck(breaker))
    assert ran == (["pytest"] if name == "feed" else [])


def kept(session: AgentSession) -> list[str]:
    """Return what a session holds, after it was stored."""
    session = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    return [content.type for message in session.state["in_memory"]["messages"] for content in message.contents]


@ways
@pytest.mark.parametrize("history", ["of the run", "of each call", "of the service"])
async def test_a_resumed_run_repeats_no_tool_call(way: Callable[..., Any], history: str) -> None:
    monitor, session = Monitor(), AgentSession()
    agent = calling(
        ["pytest"] * 3 + ["git diff"],
        Breaker(Watch(monitor), run_id="r1"),
        context_providers=[] if history == "of the service" else [InMemoryHistoryProvider()],
        require_per_service_call_history_persistence=history == "of each call",
        stores=history == "of the service",
    )
    with pytest.raises(Halted):
        await way(agent, session=session)
    assert (UNSENT in session.state) is (history != "of the run")
    if history == "of the run":
        assert kept(session) == ["text", *["function_call", "function_result"] * 3]
    with pytest.raises(Halted):
        await way(agent, session=session)
    assert len(agent.client.requests) == 3, "it ends before its first model call"

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    stored = AgentSession.from_dict(json.loads(json.dumps(session.to_dict())))
    assert await way(agent, "Go on.", session=stored) == "Done."
    assert UNSENT not in stored.state
    assert ran == ["pytest"] * 3 + ["git diff"]


@ways
async def test_a_run_ends_by_itself_where_that_is_wanted(way: Callable[..., Any]) -> None:
    breaker, session = Breaker(run_id="r1", on_halt="end"), AgentSession()
    agent = stuck(breaker)
    assert (await way(agent, session=session)).startswith("Stopped: run r1 is halted (LOOP003)")
    assert kept(session) == ["text", *["function_call", "function_result"] * 3, "text"]
    assert (await way(agent, session=session)).startswith("Stopped: run r1 is halted (LOOP003)")
    assert ran == ["pytest"] * 3
    assert len(agent.client.requests) == 3


async def test_what_a_service_was_not_told_waits_until_the_run_goes_on() -> None:
    monitor, session = Monitor(), AgentSession()
    breaker = Breaker(Watch(monitor, on_halt="end"), run_id="r1")
    agent = calling(["pytest"] * 3 + ["git diff"], breaker, stores=True)
    for prompt in ("Fix it.", "Well?", "Hello?"):
        assert (await awaited(agent, prompt, session=session)).startswith("Stopped")
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert await awaited(agent, "Go on.", session=session) == "Done."
    assert await awaited(Agent(agent.client, middleware=[breaker]), "And now?", session=session) == "Done."
    said = [message.text for message in agent.client.history if message.role == "user"]
    assert said == ["Fix it.", "Go on.", "And now?"]


async def test_what_a_service_was_not_told_is_not_lost_by_its_failure() -> None:
    monitor, session = Monitor(), AgentSession()
    agent = calling(["pytest"] * 3 + ["git diff"], Breaker(Watch(monitor), run_id="r1"), stores=True)
    with pytest.raises(Halted):
        await awaited(agent, session=session)
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    agent.client.fails = 1
    with pytest.raises(ConnectionError):
        await awaited(agent, "Go on.", session=session)
    agent.client.fails = 1
    agent.middleware = [Again(), *agent.middleware]
    assert await awaited(agent, "Go on.", session=session) == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]


@ways
async def test_a_step_is_reported_once_however_often_the_middleware_is_there(way: Callable[..., Any]) -> None:
    breaker, other = Breaker(run_id="r1"), Breaker(run_id="r1")
    fed, fed_to_other = fed_by(breaker.watch), fed_by(other.watch)
    agent = calling(["ls", "pwd"], Again(), breaker, other)
    agent.client.fails = way is awaited  # a stream fails after the middleware
    assert await way(agent, middleware=[breaker]) == "Done."
    assert [len(turn.get("tool_calls", ())) for turn in fed] == [1, 1, 0]
    assert fed_to_other == fed


@ways
async def test_a_halt_while_the_model_thinks_stops_before_the_tools(way: Callable[..., Any]) -> None:
    monitor, session = Monitor(), AgentSession()

    class Operated(Model):
        def _inner_get_response(self, **request: Any) -> Any:
            if len(self.requests) == 1:
                monitor.feed(type="operator.stop", run_id="r1", by="ada", reason="wait")
            return super()._inner_get_response(**request)

    model = Operated([[asking("ls", 0)], [asking("pytest", 1), asking("git diff", 2)]])
    agent = Agent(model, tools=[run], middleware=[Breaker(Watch(monitor), run_id="r1")])
    with pytest.raises(Halted):
        await way(agent, session=session)
    assert ran == ["ls"]
    assert kept(session) == [
        "text",
        "function_call",
        "function_result",
        *["function_call"] * 2,
        *["function_result"] * 2,
    ]
    last = session.state["in_memory"]["messages"][-1].contents
    assert [content.result[:25] for content in last] == ["Not run: run r1 is halted"] * 2

    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="go on")
    assert await way(agent, "Go on.", session=session) == "Done."


@ways
async def test_two_calls_are_two_runs(way: Callable[..., Any]) -> None:
    breaker = Breaker()
    for _ in range(3):
        assert await way(calling(["pytest"] * 2, breaker)) == "Done."
    agents = [calling(["pytest"] * 2, breaker) for _ in range(3)]
    assert await asyncio.gather(*(way(agent) for agent in agents)) == ["Done."] * 3
    assert breaker.watch.faults == 0


@ways
async def test_an_instance_has_its_name_no_longer_than_its_call(way: Callable[..., Any]) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    broken = calling([], breaker)
    broken.client.fails = 1
    with pytest.raises(ConnectionError):
        await way(broken)
    calling([], breaker).run("Fix it.", stream=True)  # no one reads it
    assert await asyncio.gather(*(way(calling(["ls"], breaker)) for _ in range(2))) == ["Done."] * 2
    assert await way(calling([], breaker)) == "Done."
    assert sorted(turn["node"] for turn in fed) == ["coder"] * 3 + ["coder/2"] * 2
    assert fed[-1]["node"] == "coder"


@ways
async def test_calls_with_one_session_are_one_run(way: Callable[..., Any]) -> None:
    breaker, session = Breaker(), AgentSession(session_id="chat 7")
    assert await way(calling(["pytest"] * 2, breaker), session=session) == "Done."
    with pytest.raises(Halted, match="run chat 7 is halted"):
        await way(stuck(breaker), session=AgentSession(session_id="chat 7"))
    assert ran == ["pytest"] * 3


async def test_the_run_of_a_context_comes_first() -> None:
    breaker = Breaker()
    with breaker.watch.run("r7"), pytest.raises(Halted, match="run r7 is halted"):
        await awaited(stuck(breaker), session=AgentSession(session_id="chat 7"))


@ways
async def test_an_agent_used_as_a_tool_belongs_to_the_run(way: Callable[..., Any]) -> None:
    breaker, session = Breaker(), AgentSession(session_id="chat 7")
    inner = stuck(breaker, name="fixer", description="Fixes it.")
    step = Content.from_function_call(call_id="c", name="fixer", arguments={"task": "Fix it."})
    lead = Agent(Model([[step]]), name="lead", tools=[inner.as_tool()], middleware=[breaker])
    with pytest.raises(Halted, match="run chat 7 is halted"):
        await way(lead, session=session)
    assert ran == ["pytest"] * 3
    assert kept(session) == ["text", "function_call", "function_result"], "the outer agent has its history, too"


async def test_an_agent_used_as_a_tool_that_is_a_run_of_its_own_ends_both() -> None:
    inner = stuck(Breaker(run_id="inner"), name="fixer", description="Fixes it.")
    step = Content.from_function_call(call_id="c", name="fixer", arguments={"task": "Fix it."})
    lead = Agent(Model([[step]]), name="lead", tools=[inner.as_tool()], middleware=[Breaker(run_id="outer")])
    with pytest.raises(Halted, match="run inner is halted"):
        await awaited(lead)


@pytest.mark.parametrize("stream", [False, True])
async def test_agents_of_a_workflow_are_watched(stream: bool) -> None:
    breaker = Breaker()
    first, second = calling(["ls"], breaker, name="lead"), stuck(breaker)
    start = AgentExecutor(first, id="lead")
    workflow = WorkflowBuilder(start_executor=start).add_edge(start, AgentExecutor(second, id="coder")).build()
    with breaker.watch.run("r1"), pytest.raises(Halted, match="run r1 is halted"):
        await (workflow.run("Fix it.", stream=True).get_final_response() if stream else workflow.run("Fix it."))
    assert ran == ["ls", *["pytest"] * 3]


@ways
@pytest.mark.parametrize("each_call", [False, True])
async def test_a_warning_is_told_to_the_model_once(way: Callable[..., Any], each_call: bool) -> None:
    session = AgentSession()
    agent = calling(
        ["pytest", "pytest", "git diff", "git log"],
        Breaker(on_warn="tell"),
        context_providers=[InMemoryHistoryProvider()],
        require_per_service_call_history_persistence=each_call,
    )
    assert await way(agent, session=session) == "Done."
    told = [
        [message.text for message in request if message.role == "user" and message.text != "Fix it."]
        for request in agent.client.requests
    ]
    if each_call:
        told = [now[len(before) :] for before, now in zip([[], *told], told, strict=False)]
    assert [len(sentences) for sentences in told] == [0, 0, 1, 0, 0]
    assert told[2][0].startswith("run returned the same result")
    assert ("run returned" in json.dumps(session.to_dict())) is each_call


async def test_parallel_tools_are_siblings_and_no_repeats() -> None:
    breaker = Breaker()
    fed = fed_by(breaker.watch)
    agent = Agent(Model([[asking("pytest", at) for at in range(8)]]), tools=[run], middleware=[breaker])
    assert await awaited(agent) == "Done."
    assert [len(turn.get("tool_calls", [])) for turn in fed] == [8, 0]


async def test_a_halt_leaves_a_task_group() -> None:
    seen = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(awaited(stuck(Breaker(run_id="r1"))))
    except* Halted as halts:
        seen = [halt.run_id for halt in halts.exceptions]  # type: ignore[attr-defined]
    assert seen == ["r1"]


async def test_a_tool_that_fails_is_seen() -> None:
    @tool(name="broken", approval_mode="never_require")
    def broken(cmd: str) -> str:
        raise ValueError("no such file")

    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    assert await awaited(calling(["ls"], breaker, call="broken", tools=[broken])) == "Done."
    [call] = fed[0]["tool_calls"]
    assert call == {"id": "c0", "name": "broken", "args": {"cmd": "ls"}, "error": "no such file"}


@ways
async def test_a_tool_that_does_not_exist_is_seen(way: Callable[..., Any]) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    assert await way(calling(["ls"], breaker, call="walk")) == "Done."
    [call] = fed[0]["tool_calls"]
    assert call == {
        "id": "c0",
        "name": "walk",
        "args": {"cmd": "ls"},
        "error": 'Error: Requested function "walk" not found.',
    }


async def test_arguments_that_are_never_valid_are_stopped() -> None:
    steps = [[Content.from_function_call(call_id=f"c{at}", name="run", arguments={"cmd": [7]})] for at in range(STEPS)]
    with pytest.raises(Halted):
        await awaited(Agent(Model(steps), tools=[run], middleware=[Breaker()]))
    assert ran == []


async def test_what_another_middleware_answers_is_seen() -> None:
    class Cached(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            raise MiddlewareTermination(result="from the cache")

    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    await awaited(calling(["ls"], Cached(), breaker))
    assert fed[0]["tool_calls"][0]["result"] == "from the cache"


async def test_a_call_that_waits_for_approval_is_no_result() -> None:
    @tool(name="deploy", approval_mode="always_require")
    def deploy(cmd: str) -> str:
        return "deployed"

    breaker, session = Breaker(), AgentSession()
    fed = fed_by(breaker.watch)
    agent = calling(["now"], breaker, call="deploy", tools=[deploy])
    first = await agent.run("Deploy it.", session=session)
    assert fed == []
    [waiting] = first.user_input_requests
    answer = Message("user", [waiting.to_function_approval_response(approved=True)])
    assert (await agent.run(answer, session=session)).text.strip() == "Done."
    assert [turn.get("tool_calls", [{}])[0].get("result") for turn in fed] == ["deployed", None]


WAITING = Content.from_function_approval_request("a1", asking("ls", 0))


@pytest.mark.parametrize("end", [MiddlewareFailure("no"), UserInputRequiredException([WAITING]), WAITING])
async def test_a_tool_that_another_middleware_prevents_has_no_result(end: Any) -> None:
    class Prevents(FunctionMiddleware):
        async def process(self, context: Any, call_next: Any) -> None:
            if isinstance(end, Exception):
                raise end
            context.result = end

    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    with contextlib.suppress(MiddlewareFailure):
        await calling(["ls"], breaker, Prevents()).run("Fix it.")
    assert not [turn for turn in fed if "result" in str(turn) or "'error'" in str(turn)]


@pytest.mark.parametrize("where", [{"hosted": True}, {"informational_only": True}])
async def test_tools_of_the_provider_are_not_waited_for(where: dict[str, bool]) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    call = Content.from_function_call("c1", "search", arguments={}, **where)
    await Agent(Model([[Content.from_text("Found."), call]]), tools=[run], middleware=[breaker]).run("Fix it.")
    assert [turn["output"] for turn in fed] == ["Found."]


async def test_results_of_the_caller_are_seen() -> None:
    """A tool without a function is run by the program around the agent, which calls it again with the result."""
    session = AgentSession()
    agent = stuck(Breaker(), tools=[FunctionTool(name="run", input_model=run.parameters())])
    await agent.run("Fix it.", session=session)
    results = [Message("tool", [Content.from_function_result(f"c{at}", result="2 failed")]) for at in range(3)]
    for result in results[:2]:
        await agent.run(result, session=session)
    with pytest.raises(Halted):
        await agent.run(results[2], session=session)
    assert len(agent.client.requests) == 3


async def test_pictures_that_differ_are_no_repeats() -> None:
    @tool(name="look", approval_mode="never_require")
    def look(cmd: str) -> Content:
        ran.append(cmd)
        return Content.from_data(bytes([len(ran)]), "image/png")

    assert await awaited(calling(["screen"] * 6, Breaker(), call="look", tools=[look])) == "Done."
    assert len(ran) == 6


@ways
async def test_a_turn_has_what_the_hooks_know(way: Callable[..., Any]) -> None:
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    model = Model([[Content.from_text("I look."), asking("ls", 1)]])
    model.usage = {"input_token_count": 20, "output_token_count": 3, "cache_read_input_token_count": 8}
    await way(Agent(model, name="coder", tools=[run], middleware=[breaker]))
    known: dict[str, Any] = {"type": "turn", "run_id": "r1", "node": "coder", "model": "m1"}
    known["usage"] = {"input_tokens": 20, "output_tokens": 3, "cached_tokens": 8}
    call = {"id": "c1", "name": "run", "args": {"cmd": "ls"}, "result": "the result of ls"}
    assert len({turn.pop("request") for turn in fed}) == 1
    assert fed == [known | {"output": "I look.", "tool_calls": [call]}, known | {"output": "Done."}]


async def test_tokens_of_a_cache_are_a_part_of_the_input() -> None:
    """Anthropic counts them beside it, and its client hands that on."""
    breaker = Breaker(run_id="r1")
    fed = fed_by(breaker.watch)
    agent = calling([], breaker)
    cached = {"anthropic.cache_read_input_tokens": 8, "anthropic.cache_creation_input_tokens": 2}
    agent.client.usage = {"input_token_count": 20, "cache_read_input_token_count": 8, **cached}
    await awaited(agent)
    assert fed[0]["usage"] == {"input_tokens": 30, "cached_tokens": 8}


def test_the_page_shows_what_the_example_prints() -> None:
    assert printed("agent_framework_agent.py") == shown("agent_framework.md")


def test_the_blocks_of_the_page_work() -> None:
    run_blocks("agent_framework.md")
