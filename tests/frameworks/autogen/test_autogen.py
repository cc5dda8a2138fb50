"""The model clients and the termination condition for AutoGen: the real framework, with models that are played."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent, BaseChatAgent, UserProxyAgent
from autogen_agentchat.base import Response
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from autogen_core import FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    RequestUsage,
    UserMessage,
)
from autogen_ext.models.cache import ChatCompletionCache
from autogen_ext.models.replay import ReplayChatCompletionClient
from pydantic import BaseModel

from streamproc import Halted, Monitor, Watch
from streamproc.integrations.autogen import Breaker, guarded
from tests.integrations.commands import STEPS, ran, run
from tests.integrations.examples import printed, run_blocks, shown
from tests.integrations.fed import break_down, fed_by

INFO: Any = {
    "vision": False, "function_calling": True, "json_output": True, "family": "unknown", "structured_output": True,
    "multiple_system_messages": True,
}  # fmt: skip


class Model(ReplayChatCompletionClient):
    """A model that is a function of the messages that it is sent."""

    def __init__(self, answer: Callable[[Sequence[Any]], CreateResult]) -> None:
        super().__init__([], model_info=INFO)
        self.answer = answer
        self.closed = False

    async def create(self, messages: Sequence[Any], **_: Any) -> CreateResult:
        return self.answer(messages)

    async def create_stream(self, messages: Sequence[Any], **_: Any) -> AsyncGenerator[str | CreateResult, None]:
        yield "chunk"
        yield self.answer(messages)

    async def close(self) -> None:
        self.closed = True


def at(messages: Sequence[Any]) -> int:
    """How many tools have returned."""
    return sum(len(one.content) for one in messages if isinstance(one, FunctionExecutionResultMessage))


def says(content: Any, **more: Any) -> CreateResult:
    usage = RequestUsage(prompt_tokens=20, completion_tokens=3)
    return CreateResult(**({"finish_reason": "stop", "content": content, "usage": usage, "cached": False} | more))


def calls(*cmds: str, name: str = "run", **more: Any) -> CreateResult:
    """A model's answer that calls a tool, once for each command."""
    asked = [FunctionCall(id=str(uuid.uuid4()), name=name, arguments=f'{{"cmd": "{cmd}"}}') for cmd in cmds]
    return says(asked, finish_reason="function_calls", **more)


def running(cmds: list[str], name: str = "run") -> Model:
    """A model that asks for these commands, one after another, and then says that it is done."""
    return Model(lambda messages: says("Done.") if at(messages) >= len(cmds) else calls(cmds[at(messages)], name=name))


def agent(client: Any, name: str = "coder", **more: Any) -> AssistantAgent:
    return AssistantAgent(name, client, **({"tools": [run], "max_tool_iterations": 25} | more))


async def awaited(client: Any) -> str:
    return str((await agent(client).run(task="Fix it.")).messages[-1].content)  # type: ignore[union-attr]


async def streamed(client: Any) -> str:
    events = [event async for event in agent(client, model_client_stream=True).run_stream(task="Fix it.")]
    return str(events[-1].messages[-1].content)  # type: ignore[union-attr]


async def in_a_team(client: Any) -> str:
    team = RoundRobinGroupChat([agent(client)], termination_condition=MaxMessageTermination(2))
    return str((await team.run(task="Fix it.")).messages[-1].content)  # type: ignore[union-attr]


async def in_a_streamed_team(client: Any) -> str:
    team = RoundRobinGroupChat([agent(client, model_client_stream=True)], max_turns=1)
    events = [event async for event in team.run_stream(task="Fix it.")]
    return str(events[-1].messages[-1].content)  # type: ignore[union-attr]


ways = pytest.mark.parametrize("way", [awaited, streamed, in_a_team, in_a_streamed_team])


@ways
async def test_a_stuck_agent_is_stopped_at_its_third_repeat(way: Callable[..., Any]) -> None:
    watch = Watch()
    # A team whose condition is no `Breaker` puts what ended it into an error of its own.
    with pytest.raises(
        RuntimeError if way in (in_a_team, in_a_streamed_team) else Halted, match=r"run r1 is halted \(LOOP003\)"
    ):
        await way(guarded(running(["pytest"] * STEPS), watch, run_id="r1"))
    assert (ran, watch.faults) == (["pytest"] * 3, 0)


@ways
async def test_an_honest_agent_is_left_alone(way: Callable[..., Any]) -> None:
    watch = Watch()
    assert await way(guarded(running([f"pytest {number}" for number in range(STEPS)]), watch)) == "Done."
    assert (len(ran), watch.faults) == (STEPS, 0)


@ways
async def test_a_fault_of_ours_changes_nothing(way: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    break_down(watch, monkeypatch, "run_id")
    assert await way(guarded(running(["pytest"] * STEPS), watch)) == "Done."
    assert (len(ran), watch.faults >= STEPS) == (STEPS, True)
    assert isinstance(watch.last_fault, ZeroDivisionError)


async def test_a_backend_that_fails_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = Watch()
    monkeypatch.setattr(watch._backend, "feed", lambda _: 1 / 0)
    assert await awaited(guarded(running(["pytest"] * STEPS), watch)) == "Done."
    assert (len(ran), watch.faults) == (STEPS, STEPS + 1)


@pytest.mark.parametrize("on_halt", ["raise", "end"])
async def test_a_resumed_run_repeats_no_tool_call(on_halt: Any) -> None:
    monitor = Monitor()
    client = guarded(running(["pytest"] * 3 + ["git diff"]), Watch(monitor, on_halt=on_halt), run_id="r1")
    coder = agent(client)
    if on_halt == "raise":
        with pytest.raises(Halted):
            await coder.run(task="Fix it.")
    else:
        [*_, last] = (await coder.run(task="Fix it.")).messages
        assert last.to_text().startswith("HALTED: run r1 is halted (LOOP003)")
    assert ran == ["pytest"] * 3
    monitor.feed(type="operator.resume", run_id="r1", by="ada", reason="look again")
    assert (await coder.run(task="Go on.")).messages[-1].to_text() == "Done."
    assert ran == ["pytest"] * 3 + ["git diff"]


async def test_a_stream_ends_with_an_answer_where_that_is_wanted() -> None:
    client = guarded(running(["pytest"] * STEPS), on_halt="end", run_id="r1")
    assert (await streamed(client)).startswith("HALTED: run r1")
    assert ran == ["pytest"] * 3


async def test_structured_output_ends_by_halted() -> None:
    class Verdict(BaseModel):
        passed: bool

    client = guarded(running(["pytest"] * STEPS), on_halt="end")
    with pytest.raises(Halted):
        await agent(client, output_content_type=Verdict).run(task="Fix it.")


async def test_a_team_is_stopped_cleanly_and_resumed() -> None:
    monitor = Monitor()
    breaker = Breaker(Watch(monitor))
    coder = agent(breaker.guarded(running(["pytest"] * 3 + ["git diff"]), "coder"))
    reviewer = agent(breaker.guarded(Model(lambda _: says(f"Go on. {uuid.uuid4()}")), "reviewer"), "reviewer")
    team = RoundRobinGroupChat([coder, reviewer], termination_condition=breaker | TextMentionTermination("Done."))
    result = await team.run(task="Fix it.")
    [run_id] = re.findall(r"^run (\S+) is halted \(LOOP003\)", result.stop_reason or "")
    assert ran == ["pytest"] * 3
    monitor.feed(type="operator.resume", run_id=run_id, by="ada", reason="look again")
    result = await team.run(task="Go on.")
    assert (result.stop_reason, ran[3:]) == ("Text 'Done.' mentioned", ["git diff"])


async def test_a_fault_of_a_condition_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    breaker = Breaker()
    break_down(breaker.watch, monkeypatch, "run_id")
    coder = agent(breaker.guarded(running(["pytest"] * STEPS), "coder"))
    team = RoundRobinGroupChat([coder, Echo("echo", "Says the same.")], termination_condition=breaker, max_turns=2)
    assert (await team.run(task="Fix it.")).stop_reason == "Maximum number of turns 2 reached."
    assert len(ran) == STEPS


async def test_an_answer_that_cannot_be_read_is_passed_on() -> None:
    odd = CreateResult.model_construct(content="Done.")
    assert await guarded(Model(lambda _: odd), watch := Watch()).create([]) is odd
    assert watch.faults == 1


async def test_agents_without_a_guarded_client_are_heard_when_they_reply() -> None:
    breaker = Breaker(run_id="r1")
    coder = agent(running(["pytest"] * STEPS), max_tool_iterations=1)
    team = RoundRobinGroupChat([coder], termination_condition=breaker | MaxMessageTermination(30))
    result = await team.run(task="Fix it.")
    assert (result.stop_reason or "").startswith("run r1 is halted (LOOP003)")
    assert ran == ["pytest"] * 3


async def test_an_agent_that_is_the_tool_of_another_belongs_to_the_run() -> None:
    breaker = Breaker(run_id="r1")

    async def fix(cmd: str) -> str:
        """Let the coder fix it."""
        coder = agent(breaker.guarded(running(["pytest"] * STEPS), "coder"))
        return str((await coder.run(task=cmd)).messages[-1].to_text())  # type: ignore[union-attr]

    lead = agent(breaker.guarded(running(["it"] * STEPS, "fix"), "lead"), "lead", tools=[fix])
    with pytest.raises(Halted, match="run r1 is halted"):
        await asyncio.wait_for(lead.run(task="Fix it."), 10)
    assert ran == ["pytest"] * 3


@pytest.mark.parametrize("clients", ["guarded", "plain"])
async def test_what_a_team_does_is_fed_once(clients: str) -> None:
    fed = fed_by((breaker := Breaker(run_id="r1")).watch)
    models = {"coder": running(["ls", "git log"]), "reviewer": Model(lambda _: says("Go on."))}
    agents = [
        agent(breaker.guarded(model, name) if clients == "guarded" else model, name, max_tool_iterations=1)
        for name, model in models.items()
    ]
    await RoundRobinGroupChat(agents, termination_condition=breaker, max_turns=5).run(task="Fix it.")
    turns = [(turn["node"], turn.get("from"), turn.get("output"), len(turn.get("tool_calls", ()))) for turn in fed]
    assert turns == [
        ("coder", None, None, 1),
        ("reviewer", "coder", "Go on.", 0),
        ("coder", "reviewer", None, 1),
        ("reviewer", "coder", "Go on.", 0),
        ("coder", "reviewer", "Done.", 0),
    ]
    assert [turn["usage"] for turn in fed] == [{"input_tokens": 20, "output_tokens": 3}] * 5
    assert breaker.watch.faults == 0


async def test_a_hand_over_is_seen() -> None:
    fed = fed_by((breaker := Breaker(run_id="r1")).watch)
    coder = agent(
        breaker.guarded(Model(lambda _: calls("", name="transfer_to_reviewer")), "coder"), handoffs=["reviewer"]
    )
    reviewer = agent(breaker.guarded(Model(lambda _: says("Good.")), "reviewer"), "reviewer")
    await Swarm([coder, reviewer], termination_condition=breaker, max_turns=2).run(task="Fix it.")
    assert [(turn["node"], turn.get("from")) for turn in fed] == [("coder", None), ("reviewer", "coder")]
    assert fed[0]["tool_calls"][0]["name"] == "transfer_to_reviewer"


class Echo(BaseChatAgent):
    """An agent without a model."""

    produced_message_types = (TextMessage,)

    async def on_messages(self, messages: Any, cancellation_token: Any) -> Response:
        return Response(chat_message=TextMessage(content="I will try it again.", source=self.name))

    async def on_reset(self, cancellation_token: Any) -> None:
        pass


async def test_an_agent_without_a_model_is_stopped_and_a_person_is_not() -> None:
    fed = fed_by((breaker := Breaker(run_id="r1", people=["ada"])).watch)
    person = UserProxyAgent("ada", input_func=lambda _: "yes")
    echo = Echo("echo", "Says the same.")
    await RoundRobinGroupChat([person, echo], termination_condition=breaker, max_turns=4).run(task="Fix it.")
    assert [(turn["node"], turn["output"]) for turn in fed] == [("echo", "I will try it again.")] * 2
    team = RoundRobinGroupChat([echo], termination_condition=Breaker(), max_turns=30)
    assert ((await team.run(task="Fix it.")).stop_reason or "").endswith("with no new information in between.")


async def test_each_guarded_client_is_a_run() -> None:
    watch = Watch()
    for _ in range(3):
        assert await awaited(guarded(running(["pytest"] * 2), watch)) == "Done."
    clients = [guarded(running(["pytest"] * 2), watch) for _ in range(3)]
    assert await asyncio.gather(*map(awaited, clients)) == ["Done."] * 3
    assert watch.faults == 0


async def test_an_instance_has_its_name_no_longer_than_its_answer() -> None:
    fed = fed_by(watch := Watch())

    def fails(_: Any) -> CreateResult:
        raise ConnectionError("no model")

    def client(model: Model) -> Any:
        return guarded(model, watch, node="coder", run_id="r1")

    broken = agent(client(Model(fails)))
    with pytest.raises(ConnectionError):
        await broken.run(task="Fix it.")
    clients = [client(running(["ls"])) for _ in range(2)]
    assert await asyncio.gather(*map(awaited, clients)) == ["Done."] * 2
    assert await awaited(client(running([]))) == "Done."
    assert sorted(turn["node"] for turn in fed) == ["coder"] * 3 + ["coder/2"] * 2
    assert fed[-1]["node"] == "coder"


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_agents_of_one_name_and_breaker_work_beside_each_other(is_streamed: bool) -> None:
    fed = fed_by((breaker := Breaker(run_id="r1")).watch)
    teams = [
        RoundRobinGroupChat(
            [agent(breaker.guarded(running(["ls", "pwd"]), "coder"), model_client_stream=is_streamed)],
            termination_condition=breaker,
            max_turns=1,
        )
        for _ in range(2)
    ]
    await asyncio.gather(*(team.run(task="Fix it.") for team in teams))
    turns = sorted((turn["node"], len(turn.get("tool_calls", ()))) for turn in fed)
    assert turns == [(name, calls) for name in ("coder", "coder/2") for calls in (0, 1, 1)]


async def test_what_other_agents_write_is_no_request() -> None:
    breaker = Breaker(run_id="r1")
    coder = agent(breaker.guarded(running(["pytest"] * STEPS), "coder"), max_tool_iterations=1)
    reviewer = agent(breaker.guarded(Model(lambda _: says(f"Go on. {uuid.uuid4()}")), "reviewer"), "reviewer")
    result = await RoundRobinGroupChat([coder, reviewer], termination_condition=breaker, max_turns=20).run(task="Fix.")
    assert "is halted (LOOP00" in (result.stop_reason or "")
    assert ran == ["pytest"] * 3


@pytest.mark.parametrize("around", ["create_args", "raw_config", "a cache"])
async def test_a_turn_has_the_model_of_the_client(around: str) -> None:
    fed = fed_by(watch := Watch())
    model: Any = Model(lambda _: says("Done."))
    if around == "raw_config":
        model._raw_config = {"model": "m1"}
    else:
        model._create_args = {"model": "m1"}
    if around == "a cache":
        model = ChatCompletionCache(model)
    await guarded(model, watch).create([UserMessage(content="Fix it.", source="user")])
    await guarded(Model(lambda _: says("Done.")), watch).create([])
    assert [turn["model"] for turn in fed] == ["m1", ""]


@ways
async def test_the_run_of_a_context_is_taken(way: Callable[..., Any]) -> None:
    client = guarded(running(["pytest"] * STEPS), watch := Watch())
    with watch.run("r7"), pytest.raises((Halted, RuntimeError), match="run r7 is halted"):
        await way(client)


async def test_a_warning_is_told_to_the_model_once() -> None:
    told: list[str] = []
    cmds = ["pytest", "pytest", "git diff", "git log"]

    def answer(messages: Sequence[Any]) -> CreateResult:
        told.append(messages[-1].content if isinstance(messages[-1], UserMessage) else "")
        return says("Done.") if at(messages) == len(cmds) else calls(cmds[at(messages)])

    coder = agent(guarded(Model(answer), on_warn="tell"))
    await coder.run(task="Fix it.")
    assert told[0] == "Fix it."
    assert [bool(sentence) for sentence in told[1:]] == [False, True, False, False], "after the second result"
    assert told[2].startswith("run returned the same result")
    assert sum(isinstance(one, UserMessage) for one in await coder.model_context.get_messages()) == 1


async def test_a_halt_leaves_a_task_group() -> None:
    seen = []
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(awaited(guarded(running(["pytest"] * STEPS), run_id="r1")))
    except* Halted as halts:
        seen = [halt.run_id for halt in halts.exceptions]  # type: ignore[attr-defined]
    assert seen == ["r1"]


@pytest.mark.parametrize("is_streamed", [False, True])
async def test_a_turn_has_what_the_client_knows(is_streamed: bool) -> None:
    fed = fed_by(watch := Watch())

    def run_or_fail(cmd: str) -> str:
        if cmd == "ls":
            return run(cmd)
        raise FileNotFoundError("no such file")

    def answer(messages: Sequence[Any]) -> CreateResult:
        if not at(messages):
            asked = [FunctionCall(f"c{i}", f'{{"cmd": "{cmd}"}}', "run_or_fail") for i, cmd in enumerate(("ls", "cd"))]
            return says(asked, finish_reason="function_calls", thought="I look.")
        return says("Done.", cached=True)

    coder = agent(
        guarded(Model(answer), watch, node="coder", run_id="r1"), tools=[run_or_fail], model_client_stream=is_streamed
    )
    await coder.run(task="Fix it.")
    known = {"type": "turn", "run_id": "r1", "node": "coder", "model": ""}
    asked = [
        {"id": "c0", "name": "run_or_fail", "args": '{"cmd": "ls"}', "result": "the result of ls"},
        {"id": "c1", "name": "run_or_fail", "args": '{"cmd": "cd"}', "result": "no such file", "error": True},
    ]
    usage = {"input_tokens": 20, "output_tokens": 3}
    assert len({turn.pop("request") for turn in fed}) == 1
    assert fed == [
        known | {"output": "I look.", "tool_calls": asked, "usage": usage},
        known | {"output": "Done.", "usage": {}},
    ]


async def test_a_guarded_client_is_the_client_in_all_else() -> None:
    model = Model(lambda _: says("Done."))
    client = guarded(model)
    assert isinstance(client, ChatCompletionClient)
    assert (client.model_info, client.dump_component()) == (INFO, model.dump_component())
    await client.close()
    assert model.closed


def test_the_page_shows_what_the_example_prints() -> None:
    assert printed("autogen_agent.py") == shown("autogen.md")


def test_the_blocks_of_the_page_work() -> None:
    run_blocks("autogen.md")
