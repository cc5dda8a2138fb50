"""A guard is a span of the program, and says which halt ended it and which turn caused that."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import Span, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.trace import SpanKind, StatusCode

from streamproc import Halted
from streamproc.client import BlockingHaltListener, HaltListener
from streamproc.client.halt_records import ControlNews, StatusNews, read_control_news, read_status_news
from streamproc.model.controls import RunStatus, read_control
from tests.client.records import halt_event, resume_event
from tests.client.test_guard import Breaker, started
from tests.tracing.spans import Exported, halts_of, links_of

CAUSE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Exported:
    return Exported(monkeypatch)


def halted(breaker: Any, run_id: str, traceparent: str = CAUSE) -> None:
    """Let a listener receive a halt with this header."""
    breaker.now_ms += 1
    event = halt_event(run_id, f"halt-{run_id}-{breaker.now_ms}", onset=2)
    value = event.model_dump_json(exclude_none=True).encode()
    breaker.dispatcher.control(read_control_news(value, breaker.now_ms, traceparent), value)


async def test_a_guard_is_an_internal_span_around_its_body(exported: Exported) -> None:
    with exported.tracer.start_as_current_span("request") as request:
        async with Breaker().guard("r1"):
            with exported.tracer.start_as_current_span("step"):
                await asyncio.sleep(0)
        assert trace.get_current_span() is request
    guard, step = exported.span("streamproc.guard r1"), exported.span("step")
    assert guard.kind == SpanKind.INTERNAL
    assert dict(guard.attributes or {}) == {"streamproc.run.id": "r1"}
    assert (guard.status.status_code, guard.events, guard.links) == (StatusCode.UNSET, (), ())
    assert guard.parent.span_id == request.get_span_context().span_id
    assert step.parent.span_id == guard.get_span_context().span_id


async def test_a_halt_is_an_event_of_it_with_a_link_to_the_turn_that_caused_it(exported: Exported) -> None:
    breaker = Breaker()
    task, _ = await started(breaker, "r1")
    halted(breaker, "r1")
    with pytest.raises(Halted) as raised:
        await task
    control = raised.value.control
    assert control.traceparent == CAUSE
    guard = exported.span("streamproc.guard r1")
    assert halts_of(guard) == [
        {
            "streamproc.severity": "halt",
            "streamproc.message": "The same call three times.",
            "streamproc.code": "LOOP003",
            "streamproc.control.id": control.id,
            "streamproc.onset": 2,
            "streamproc.trace.id": "0af7651916cd43dd8448eb211c80319c",
        }
    ]
    assert links_of(guard) == [(CAUSE, {"streamproc.control.id": control.id})]
    assert guard.status.status_code == StatusCode.ERROR
    assert (guard.attributes or {})["error.type"] == "LOOP003"


async def test_a_guard_that_does_not_start_says_why(exported: Exported) -> None:
    breaker = Breaker()
    halted(breaker, "r1", "")
    with pytest.raises(Halted):
        async with breaker.guard("r1"):
            raise AssertionError("unreachable")
    guard = exported.span("streamproc.guard r1")
    assert ([one["streamproc.code"] for one in halts_of(guard)], guard.links) == (["LOOP003"], ())
    assert trace.get_current_span() is trace.INVALID_SPAN


async def test_nested_guards_are_nested_spans(exported: Exported) -> None:
    breaker = Breaker()
    task, _ = await started(breaker, "outer", "inner")
    halted(breaker, "outer")
    with pytest.raises(Halted):
        await task
    inner, outer = exported.spans
    assert (inner.name, outer.name) == ("streamproc.guard inner", "streamproc.guard outer")
    assert (len(halts_of(inner)), len(halts_of(outer))) == (0, 1)


async def test_other_errors_are_not_those_of_the_guard(exported: Exported) -> None:
    with pytest.raises(ValueError, match="secret content"):
        async with Breaker().guard("r1"):
            raise ValueError("secret content")
    task, _ = await started(Breaker(), "r2")
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    for guard in exported.spans:
        assert (guard.events, guard.status.status_code) == ((), StatusCode.UNSET)
    assert len(exported.spans) == 2


async def test_the_name_of_a_run_is_redacted_and_escaped(exported: Exported) -> None:
    async with Breaker().guard("\x1b[31mr1"), Breaker().guard("sk-ant-" + "a1B2" * 12):
        pass
    names = {span.name for span in exported.spans}
    assert "streamproc.guard \\x1b[31mr1" in names
    assert not any("a1B2a1B2" in name for name in names)


async def test_without_a_provider_the_spans_of_another_one_stay_current(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = Exported(monkeypatch)
    for unset in (None, trace.NoOpTracerProvider()):
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", unset)
        async with Breaker().guard("r1"):
            assert trace.get_current_span() is trace.INVALID_SPAN
        with exported.tracer.start_as_current_span("request") as request:
            async with Breaker().guard("r1"):
                assert trace.get_current_span() is request
    assert {span.name for span in exported.spans} == {"request"}


async def test_a_span_that_is_not_sampled_has_children_that_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = Exported(monkeypatch, sampler=ALWAYS_OFF)
    breaker = Breaker()
    halted(breaker, "r2")
    async with breaker.guard("r1"):
        assert trace.get_current_span().get_span_context().is_valid
    with pytest.raises(Halted):
        await breaker.guard("r2").__aenter__()
    assert exported.spans == []


@pytest.mark.parametrize("fails", ["add_event", "end", "start_span"])
async def test_a_fault_of_the_tracer_reaches_neither_body_nor_halt(
    exported: Exported, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, fails: str
) -> None:
    if fails == "start_span":
        monkeypatch.setattr(TracerProvider, "get_tracer", lambda *_, **__: 1 / 0)
    else:
        monkeypatch.setattr(Span, fails, lambda *_, **__: 1 / 0)
    breaker = Breaker()
    task, work = await started(breaker, "r1")
    halted(breaker, "r1")
    with pytest.raises(Halted):
        await task
    assert work.cleaned
    assert "division by zero" in caplog.text
    assert caplog.records[0].levelno == logging.WARNING


async def test_tasks_have_spans_of_their_own(exported: Exported) -> None:
    breaker = Breaker()
    tasks = [await started(breaker, f"r{number}") for number in range(20)]
    for number in range(20):
        if number % 2:
            halted(breaker, f"r{number}")
        else:
            tasks[number][0].cancel()
    await asyncio.gather(*(task for task, _ in tasks), return_exceptions=True)
    assert {span.name: len(halts_of(span)) for span in exported.spans} == {
        f"streamproc.guard r{number}": number % 2 for number in range(20)
    }


def test_a_blocking_guard_is_a_span_of_its_thread(exported: Exported) -> None:
    halts = BlockingHaltListener("127.0.0.1:9", wait=False)
    inner = halts

    def body(run_id: str) -> None:
        with pytest.raises(Halted), halts.guard(run_id):
            inner._halts.control(news(halt_event(run_id), 1, CAUSE))

    with exported.tracer.start_as_current_span("main"):
        threads = [threading.Thread(target=body, args=(run_id,)) for run_id in ("r1", "r2")]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        body("r3")
        with pytest.raises(Halted), halts.guard("r3"):
            raise AssertionError("unreachable")
    guards = [span for span in exported.spans if span.name.startswith("streamproc.guard")]
    assert len(guards) == 4
    assert all(links_of(span)[0][0] == CAUSE for span in guards)
    assert sorted(span.parent is not None for span in guards) == [False, False, True, True]


# What a listener keeps of the header.


def status(run_id: str, halt: Any, at_ms: int, traceparent: str = "") -> StatusNews:
    value = RunStatus(run_id=run_id, status="halted", halt=halt).model_dump_json(exclude_none=True).encode()
    return read_status_news(value, at_ms, traceparent)


def news(event: Any, at_ms: int, traceparent: str = "") -> ControlNews:
    return read_control_news(event.model_dump_json(exclude_none=True).encode(), at_ms, traceparent)


def test_a_later_status_of_the_same_halt_keeps_what_the_decision_said() -> None:
    halts = HaltListener("127.0.0.1:9")
    halt = halt_event("r1", at="2026-11-01T00:00:00Z")
    halts._halts.control(news(halt, 1, CAUSE))
    halts._halts.status(status("r1", halt, 2))
    known = halts.halted("r1")
    assert known.traceparent == CAUSE
    again = halt_event("r1", "another", code="LOOP002", at="2026-11-01T00:09:00Z")
    halts._halts.status(status("r1", again, 3))
    known = halts.halted("r1")
    assert (known.code, known.traceparent) == ("LOOP002", "")


def test_a_status_that_comes_first_has_it_too() -> None:
    halts = HaltListener("127.0.0.1:9")
    halts._halts.status(status("r1", halt_event("r1"), 2, OTHER))
    known = halts.halted("r1")
    assert known.traceparent == OTHER
    halts._halts.control(news(resume_event("r1"), 3))
    assert halts.halted("r1") is None


def test_it_is_no_part_of_the_decision() -> None:
    raw = halt_event("r1").model_dump_json(exclude_none=True)
    assert read_control(raw, CAUSE).model_dump_json(exclude_none=True) == raw
    forged = read_control(raw.replace('"code"', f'"traceparent":"{OTHER}","_traceparent":"{OTHER}","code"'))
    assert forged.traceparent == ""


async def test_subscribers_see_it_in_warnings_too() -> None:
    halts = HaltListener("127.0.0.1:9")
    heard: list[str] = []
    halts.on_control(lambda control: heard.append(control.traceparent))
    value = halt_event("r1", severity="warn").model_dump_json(exclude_none=True).encode()
    halts.dispatcher.control(read_control_news(value, 1, CAUSE), value)
    assert heard == [CAUSE]
