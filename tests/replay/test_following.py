"""Logs that grow: importers keep their state, documents are read again, and turns that wait are judged at the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamproc.importers.log_bytes import UTF8_MARK
from streamproc.replay import growing_log
from streamproc.replay.following import Followed
from streamproc.replay.source import open_logs
from tests.replay.test_parallel import toy
from tests.replay.toy_format import TOY
from tests.waiting import wait_until

Seen = list[tuple[str, str | None]]


def followed(path: Path, during: Callable[[Seen], None]) -> tuple[Seen, Followed]:
    """Follow logs while `during` writes. Return the commands that were seen, each with its result."""
    logs = Followed([str(path)], None, formats=(TOY,))
    seen: Seen = []
    caught_up = threading.Event()

    def write() -> None:
        caught_up.wait(10)
        during(seen)
        logs.end()

    thread = threading.Thread(target=write)
    thread.start()
    for part in (logs.events(), logs.rest()):
        for _, batch in part:
            for found in batch:
                [call] = found.raw["tool_calls"]
                seen.append((call["args"]["command"], call.get("result")))
            if logs.caught_up:
                caught_up.set()
    thread.join()
    return seen, logs


def until(seen: Seen, count: int) -> None:
    wait_until(lambda: len(seen) >= count, 5, f"{count} events")


def more(path: Path, *rows: dict[str, Any]) -> None:
    with path.open("a") as stream:
        stream.writelines(json.dumps({"toy": path.stem} | row) + "\n" for row in rows)


def test_a_turn_comes_with_its_result_once_that_is_there(tmp_path: Path) -> None:
    log = toy(tmp_path / "a.jsonl", {"call": "one"})

    def during(seen: Seen) -> None:
        assert seen == []  # it waits for its result
        more(log, {"result": "1"}, {"call": "two"})
        until(seen, 1)
        assert seen == [("one", "1")]

    seen, logs = followed(log, during)

    assert seen == [("one", "1"), ("two", None)]  # at the end, without its result
    assert logs.reading().tallies["toy"].turns == 2


def test_each_line_of_a_growing_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = toy(tmp_path / "a.jsonl", {"call": "0"})
    lines: list[int] = []
    original = growing_log.GrowingLog.lines

    def counted(self: growing_log.GrowingLog) -> Any:
        for number, line in original(self):
            lines.append(number)
            yield number, line

    monkeypatch.setattr(growing_log.GrowingLog, "lines", counted)

    def during(seen: Seen) -> None:
        for number in range(1, 60):
            more(log, {"call": str(number)})
            if number % 20 == 0:
                until(seen, number)

    seen, _ = followed(log, during)

    assert len(seen) == 60
    assert lines == list(range(1, 61))


def test_the_byte_order_mark_of_a_growing_log_is_skipped(tmp_path: Path) -> None:
    log = toy(tmp_path / "a.jsonl", {"call": "0"})
    log.write_bytes(UTF8_MARK + log.read_bytes())
    seen, logs = followed(log, lambda _: more(log, {"call": "1"}))
    assert (seen, logs.problems) == ([("0", None), ("1", None)], {})


def test_what_was_written_before_the_end_is_read(tmp_path: Path) -> None:
    log = toy(tmp_path / "a.jsonl", {"call": "0"})
    stop = threading.Event()

    class Ending(growing_log.GrowingLog):
        def _over(self) -> bool:
            if not stop.is_set():
                more(log, {"call": "1"})
                stop.set()
            return super()._over()

    assert len(list(Ending(str(log), stop, lambda: None).lines())) == 2


def test_a_document_that_is_replaced_gives_each_event_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    look = Followed._look
    monkeypatch.setattr(Followed, "_look", lambda self: (look(self), looks.append(len(looks))))
    log = tmp_path / "a.json"
    rows: list[dict[str, Any]] = [{"toy": "a", "id": "1", "call": "one"}, {"toy": "a", "result": "1"}]
    log.write_text(json.dumps(rows))

    def during(seen: Seen) -> None:
        for number in range(2, 5):
            rows.extend([{"toy": "a", "id": str(number), "call": f"n{number}"}, {"toy": "a", "result": "x"}])
            log.write_text(json.dumps(rows)[:-9])  # half written
            half_written = len(looks)
            wait_until(lambda half=half_written: len(looks) > half + 1, 10, "two looks at a document")
            log.write_text(json.dumps(rows))
            until(seen, number - 1)

    seen, logs = followed(log, during)

    assert seen == [("one", "1"), ("n2", "x"), ("n3", "x"), ("n4", "x")]
    assert not logs.problems


def test_what_is_followed_ends_as_what_is_read_at_once(tmp_path: Path) -> None:
    log = toy(tmp_path / "a.jsonl", *({"call": str(number), "id": str(number % 5)} for number in range(9)))
    seen, _ = followed(tmp_path, lambda _: more(log, {"call": "last"}))
    [source], _ = open_logs([str(log)], formats=(TOY,))
    assert seen == [(found.raw["tool_calls"][0]["args"]["command"], None) for found in source.read()]
