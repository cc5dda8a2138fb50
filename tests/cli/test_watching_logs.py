"""`streamproc scan --watch` on files that really grow, in a process of its own."""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.cli.conftest import command, honest, jsonl, stuck
from tests.cli.terminals import in_terminal
from tests.notify.receiver import Receiver
from tests.waiting import wait_until

WITHIN_S = 2.0
START_S = 30.0


RINGING = """
import os, signal, sys, threading
from pathlib import Path
from streamproc.cli import following, main

log, new = map(Path, sys.argv[1:])
printed = following.note

def note(text):
    printed(text)
    if text.startswith("following"):
        with log.open("a") as stream:
            stream.write(new.read_text())
        threading.Timer(3, os.kill, (os.getpid(), signal.SIGINT)).start()

following.note = note
sys.argv = ["streamproc", "scan", "--watch", str(log)]
main()
"""


class Watching:
    """A running `scan --watch`, and the lines that it prints."""

    def __init__(self, *arguments: object, **environment: str) -> None:
        self.process = command("scan", "--watch", *arguments, **environment)
        self.lines: queue.Queue[str] = queue.Queue()
        streams = (self.process.stdout, self.process.stderr)
        self.readers = [threading.Thread(target=self._read, args=(stream,), daemon=True) for stream in streams]
        for reader in self.readers:
            reader.start()

    def _read(self, stream: Any) -> None:
        for line in stream:
            self.lines.put(line)

    def wait_for(self, text: str, within_s: float) -> str:
        """Return the first line with a text."""
        end = time.monotonic() + within_s
        while (left := end - time.monotonic()) > 0:
            try:
                line = self.lines.get(timeout=left)
            except queue.Empty:
                break
            if text in line:
                return line
        raise AssertionError(f"no {text!r} within {within_s} s")

    def looks_again(self) -> None:
        """Wait until each of its threads has waited twice more: it has looked at its logs in between."""
        before = self._waits()
        wait_until(lambda: all(n >= before.get(thread, 0) + 2 for thread, n in self._waits().items()))

    def _waits(self) -> dict[str, int]:
        tasks = Path(f"/proc/{self.process.pid}/task").glob("*/status")
        return {
            task.parent.name: int(task.read_text().partition("\nvoluntary_ctxt_switches:")[2].split()[0])
            for task in tasks
        }

    def stop(self) -> tuple[int, str]:
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(20)
        for reader in self.readers:
            reader.join(10)
        rest = ""
        while not self.lines.empty():
            rest += self.lines.get()
        return code, rest


@contextmanager
def watching(*arguments: object, **environment: str) -> Iterator[Watching]:
    found = Watching(*arguments, **environment)
    try:
        found.wait_for("following", START_S)
        yield found
    finally:
        found.process.kill()
        found.process.wait()


def append(path: Path, text: str) -> None:
    with path.open("a") as stream:
        stream.write(text)


def test_a_session_that_gets_stuck_is_reported_within_two_seconds_of_its_line(tmp_path: Path) -> None:
    log = tmp_path / "session.jsonl"
    log.write_text(jsonl(stuck(turns=2)))
    with watching(log) as scan:
        whole = jsonl(stuck(turns=1))
        append(log, whole[:20])
        scan.looks_again()  # half a line is no event
        append(log, whole[20:])

        scan.wait_for("halt  stuck  turn 2", WITHIN_S)
        code, rest = scan.stop()

    assert code == 1
    assert "HALTED  stuck  at turn 2 of 3" in rest
    assert rest.endswith("1 run, 3 turns: 1 halted, 0 warned, 0 without findings. 0 turns came after a halt.\n")


def test_new_logs_of_a_directory_rotated_and_shortened_ones_are_followed(tmp_path: Path) -> None:
    log = tmp_path / "a.jsonl"
    log.write_text(jsonl(honest(turns=2)))
    with watching(tmp_path, "--json") as scan:
        folder = tmp_path / "later"
        folder.mkdir()
        (folder / "b.jsonl").write_text(jsonl(stuck("new", turns=3)))
        assert json.loads(scan.wait_for('"loop.halted"', 2 * WITHIN_S))["run_id"] == "new"

        append(log, jsonl(stuck("rotated", turns=1)))
        log.rename(tmp_path / "a.old")
        log.write_text(jsonl(stuck("rotated", turns=2)))
        assert json.loads(scan.wait_for('"loop.halted"', WITHIN_S))["run_id"] == "rotated"

        os.truncate(log, 0)
        scan.looks_again()
        append(log, jsonl(stuck("short", turns=3)))
        assert json.loads(scan.wait_for('"loop.halted"', WITHIN_S))["run_id"] == "short"
        code, _ = scan.stop()
    assert code == 1


def test_logs_without_findings_are_exit_code_0_and_without_events_2(tmp_path: Path) -> None:
    with watching(tmp_path) as scan:
        code, rest = scan.stop()
        assert (code, "no events" in rest) == (2, True)
    (tmp_path / "a.jsonl").write_text(jsonl(honest()))
    with watching(tmp_path) as scan:
        assert scan.stop()[0] == 0


def test_a_damaged_log_is_named_and_the_others_are_followed(tmp_path: Path) -> None:
    bad, good = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    bad.write_text(jsonl(honest(turns=1)))
    good.write_text(jsonl(stuck(turns=1)))
    with watching(tmp_path) as scan:
        append(bad, '{"run_id": 7}\n')
        scan.wait_for(f"{bad}:2: ", WITHIN_S)
        append(good, jsonl(stuck(turns=2)))
        scan.wait_for("halt  stuck", WITHIN_S)


def test_a_halt_is_notified_and_what_was_there_before_is_not(tmp_path: Path, receiver: Receiver) -> None:
    log = tmp_path / "session.jsonl"
    log.write_text(jsonl(stuck("old-run", turns=3)))
    with watching(log, "--notify", f"json://127.0.0.1:{receiver.port}") as scan:
        append(log, jsonl(stuck("now", turns=3)))
        wait_until(lambda: receiver.posts, 5)
        scan.stop()
    [(_, body)] = receiver.posts
    assert "now" in str(body)
    assert "old-run" not in str(body)


def test_the_bell_rings_in_a_terminal_for_what_happens_while_watching(tmp_path: Path) -> None:
    log, new = tmp_path / "session.jsonl", tmp_path / "new"
    log.write_text(jsonl(stuck("old-run", turns=3)))
    new.write_text(jsonl(stuck("now", turns=3)))
    shown = in_terminal(log, new, columns=100, code=RINGING)

    assert shown.exit_code == 1, shown.written
    assert shown.written.count("\a") == 1
    assert shown.written.index("old-run") < shown.written.index("\a")
