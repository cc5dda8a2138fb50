"""Builds dist/: the source distribution, the wheel from it, and a check that the wheel works on its own.

    .venv/bin/python deploy/local/dist.py

The check installs the wheel, with the packages of requirements-runtime.lock, into an empty environment outside of the
checkout and runs commands there: the version, a scan of the packaged sample, a preset, and the demo, first without its
extra and then with it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
DIST: Final = ROOT / "dist"
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
SAMPLE: Final = (
    "from importlib.resources import files; print(files('streamproc') / 'samples' / 'trajectories.jsonl.gz')"
)
HALTED: Final = 1  # exit codes of `streamproc`
UNUSABLE: Final = 2


def say(line: str) -> None:
    print(f"dist: {line}", flush=True)


def build(work: Path) -> Path:
    """Build both into dist/, the wheel from the unpacked source distribution; return the wheel."""
    shutil.rmtree(DIST, ignore_errors=True)
    _hatchling(ROOT, "sdist")
    [sdist] = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    [source] = work.iterdir()
    _hatchling(source, "wheel")
    [wheel] = DIST.glob("*.whl")
    for built in (sdist, wheel):
        say(f"built {built.relative_to(ROOT)} ({built.stat().st_size // 1024} KiB)")
    return wheel


def _hatchling(source: Path, target: str) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(DIST)]
    subprocess.run(command, cwd=source, check=True, capture_output=True)


class Installed:
    """The wheel in an environment of its own, used from an empty directory."""

    def __init__(self, work: Path) -> None:
        self._home = work / "empty"
        self._home.mkdir()
        venv.EnvBuilder(with_pip=True).create(work / "venv")
        self._bin = work / "venv" / "bin"
        self._environ = {name: value for name, value in os.environ.items() if not name.startswith("STREAMPROC_")}
        self._environ.pop("PYTHONPATH", None)

    def run(self, *command: str, expect: int = 0, shows: str = "") -> str:
        """Run a program of the environment; end everything unless it exits and prints as expected."""
        done = subprocess.run(
            [self._bin / command[0], *command[1:]],
            cwd=self._home, env=self._environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        if done.returncode != expect or shows not in done.stdout:
            sys.exit(f"{done.stdout[-4000:]}\ndist: `{' '.join(command)}` exited with {done.returncode}, not {expect}"
                     f"{f', or did not print {shows!r}' if shows else ''}")  # fmt: skip
        return done.stdout


def check(wheel: Path, work: Path) -> None:
    """Install the wheel and use it."""
    say("installing the wheel into an empty environment")
    installed = Installed(work)
    locked = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r")
    installed.run("python", *PIP, *locked, str(ROOT / "requirements-runtime.lock"))
    installed.run("python", *PIP, "--no-deps", "--no-index", str(wheel))
    version = wheel.name.split("-")[1]
    say(f"using version {version} in an empty directory")
    installed.run("streamproc", "--version", shows=version)
    sample = installed.run("python", "-c", SAMPLE).strip()
    installed.run("streamproc", "scan", sample, expect=HALTED, shows="40 runs, 1215 turns: 10 halted")
    installed.run("streamproc", "policy", "check", "standard", shows="standard")
    installed.run("streamproc", "worker", "--help", shows="streamproc worker")
    installed.run("streamproc", "demo", expect=UNUSABLE, shows="pip install 'streamproc[demo]'")
    say("running the demo with its extra")
    lock = work / "demo.lock"
    lock.write_text(entry("confluent-kafka"))
    installed.run("python", *PIP, *locked, str(lock))
    installed.run("streamproc", "demo", "--turns-per-second", "40", shows="HALT demo/coder-verifier")


def entry(name: str) -> str:
    """The entry of one package in requirements.lock, with its hashes."""
    text = (ROOT / "requirements.lock").read_text()
    found = re.search(rf"^{re.escape(name)}==.*?(?=^\S|\Z)", text, re.DOTALL | re.MULTILINE)
    assert found, name
    return found[0]


def main() -> None:
    """Build and check."""
    with tempfile.TemporaryDirectory(prefix="streamproc-dist-") as folder:
        work = Path(folder)
        (work / "source").mkdir()
        check(build(work / "source"), work)
    say("the wheel works")


if __name__ == "__main__":
    main()
