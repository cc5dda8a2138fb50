"""What `make live` needs: its lock, and the model that plays the scenarios, over its three protocols."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamproc.live.hook_settings import CLIS, installed, removed
from tests.live.real.clis import CLIS as REAL, odd_settings
from tests.live.real.fake_model import FakeModel
from tests.live.real.packages import HERE
from tests.live.real.scenarios import ALL, END, HONEST, PROMPT, SAYING, STATUSES, STOPPED, STUCK, STUCK_MAX, Play

ROUNDS_MAX = 2 * STUCK_MAX


@pytest.fixture
def model() -> Iterator[FakeModel]:
    with FakeModel().serving() as found:
        yield found


class Session:
    """A session of a CLI with the model, in the protocol of one provider."""

    def __init__(self, model: FakeModel, provider: str, *, streams: bool) -> None:
        self.address, self.provider, self.streams = f"{model.address}/play", provider, streams
        self.history: list[dict[str, Any]] = []

    def says(self, text: str) -> None:
        """Add what a person says."""
        key = {"anthropic": "content", "openai": "content", "gemini": "parts"}[self.provider]
        self.history.append({"role": "user", key: [{"type": "text", "text": text}]})

    def ask(self) -> tuple[str, str]:
        """Return the command that the model wants to run, and the text that it says: one of them is empty."""
        shell = {"name": "Bash"} if self.provider == "anthropic" else {"type": "function", "name": "exec_command"}
        body: dict[str, Any] = {"tools": [shell], "stream": self.streams}
        if self.provider == "anthropic":
            found = self._post("/v1/messages", body | {"messages": self.history})
            if self.streams:
                block = found[1]["content_block"]
                delta = found[2]["delta"]
                return json.loads(delta["partial_json"])["command"] if block["name"] else "", ""
            block = found["content"][0]
            return ("", block["text"]) if block["type"] == "text" else (block["input"]["command"], "")
        if self.provider == "openai":
            found = self._post("/v1/responses", body | {"input": self.history})
            item = (found[-1]["response"] if self.streams else found)["output"][0]
            text = item["type"] == "message"
            return ("", item["content"][0]["text"]) if text else (json.loads(item["arguments"])["cmd"], "")
        verb = "streamGenerateContent" if self.streams else "generateContent"
        tools = [{"functionDeclarations": [{"name": "run_shell_command"}]}]
        found = self._post(f"/v1beta/models/gemini:{verb}", {"contents": self.history, "tools": tools})
        part = (found[0] if self.streams else found)["candidates"][0]["content"]["parts"][0]
        return ("", part["text"]) if "text" in part else (part["functionCall"]["args"]["command"], "")

    def ran(self, result: str) -> None:
        """Add the result of a call."""
        if self.provider == "anthropic":
            self.history.append({"role": "user", "content": [{"type": "tool_result", "content": result}]})
        elif self.provider == "openai":
            self.history.append({"type": "function_call_output", "output": result})
        else:
            response = {"name": "run_shell_command", "response": {"output": result}}
            self.history.append({"role": "user", "parts": [{"functionResponse": response}]})

    def play(self, result: str = "x") -> tuple[list[str], str]:
        """Return the commands that the model wants to run until it says something, and what it says."""
        commands: list[str] = []
        for _ in range(ROUNDS_MAX):
            command, text = self.ask()
            if text:
                return commands, text
            commands.append(command)
            self.ran(result)
        raise AssertionError("the session does not end")

    def _post(self, path: str, body: Any) -> Any:
        request = urllib.request.Request(self.address + path, json.dumps(body).encode())
        with urllib.request.urlopen(request, timeout=30) as answer:
            text = answer.read().decode()
            if answer.headers["Content-Type"] != "text/event-stream":
                return json.loads(text)
        return [json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini"])
def test_the_model_plays_each_scenario_in_each_protocol(model: FakeModel, provider: str, tmp_path: Path) -> None:
    found = {}
    for scenario in ALL:
        model.plays["play"] = Play(scenario, tmp_path)
        session = Session(model, provider, streams=False)
        session.says(PROMPT)
        found[scenario] = session.play(STATUSES[-1] if scenario == "waits" else "x")
    assert found["loops"] == found["ignores"] == (["cat notes.txt"] * STUCK_MAX, END)
    assert found["swings"][0][:4] == ["cat notes.txt", "cat plan.txt"] * 2
    assert found["fails"] == (["cat missing.txt"] * STUCK_MAX, END)
    assert found["honest"] == (list(HONEST), END)
    assert found["says"] == ([], SAYING)
    assert found["waits"] == (["cat status.txt"], END)
    assert set(STUCK) < set(ALL)


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini"])
def test_a_stream_asks_for_the_same_call(model: FakeModel, provider: str, tmp_path: Path) -> None:
    model.plays["play"] = Play("loops", tmp_path)
    session = Session(model, provider, streams=True)
    session.says(PROMPT)
    assert session.ask() == ("cat notes.txt", "")


@pytest.mark.parametrize("provider", ["anthropic", "openai", "gemini"])
def test_a_denial_ends_a_loop_unless_it_is_ignored_and_a_prompt_begins_it_again(
    model: FakeModel, provider: str, tmp_path: Path
) -> None:
    model.plays["play"] = Play("loops", tmp_path)
    session = Session(model, provider, streams=False)
    session.says(PROMPT)
    session.ran(f"{STOPPED} (LOOP003)")
    assert session.ask() == ("", END)
    model.plays["play"] = Play("ignores", tmp_path)
    assert session.ask() == ("cat notes.txt", "")
    model.plays["play"] = Play("loops", tmp_path)
    session.says(PROMPT)
    assert session.ask() == ("cat notes.txt", "")


def test_the_status_that_is_waited_for_changes_after_every_second_look(model: FakeModel, tmp_path: Path) -> None:
    model.plays["play"] = Play("waits", tmp_path)
    session, seen = Session(model, "openai", streams=False), []
    session.says(PROMPT)
    while session.ask()[0]:
        seen.append((tmp_path / "status.txt").read_text().strip())
        session.ran(seen[-1])
    assert seen == [STATUSES[0], STATUSES[0], STATUSES[1], STATUSES[1], STATUSES[2], STATUSES[2], STATUSES[3]]


def test_the_lock_names_no_host_and_what_the_manifest_pins() -> None:
    lock = json.loads((HERE / "package-lock.json").read_text(encoding="utf-8"))
    manifest = json.loads((HERE / "package.json").read_text(encoding="utf-8"))
    packages = {name: package for name, package in lock["packages"].items() if name}
    assert not [name for name, package in packages.items() if "resolved" in package]
    assert all(package["integrity"].startswith("sha512-") for package in packages.values())
    assert "omit-lockfile-registry-resolved=true" in (HERE / ".npmrc").read_text(encoding="utf-8").splitlines()
    for name, version in manifest["dependencies"].items():
        assert packages[f"node_modules/{name}"]["version"] == version


@pytest.mark.parametrize("name", list(REAL))
def test_odd_settings_are_json_with_the_hooks_that_ours_are_beside(name: str) -> None:
    real = REAL[name]
    text = odd_settings(real, dict.fromkeys(real.events, "other"))
    hooks = json.loads(text)["hooks"]
    assert set(CLIS[name].events) <= set(hooks)
    with_ours = installed(text, CLIS[name], "python streamproc/live/hook.py")
    assert len(json.loads(with_ours)["hooks"]["SessionStart"]) == 2
    assert removed(with_ours, text) == text
