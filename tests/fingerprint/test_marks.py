"""Which calls are marked as polls of something that runs, and as calls that write."""

from __future__ import annotations

import re
import sys
from itertools import product
from typing import Any, Final

import msgspec
import pytest

from streamproc.fingerprint import fingerprint
from streamproc.fingerprint.keyed import HashKey
from streamproc.fingerprint.marks import _STATED, _STATED_OF, _STATES_IT, _may_state_it, folds_plainly, marks_of
from streamproc.model.raw_events import parse_raw
from streamproc.model.wire import ANSWERED, EDITS, NO_ANSWER, WAITS, WRITES, Call, Turn, decode, encode

LOG: Final = "step done\n" * 100
N: Final = 200_000

RUNNING: Final = (
    "running", "queued", "job 7: still running", "status: in_progress", '{"status":"running","id":7}', "state=PENDING",
    "<status>running</status>", "[1]+  Running                 make &", "The build is still in progress (35 s)",
    "Job 55 PENDING", "Your export is pending", "3 jobs running", "Running (12 s)", "running: true",
    f"Chunk ID: a\nWall time: 5.0 s\nProcess running with session ID 12\nOutput:\n{LOG}",
    f"{LOG}\nCommand still running. Poll again.", "Error: the job is still running",
    '{"StackStatus": "CREATE_IN_PROGRESS"}', '{"status": {"agent-1": "running"}}', '{"timed_out":true}', "activating",
    "status page\nWaiting for the database",
    "state: Provisioning", "db: Still creating... [2m0s elapsed]", "db Up 5 seconds (health: starting)",
    "Waiting for deployment web to finish: 1 of 4 updated replicas are available...",
    "NAME  READY STATUS RESTARTS AGE\nweb-6f 0/1 ContainerCreating 0 10s", "web-6f 0/1 Pending 0 10s",
)  # fmt: skip
NOT_RUNNING: Final = (
    "0 running", "not running", "finished running", "The process is not running", "No process is running",
    "no longer running", "jobs running: 0", "pending: 0", "running: false", "None of the jobs is running",
    "Running tests...", "Running npm ci", "Server running on port 3000", "nginx is running", "12 passed, 3 pending",
    "Cannot connect to the Docker daemon. Is the docker daemon running?", "the process is already running",
    "Command running in background with ID: 78dd67", "make sure the process is running", "Progress: 100%",
    "The query has finished; 0 jobs are running", f"{LOG}the job is still running\n{LOG}",
    "Starting server...\nError: cannot find module", "Waiting for the db...\nError: refused", "web-6f 1/1 Running",
    "Category: running", "Building: see docs", '{"timed_out":false}',
    '[{"content": "write tests", "status": "in_progress"}]', "Here's the result of running `cat -n` on a snippet",
)  # fmt: skip


@pytest.mark.parametrize("answer", RUNNING)
def test_an_answer_that_states_that_something_runs_makes_a_poll(answer: str) -> None:
    assert marks_of({}, answer) == WAITS


@pytest.mark.parametrize("answer", NOT_RUNNING)
def test_a_word_alone_makes_no_poll(answer: str) -> None:
    assert marks_of({}, answer) == 0


@pytest.mark.parametrize(("args", "answer", "marks"), [
    ({"session_id": 4711}, "session 4711: nothing new", WAITS), ('{"jobId": "build-9"}', "build-9 has 4 steps", WAITS),
    ({"pid": "4711", "signal": 0}, "4711", WAITS), ({"session_id": 47}, "4711 lines", 0),
    ({"session_id": 47}, "in 47.5 s", 0), ({"pid": 4}, "pid 4", 0), ({"line": 4711}, "4711: x = 1", 0),
    ({"user_id": "ada_9"}, "ada_9 is 36", 0), ({"session_id": "main", "command": "ls"}, "[main] a.py", 0),
    ({"session_id": True}, "True", 0), ({"session_id": 4711}, "Unknown process id 4711", 0),
    ({"session_id": 4711}, "Session 4711 has already exited.", 0),
    ({"job_id": "j-77"}, "Job j-77 failed: exit code 3", 0),
    ({"job_id": "j-77"}, '{\n"job_id": "j-77",\n"state": "SUCCEEDED"\n}', 0),
    ({"job_id": "j-77"}, '{"job_id": "j-77", "state": "validating", "completed": 0, "failed": 0}', WAITS),
    ({"job_id": "j-77"}, "job j-77: 3 of 8 tasks completed", WAITS),
    ({"session_id": 4711}, f"session 4711\n{LOG}state: failed\n", WAITS),
])  # fmt: skip
def test_an_answer_that_repeats_a_handle_makes_a_poll(args: Any, answer: str, marks: int) -> None:
    assert marks_of(args, answer) == marks


@pytest.mark.parametrize(("command", "marks"), [
    ("sleep 60; tail -3 train.log", WAITS), ("sleep 2m && gh run view 7", WAITS),
    (["bash", "-lc", "sleep 45\nsqueue"], WAITS), ("sleep 30", WAITS), ("sleep 5; cat x", 0), ("sleep 0.5; cat x", 0),
    ("make && sleep 60", 0), ("sleep 60 & make", 0),
])  # fmt: skip
def test_a_command_that_sleeps_before_it_looks_is_a_poll(command: Any, marks: int) -> None:
    assert marks_of({"command": command}, "epoch 3") == marks_of({"cmd": command}, "epoch 3") == marks
    if isinstance(command, str):  # agents with one tool pass the command itself as the arguments
        assert marks_of(command, "epoch 3") == marks


TEXT: Final = "x = 1\n" * 20


@pytest.mark.parametrize(("args", "marks"), [
    ({"path": "a.py", "insert_text": TEXT}, WRITES | EDITS), ({"file_path": "a.py", "content": TEXT}, WRITES | EDITS),
    ({"command": f"cat >> a.py <<'EOF'\n{TEXT}EOF"}, WRITES | EDITS),
    ({"command": f"cat <<EOF >> a.py\n{TEXT}EOF"}, WRITES | EDITS), (f"cat <<EOF >> a.py\n{TEXT}EOF", WRITES | EDITS),
    (f"cat a.py # {TEXT}", 0), ({"path": "a.py", "insert_text": "x = 1"}, EDITS),
    ({"at": "10:20", "text": TEXT}, WRITES | EDITS), ({"at": 12, "text": "x"}, EDITS),
    ({"input": "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** End Patch"}, EDITS),
    ({"command": "sed -i 's/a/b/' a.py"}, EDITS), ({"cmd": ["bash", "-lc", "cd /app && sed -i 's/a/b/' a.py"]}, EDITS),
    ({"command": "sed -i 's/a/b/' a.py && make"}, 0), ({"command": "sed -n 1,9p a.py"}, 0),
    ({"command": "cat > a.py <<'EOF'\nx = 1\nEOF"}, EDITS),
    ({"command": "cat > a.py <<'EOF'\nx = 1\nEOF\npython a.py"}, 0), ({"command": "cat <<EOF\nx = 1\nEOF"}, 0),
    ({"content": TEXT}, 0), ({"command": f"pytest {TEXT}"}, 0),
    ({"command": f"make >> build.log; tail build.log # {TEXT}"}, 0),
    ({"command": f"until grep -q done log; do sleep 5; done; tail log # {TEXT}"}, 0),
    ({"command": f"python - <<'EOF'\n{TEXT}EOF"}, 0),
])  # fmt: skip
def test_the_form_of_the_arguments_shows_a_call_that_writes(args: Any, marks: int) -> None:
    assert marks_of(args, "ok") == marks


def call_of(key: HashKey | None = None, **made: Any) -> Call:
    event = fingerprint(parse_raw({"run_id": "r", "node": "n", "tool_calls": [{"name": "t"} | made]}), key=key)
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


@pytest.mark.parametrize(("name", "args", "result", "outcome"), [
    ("bash", {"command": "tmux send-keys -t 0 u"}, "", NO_ANSWER), ("bash", "xdotool key Down", "", NO_ANSWER),
    ("computer", {"action": "key", "text": "Down"}, "ok", NO_ANSWER), ("press", {"key": "Tab"}, None, NO_ANSWER),
    ("browser_press_key", {"key": "Tab"}, "", NO_ANSWER), ("mcp__desktop__key", {}, "", NO_ANSWER),
    ("browser_press_key", {"key": "Tab"}, "Page title: Orders, button Next, 20 links", ANSWERED),
    ("bash", {"command": "grep -q u log"}, "", ANSWERED), ("get_key", {"key": "a"}, "nil", ANSWERED),
    ("monkey", {}, "", ANSWERED), ("computer", {"action": "click"}, "ok", ANSWERED),
])  # fmt: skip
def test_pressing_a_key_is_no_answer_until_the_next_look(name: str, args: Any, result: Any, outcome: int) -> None:
    assert call_of(name=name, args=args, result=result).outcome == outcome


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


NOUNS: Final = (
    "process", "command", "job", "jobs", "task", "build", "script", "program", "run", "runs", "query", "pipeline",
    "execution", "session", "operation", "deployment", "request", "workflow", "check", "training", "download",
    "installation", "migration", "agent", "transfer", "export", "import", "backup", "cell", "tool",
)  # fmt: skip
STATES: Final = (
    "running", "pending", "queued", "in progress", "create_in_progress", "in-progress", "creating", "starting",
    "building", "activating", "provisioning", "deploying", "processing", "initializing", "executing", "working",
    "waiting", "queue", "Pending", "ContainerCreating", "timed_out", "RUNNING", "\u017ftarting", "WOR\u212aING",
    "runn\u0131ng", "PEND\u0130NG",
)  # fmt: skip


def test_a_line_without_a_state_is_not_searched_for_one() -> None:
    """What is looked for first is in every line that the pattern matches, alone or among others."""
    before = (
        "", "status: ", "still ", "still in the ", "is ", 'x: "', 'x:\t"', "a 0/1  ", "[1]+  ", "phase is still ", "(",
        "health=", "state is ", "é ", "are now ", "it remains ", *(f"a {noun} " for noun in NOUNS),
    )  # fmt: skip
    after = ("", '"', ": true", "=yes", " (12 s)", "  make &", ": 0")
    lines = list(map("".join, product(before, STATES, after)))
    matching = [line for line in lines if _STATES_IT.search(line) is not None]
    assert len(matching) > 1_000
    assert [line for line in matching if not _may_state_it(line, line.lower())] == []
    assert sum(_may_state_it(line, line.lower()) for line in lines) < len(lines)
    for words in (_STATED, _STATED_OF):
        for word in words:
            assert any(not any(other in line.lower() for other in words if other != word) for line in matching), word


def test_only_three_letters_fold_otherwise_than_in_lower_case() -> None:
    letters = "abcdefghijklmnopqrstuvwxyz"
    found = re.compile(f"(?i)[{letters}]")
    folded = [char for char in map(chr, range(128, sys.maxunicode + 1)) if found.match(char) is not None]
    assert sorted(folded) == ["\u0130", "\u0131", "\u017f", "\u212a"]
    assert [char for char in folded if not folds_plainly(char)] == ["\u0130", "\u0131", "\u017f"]
    assert "\u212a".lower() == "k"


@pytest.mark.parametrize(
    "command",
    [
        "sed -i" + " " * N + "|", "cat " + "<<a" * N, "cat <<" + "a" * N, "cat <<a\n" + "\na " * N + "x",
        "tee x <<a\n" + "a\n" * N + "b", "cd " + "a" * N, "sed " + "-n " * N, "tee" + " " * N,
    ],
    ids=["spaces", "heredocs", "word", "ends", "tee", "cd", "options", "blank"],
)  # fmt: skip
def test_a_hostile_command_takes_no_time(command: str) -> None:
    """Each would take minutes if the parts of a pattern were tried against each other."""
    assert marks_of({"command": command}, "ok") & EDITS == 0
    assert marks_of({"path": "a", "new_str": command}, "ok") & EDITS
