"""The hook events of real sessions, which `make live` has recorded: where each is halted, and what hooks are told."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from streamproc.live.hook_settings import CLIS
from streamproc.live.judge import Judge
from streamproc.live.sessions import Answer, CliSessions
from streamproc.live.store import LiveLog
from tests.live.real.scenarios import ALL

Opened = Callable[..., tuple[Judge, LiveLog]]
FILES = sorted((Path(__file__).parent / "recorded").glob("*.jsonl"))
NAME = re.compile(r"(?P<cli>[a-z]+)-(?P<version>\d+\.\d+\.\d+)-(?P<scenario>[a-z]+)")
PATH = re.compile(r'(?<=[" ])/[\w.]+/[\w.]+')

# Each hook that was answered: the event and its number in the session, what it was told, and the code.
CLAUDE_LOOP = ["PostToolBatch 2 advises LOOP003", "PostToolBatch 3 ends LOOP003"]
CODEX_LOOP = ["PostToolUse 2 advises LOOP003", "PostToolUse 3 advises LOOP003"]
GEMINI_LOOP = ["AfterTool 2 advises LOOP003", "AfterTool 3 ends LOOP003"]
EXPECTED = {
    "claude loops": CLAUDE_LOOP,
    "claude fails": CLAUDE_LOOP,
    "claude ignores": CLAUDE_LOOP,
    "claude swings": [
        "PostToolBatch 4 advises LOOP002", "PostToolBatch 5 advises LOOP009", "PostToolBatch 6 ends LOOP002",
    ],
    "claude says": ["Stop 3 ends LOOP001"],
    # The model ends its turn when a call was denied; what it says then is too late.
    "codex loops": [*CODEX_LOOP, "PreToolUse 4 denies LOOP003", "Stop 1 ends LOOP003"],
    "codex fails": [*CODEX_LOOP, "PreToolUse 4 denies LOOP003", "Stop 1 ends LOOP003"],
    "codex ignores": [*CODEX_LOOP, "PreToolUse 4 denies LOOP003", "PreToolUse 5 denies LOOP003, interrupts"],
    "codex swings": [
        "PostToolUse 4 advises LOOP002", "PostToolUse 5 advises LOOP009", "PostToolUse 6 advises LOOP002",
        "PreToolUse 7 denies LOOP002", "Stop 1 ends LOOP002",
    ],
    "codex says": ["Stop 3 ends LOOP001"],
    "gemini loops": GEMINI_LOOP,
    "gemini fails": GEMINI_LOOP,
    "gemini ignores": GEMINI_LOOP,
    "gemini swings": ["AfterTool 4 advises LOOP002", "AfterTool 5 advises LOOP009", "AfterTool 6 ends LOOP002"],
    "gemini says": ["AfterAgent 3 ends LOOP001"],
    **{f"{cli} {scenario}": [] for cli in CLIS for scenario in ("honest", "waits")},
}  # fmt: skip


def parts(file: Path) -> dict[str, str]:
    """Return the CLI, its version and the scenario that a recording is named for."""
    found = NAME.fullmatch(file.stem)
    assert found is not None, f"{file.name} is not named CLI-VERSION-SCENARIO.jsonl"
    return found.groupdict()


def events(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def ours(file: Path) -> Iterator[dict[str, Any]]:
    """Yield the events that our own hooks are on: someone else's, which recorded them, may be on more."""
    return (one for one in events(file) if one["hook_event_name"] in CLIS[parts(file)["cli"]].events)


class Answers:
    """Which hooks of a session are answered anything, and what."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: list[str] = []
        self._numbers = Counter[str]()

    def add(self, event: dict[str, Any], given: Answer) -> None:
        """Note the answer to the next event."""
        name = event["hook_event_name"]
        self._numbers[name] += 1
        if given.body:
            code = re.search(r"[A-Z]+\d{3}", json.dumps(given.body))
            assert code is not None
            interrupts = ", interrupts" if given.interrupt else ""
            self.found.append(f"{name} {self._numbers[name]} {verb(given)} {code[0]}{interrupts}")


def spoken(file: Path, answer: Callable[[str, dict[str, Any]], Answer]) -> list[str]:
    """Replay a session, and return which hooks are answered anything, and what."""
    answers = Answers(file)
    for event in ours(file):
        answers.add(event, answer(parts(file)["cli"], event))
    return answers.found


def expected_of(file: Path) -> list[str]:
    return EXPECTED[f"{parts(file)['cli']} {parts(file)['scenario']}"]


def verb(answer: Answer) -> str:
    more = answer.body.get("hookSpecificOutput", {})
    if answer.body.get("continue") is False:
        return "ends"
    if "deny" in (more.get("permissionDecision"), answer.body.get("decision")):
        return "denies"
    return "advises" if "additionalContext" in more else "?"


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_recorded_session_is_halted_where_it_was(file: Path, opened: Opened) -> None:
    judge, _ = opened()
    expected = expected_of(file)
    assert spoken(file, CliSessions(judge, clock_ms=lambda: 1).answer) == expected
    halt = judge.halted(events(file)[0]["session_id"])
    assert (halt.code if halt else None) == (expected[-1].split()[3].rstrip(",") if expected else None)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_session_that_is_only_observed_hears_nothing(file: Path, opened: Opened) -> None:
    judge, _ = opened()
    sessions = CliSessions(judge, observes=lambda: True, clock_ms=lambda: 1)
    assert spoken(file, sessions.answer) == []
    stuck = bool(expected_of(file))
    [session] = sessions.known.values()
    assert (session.stopped is not None) == stuck


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_a_process_that_is_started_again_before_each_event_answers_the_same(file: Path, opened: Opened) -> None:
    """But for what is not worth a place in the log: how often calls were denied, and what Gemini CLI said before."""
    expected = [one.removesuffix(", interrupts") for one in expected_of(file)]
    if parts(file)["scenario"] == "says" and parts(file)["cli"] == "gemini":
        expected = []

    def answer(cli: str, event: dict[str, Any]) -> Answer:
        return CliSessions(opened()[0], clock_ms=lambda: 1).answer(cli, event)

    assert spoken(file, answer) == expected


def test_a_hundred_sessions_at_once_do_not_disturb_each_other(opened: Opened) -> None:
    sessions = CliSessions(opened()[0], clock_ms=lambda: 1)
    told: dict[str, Answers] = {}
    waiting = []
    for number in range(5):
        for file in FILES:
            name = f"{file.stem} {number}"
            told[name] = Answers(file)
            waiting.append((name, [event | {"session_id": name} for event in ours(file)]))
    assert len(waiting) > 100
    while waiting:
        for name, left in waiting:
            told[name].add(left[0], sessions.answer(parts(told[name].file)["cli"], left.pop(0)))
        waiting = [(name, left) for name, left in waiting if left]
    assert len(sessions.known) == len(told)
    for name, answers in told.items():
        assert answers.found == expected_of(answers.file), name


def test_each_cli_is_recorded_in_each_scenario_without_anything_of_a_machine() -> None:
    assert {(parts(file)["cli"], parts(file)["scenario"]) for file in FILES} == {
        (cli, scenario) for cli in CLIS for scenario in ALL
    }
    for file in FILES:
        assert file.stat().st_size < 20_000
        for event in events(file):
            assert event["cwd"] == "/srv/app"
            assert event["session_id"] == f"{parts(file)['cli']}-{parts(file)['scenario']}"
            assert {found.group() for found in PATH.finditer(json.dumps(event))} <= {"/srv/app", "/home/ann"}
