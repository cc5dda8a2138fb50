"""Which spans turns name, and which texts in headers are believed."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, strategies as st
from opentelemetry import trace
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from streamproc.client import BlockingTurnPublisher, TurnPublisher
from streamproc.client.encoding import Encoded
from streamproc.client.outbox import Outbox
from streamproc.testing import MemoryPublisher, RecordingMonitor
from streamproc.tracing.trace_context import current_traceparent, find_traceparent, is_traceparent, split_traceparent
from tests.tracing.spans import Exported, traceparent_of

VALID = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TURN: dict[str, Any] = {"type": "turn", "run_id": "r1", "node": "coder"}


def test_a_valid_one_is_taken_apart() -> None:
    assert is_traceparent(VALID)
    assert split_traceparent(VALID) == ("0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331", 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        VALID.upper(),
        VALID + "-00",
        VALID[:-1],
        f" {VALID}"[:55],
        f"{VALID[:-1]}\n",
        VALID.replace("-", "_"),
        "ff" + VALID[2:],
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        VALID.replace("b7ad", "b7g d"),
        VALID.replace("01", "٠١", 1),  # noqa: RUF001  # digits of another script
        "x" * 1_000_000,
    ],
)
def test_any_other_text_counts_as_absent(text: str) -> None:
    assert not is_traceparent(text)
    assert find_traceparent([("traceparent", text.encode())], "traceparent") == ""


@given(st.lists(st.tuples(st.sampled_from(["traceparent", "publisher", ""]), st.none() | st.binary(max_size=60))))
def test_hostile_headers_neither_raise_nor_hide_a_valid_one(headers: list[tuple[str, bytes | None]]) -> None:
    assert find_traceparent(headers, "traceparent") == ""
    assert find_traceparent([*headers, ("traceparent", VALID.encode())], "traceparent") == VALID


@given(st.text(alphabet="0123456789abcdefF-g", min_size=55, max_size=55) | st.from_regex(r"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}", fullmatch=True))  # fmt: skip  # noqa: E501
def test_what_is_valid_is_so_for_opentelemetry(text: str) -> None:
    found = trace.get_current_span(TraceContextTextMapPropagator().extract({"traceparent": text}))
    if is_traceparent(text):
        assert found.get_span_context().is_valid
        assert f"{found.get_span_context().trace_id:032x}" == split_traceparent(text).trace_id
    elif not text.startswith("00-"):  # OpenTelemetry reads more of later versions
        return
    else:
        assert not found.get_span_context().is_valid or text != text.lower()


def test_a_turn_names_the_span_in_which_it_is_published(monkeypatch: pytest.MonkeyPatch) -> None:
    exported = Exported(monkeypatch)
    turns, blocking = TurnPublisher("127.0.0.1:9"), BlockingTurnPublisher("127.0.0.1:9")
    for prepare in (turns.prepare, blocking.prepare):
        outside = prepare(TURN)
        assert outside.traceparent == ""
        with exported.tracer.start_as_current_span("step") as span:
            inside = prepare(TURN)
            assert inside.traceparent == traceparent_of(span)
            given = prepare(TURN, VALID)
            assert given.traceparent == VALID
            unusable = prepare(TURN, "not a traceparent")
            assert unusable.traceparent == ""


def test_the_outbox_keeps_it_with_its_event() -> None:
    outbox = Outbox(10, 1_000)
    for traceparent in (VALID, ""):
        outbox.add(Encoded("", b"r1", b"{}", None, lasting=False, traceparent=traceparent))
    outbox.repartition(1, lambda _: 0)
    assert [item.traceparent for item in outbox.start_sending(outbox.queues[0], 100)] == [VALID, ""]


@pytest.mark.parametrize("fault", [{}, {"get_current_span": lambda: 1 / 0}, {"get_current_span": object}])
def test_a_fault_of_a_tracer_costs_no_turn(monkeypatch: pytest.MonkeyPatch, fault: dict[str, Any]) -> None:
    module = type(sys)("opentelemetry.trace")  # such as one that another thread is still importing
    vars(module).update(fault)
    monkeypatch.setitem(sys.modules, "opentelemetry.trace", module)
    assert current_traceparent() == ""


async def test_the_publisher_of_a_test_takes_one_too() -> None:
    async with MemoryPublisher(RecordingMonitor()) as turns:
        assert await turns.send(TURN, traceparent=VALID)


def test_a_program_without_opentelemetry_gets_none_of_it() -> None:
    program = (
        "import asyncio, sys, streamproc\n"
        "from streamproc import Halted, Monitor\n"
        "from streamproc.testing import MemoryListener, MemoryPublisher, RecordingMonitor\n"
        "async def main():\n"
        "    monitor = RecordingMonitor()\n"
        "    async with MemoryPublisher(monitor) as turns, MemoryListener(monitor) as halts:\n"
        "        async with halts.guard('r1'):\n"
        "            for _ in range(3):\n"
        "                await turns.turn(run_id='r1', node='a', tool_calls=[{'name':'x','args':{},'result':'y'}])\n"
        "try: asyncio.run(main())\n"
        "except Halted: print([name for name in sys.modules if name.startswith('opentelemetry')])\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout == "[]\n"
