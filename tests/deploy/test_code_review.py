"""The pre-commit hook and the GitHub action check policies, run as their files say."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docs.pages import blocks

ROOT = Path(__file__).parents[2]
ACTION = ROOT / ".github" / "actions" / "policy-check"
GOOD, BAD = "name: ours\n", "budgets:\n  maxRounds: 20\n"


def defined(path: Path) -> Any:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def run(command: list[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = os.environ | {"PATH": path} | environment
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository with policies without mistakes, and one with some."""
    (tmp_path / "teams" / "a b").mkdir(parents=True)
    (tmp_path / "teams" / "c d").mkdir()
    (tmp_path / "teams" / "c d" / "good.yaml").write_text(GOOD)
    (tmp_path / "policy.yaml").write_text(GOOD)
    (tmp_path / "teams" / "policy.yaml").write_text(GOOD)
    (tmp_path / "teams" / "a b" / "night-policy.yaml").write_text(BAD)
    return tmp_path


def check(folder: Path, files: str) -> subprocess.CompletedProcess[str]:
    """Run the last step of the action, as GitHub's runner does."""
    step = defined(ACTION / "action.yml")["runs"]["steps"][-1]
    assert step["env"] == {"FILES": "${{ inputs.files }}"}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return run(shell, folder, FILES=files, GITHUB_ACTION_PATH=str(ACTION))


def test_the_action_annotates_the_mistakes(folder: Path) -> None:
    done = check(folder, defined(ACTION / "action.yml")["inputs"]["files"]["default"])

    assert done.returncode == 2
    assert "::error file=teams/a b/night-policy.yaml,line=2,col=3,title=streamproc%3A budgets.maxRounds::20 is" in (
        done.stdout
    )
    assert done.stdout.count(": valid (") == 2


def test_the_action_succeeds_without_mistakes(folder: Path) -> None:
    done = check(folder, "policy.yaml\n\nteams/policy.yaml\nteams/c d/*.yaml\n")

    assert done.returncode == 0, done.stderr
    assert done.stdout.count(": valid (") == 3


@pytest.mark.parametrize("files", ["", "\n", "policy.yaml\nnowhere/*.yaml", "missing.yaml", "$(touch hacked)"])
def test_files_that_do_not_exist_are_an_error(folder: Path, files: str) -> None:
    done = check(folder, files)

    assert done.returncode == 2
    assert "::error" in done.stdout
    assert not (folder / "hacked").exists()


def test_a_file_is_no_option(folder: Path) -> None:
    (folder / "--help").write_text(GOOD)

    done = check(folder, "--help")

    assert "hash" in done.stdout, done.stdout + done.stderr


def test_the_action_installs_this_repository() -> None:
    install = defined(ACTION / "action.yml")["runs"]["steps"][0]["run"]

    assert '"$GITHUB_ACTION_PATH/../../.."' in install
    assert (ACTION / ".." / ".." / ".." / "pyproject.toml").resolve() == ROOT / "pyproject.toml"


def test_no_input_is_part_of_a_script() -> None:
    steps = defined(ACTION / "action.yml")["runs"]["steps"]

    assert not [step["run"] for step in steps if "${{" in step["run"]]


def test_the_hook_checks_what_pre_commit_passes_to_it(folder: Path) -> None:
    [hook] = defined(ROOT / ".pre-commit-hooks.yaml")
    entry = [*shlex.split(hook["entry"]), *hook.get("args", [])]

    good = run([*entry, "policy.yaml", "teams/policy.yaml"], folder)
    bad = run([*entry, "policy.yaml", "teams/a b/night-policy.yaml"], folder)

    assert good.returncode == 0, good.stderr
    assert bad.returncode == 2
    assert "error: teams/a b/night-policy.yaml:2: budgets.maxRounds: 20 is above" in bad.stderr


@pytest.mark.parametrize(
    ("name", "checked"),
    [
        ("policy.yaml", True), ("a/b/policy.yml", True), ("our-policy.yaml", True), ("policy-nightly.yaml", True),
        ("agents.policy.yaml", True), ("policyholder.yaml", False), ("config.yaml", False), ("policy.md", False),
    ],
)  # fmt: skip
def test_the_hook_is_for_files_named_like_a_policy(name: str, checked: bool) -> None:
    [hook] = defined(ROOT / ".pre-commit-hooks.yaml")

    assert bool(re.search(hook["files"], name)) is checked
    assert hook["types"] == ["yaml"]


def test_the_page_shows_inputs_and_hooks_that_exist() -> None:
    shown = [yaml.safe_load(block.text) for block in blocks(ROOT / "docs" / "policy.md") if block.language == "yaml"]
    [workflow] = [block for block in shown if "jobs" in block]
    [config] = [block for block in shown if "repos" in block]
    [step] = [step for step in workflow["jobs"]["policies"]["steps"] if "streamproc" in step["uses"]]
    [hook] = config["repos"][0]["hooks"]

    assert (ROOT / re.sub(r"^OWNER/streamproc/|@.*$", "", step["uses"])).samefile(ACTION)
    assert set(step["with"]) <= set(defined(ACTION / "action.yml")["inputs"])
    assert [hook["id"]] == [one["id"] for one in defined(ROOT / ".pre-commit-hooks.yaml")]
