"""The pre-commit hook and the GitHub action check policies, run as their files say."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import subprocess
import sys
import zipfile
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


BACKEND = """
import os, zipfile
def build_wheel(folder, config_settings=None, metadata_directory=None):
    name = "ours-1.0-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as wheel:
        wheel.writestr("ours.py", "")
        for file, text in {"METADATA": "Metadata-Version: 2.1\\nName: ours\\nVersion: 1.0\\n", "RECORD": "",
                           "WHEEL": "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"}.items():
            wheel.writestr(f"ours-1.0.dist-info/{file}", text)
    return name
"""


def checkout(folder: Path, *, digest: str = "") -> tuple[Path, dict[str, str]]:
    """Return a repository like ours, whose lock names one package, and the environment in which pip finds that."""
    repository = folder / "repository"
    action = repository / ".github" / "actions" / "policy-check"
    action.mkdir(parents=True)
    (repository / "backend.py").write_text(BACKEND)
    (repository / "pyproject.toml").write_text(
        '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    )
    wheel = folder / "wheels" / "leaf-1.0-py3-none-any.whl"
    wheel.parent.mkdir()
    with zipfile.ZipFile(wheel, "w") as file:
        file.writestr("leaf.py", "")
        file.writestr("leaf-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: leaf\nVersion: 1.0\n")
        file.writestr("leaf-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        file.writestr("leaf-1.0.dist-info/RECORD", "")
    digest = digest or hashlib.sha256(wheel.read_bytes()).hexdigest()
    (repository / "requirements-runtime.lock").write_text(f"leaf==1.0 --hash=sha256:{digest}\n")
    found = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(wheel.parent), "PIP_CONFIG_FILE": os.devnull}
    return action, found


def install(folder: Path, action: Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the first step of the action."""
    step = defined(ACTION / "action.yml")["runs"]["steps"][0]
    (folder / "path").touch()
    runner = {"GITHUB_ACTION_PATH": str(action), "GITHUB_PATH": str(folder / "path"), "RUNNER_TEMP": str(folder)}
    shell = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]]
    return run(shell, folder, PYTHON=sys.executable, **runner, **environment)


@pytest.mark.long
def test_the_action_installs_what_the_lock_names(tmp_path: Path) -> None:
    action, environment = checkout(tmp_path)
    done = install(tmp_path, action, environment)
    assert done.returncode == 0, done.stderr
    imported = run([str(tmp_path / "streamproc" / "bin" / "python"), "-c", "import leaf, ours"], tmp_path)
    assert imported.returncode == 0, imported.stderr
    assert (tmp_path / "path").read_text() == f"{tmp_path}/streamproc/bin\n"


def test_the_action_installs_no_package_with_another_hash(tmp_path: Path) -> None:
    action, environment = checkout(tmp_path, digest="0" * 64)
    done = install(tmp_path, action, environment)
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert not list((tmp_path / "streamproc").glob("lib/*/site-packages/leaf*"))
    assert (tmp_path / "path").read_text() == ""


def test_the_lock_of_the_action_names_everything_that_it_needs() -> None:
    step = defined(ACTION / "action.yml")["runs"]["steps"][0]["run"]
    assert "requirements-runtime.lock" in step
    lock = (ROOT / "requirements-runtime.lock").read_text()
    for name in re.findall(r"^requires = \[\"([\w-]+)", (ROOT / "pyproject.toml").read_text(), re.MULTILINE):
        assert re.search(rf"^{name}==", lock, re.MULTILINE), f"{name}, with which the package is built"


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
