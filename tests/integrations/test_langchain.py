"""LangGraph and LangChain: `Breaker`, `BreakerMiddleware` and `watch(graph)`, with real graphs and models that play."""

from __future__ import annotations

import asyncio
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypedDict

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, SystemMessage, ToolMessage
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGenerationChunk
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.errors import GraphDrained
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState, ToolNode
from langgraph.types import Command, RetryPolicy, Send, interrupt

from streamproc import Halted, Monitor, UnsafeCycle, Watch
from streamproc.integrations import langgraph
from streamproc.integrations.langchain import Breaker, BreakerMiddleware
from tests.conformance.driver import Say
from tests.conformance.test_langgraph import Grade, Played as Asked
from tests.integrations.fed import fed_by, recorded

STUCK = "2 failed: test_login, test_logout"
PROMPT = {"messages": [("user", "fix the tests")]}
USAGE = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "input_token_details": {"cache_read": 4}}


class Played(GenericFakeChatModel):
    """A model that says what it is given, and remembers what it was asked."""

    asked: list[list[BaseMessage]] = []  # noqa: RUF012  # pydantic copies it

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Any:
        self.asked.append(messages)
        return super()._generate(messages, *args, **kwargs)

    def _stream(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> Iterator[ChatGenerationChunk]:
        message = self._generate(messages).generations[0].message
        assert isinstance(message, AIMessage)
        calls = [
            tool_call_chunk(name=call["name"], args=json.dumps(call["args"]), id=call["id"], index=index)
            for index, call in enumerate(message.tool_calls)
        ]
        chunk = AIMessageChunk(message.content, tool_call_chunks=calls, usage_metadata=message.usage_metadata)
        yield ChatGenerationChunk(message=chunk)


def calling(name: str = "run", times: int = 1000, parallel: int = 1, **args: Any) -> Iterator[AIMessage]:
    """A model that calls a tool again and again, and then is done."""
    for number in range(times):
        calls = [{"name": name, "args": args or {"cmd": "pytest"}, "id": f"c{number}-{i}"} for i in range(parallel)]
        yield AIMessage("", tool_calls=calls, usage_metadata=USAGE)
    while True:
        yield AIMessage("All tests pass.", usage_metadata=USAGE)


class Tools:
    """Tools that count their calls."""

    def __init__(self, result: Callable[[int], str] = lambda number: STUCK) -> None:
        self.calls = 0
        counted = self

        @tool
        def run(cmd: str) -> str:
            """Run a command."""
            counted.calls += 1
            return result(counted.calls)

        self.all: list[Any] = [run]


def graph_of(model: Any, tools: list[Any], *, is_async: bool = False, **compiled: Any) -> Any:
    def coder(state: MessagesState) -> Any:
        return {"messages": [model.invoke(state["messages"])]}

    async def acoder(state: MessagesState) -> Any:
        return {"messages": [await model.ainvoke(state["messages"])]}

    built = StateGraph(MessagesState)
    built.add_node("coder", acoder if is_async else coder)
    built.add_node("tools", ToolNode(tools, handle_tool_errors=True))  # the node that swallows exceptions
    built.add_edge(START, "coder")
    built.add_conditional_edges(
        "coder", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__", ["tools", "__end__"]
    )
    built.add_edge("tools", "coder")
    return built.compile(**compiled)


def play(app: Any, mode: str, config: dict[str, Any], given: Any = PROMPT) -> Any:
    """Call a graph in one of the four ways, and return its last state."""
    config = {"recursion_limit": 60, **config}
    if mode == "invoke":
        return app.invoke(given, config)
    if mode == "stream":
        return list(app.stream(given, config, stream_mode="values"))[-1]
    if mode == "ainvoke":
        return asyncio.run(app.ainvoke(given, config))

    async def streamed() -> Any:
        return [state async for state in app.astream(given, config, stream_mode="values")][-1]

    return asyncio.run(streamed())


MODES = ["invoke", "stream", "ainvoke", "astream"]


def turns(fed: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [event for event in fed if event["type"] == "turn"]


# A handler of any graph.


@pytest.mark.parametrize("mode", MODES)
def test_a_stuck_graph_is_stopped_at_its_third_repeat(mode: str) -> None:
    tools, breaker = Tools(), Breaker()
    app = graph_of(Played(messages=calling()), tools.all, is_async=mode[0] == "a")
    with pytest.raises(Halted, match="LOOP003"):
        play(app, mode, {"callbacks": [breaker]})
    assert (tools.calls, breaker.watch.faults) == (3, 0)
    assert not breaker._spans._spans


@pytest.mark.parametrize("mode", MODES)
def test_an_honest_graph_ends_by_itself(mode: str) -> None:
    tools, watch = Tools(lambda number: f"{9 - number} failed"), Watch()
    fed = recorded(watch)
    app = graph_of(Played(messages=calling(times=8)), tools.all, is_async=mode[0] == "a")
    state = play(app, mode, {"callbacks": [Breaker(watch=watch)]})
    assert state["messages"][-1].text == "All tests pass."
    assert (tools.calls, watch.faults, fed[-1]["type"]) == (8, 0, "run.finished")
    assert turns(fed)[-1]["output"] == "All tests pass."


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_run_repeats_no_tool_call(mode: str) -> None:
    monitor, tools = Monitor(), Tools()
    app = graph_of(Played(messages=calling(times=4)), tools.all, is_async=mode[0] == "a", checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch=Watch(monitor))]}
    with pytest.raises(Halted):
        play(app, mode, config)
    kept = app.get_state(config)
    assert (kept.next, type(kept.values["messages"][-1])) == (("coder",), ToolMessage)
    with pytest.raises(Halted):  # it is still halted, and calls nothing
        play(app, mode, config, None)
    assert tools.calls == 3
    monitor.feed(type="operator.resume", run_id="t1", by="ada", reason="look again")
    state = play(app, mode, config, None)
    assert (tools.calls, state["messages"][-1].text) == (4, "All tests pass.")


@pytest.mark.parametrize("method", ["turn", "spent", "run_id", "person"])
def test_a_fault_of_ours_changes_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tools, watch = Tools(), Watch()

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(watch, method, broken)
    app = graph_of(Played(messages=calling(times=2)), tools.all)
    state = play(app, "invoke", {"callbacks": [Breaker(watch=watch)]})
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert watch.faults > 0


def test_two_calls_without_ids_are_two_runs() -> None:
    tools, watch = Tools(), Watch()
    fed, breaker = recorded(watch), Breaker(watch=watch)
    for _ in range(2):
        play(graph_of(Played(messages=calling(times=2)), tools.all), "invoke", {"callbacks": [breaker]})
    assert len({event["run_id"] for event in fed}) == 2
    assert [event["type"] for event in fed].count("run.finished") == 2


def test_the_run_is_that_of_the_context_or_the_thread() -> None:
    tools, watch = Tools(), Watch()
    fed = recorded(watch)
    config = {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch=watch)]}
    play(graph_of(Played(messages=calling(times=1)), tools.all), "invoke", config)
    with watch.run("r7"):
        play(graph_of(Played(messages=calling(times=1)), tools.all), "ainvoke", config)
    assert list(dict.fromkeys(event["run_id"] for event in fed)) == ["t1", "r7"]
    assert "run.finished" not in [event["type"] for event in fed]  # a thread may go on


def test_parallel_calls_are_one_turn_with_the_usage_of_the_model() -> None:
    watch = Watch()
    fed = recorded(watch)
    for number in range(2):
        app = graph_of(Played(messages=calling(times=1, parallel=4)), Tools().all)
        play(app, "ainvoke" if number else "invoke", {"callbacks": [Breaker(run_id=f"r{number}", watch=watch)]})
    first, _, second, _ = turns(fed)
    assert [len(turn["tool_calls"]) for turn in (first, second)] == [4, 4]
    assert first["node"] == "coder"
    assert first["usage"] == {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 4}
    assert watch.halted("r0") is None


def test_what_a_graph_puts_into_a_tool_is_no_argument() -> None:
    @tool
    def look(state: Annotated[dict[str, Any], InjectedState], q: str) -> str:
        """Look."""
        return "nothing"

    watch = Watch()
    fed = recorded(watch)
    app = graph_of(Played(messages=calling("look", q="x")), [look])
    with pytest.raises(Halted):
        play(app, "invoke", {"callbacks": [Breaker(watch=watch)]})
    assert turns(fed)[0]["tool_calls"] == [{"id": "c0-0", "name": "look", "args": {"q": "x"}, "result": "nothing"}]


def test_a_tool_that_fails_is_an_error_of_its_turn() -> None:
    def fail(number: int) -> str:
        raise ValueError("no such command")

    watch = Watch()
    fed = recorded(watch)
    with pytest.raises(Halted):
        play(graph_of(Played(messages=calling()), Tools(fail).all), "invoke", {"callbacks": [Breaker(watch=watch)]})
    assert turns(fed)[0]["tool_calls"][0]["error"] == "ValueError: no such command"


def test_a_call_that_the_graph_tries_again_counts_once() -> None:
    def fail_once(number: int) -> str:
        if number == 1:
            raise ConnectionError("reset")
        return "passed"

    model, tools, watch = Played(messages=calling(times=1)), Tools(fail_once), Watch()
    fed = recorded(watch)
    built = StateGraph(MessagesState)
    built.add_node("coder", lambda state: {"messages": [model.invoke(state["messages"])]})
    retry = RetryPolicy(max_attempts=3, initial_interval=0.001, retry_on=ConnectionError)
    built.add_node("tools", ToolNode(tools.all, handle_tool_errors=False), retry_policy=retry)
    built.add_edge(START, "coder")
    built.add_edge("coder", "tools")
    play(built.compile(), "invoke", {"callbacks": [Breaker(watch=watch)]})
    [turn] = turns(fed)
    assert (turn["tool_calls"][0]["result"], turn["labels"]) == ("passed", {"attempts": "2"})


def test_an_approval_is_a_message_of_a_person_and_no_error() -> None:
    @tool
    def deploy(state: Annotated[dict[str, Any], InjectedState], to: str) -> str:
        """Deploy, if a person agrees."""
        return f"deployed: {interrupt('May I?')}"

    watch = Watch()
    fed = recorded(watch)
    model = Played(messages=calling("deploy", times=1, to="production"))
    app = graph_of(model, [deploy], checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch=watch)]}
    play(app, "invoke", config)
    assert not turns(fed)
    play(app, "invoke", config, Command(resume="yes"))
    assert [event["type"] for event in fed] == ["user.message", "user.message", "turn", "turn"]
    assert turns(fed)[0]["tool_calls"][0]["result"] == "deployed: yes"
    assert watch.faults == 0

    model = Played(messages=calling("deploy", times=1, to="production"))
    app, config = graph_of(model, [deploy], checkpointer=InMemorySaver()), {"configurable": {"thread_id": "t2"}}
    play(app, "invoke", config)  # a process that did not see the question hears the answer
    play(app, "invoke", {**config, "callbacks": [Breaker(watch=watch)]}, Command(resume="yes"))
    assert turns(fed)[2]["tool_calls"][0]["args"] == {"to": "production"}


def test_a_person_restarts_streaks_and_a_program_that_repeats_itself_does_not() -> None:
    for said, halts in ((lambda number: f"and now? {number}", False), (lambda number: "go on", True)):
        tools, watch = Tools(), Watch()
        model = Played(messages=itertools.chain.from_iterable(itertools.islice(calling(times=1), 2) for _ in range(5)))
        app = graph_of(model, tools.all, checkpointer=InMemorySaver())
        config = {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch=watch)]}
        try:
            for number in range(5):
                play(app, "invoke", config, {"messages": [("user", said(number))]})
        except Halted:
            pass
        assert (watch.halted("t1") is not None) == halts


def test_branches_that_run_beside_each_other_name_no_sender() -> None:
    watch = Watch()
    fed = recorded(watch)
    built = StateGraph(MessagesState)
    for name in ("plan", "left", "right", "join"):
        model = Played(messages=iter([AIMessage(f"{name} says")]))
        built.add_node(name, lambda state, model=model: {"messages": [model.invoke(state["messages"])]})
    built.add_edge(START, "plan")
    for name in ("left", "right"):
        built.add_edge("plan", name)
        built.add_edge(name, "join")
    play(built.compile(), "invoke", {"callbacks": [Breaker(watch=watch)]})
    senders = {turn["node"]: turn.get("from") for turn in turns(fed)}
    assert senders.pop("left") in (None, "plan")  # the first of them may be heard before the second begins
    assert senders.pop("right") in (None, "plan")
    assert senders == {"plan": None, "join": None}


def test_copies_of_one_node_do_not_end_each_others_steps() -> None:
    @tool
    def look(q: str) -> str:
        """Look."""
        return q

    def worker(state: dict[str, Any]) -> Any:
        number = state["number"]
        asked = AIMessage("", tool_calls=[{"name": "look", "args": {"q": str(number)}, "id": f"w{number}"}])
        answer = Played(messages=iter([asked])).invoke("go")
        gate.wait(5)
        look.invoke(answer.tool_calls[0])
        return {"messages": []}

    gate = threading.Barrier(3)
    built = StateGraph(MessagesState)
    built.add_node("worker", worker)
    built.add_conditional_edges(START, lambda state: [Send("worker", {"number": n}) for n in range(3)], ["worker"])
    watch = Watch()
    fed = recorded(watch)
    play(built.compile(), "invoke", {"callbacks": [Breaker(watch=watch)]})
    assert sorted(turn["tool_calls"][0]["result"] for turn in turns(fed)) == ["0", "1", "2"]


def test_a_graph_without_models_is_stopped_too() -> None:
    app = StateGraph(MessagesState)
    app.add_node("a", lambda state: {})
    app.add_edge(START, "a")
    app.add_conditional_edges("a", lambda state: "a", ["a", "__end__"])
    monitor = Monitor()
    monitor.feed(type="operator.stop", run_id="r1", by="ada", reason="enough")
    with pytest.raises(Halted, match="OPERATOR"):
        play(app.compile(), "invoke", {"callbacks": [Breaker(run_id="r1", watch=Watch(monitor))]})


def test_a_graph_that_streams_tokens_is_stopped() -> None:
    tools = Tools()
    model = Played(messages=calling())
    with pytest.raises(Halted):
        list(graph_of(model, tools.all).stream(PROMPT, {"callbacks": [Breaker()]}, stream_mode="messages"))
    assert tools.calls == 3


def test_a_loop_around_a_model_is_a_run_if_it_has_an_id() -> None:
    tools, breaker = Tools(), Breaker(run_id="r1", node="coder")
    model = Played(messages=calling())

    def loop() -> None:
        while True:
            [call] = model.invoke("go on", {"callbacks": [breaker]}).tool_calls
            tools.all[0].invoke(call, {"callbacks": [breaker]})

    with pytest.raises(Halted, match="LOOP003"):
        loop()
    assert tools.calls == 3


def test_drained_is_what_a_graph_can_be_instead() -> None:
    tools, watch = Tools(), Watch(on_halt="end")
    app = graph_of(Played(messages=calling()), tools.all, checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch=watch)]}
    with pytest.raises(GraphDrained, match="same result"):
        play(app, "invoke", config)
    assert (tools.calls, app.get_state(config).next) == (3, ("coder",))


def test_a_task_group_wraps_what_stops_one_of_its_tasks() -> None:
    tools, stopped = Tools(), []

    async def both() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(2):
                    app = graph_of(Played(messages=calling()), tools.all, is_async=True)
                    group.create_task(app.ainvoke(PROMPT, {"callbacks": [Breaker()]}))
        except* Halted as halted:
            stopped.extend(halted.exceptions)

    asyncio.run(both())
    assert stopped


def test_a_watched_graph_reports_itself_and_is_stopped() -> None:
    tools, watch = Tools(), Watch()
    fed = recorded(watch)
    app = langgraph.watch(graph_of(Played(messages=calling()), tools.all), "r1", watch=watch)
    with pytest.raises(Halted):
        app.invoke(PROMPT)
    assert (fed[0]["type"], set(fed[0]["graph"]["nodes"])) == ("run.started", {"coder", "tools"})
    assert (tools.calls, watch.faults) == (3, 0)


def test_an_unsafe_graph_is_not_wrapped() -> None:
    built = StateGraph(MessagesState)
    for name in ("a", "b"):
        built.add_node(name, lambda state: {})
    built.add_edge(START, "a")
    built.add_edge("a", "b")
    built.add_edge("b", "a")
    with pytest.raises(UnsafeCycle):
        langgraph.watch(built.compile())


# A middleware of `create_agent`.


def agent_of(tools: Tools, breaker: BreakerMiddleware, model: Any = None, **more: Any) -> Any:
    model = model or Played(messages=calling())
    return create_agent(model, tools.all, middleware=[breaker], name="helper", **more)


@pytest.mark.parametrize("mode", MODES)
def test_a_stuck_agent_is_stopped_at_its_third_repeat(mode: str) -> None:
    tools, breaker = Tools(), BreakerMiddleware()
    with pytest.raises(Halted, match="LOOP003"):
        play(agent_of(tools, breaker), mode, {})
    assert (tools.calls, breaker.watch.faults) == (3, 0)


@pytest.mark.parametrize("mode", MODES)
def test_an_honest_agent_ends_by_itself(mode: str) -> None:
    tools, watch = Tools(lambda number: f"{9 - number} failed"), Watch()
    fed = recorded(watch)
    agent = agent_of(tools, BreakerMiddleware(watch=watch), Played(messages=calling(times=8)))
    assert play(agent, mode, {})["messages"][-1].text == "All tests pass."
    assert (tools.calls, watch.faults, fed[-1]["type"]) == (8, 0, "run.finished")
    assert {turn["node"] for turn in turns(fed)} == {"helper"}
    assert turns(fed)[0]["usage"] == {"input_tokens": 10, "output_tokens": 5, "cached_tokens": 4}


@pytest.mark.parametrize("mode", MODES)
def test_an_agent_can_end_with_a_message_instead(mode: str) -> None:
    tools = Tools()
    state = play(agent_of(tools, BreakerMiddleware(watch=Watch(on_halt="end"))), mode, {})
    assert tools.calls == 3
    assert state["messages"][-1].text.startswith("Stopped (LOOP003): run returned the same result")


@pytest.mark.parametrize("mode", MODES)
def test_a_warning_is_told_to_the_model_once(mode: str) -> None:
    model = Played(messages=calling(times=2))
    play(agent_of(Tools(), BreakerMiddleware(watch=Watch(on_warn="tell")), model), mode, {})
    told = [[one for one in asked if "same result" in one.text and one.type != "tool"] for asked in model.asked]
    assert [len(one) for one in told] == [0, 0, 1]
    assert not isinstance(told[2][0], SystemMessage)  # several APIs take those at the start only


@pytest.mark.parametrize("mode", MODES)
def test_a_resumed_agent_repeats_no_tool_call(mode: str) -> None:
    monitor, tools = Monitor(), Tools()
    breaker = BreakerMiddleware(watch=Watch(monitor))
    agent = agent_of(tools, breaker, Played(messages=calling(times=4)), checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}}
    with pytest.raises(Halted):
        play(agent, mode, config)
    monitor.feed(type="operator.resume", run_id="t1", by="ada", reason="look again")
    state = play(agent, mode, config, None)
    assert (tools.calls, state["messages"][-1].text) == (4, "All tests pass.")


@pytest.mark.parametrize("method", ["turn", "spent", "run_id", "person", "halted"])
def test_a_fault_of_ours_does_not_change_an_agent(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()

    def broken(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("a fault")

    monkeypatch.setattr(watch, method, broken)
    agent = agent_of(Tools(), BreakerMiddleware(watch=watch), Played(messages=calling(times=2)))
    state = play(agent, "invoke", {})
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool", "ai", "tool", "ai"]
    assert watch.faults > 0


@pytest.mark.parametrize("mode", MODES)
def test_calls_of_agents_without_ids_are_runs_of_their_own(mode: str) -> None:
    watch = Watch()
    fed = recorded(watch)
    breaker = BreakerMiddleware(watch=watch)
    for _ in range(2):
        play(agent_of(Tools(), breaker, Played(messages=calling(times=2, parallel=3))), mode, {})
    assert len({event["run_id"] for event in fed}) == 2
    assert [len(turn.get("tool_calls", ())) for turn in turns(fed)] == [3, 3, 0] * 2


def test_a_tool_that_raises_is_an_error_and_raises() -> None:
    def fail(number: int) -> str:
        raise ValueError("no such command")

    watch = Watch()
    fed = recorded(watch)
    config = {"configurable": {"thread_id": "t1"}}
    agent = agent_of(Tools(fail), BreakerMiddleware(watch=watch), checkpointer=InMemorySaver())
    with pytest.raises(ValueError, match="no such command"):
        play(agent, "invoke", config)
    with pytest.raises(ValueError, match="no such command"):
        play(agent, "invoke", config, {"messages": [("user", "again")]})
    assert turns(fed)[0]["tool_calls"][0]["error"] == "ValueError: no such command"


# What a turn answers, and which node it is of.


def test_the_same_answer_to_each_item_is_no_repeat() -> None:
    items = [f"Is document {number} relevant?" for number in range(10)]
    model = Played(messages=itertools.repeat(AIMessage("yes", usage_metadata=USAGE)))
    grader = Asked(play=lambda asked, results: Say("yes")).with_structured_output(Grade)
    ways: list[Callable[[], Any]] = [
        lambda: [model.invoke(item) for item in items],
        lambda: model.batch(items),
        lambda: [grader.invoke(item) for item in items],
        lambda: grader.batch(items),
    ]
    for way in ways:
        watch = Watch()
        fed = recorded(watch)
        app = StateGraph(MessagesState).add_node("grade", lambda state, way=way: way() and {}).add_edge(START, "grade")
        play(app.compile(), "invoke", {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch=watch)]})
        assert watch.halted("t1") is None
        assert len({turn["request"] for turn in turns(fed)}) == len(turns(fed)) == 10
        assert {str(turn.get("output") or turn["structured_output"]) for turn in turns(fed)} <= {
            "yes",
            "{'grade': 'yes'}",
        }
    with pytest.raises(Halted, match="LOOP001"):
        [model.invoke(items[0], {"callbacks": [Breaker(run_id="r1", watch=watch)]}) for _ in range(4)]


def test_a_request_is_what_a_person_said_last_and_the_system_prompt_as_it_was_at_first() -> None:
    tools, watch = Tools(), Watch()
    fed, numbers = recorded(watch), itertools.count()
    model = Played(messages=calling(times=2))

    def coder(state: MessagesState) -> Any:
        notes = SystemMessage(f"You are {'still ' * next(numbers)}a coder.")
        return {"messages": [model.invoke([notes, *state["messages"]])]}

    built = StateGraph(MessagesState).add_node("coder", coder).add_node("tools", ToolNode(tools.all))
    built.add_edge(START, "coder")
    built.add_conditional_edges(
        "coder", lambda state: "tools" if state["messages"][-1].tool_calls else "__end__", ["tools", "__end__"]
    )
    built.add_edge("tools", "coder")
    app = built.compile(checkpointer=InMemorySaver())
    config = {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch=watch)]}
    play(app, "invoke", config)
    play(app, "invoke", config, {"messages": [("user", "and now the documents")]})
    requests = [turn["request"] for turn in turns(fed)]
    assert len(requests) == 4
    assert len(set(requests[:3])) == 1
    assert requests[3] != requests[0]


def test_a_call_that_the_node_answers_itself_is_a_turn_when_the_node_ends() -> None:
    def grade(state: MessagesState) -> Any:
        [call] = model.invoke("Grade it.").tool_calls
        return {"messages": [AIMessage(call["args"]["grade"])]}

    watch = Watch()
    fed = recorded(watch)
    model = Asked(play=lambda asked, results: Say("yes")).bind_tools([Grade])
    app = StateGraph(MessagesState).add_node("grade", grade).add_edge(START, "grade").compile()
    play(app, "invoke", {"configurable": {"thread_id": "t1"}, "callbacks": [Breaker(watch=watch)]})
    [turn] = turns(fed)  # the thread may go on, but that call is never answered
    assert turn["tool_calls"][0]["args"] == {"grade": "yes"}


def test_results_that_no_callback_told_of_are_read_from_the_messages() -> None:
    watch = Watch()
    fed = recorded(watch)
    app = graph_of(Played(messages=calling("no_such_tool")), Tools().all)
    with pytest.raises(Halted):
        play(app, "invoke", {"callbacks": [Breaker(watch=watch)]})
    assert len(turns(fed)) == 3
    assert "no_such_tool is not a valid tool" in turns(fed)[0]["tool_calls"][0]["error"]


def test_a_node_that_raises_is_an_error_of_it_and_reported_once() -> None:
    def fails(state: MessagesState) -> Any:
        raise ValueError("no such table")

    retry = RetryPolicy(max_attempts=9, initial_interval=0.001, retry_on=ValueError)
    inner = StateGraph(MessagesState).add_node("load", fails, retry_policy=retry).add_edge(START, "load").compile()
    app = StateGraph(MessagesState).add_node("step", inner).add_edge(START, "step").compile()
    watch = Watch()
    fed = recorded(watch)
    with pytest.raises((Halted, ValueError)):
        play(app, "invoke", {"callbacks": [Breaker(run_id="r1", watch=watch)]})
    assert {turn["node"] for turn in turns(fed)} == {"load"}
    assert turns(fed)[0]["errors"] == [{"class": "ValueError", "message": "no such table"}]
    halt = watch.halted("r1")
    assert halt.code.startswith("ERROR")
    assert len(turns(fed)) < 9


def test_an_agent_that_waits_for_approvals_is_one_node() -> None:
    watch = Watch()
    fed = recorded(watch)
    asks = HumanInTheLoopMiddleware(interrupt_on={"run": True})
    agent = create_agent(
        Played(messages=calling()),
        Tools().all,
        name="agent",
        middleware=[BreakerMiddleware(watch, run_id="r1"), asks],
        checkpointer=InMemorySaver(),
    )
    config = {"configurable": {"thread_id": "t1"}}
    approved = Command(resume={"decisions": [{"type": "approve"}]})
    for given in ({"messages": [("user", "Fix it.")]}, approved, approved):
        assert "__interrupt__" in agent.invoke(given, config)
    with pytest.raises(Halted):
        agent.invoke(approved, config)
    assert [turn["node"] for turn in turns(fed)] == ["agent"] * 3


def test_nodes_that_work_beside_each_other_are_told_apart() -> None:
    model = Played(messages=itertools.repeat(AIMessage("The report.")))
    built = StateGraph(MessagesState)
    for name in ("research", "review"):
        built.add_node(name, lambda state: model.invoke("Write.") and {})
    built.add_conditional_edges(START, lambda state: [Send("research", {})] * 3, ["research"])
    built.add_edge("research", "review")
    watch = Watch()
    fed = recorded(watch)
    app = built.compile()
    for _ in range(2):
        play(app, "invoke", {"callbacks": [Breaker(run_id="r1", watch=watch)], "max_concurrency": 1})
    nodes = ["research", "research/2", "research/3", "review"]
    assert sorted(turn["node"] for turn in turns(fed)) == sorted(nodes * 2)


def test_agents_that_work_beside_each_other_are_told_apart_until_they_end() -> None:
    async def both(breaker: Any, config: dict[str, Any]) -> None:
        agents = [agent_of(Tools(), breaker, Played(messages=calling(times=2))) for _ in range(3)]
        await asyncio.gather(*(agent.ainvoke(PROMPT, config) for agent in agents))

    for handler in (False, True):
        watch = Watch()
        fed = fed_by(watch)  # the second time repeats the first
        middleware = BreakerMiddleware(watch=Watch() if handler else watch, run_id="r1")
        config = {"callbacks": [Breaker(run_id="r1", watch=watch)] if handler else []}
        for _ in range(2):
            asyncio.run(both(middleware, config))
        counted = [[turn["node"] for turn in turns(fed)].count(f"helper{name}") for name in ("", "/2", "/3")]
        assert counted == [6, 6, 6]


def test_a_watched_graph_in_a_watched_graph_counts_once() -> None:
    tools, watch = Tools(lambda number: f"{number} left"), Watch()
    fed = recorded(watch)
    inner = langgraph.watch(graph_of(Played(messages=calling(times=3)), tools.all), watch=watch)
    built = StateGraph(MessagesState).add_node("agent", lambda state: inner.invoke(state)).add_edge(START, "agent")
    langgraph.watch(built.compile(), "r1", watch=watch).invoke(PROMPT)
    assert [(turn["run_id"], turn["node"]) for turn in turns(fed)] == [("r1", "coder")] * 4
    assert [event["type"] for event in fed].count("run.started") == 1
    assert watch.faults == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_handler_beside_the_middleware_counts_once_and_the_model_is_told(mode: str) -> None:
    model, tools, watch = Played(messages=calling()), Tools(), Watch(on_warn="tell")
    fed = recorded(watch)
    agent = agent_of(tools, BreakerMiddleware(watch=watch, run_id="r1"), model)
    with pytest.raises(Halted, match="LOOP003"):
        play(agent, mode, {"callbacks": [Breaker(watch=watch, run_id="r1")]})
    assert (tools.calls, len(turns(fed)), watch.faults) == (3, 3, 0)
    assert "same result" in model.asked[2][-1].text


def test_nodes_without_a_model_are_turns_where_that_is_wanted() -> None:
    def node(state: Counted) -> Any:
        return {"round_number": state["round_number"] + 1, "agreement": 0.5, "said": [AIMessage("Let us vote.")]}

    built = StateGraph(Counted).add_node("moderator", node).add_edge(START, "moderator")
    built.add_conditional_edges("moderator", lambda s: "moderator" if s["round_number"] < 2 else "__end__")
    given = {"round_number": 0, "agreement": 0.0, "said": []}
    for options, told in (
        ({}, [{}, {}]),
        ({"nodes": "all"}, [{}, {}]),
        ({"state_fields": {"round": "round_number", "convergence": "agreement"}}, [{"round": 1}, {"round": 2}]),
    ):
        watch = Watch()
        fed = recorded(watch)
        app = langgraph.watch(built.compile(), "r1", watch=watch, **options)
        app.invoke(given)
        assert len(turns(fed)) == (2 if options else 0)
        for turn, fields in zip(turns(fed), told, strict=False):
            assert turn["structured_output"]["said"] == [{"role": "ai", "content": "Let us vote."}]
            assert {name: turn[name] for name in ("round",) if name in turn} == fields
            assert ("convergence" in turn) == bool(fields)
        assert watch.faults == 0
    with pytest.raises(ValueError, match="rounds"):
        Breaker(state_fields={"rounds": "n"})


def test_the_round_of_a_node_with_a_model_is_that_of_its_answer() -> None:
    model = Played(messages=itertools.repeat(AIMessage("I agree.")))
    app = (
        StateGraph(Counted)
        .add_edge(START, "critic")
        .add_node("critic", lambda state: model.invoke("Do you agree?") and {"round_number": 3, "agreement": 7})
    )
    watch = Watch()
    fed = recorded(watch)
    breaker = Breaker(watch=watch, state_fields={"round": "round_number", "consensus": "agreement"})
    play(app.compile(), "invoke", {"callbacks": [breaker]}, {"round_number": 0, "agreement": 0.0, "said": []})
    [turn] = turns(fed)
    assert (turn["output"], turn["round"]) == ("I agree.", 3)
    assert "consensus" not in turn  # 7 is none


class Counted(TypedDict):
    round_number: int
    agreement: float
    said: list[Any]
