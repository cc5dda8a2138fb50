"""LangSmith: runs as JSON lines, as the body of a web hook, or as the operations that its clients send."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any, Final

from streamproc.importers.content import at_path, items, mapping, string, usage_at, utc_ms
from streamproc.importers.genai_messages import arguments, as_id, model_answer, model_input
from streamproc.importers.genai_spans import unwrapped_args
from streamproc.importers.imported import Format, Import, Imported, any_row
from streamproc.importers.log_file import LogFile
from streamproc.importers.trace_buffer import TraceBuffer
from streamproc.importers.trace_steps import AGENT, MODEL, QUERY, SCOPE, TOOL, Step, failed, size_of

NAME: Final = "langsmith"
KINDS: Final = {
    "llm": MODEL, "tool": TOOL, "chain": SCOPE, "retriever": QUERY, "prompt": SCOPE, "parser": SCOPE,
    "embedding": SCOPE, "agent": AGENT,
}  # fmt: skip
LISTS: Final = ("runs", "post", "patch", "data")  # of runs, in one document
OPEN_BYTES_MAX: Final = 64 << 20  # about what runs whose end is still to come may take
CUT_NOTE: Final = "some runs have no end in this log, as the updates of their records are missing"
STORED_NOTE: Final = "some inputs or outputs are stored elsewhere (S3): they count as unknown"
THREADS: Final = ("thread_id", "session_id", "conversation_id")
MODEL_NAMES: Final = ("ls_model_name", "model_name", "model")
PLUMBING: Final = ("Runnable", "ChannelWrite", "ChannelRead", "Branch<", "_write", "should_")  # chains of no agent
USAGE: Final = {
    "input_tokens": ("run.prompt_tokens", "message.input_tokens", "legacy.prompt_tokens"),
    "output_tokens": ("run.completion_tokens", "message.output_tokens", "legacy.completion_tokens"),
    "cached_tokens": ("message.input_token_details.cache_read",),
    "total_tokens": ("run.total_tokens", "message.total_tokens", "legacy.total_tokens"),
}
CLASS_OF_ERROR: Final = re.compile(r"^\s*([A-Za-z_][\w.]*)\s*[(:]")
TRACEBACK: Final = "Traceback (most recent call last):"
QUOTED: Final = re.compile(r"^\s*[\w.]+\(\s*(['\"])(.*)\1,?\s*\)", re.DOTALL)


def has_runs(row: dict[str, Any]) -> bool:
    """Whether a row is a run, or a document that lists runs."""
    return _is_run(row) or any(map(_is_run, _listed(row)))


def _is_run(row: Any) -> bool:
    return isinstance(row, dict) and "dotted_order" in row and ("run_type" in row or "trace_id" in row)


def _listed(row: dict[str, Any]) -> list[Any]:
    return [run for name in LISTS for run in items(row.get(name))]


def read(log: LogFile, reading: Import) -> Iterator[Imported]:
    """Yield the raw events of a log."""
    unit = "span" if log.is_document() else "line"
    buffer = TraceBuffer(NAME, reading, run_is_trace=True, unit=unit)
    merging = _Merging(buffer)
    number = 0
    for row in log.rows():
        listed = _listed(row.data) if isinstance(row.data, dict) and not _is_run(row.data) else []
        for data in listed or [row.data]:
            number += 1
            yield from merging.add(data, number if log.is_document() else row.number)
    yield from merging.rest()
    yield from buffer.rest()


class _Merging:
    """Joins the records of a run: one when it begins and one when it has ended, each with some of the fields.

    A run goes on to the buffer as soon as its end is known. Those without an end are kept, up to `OPEN_BYTES_MAX`;
    beyond it, the oldest goes on without its end.
    """

    def __init__(self, buffer: TraceBuffer, bytes_max: int = OPEN_BYTES_MAX) -> None:
        self._buffer = buffer
        self._bytes_max = bytes_max
        self._bytes = 0
        self._open: OrderedDict[str, tuple[int, int, dict[str, Any]]] = OrderedDict()  # line, bytes, fields by id

    def add(self, data: Any, number: int) -> Iterator[Imported]:
        run = mapping(data)
        run_id = as_id(run.get("id"))
        if not run_id and isinstance(run.get("dotted_order"), str):  # an update without the id of its run
            run_id = run["dotted_order"].rpartition(".")[2].partition("Z")[2]
        if not run_id or not ({"run_type", "dotted_order", "trace_id", "end_time"} & run.keys()):
            self._buffer.tally.ignore(run.get("run_type") or (next(iter(run), "empty") if run else data))
            return
        began, size, known = self._open.pop(run_id, (number, 0, {}))
        self._bytes -= size
        merged = {**known, **{name: value for name, value in run.items() if value is not None or name not in known}}
        merged["id"] = run_id
        if merged.get("end_time") is not None and merged.get("run_type") is not None:
            yield from self._pass_on(merged, began)
            return
        size = size_of(merged)
        self._bytes += size
        self._open[run_id] = (began, size, merged)
        while self._bytes > self._bytes_max:
            yield from self._give_up(next(iter(self._open)))

    def rest(self) -> Iterator[Imported]:
        """Pass on the runs whose end is not in the log."""
        for run_id in list(self._open):
            yield from self._give_up(run_id)

    def _give_up(self, run_id: str) -> Iterator[Imported]:
        number, size, run = self._open.pop(run_id)
        self._bytes -= size
        if run.get("end_time") is None:
            self._buffer.tally.notes[CUT_NOTE] = None
        yield from self._pass_on(run, number)

    def _pass_on(self, run: dict[str, Any], number: int) -> Iterator[Imported]:
        step = step_of(run)
        if step is None:
            self._buffer.tally.ignore(run.get("run_type") or "run without a type")
            return
        step.number = number
        if any(mapping(run.get(name)) for name in ("inputs_s3_urls", "outputs_s3_urls")):
            self._buffer.tally.notes[STORED_NOTE] = None
        yield from self._buffer.add(step)


def step_of(run: dict[str, Any]) -> Step | None:
    """Return a run of LangSmith as a step; None if its type is unknown."""
    kind = KINDS.get(string(run.get("run_type")))
    order = string(run.get("dotted_order")).split(".")
    trace = as_id(run.get("trace_id")) or order[0].partition("Z")[2] or as_id(run.get("id"))
    if kind is None:
        return None
    metadata = mapping(at_path(run, "extra.metadata"))
    step = Step(kind, trace, as_id(run.get("id")), _parent(run, order), string(run.get("name")))
    step.start, step.end = utc_ms(run.get("start_time")), utc_ms(run.get("end_time"))
    step.end = step.end or step.start
    step.node = string(metadata.get("langgraph_node"))
    step.home = step.name
    step.frame = kind == SCOPE and not step.name.startswith(PLUMBING)
    step.session = next((found for name in THREADS if (found := as_id(metadata.get(name)))), "")
    step.user = as_id(metadata.get("user_id"))
    if kind == TOOL:
        _read_tool(step, run)
    elif kind == MODEL:
        _read_model(step, run, metadata)
    elif kind == QUERY:
        query = at_path(run, "inputs.query")
        step.args = query if isinstance(query, str) else None
    if isinstance(run.get("error"), str) and run["error"]:
        _read_failure(step, run["error"])
    return step


def _parent(run: dict[str, Any], order: list[str]) -> str:
    parents = items(run.get("parent_run_ids"))
    by_order = order[-2].partition("Z")[2] if len(order) > 1 else ""
    return as_id(run.get("parent_run_id")) or by_order or (as_id(parents[-1]) if parents else "")


def _read_tool(step: Step, run: dict[str, Any]) -> None:
    """Read a call. An empty object is what a client that hides inputs or outputs writes: it says nothing."""
    inputs = run.get("inputs")
    if isinstance(inputs, dict) and inputs:
        step.args = unwrapped_args(inputs)
    elif inputs:
        step.args = arguments(inputs)
    outputs = run.get("outputs")
    if not outputs and outputs != "":
        return
    step.returns(mapping(outputs).get("output", outputs))


def _read_model(step: Step, run: dict[str, Any], metadata: dict[str, Any]) -> None:
    outputs = run.get("outputs")
    step.talks(model_input(run.get("inputs")), model_answer(outputs or ""))
    step.model = next((found for name in MODEL_NAMES if (found := string(metadata.get(name)))), "")
    step.provider = string(metadata.get("ls_provider"))
    step.usage = _usage(run, mapping(outputs))


def _usage(run: dict[str, Any], outputs: dict[str, Any]) -> dict[str, Any]:
    message = _usage_of_message(outputs)
    legacy = mapping(at_path(outputs, "llm_output.token_usage")) or mapping(outputs.get("usage"))
    return usage_at({"run": run, "message": message, "legacy": legacy}, USAGE, cost_usd=run.get("total_cost"))


def _usage_of_message(outputs: dict[str, Any]) -> dict[str, Any]:
    generations = outputs.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    message = mapping(at_path(generations, "message")) or mapping(outputs.get("message"))
    message = message or mapping(next(reversed(items(outputs.get("messages"))), None))
    message = mapping(message.get("kwargs")) or message
    return mapping(message.get("usage_metadata")) or mapping(outputs.get("usage_metadata"))


def _read_failure(step: Step, error: str) -> None:
    """Read an error: a text, or the representation of an exception with its traceback."""
    kind = CLASS_OF_ERROR.match(error)
    if kind and kind[0].endswith("("):
        error = error.partition(TRACEBACK)[0]
    quoted = QUOTED.match(next((line for line in error.splitlines() if line.strip()), error))
    failed(step, quoted[2] if quoted and quoted[2] else error, kind[1] if kind else "")


FORMAT: Final = Format(NAME, "LangSmith runs", any_row(has_runs), read)
