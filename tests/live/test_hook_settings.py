"""Our hooks in the settings of coding CLIs: they come and go, and everything else keeps its bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from streamproc.errors import InvalidSettings
from streamproc.live import hook_settings
from streamproc.live.hook_settings import CLIS, commands, hook_command, installed, removed
from streamproc.live.json_text import JsonText

COMMAND = "python -I -S /opt/streamproc/live/hook.py claude /run/up.sock"
OTHERS = {"hooks": [{"type": "command", "command": "notify-me"}]}
SETTINGS = [
    "", " ", "\r\n\t\n", "{}", "{}\n", "{\n}\n",
    '{"a":1}', '{\n  "a": 1\n}\n', '{"hooks":{}}', '{"hooks": {"Stop": []}} ',
    '{\n\t"a": [1,\n2] // a comment, with {\n}\n', '/* first */ {"a": {"b": [] /* ] */ } }',
    '{\n  "hooks": {\n    "Stop": [\n      {"hooks":[{"type":"command","command":"x"}]}\n    ],\n    "PreToolUse": []\n'
    '  },\n  "z": "\\" { // no comment"\n}',
    "\n\n{ \"model\" : \"x\" ,\r\n\"hooks\" : { \"PostToolBatch\" : [ ] } }\r\n\r\n",
]  # fmt: skip


@pytest.mark.parametrize("text", SETTINGS)
@pytest.mark.parametrize("cli", CLIS.values(), ids=CLIS)
def test_settings_survive_our_hooks_byte_for_byte(cli: hook_settings.Cli, text: str) -> None:
    after = installed(text, cli, COMMAND)
    assert commands(after) == dict.fromkeys(cli.events, COMMAND)
    assert installed(after, cli, COMMAND) == after
    assert removed(after, text) == text


@pytest.mark.parametrize("change", [commands, removed, partial(installed, cli=CLIS["claude"], command=COMMAND)])
@pytest.mark.parametrize("text", ['{"hooks":{},"a":1,"hooks":{"Stop":[]}}', '{"hooks":{"Stop":[]},"hooks":{}}'])
def test_hooks_that_are_there_twice_are_not_changed(change: Callable[[str], object], text: str) -> None:
    """The CLIs would read the others."""
    with pytest.raises(ValueError, match="hooks is there twice"):
        change(text)


NAMES = st.sampled_from(["hooks", "Stop", "PreToolUse", "PostToolBatch", "model", "a", "}", '"', "//", "é"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
DOCUMENTS = st.fixed_dictionaries(
    {"permissions": VALUES},
    optional={
        "hooks": st.dictionaries(NAMES, st.lists(st.just(OTHERS) | VALUES, max_size=3), max_size=4), "z": VALUES,
    },
)  # fmt: skip


@pytest.mark.long
@given(
    document=DOCUMENTS,
    indent=st.sampled_from([None, 0, 1, 2, 4, "\t"]),
    end=st.sampled_from(["", "\n", " \n\n"]),
    cli=st.sampled_from(list(CLIS.values())),
)
@settings(deadline=None, max_examples=150)
def test_any_settings_survive(document: dict[str, Any], indent: Any, end: str, cli: hook_settings.Cli) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=False) + end
    after = installed(text, cli, COMMAND)
    found = json.loads(after)
    assert {name: value for name, value in found.items() if name != "hooks"} == {
        name: value for name, value in document.items() if name != "hooks"
    }
    for event, groups in document.get("hooks", {}).items():
        assert [group for group in found["hooks"][event] if COMMAND not in str(group)] == groups
    assert removed(after, text) == text
    assert json.loads(removed(after)) is not None  # also without a backup


def test_what_others_changed_meanwhile_stays() -> None:
    before = '{\n  "a": 1\n}\n'
    after = installed(before, CLIS["claude"], COMMAND)
    changed = JsonText(after).added(JsonText(after).root, "later", [1]).text
    found = json.loads(removed(changed, before))
    assert found == {"a": 1, "later": [1]}


@pytest.mark.parametrize(
    "text", ["[]", "7", "{", '{"a": }', '{"a" 1}', "{} {}", '{"hooks": []}', '{"hooks": {"Stop": 7}}', "{" * 5_000]
)
def test_settings_that_cannot_be_read_are_not_changed(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        installed(text, CLIS["claude"], COMMAND)


def test_a_link_stays_a_link_and_rights_are_kept(tmp_path: Path) -> None:
    real, link = tmp_path / "dotfiles" / "settings.json", tmp_path / "settings.json"
    real.parent.mkdir()
    real.write_text("{}")
    real.chmod(0o640)
    link.symlink_to(real)
    hook_settings.write(link, '{"a": 1}')
    assert link.is_symlink()
    assert real.read_text() == '{"a": 1}'
    assert real.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in real.parent.iterdir()] == ["settings.json"]


def test_a_link_that_waits_beside_the_file_is_not_followed(tmp_path: Path) -> None:
    """As a repository may have one that wants a file of its reader replaced."""
    victim, path = tmp_path / "victim", tmp_path / "settings.json"
    victim.write_text("precious")
    (tmp_path / ".settings.json.streamproc").symlink_to(victim)
    hook_settings.write(path, "{}")
    assert victim.read_text() == "precious"
    assert path.read_text() == "{}"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_read_only_file_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "settings.json"
    path.write_text("{}")
    monkeypatch.setattr("os.access", lambda *_: False)  # the tests may run as root, who may write everything
    with pytest.raises(InvalidSettings, match="read-only"):
        hook_settings.write(path, "")
    assert path.read_text() == "{}"


def test_hooks_never_point_into_a_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/home/ann/.cache/uv/archive-v0/abc/bin/python")
    with pytest.raises(InvalidSettings, match="uv tool install"):
        hook_command("claude", Path("/run/up.sock"))
