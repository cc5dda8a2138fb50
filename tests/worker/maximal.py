"""The largest events of each type that a publisher can send: up to `SIZE` bytes of JSON, filled with one kind of entry.

`CASES` maps the name of each case to a function of (run id, size in bytes). Names begin with the form of the event
(`wire`: fingerprinted; `raw`: as users send it), its type, and the field that fills it. Some of the events are valid
and some are not: a worker has to survive both, in bounded time.

`python -m tests.worker.maximal` measures each case: milliseconds to read it, to step it, and to encode the state.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import count
from time import process_time
from typing import Final

SIZE: Final = 1_048_576  # bytes: the default of STREAMPROC_EVENT_BYTES_MAX

Case = Callable[[str, int], bytes]
Item = Callable[[int], str]

_HASH: Final = 0x9E3779B97F4A7C15  # an odd 64-bit number: its multiples are distinct hashes


def maximal(name: str, run_id: str = "maximal", size: int = SIZE) -> bytes:
    """Return one event of `CASES`, at most `size` bytes."""
    return CASES[name](run_id, size)


def _list(kind: str, field: str, item: Item, more: str = "", *, wire: bool = True, ends: str = "[]") -> Case:
    """A list (or, with `ends` "{}", an object) in `field`, with as many items as fit. Dots lead into objects."""

    def build(run_id: str, size: int) -> bytes:
        outer = field.split(".")
        opening = "{".join(f'"{name}":' for name in outer) + ends[0]
        closing = ends[1] + "}" * (len(outer) - 1)
        return _between(_head(kind, run_id, more, wire=wire) + opening, item, closing + "}", size)

    return build


def _between(head: str, item: Item, tail: str, size: int) -> bytes:
    left = size - len(head.encode()) - len(tail.encode())
    items = []
    for number in count():
        made = item(number)
        left -= len(made.encode()) + 1
        if left < 0:
            break
        items.append(made)
    return (head + ",".join(items) + tail).encode()


def _text(kind: str, field: str, unit: str = "x", more: str = "", *, wire: bool = True, quote: str = '"') -> Case:
    """A long text in `field`, a repetition of `unit`; without `quote`, a number with that many digits."""

    def build(run_id: str, size: int) -> bytes:
        head = _head(kind, run_id, more, wire=wire) + f'"{field}":{quote}'
        return (head + unit * ((size - len(head.encode()) - 8) // len(unit.encode())) + quote + "}").encode()

    return build


def _deep(kind: str, field: str, opening: str, closing: str, *, wire: bool = True) -> Case:
    """As many levels of nesting in `field` as fit."""

    def build(run_id: str, size: int) -> bytes:
        head = _head(kind, run_id, "", wire=wire) + f'"{field}":'
        levels = (size - len(head.encode()) - 8) // len(opening + closing)
        return (head + opening * levels + "1" + closing * levels + "}").encode()

    return build


def _head(kind: str, run_id: str, more: str, *, wire: bool) -> str:
    version = '"w":1,' if wire else ""
    node = '"node":"n",' if kind == "turn" and '"node"' not in more else ""
    return f'{{{version}"type":"{kind}","run_id":"{run_id}",{node}{more}'


def _hash(number: int) -> int:
    return (number + 1) * _HASH & 0xFFFFFFFFFFFFFFFF


def _leads_to(links: int) -> Case:
    """A compact graph: as many nodes as fit with `links` successors each, spread over all nodes."""

    def build(run_id: str, size: int) -> bytes:
        nodes = max(2, size // (9 + 8 * links))
        names = ",".join(f'"{number}"' for number in range(nodes))
        head = _head("run.started", run_id, "", wire=True) + f'"graph":{{"nodes":[{names}],"leads_to":['

        def targets(number: int) -> str:
            return "[" + ",".join(str((number * 7 + 1 + step * 31) % nodes) for step in range(links)) + "]"

        return _between(head, lambda number: targets(number % nodes), "]}}", size)

    return build


def _self_loops(run_id: str, size: int) -> bytes:
    head = _head("run.started", run_id, "", wire=True) + '"graph":{"edges":['
    return _between(head, lambda n: f'["{n}","{n}"]', "]}}", size)


def suspect(number: int, length: int) -> str:
    """A text of which each word may be a secret's place."""
    return (f"{number} " + "--password -u login key= session > token cookie bearer " * (length // 40 + 1))[:length]


def _quoted(field: str, item: str, opening: str = "[", closing: str = "]") -> Case:
    """A call with JSON as text in `field`: a list of as many items as fit."""

    def build(run_id: str, size: int) -> bytes:
        head = _head("turn", run_id, "", wire=False) + f'"tool_calls":[{{"name":"t","{field}":"{opening}'
        return _between(head, lambda n: item, f'{closing}"}}]}}', size)

    return build


_TASK: Final = '"task_id":"T1",'
_TYPES: Final = (
    "turn", "run.started", "run.finished", "user.message", "operator.stop", "operator.resume", "halt.acknowledged",
    "feedback", "budget.reached", "turn.started", "deadline", "task.created", "task.delegated", "task.transition",
    "task.verdict", "cycle.completed",
)  # fmt: skip

CASES: Final[dict[str, Case]] = {
    # Fingerprinted turns.
    "wire turn calls": _list("turn", "calls", lambda n: f'["t{n}",{_hash(n)},{_hash(n + 1)},{_hash(n + 2)},1]'),
    "wire turn short calls": _list("turn", "calls", lambda n: f'["",{n}]'),
    "wire turn equal calls": _list("turn", "calls", lambda n: '["t",1,2,3,1]'),
    "wire turn failed calls": _list("turn", "calls", lambda n: f'["{n}",{n},1,1,2]'),
    "wire turn similar calls": _list("turn", "calls", lambda n: f'["t",{n},{n},{n},1,{_hash(n)}]'),
    "wire turn progress": _list("turn", "progress", lambda n: f'"m{n}":{n}', ends="{}"),
    "wire turn labels": _list("turn", "labels", lambda n: f'"{n}":""', ends="{}"),
    "wire turn content": _list("turn", "content", lambda n: f'"{n}":[]', ends="{}"),
    "wire turn failing tests": lambda run_id, size: _between(
        _head("turn", run_id, "", wire=True) + '"tests":[1,1,0,1,[', lambda n: f'"t{n}"', "]]}", size
    ),
    "wire turn error excerpt": lambda run_id, size: (
        _head("turn", run_id, "", wire=True) + '"errors":[1,1,1,"' + "x" * (size - 200) + '","E"]}'
    ).encode(),
    "wire turn error class": lambda run_id, size: (
        _head("turn", run_id, '"task_id":"T1",', wire=True) + '"errors":[1,1,1,"x","' + "E" * (size - 200) + '"]}'
    ).encode(),
    "wire turn tool name": lambda run_id, size: (
        _head("turn", run_id, "", wire=True) + '"calls":[["' + "t" * (size - 200) + '",1,2,3,1]]}'
    ).encode(),
    "wire turn node": _text("turn", "node", more='"seq":1,"node":"",'),
    "wire turn from": _text("turn", "from"),
    "wire turn next": _text("turn", "next"),
    "wire turn model": _text("turn", "model", more='"usage":[1,1],'),
    "wire turn number": _text("turn", "seq", "9", quote=""),
    "wire turn fraction": _text("turn", "convergence", "9", more='"usage":[1,1],', quote=""),
    "wire turn unknown fields": lambda run_id, size: _between(
        _head("turn", run_id, "", wire=True), lambda n: f'"u{n}":1', "}", size
    ),
    "wire turn repeated fields": lambda run_id, size: _between(
        _head("turn", run_id, "", wire=True), lambda n: '"next":""', "}", size
    ),
    "wire turn deep content": _deep("turn", "content", '{"a":', "}"),
    "wire turn deep unknown": _deep("turn", "u", "[", "]"),
    # Graphs and budgets.
    "wire run.started edges": _list("run.started", "graph.edges", lambda n: f'["{n}","{n * 7 % 9973}"]'),
    "wire run.started chain": _list("run.started", "graph.edges", lambda n: f'["{n}","{n + 1}"]'),
    "wire run.started equal edges": _list("run.started", "graph.edges", lambda n: '["a","b"]'),
    "wire run.started self loops": _self_loops,
    "wire run.started pairs": _list("run.started", "graph.edges", lambda n: f'["{n}","{n ^ 1}"]'),
    "wire run.started long names": _list("run.started", "graph.edges", lambda n: f'["{n:0200}","{n ^ 1:0200}"]'),
    "wire run.started one long name": lambda run_id, size: (
        _head("run.started", run_id, "", wire=True) + '"graph":{"edges":[["' + "x" * (size - 200) + '","b"]]}}'
    ).encode(),
    "wire run.started nodes": _list("run.started", "graph.nodes", lambda n: f'"{n}"'),
    "wire run.started terminals": _list("run.started", "graph.terminals", lambda n: f'"{n}"'),
    "wire run.started sparse positions": _leads_to(1),
    "wire run.started dense positions": _leads_to(400),
    "wire run.started all positions": lambda run_id, size: _between(
        _head("run.started", run_id, "", wire=True) + '"graph":{"nodes":["a","b"],"leads_to":[[', lambda n: "1",
        "]]}}", size,
    ),
    "wire run.started anchors": lambda run_id, size: _between(
        _head("run.started", run_id, "", wire=True) + '"graph":{"nodes":["a","b"],"leads_to":[[1],[0]],"anchors":[',
        lambda n: "[0,1]", "]}}", size,
    ),
    "wire run.started unread graph": _list("run.started", "graph", lambda n: f'"{n}":1', ends="{}"),
    "wire run.started bad node": lambda run_id, size: _between(
        _head("run.started", run_id, "", wire=True) + '"graph":{"nodes":[{"name":[', lambda n: "[]", "]}]}}", size
    ),
    "wire run.started budgets": _list("run.started", "budgets", lambda n: f'"b{n}":{n}', ends="{}"),
    "wire run.started deep graph": _deep("run.started", "graph", '{"a":', "}"),
    # Commands and messages.
    "wire run.finished status": _text("run.finished", "status"),
    "wire operator.stop reason": _text("operator.stop", "reason"),
    "wire operator.stop by": _text("operator.stop", "by"),
    "wire operator.resume grant": _list("operator.resume", "grant", lambda n: f'"b{n}":{n}', ends="{}"),
    "wire halt.acknowledged reason": _text("halt.acknowledged", "reason"),
    "wire feedback reason": _text("feedback", "reason", more='"verdict":"right",'),
    "wire budget.reached account": _text("budget.reached", "account"),
    "wire turn.started node": _text("turn.started", "node"),
    "wire user.message node": _text("user.message", "node"),
    # Boards.
    "wire task.created dependencies": _list("task.created", "depends_on", lambda n: f'"D{n}"', _TASK),
    "wire task.created evidence": _list("task.created", "evidence", lambda n: f'"g{n}":[true]', _TASK, ends="{}"),
    "wire task.delegated tasks": _list("task.delegated", "tasks", lambda n: f'"D{n}"'),
    "wire task.delegated budgets": _list("task.delegated", "tasks", lambda n: f'"D{n}"', '"max_token_budget":1,'),
    "wire task.transition proof": lambda run_id, size: _between(
        _head("task.transition", run_id, _TASK, wire=True) + '"to":"DONE","evidence":{"dod":[false,[',
        lambda n: f'"i{n}"', "]]}}", size,
    ),
    "wire task.transition items": lambda run_id, size: _between(
        _head("task.transition", run_id, _TASK, wire=True) + '"to":"IMPLEMENTING","evidence":{"artifacts":[true,[],[',
        lambda n: f'"i{n}"', "]]}}", size,
    ),
    "wire task.verdict validator": _text("task.verdict", "validator", more=_TASK + '"verdict":"REJECTED",'),
    "wire cycle.completed moved": _list("cycle.completed", "moved", lambda n: f'["D{n}","DONE"]'),
    "wire cycle.completed equal moves": _list("cycle.completed", "moved", lambda n: '["D","DONE"]'),
    # Raw turns.
    "raw turn tool calls": _list("turn", "tool_calls", lambda n: f'{{"name":"t{n}"}}', wire=False),
    "raw turn answered calls": _list(
        "turn", "tool_calls", lambda n: f'{{"name":"t","args":{{"n":{n}}},"result":"r{n}"}}', wire=False
    ),
    "raw turn failed calls": _list(
        "turn", "tool_calls", lambda n: f'{{"name":"t","error":"E{n}","result":{n}}}', wire=False
    ),
    "raw turn failing tests": _list("turn", "tests.failed", lambda n: f'"t{n}"', wire=False),
    "raw turn errors": _list("turn", "errors", lambda n: f'"E{n}"', wire=False),
    "raw turn progress": _list("turn", "progress", lambda n: f'"m{n}":{n}', wire=False, ends="{}"),
    "raw turn labels": _list("turn", "labels", lambda n: f'"{n}":""', wire=False, ends="{}"),
    "raw turn null labels": _list("turn", "labels", lambda n: f'"{n}":null', wire=False, ends="{}"),
    "raw turn unknown fields": lambda run_id, size: _between(
        _head("turn", run_id, "", wire=False), lambda n: f'"u{n}":1', "}", size
    ),
    "raw turn bad calls": _list("turn", "tool_calls", lambda n: "1", wire=False),
    "raw turn bad errors": _list("turn", "errors", lambda n: "[]", wire=False),
    "raw turn output": _text("turn", "output", "one two ", wire=False),
    "raw turn digits": _text("turn", "output", "1 a1-", wire=False),
    "raw turn one word": _text("turn", "output", "A", wire=False),
    "raw turn emails": _text("turn", "errors", "a.", wire=False),
    "raw turn spaces": _text("turn", "output", " ", wire=False),
    "raw turn docs": _text("turn", "docs", "# a\\n", wire=False),
    "raw turn links": _text("turn", "docs", "[a](", wire=False),
    "raw turn query": _text("turn", "query", "why not? ", wire=False),
    "raw turn artifact": _text("turn", "artifact", "+a\\n", wire=False),
    "raw turn diff": _text("turn", "artifact", "@@ -1 +1 @@\\n-a\\n", wire=False),
    "raw turn files": _list("turn", "artifact", lambda n: f'"{n}":"x"', wire=False, ends="{}"),
    "raw turn structured list": _list("turn", "structured_output", lambda n: f"{n}", wire=False),
    "raw turn structured object": _list("turn", "structured_output", lambda n: f'"{n}":1', wire=False, ends="{}"),
    "raw turn deep output": _deep("turn", "structured_output", "[", "]", wire=False),
    "raw turn deep unknown": _deep("turn", "u", '{"a":', "}", wire=False),
    "raw turn number": _text("turn", "round", "9", wire=False, quote=""),
    "raw turn node": _text("turn", "node", more='"seq":1,"node":"",', wire=False),
    "raw turn cost": lambda run_id, size: (
        _head("turn", run_id, "", wire=False) + '"usage":{"cost_usd":"' + "9" * (size - 200) + '"}}'
    ).encode(),
    "raw turn time": _text("turn", "at", "2", wire=False),
    "raw turn content parts": _list("turn", "content", lambda n: f'{{"type":"k{n}"}}', wire=False),
    "raw turn function fields": lambda run_id, size: _between(
        _head("turn", run_id, "", wire=False) + '"tool_calls":[{"name":"t","function":{', lambda n: f'"u{n}":1',
        "}}]}", size,
    ),
    "raw turn usage fields": _list("turn", "usage", lambda n: f'"u{n}":1', wire=False, ends="{}"),
    # Names and texts that redaction looks at closely: they hold what it searches for, and no two are equal.
    "raw turn named calls": _list("turn", "tool_calls", lambda n: f'{{"name":"{suspect(n, 250)}"}}', wire=False),
    "raw turn named metrics": _list("turn", "progress", lambda n: f'"{suspect(n, 120)}":1', wire=False, ends="{}"),
    "raw turn long labels": _list("turn", "labels", lambda n: f'"{n}":"{suspect(n, 4_200)}"', wire=False, ends="{}"),
    "raw turn bad names": _list("turn", "tool_calls", lambda n: f'{{"name":"{suspect(n, 1_900)}"}}', wire=False),
    "raw turn reported errors": _list("turn", "errors", lambda n: f'"{suspect(n, 1_000)}"', wire=False),
    "raw turn named tests": _list("turn", "tests.failed", lambda n: f'"{suspect(n, 60)}"', wire=False),
    "raw run.started nodes": _list("run.started", "graph.nodes", lambda n: f'"{n}"', wire=False),
    "raw run.started suspect nodes": _list("run.started", "graph.nodes", lambda n: f'"{suspect(n, 40)}"', wire=False),
    "raw run.started long nodes": _list("run.started", "graph.nodes", lambda n: f'"{suspect(n, 1_900)}"', wire=False),
    "raw run.started some edges": _list(
        "run.started", "graph.edges", lambda n: f'["{suspect(n, 50)}","{n}"]', wire=False
    ),
    "raw run.started unread graph": _list(
        "run.started", "graph", lambda n: f'"{suspect(n, 40)}":1', wire=False, ends="{}"
    ),
    "raw task.transition long report": lambda run_id, size: _between(
        _head("task.transition", run_id, _TASK, wire=False) + '"to":"DONE","evidence":{"dod":{"items":[',
        lambda n: f'"{suspect(n, 140)}"', "]}}}", size,
    ),
    "raw task.transition reports": _list(
        "task.transition", "evidence", lambda n: f'"g{n}":["{suspect(n, 1_900)}"]', _TASK, wire=False, ends="{}"
    ),
    "raw task.transition nested reports": lambda run_id, size: _between(
        _head("task.transition", run_id, _TASK, wire=False) + '"to":"DONE","evidence":{"dod":{"items":[',
        lambda n: f'{{"x":{{"{suspect(n, 300)}":false}}}}', "]}}}", size,
    ),
    "raw cycle.completed moves": _list(
        "cycle.completed", "transitions", lambda n: f'{{"id":"{suspect(n, 120)}","to":"{suspect(n, 110)}"}}',
        wire=False,
    ),
    # JSON in texts.
    "raw turn lists in an answer": _quoted("result", "[]"),
    "raw turn objects in an answer": _quoted("result", '{\\"a\\":{}}'),
    "raw turn lists in arguments": _quoted("args", "[]"),
    "raw turn lists in given arguments": _quoted("arguments", "[]", '{\\"a\\":[', "]}"),
    "raw turn numbers in an answer": _quoted("result", "0"),
    "raw turn lists in answers": lambda run_id, size: _between(
        _head("turn", run_id, "", wire=False) + '"tool_calls":[',
        lambda n: f'{{"name":"t","result":"[{"[]," * 600}[]]"}}', "]}", size,
    ),
    "raw turn lists in a structured text": lambda run_id, size: _between(
        _head("turn", run_id, "", wire=False) + '"structured_output":"[', lambda n: "[]", ']"}', size
    ),
    # Other raw events.
    "raw run.started budgets": _list("run.started", "budgets", lambda n: f'"b{n}":{n}', wire=False, ends="{}"),
    "raw run.started budget number": lambda run_id, size: (
        _head("run.started", run_id, "", wire=False) + '"budgets":{"maxCostUsd":"' + "9" * (size - 200) + '"}}'
    ).encode(),
    "raw run.started edges": _list("run.started", "graph.edges", lambda n: f'["{n}","{n + 1}"]', wire=False),
    "raw task.created dependencies": _list("task.created", "depends_on", lambda n: f"{n}", _TASK, wire=False),
    "raw task.created bad dependencies": _list("task.created", "depends_on", lambda n: "[]", _TASK, wire=False),
    "raw task.created spellings": lambda run_id, size: _between(
        _head("task.created", run_id, _TASK, wire=False), lambda n: f'"{"_" * (n % 64)}{n}dod":1', "}", size
    ),
    "raw task.delegated tasks": _list("task.delegated", "tasks", lambda n: f'{{"id":"D{n}"}}', wire=False),
    "raw task.transition evidence": _list(
        "task.transition", "evidence", lambda n: f'"g{n}":true', _TASK + '"to":"DONE",', wire=False, ends="{}"
    ),
    "raw task.transition report": lambda run_id, size: _between(
        _head("task.transition", run_id, _TASK, wire=False) + '"to":"DONE","evidence":{"dod":{"items":[',
        lambda n: f'{{"name":"i{n}","status":"fail"}}', "]}}}", size,
    ),
    "raw task.transition approvals": _list("task.transition", "approvals", lambda n: "[]", _TASK, wire=False),
    "raw task.verdict report": _list(
        "task.verdict", "reason", lambda n: f'"f{n}"', _TASK + '"verdict":"REJECTED",', wire=False
    ),
    "raw cycle.completed transitions": _list(
        "cycle.completed", "transitions", lambda n: f'{{"id":"D{n}","to":"DONE"}}', wire=False
    ),
    "raw operator.stop reason": _text("operator.stop", "reason", wire=False),
    "raw unknown type": _text("x", "type", wire=False),
    # What every event may carry.
    **{f"wire {kind} event id": _text(kind, "event_id") for kind in _TYPES},
    **{f"wire {kind} tenant": _text(kind, "tenant") for kind in _TYPES},
    **{
        f"wire {kind} labels": _list(kind, "labels", lambda n: f'"{n}":""', ends="{}")
        for kind in _TYPES if kind != "turn"
    },
    # No event.
    "bytes": lambda run_id, size: b"\xff" * size,
    "brackets": lambda run_id, size: b"[" * size,
    "spaces": lambda run_id, size: b" " * size,
}  # fmt: skip
"""Every case by its name."""


def main(names: list[str]) -> None:
    """Measure the cases whose names contain one of these words; without a word, all. In ms of CPU time, once each."""
    import gc

    import streamproc
    from streamproc.errors import InvalidEvent
    from streamproc.fingerprint import read_event
    from streamproc.worker.limits import GC_THRESHOLD
    from tests.feeding import Feed

    gc.set_threshold(*GC_THRESHOLD)
    policy = streamproc.load_policy()
    sys.stdout.write(f"{'read':>9} {'step':>9} {'encode':>9} {'bytes':>9}  case\n")
    for name in CASES:
        if names and not any(word in name for word in names):
            continue
        raw = maximal(name)
        feed, outcome = Feed(policy), ""
        started = process_time()
        try:
            event = read_event(raw)
        except (InvalidEvent, ValueError, RecursionError) as problem:
            outcome = f"  {type(problem).__name__}: {str(problem)[:100]}".replace("\n", " ")
            times = [process_time() - started, 0.0, 0.0]
        else:
            times = [process_time() - started]
            for act in (
                lambda feed=feed, event=event: feed.event(event, 1_700_000_000_000),
                lambda feed=feed: feed.stored,
            ):
                started = process_time()
                act()
                times.append(process_time() - started)
        figures = " ".join(f"{taken * 1000:9.1f}" for taken in times)
        sys.stdout.write(f"{figures} {len(raw):9}  {name}{outcome}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
