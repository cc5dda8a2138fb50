"""Which calls are marked as polls of something that runs, and as calls that write."""

from __future__ import annotations

from typing import Any, Final

import msgspec
import pytest

from streamproc.fingerprint import fingerprint
from streamproc.fingerprint.keyed import HashKey
from streamproc.fingerprint.marks import marks_of
from streamproc.model.raw_events import parse_raw
from streamproc.model.wire import WAITS, WRITES, Call, Turn, decode, encode

LOG: Final = "step done\n" * 100

RUNNING: Final = (
    "running", "queued", "job 7: still running", "status: in_progress", '{"status":"running","id":7}', "state=PENDING",
    "<status>running</status>", "[1]+  Running                 make &", "The build is still in progress (35 s)",
    "Job 55 PENDING", "Your export is pending", "3 jobs running", "Running (12 s)", "running: true",
    f"Chunk ID: a\nWall time: 5.0 s\nProcess running with session ID 12\nOutput:\n{LOG}",
    f"{LOG}\nCommand still running. Poll again.", "Error: the job is still running",
)  # fmt: skip
NOT_RUNNING: Final = (
    "0 running", "not running", "finished running", "The process is not running", "No process is running",
    "no longer running", "jobs running: 0", "pending: 0", "running: false", "None of the jobs is running",
    "Running tests...", "Running npm ci", "Server running on port 3000", "nginx is running", "12 passed, 3 pending",
    "Cannot connect to the Docker daemon. Is the docker daemon running?", "the process is already running",
    "Command running in background with ID: 78dd67", "make sure the process is running", "Progress: 100%",
    "The query has finished; 0 jobs are running", f"{LOG}the job is still running\n{LOG}",
    '[{"content": "write tests", "status": "in_progress"}]', "Here's the result of running `cat -n` on a snippet",
)  # fmt: skip


@pytest.mark.parametrize("answer", RUNNING)
def test_an_answer_that_states_that_something_runs_makes_a_poll(answer: str) -> None:
    assert marks_of({}, answer) == WAITS


@pytest.mark.parametrize("answer", NOT_RUNNING)
def test_a_word_alone_makes_no_poll(answer: str) -> None:
    assert marks_of({}, answer) == 0


@pytest.mark.parametrize(
    ("args", "answer", "marks"),
    [
        ({"session_id": 4711}, "session 4711: nothing new", WAITS),
        ('{"jobId": "build-9"}', "build-9 has 4 steps", WAITS),
        ({"pid": "4711", "signal": 0}, "4711", WAITS),
        ({"session_id": 47}, "4711 lines", 0),
        ({"session_id": 47}, "in 47.5 s", 0),
        ({"pid": 4}, "pid 4", 0),
        ({"line": 4711}, "4711: x = 1", 0),
        ({"user_id": "ada_9"}, "ada_9 is 36", 0),
        ({"session_id": "main", "command": "ls"}, "[main] a.py", 0),
        ({"session_id": True}, "True", 0),
    ],
)
def test_an_answer_that_repeats_a_handle_makes_a_poll(args: Any, answer: str, marks: int) -> None:
    assert marks_of(args, answer) == marks


TEXT: Final = "x = 1\n" * 20


@pytest.mark.parametrize(
    ("args", "marks"),
    [
        ({"path": "a.py", "insert_text": TEXT}, WRITES),
        ({"file_path": "a.py", "content": TEXT}, WRITES),
        ({"command": f"cat >> a.py <<'EOF'\n{TEXT}EOF"}, WRITES),
        ({"command": f"cat <<EOF >> a.py\n{TEXT}EOF"}, WRITES),
        ({"path": "a.py", "insert_text": "x = 1"}, 0),
        ({"content": TEXT}, 0),
        ({"command": f"pytest {TEXT}"}, 0),
        ({"command": f"make >> build.log; tail build.log # {TEXT}"}, 0),
        ({"command": f"until grep -q done log; do sleep 5; done; tail log # {TEXT}"}, 0),
        ({"command": f"python - <<'EOF'\n{TEXT}EOF"}, 0),
    ],
)
def test_the_form_of_the_arguments_shows_a_call_that_writes(args: Any, marks: int) -> None:
    assert marks_of(args, "ok") == marks


def call_of(key: HashKey | None = None, **made: Any) -> Call:
    event = fingerprint(parse_raw({"run_id": "r", "node": "n", "tool_calls": [{"name": "t", **made}]}), key=key)
    assert isinstance(event, Turn)
    return event.calls[0]


def test_marks_cross_the_wire_also_under_a_key() -> None:
    made = call_of(HashKey("secret"), args={"id": 1}, result="still running")
    assert made.marks == WAITS
    sent = decode(encode(Turn(w=1, run_id="r", node="n", calls=(made,))))
    assert isinstance(sent, Turn)
    assert sent.calls[0] == made


def test_an_error_that_says_running_makes_no_poll() -> None:
    assert call_of(args={"id": 1}, error="the job is still running").marks == 0


def test_a_reader_of_an_older_version_reads_calls_with_marks() -> None:
    class OldCall(msgspec.Struct, array_like=True, frozen=True):
        name: str
        key: int
        exact: int = 0
        norm: int = 0
        outcome: int = 0
        sim: int = 0

    made = call_of(args={"id": 1}, result="still running")
    old = msgspec.json.decode(msgspec.json.encode(made), type=OldCall)
    assert (old.key, old.norm, old.outcome) == (made.key, made.norm, made.outcome)
