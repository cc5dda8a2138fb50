"""Turns of traces that are under way: order, waiting, doubles, bounds. Time is a number."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from streamproc.importers.genai_spans import step_of
from streamproc.importers.otlp import spans_of
from streamproc.otel import AssemblyLimits, TraceAssembly
from tests.importers.reading import Row, calls_of, halt_codes
from tests.importers.traces import agent_span, chat_span, export, span, tool_span

QUERY = {"query": "bikes"}


class Feed:
    """Feeds spans to an assembly and keeps what it returns."""

    def __init__(self, **limits: Any) -> None:
        self.assembly = TraceAssembly(AssemblyLimits(**limits))
        self.events: list[Row] = []
        self.settled: list[int] = []

    def add(self, *spans: Row, now: float = 0.0) -> list[Row]:
        for one in spans_of(export(*spans)):
            number = int(one.span_id, 16)
            self.assembly.add(step_of(one), now, lambda number=number: self.settled.append(number))
        return self.due(now)

    def due(self, now: float) -> list[Row]:
        return self._kept(self.assembly.due(now))

    def flush(self) -> list[Row]:
        return self._kept(self.assembly.flush(0.0))

    def _kept(self, events: list[Row]) -> list[Row]:
        self.events += events
        for settled in self.assembly.settled:
            settled()
        self.assembly.settled.clear()
        return events


def asking(number: int, **fields: Any) -> Row:
    """A model call that asks for a tool call."""
    return chat_span(number, calls=[{"id": f"c{number}", "name": "search", "arguments": QUERY}], **fields)


def searching(number: int, result: str | None = "nothing", **fields: Any) -> Row:
    ids = {"attributes": {"gen_ai.tool.call.id": f"c{number - 1}"}}
    return tool_span(number, QUERY, result, **ids, **fields)


def test_a_stuck_agent_is_halted_while_its_trace_is_open() -> None:
    feed = Feed(reorder_s=0)
    for number in range(1, 7, 2):
        feed.add(asking(number, parent=99), now=number)
        feed.add(searching(number + 1, parent=99), now=number + 1)
    assert len(feed.events) == 3
    assert [event["usage"]["input_tokens"] for event in feed.events] == [100, 100, 100]
    assert halt_codes(feed.events) == ["LOOP003"]


def test_an_honest_agent_is_not_halted() -> None:
    feed = Feed(reorder_s=0)
    for number in range(1, 81, 2):
        feed.add(asking(number, parent=99), now=number)
        feed.add(searching(number + 1, f"bike {number}", parent=99), now=number + 1)
    feed.add(agent_span(99, begin=0, end=90), now=90)
    assert len(feed.events) == 40 + 1  # and the end of the run
    assert halt_codes(feed.events) == []


def test_spans_of_one_trace_are_put_in_order_within_the_window() -> None:
    feed = Feed(reorder_s=2)
    feed.add(searching(4, "b", parent=99), now=10.0)
    feed.add(searching(2, "a", parent=99), now=11.0)
    assert feed.due(11.9) == []
    assert [call["result"] for call in calls_of(feed.due(12.1))] == ["a", "b"]
    assert feed.due(20) == []
    assert feed.assembly.late == 0
    feed.add(searching(3, "c", parent=99), now=21.0)
    assert len(feed.due(24)) == 1
    assert feed.assembly.late == 1


def test_each_span_waits_for_its_own_window() -> None:
    feed = Feed(reorder_s=2)
    feed.add(searching(2, "a", parent=99), now=10.0)
    feed.add(searching(4, "b", parent=99), now=11.5)
    assert [call["result"] for call in calls_of(feed.due(12.1))] == ["a"]
    assert [call["result"] for call in calls_of(feed.due(13.6))] == ["b"]


def test_the_end_of_the_root_ends_the_waiting_and_the_run() -> None:
    feed = Feed(reorder_s=60)
    assert feed.add(asking(1, parent=3), searching(2, parent=3)) == []
    found = feed.add(agent_span(3))
    assert [event.get("type", "turn") for event in found] == ["turn", "run.finished"]
    assert feed.settled == [1, 2, 3]


def test_a_quiet_trace_is_published_and_forgotten() -> None:
    feed = Feed(quiet_s=30)
    feed.add(asking(1, parent=99))
    assert feed.due(29) == []
    [turn] = feed.due(31)
    assert [call["name"] for call in calls_of([turn])] == ["search"]
    assert len(feed.assembly) == 0


def test_the_same_span_again_is_one_turn() -> None:
    feed = Feed(reorder_s=0)
    feed.add(searching(2, parent=99))
    assert feed.add(searching(2, parent=99), now=1) == []
    feed.add(agent_span(99, end=3), now=2)
    feed.add(agent_span(99, end=3), searching(2, parent=99), now=3)
    assert len(calls_of(feed.events)) == 1
    assert feed.assembly.repeated == 3
    assert sorted(feed.settled) == [2, 2, 2, 99, 99]


def test_two_records_of_one_model_call_are_one_turn() -> None:
    same = {"attributes": {"gen_ai.response.id": "r-1"}}
    feed = Feed(reorder_s=1)
    feed.add(chat_span(1, "Hello", parent=2, **same), chat_span(2, "Hello", parent=99, **same))
    assert len(feed.due(2)) == 1


def test_a_wrapper_that_ends_later_is_not_a_second_turn() -> None:
    feed = Feed(reorder_s=0)
    assert len(feed.add(chat_span(1, "Hello", parent=2), now=1)) == 1
    assert feed.add(chat_span(2, "Hello", parent=99), now=2) == []
    assert feed.flush() == []


def test_a_model_call_waits_for_the_tool_that_it_called() -> None:
    feed = Feed(reorder_s=0)
    assert feed.add(asking(1, parent=99)) == []
    assert feed.due(100) == []
    [turn] = feed.add(searching(2, parent=99), now=101)
    assert turn["usage"]["output_tokens"] == 10
    assert len(calls_of([turn])) == 1


def test_results_that_only_the_next_model_call_tells_are_waited_for() -> None:
    messages = '[{"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "response": "nothing"}]}]'
    feed = Feed(reorder_s=0)
    feed.add(asking(1, parent=99))
    assert feed.add(searching(2, None, parent=99), now=1) == []
    [turn] = feed.add(asking(3, attributes={"gen_ai.input.messages": messages}, parent=99), now=2)
    assert [call["result"] for call in calls_of([turn])] == ["nothing"]


def test_all_turns_of_a_trace_are_of_one_run_though_its_agent_names_another() -> None:
    named = {"attributes": {"gen_ai.conversation.id": "chat-7"}}
    feed = Feed(reorder_s=0)
    feed.add(searching(2, parent=99))
    feed.add(searching(4, "more", parent=99), agent_span(99, end=5, **named), now=1)
    assert len({event["run_id"] for event in feed.events}) == 1
    other = Feed(reorder_s=0)
    other.add(searching(2, parent=99), agent_span(99, end=5, **named))
    assert {event["run_id"] for event in other.events} == {"chat-7"}


def test_a_trace_without_content_says_so() -> None:
    feed = Feed(reorder_s=0)
    feed.add(chat_span(1, parent=99), chat_span(2, parent=99), agent_span(99, end=3))
    assert any("no content" in note for note in feed.assembly.notes)
    other = Feed(reorder_s=0)
    other.add(asking(1, parent=99), searching(2, parent=99), agent_span(99, end=3))
    assert not other.assembly.notes


@pytest.mark.parametrize("limits", [{"traces": 5}, {"bytes": 20_000}])
def test_traces_are_bounded_and_what_must_go_is_published(limits: dict[str, int]) -> None:
    feed = Feed(**limits)
    for number in range(50):
        feed.add(searching(2, "x" * 500, trace=f"{number + 1:032x}", parent=99))
    assert len(feed.assembly) < 20
    feed.flush()
    assert len(feed.events) == 50
    assert feed.assembly._bytes == 0
    assert feed.assembly.early > 0


def test_a_long_trace_keeps_few_spans_and_loses_no_turn() -> None:
    feed = Feed(reorder_s=0, spans_of_trace=10)
    for number in range(2, 602, 2):
        feed.add(searching(number, f"{number}", parent=9999), now=number)
    [trace] = feed.assembly._traces.values()
    assert len(trace.kept) <= 21
    assert feed.assembly._bytes == sum(one.step.size for one in trace.kept.values())
    assert [call["result"] for call in calls_of(feed.events)] == [str(number) for number in range(2, 602, 2)]


def test_spans_that_wait_are_bounded() -> None:
    feed = Feed(reorder_s=60, waiting_of_trace=20, spans_of_trace=5)
    for number in range(2, 202, 2):
        feed.add(searching(number, f"{number}", parent=9999))
    [trace] = feed.assembly._traces.values()
    assert trace.waiting <= 20
    feed.flush()
    assert len(calls_of(feed.events)) == 100


def test_any_order_and_batching_publishes_each_turn_once() -> None:
    spans = [agent_span(99, begin=0, end=50), span(98, "POST", {"http.method": "POST"}, parent=99, end=49)]
    for number in range(1, 41, 2):
        spans += [asking(number, parent=98), searching(number + 1, f"{number}", parent=98)]
    for seed in range(30):
        chance = random.Random(seed)
        mixed = chance.sample(spans, len(spans))
        feed, now = Feed(reorder_s=1), 0.0
        while mixed:
            size = chance.randint(1, 5)
            feed.add(*mixed[:size], now=now)
            mixed, now = mixed[size:], now + chance.random()
        feed.flush()
        ids = [event["event_id"] for event in feed.events]
        assert len(ids) == len(set(ids))
        results = [call["result"] for call in calls_of(feed.events) if "result" in call]
        assert sorted(results, key=int) == [str(number) for number in range(1, 41, 2)]
        assert sorted(feed.settled) == sorted([*range(1, 41), 98, 99])


def parallel(number: int, calls: int, **fields: Any) -> list[Row]:
    """A model call that asks for several tools, which all begin when it ends, and end one after another."""
    asked = [{"id": f"c{number}-{n}", "name": "search", "arguments": QUERY} for n in range(calls)]
    tools = [
        tool_span(
            number + 1 + n, QUERY, "nothing", begin=number, attributes={"gen_ai.tool.call.id": one["id"]}, **fields
        )
        for n, one in enumerate(asked)
    ]
    return [chat_span(number, calls=asked, **fields), *tools]


@pytest.mark.parametrize("seed", range(20))
def test_calls_of_one_answer_are_one_turn_in_whatever_order_they_come(seed: int) -> None:
    spans, feed, chance, now = parallel(1, 6, parent=99), Feed(reorder_s=2), random.Random(seed), 0.0
    chance.shuffle(spans)
    for one in spans:
        now += chance.random()
        feed.add(one, now=now)
    feed.flush()
    assert [len(event["tool_calls"]) for event in feed.events] == [6]
    assert halt_codes(feed.events) == []


def test_a_call_that_takes_longer_than_is_waited_is_a_turn_of_its_own() -> None:
    model, first, second = parallel(1, 2, parent=99)
    feed = Feed(reorder_s=0)
    feed.add(model, first, now=1)
    assert feed.events == []
    feed.add(chat_span(9, "I go on.", parent=99), now=9)
    feed.add(second, now=10)
    feed.flush()
    made = [event for event in feed.events if "tool_calls" in event]
    assert [[call["id"] for call in event["tool_calls"]] for event in made] == [["c1-0"], ["c1-1"]]
    assert len({event["event_id"] for event in feed.events}) == 3


def test_agents_of_one_name_that_work_at_once_are_nodes_of_their_own() -> None:
    feed = Feed(reorder_s=0)
    for number in range(1, 8, 2):
        for agent in (98, 99):
            feed.add(chat_span(10 * agent + number, f"step {number}", parent=agent, begin=number, end=number + 1))
    feed.flush()
    assert {event["node"] for event in feed.events} == {"shop", "shop/2"}


@pytest.mark.parametrize("batch", [1, 100])
def test_a_prompt_that_goes_on_where_the_last_one_ended_is_the_same_request(batch: int) -> None:
    """Some programs write all that has happened into one message; a map has other prompts of one length."""
    rules = "Answer with one action. " * 20
    for grows, codes in ((True, ["LOOP001"]), (False, [])):
        feed, history = Feed(reorder_s=0), rules
        for number in range(1, 6):
            history = f"{history}Observation: nothing.\n" if grows else f"{rules}Is document {number} about whales?"
            messages = json.dumps([{"role": "user", "parts": [{"type": "text", "content": history}]}])
            asked = {"gen_ai.input.messages": messages}
            feed.add(chat_span(number, "Nothing.", parent=99, attributes=asked), now=number if batch == 1 else 0)
        feed.flush()
        assert halt_codes(feed.events) == codes
