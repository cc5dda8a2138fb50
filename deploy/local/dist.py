"""Builds dist/: the source distribution, two wheels from it, and a check that the wheels work on their own.

    .venv/bin/python deploy/local/dist.py

One wheel is pure; the other contains the compiled core, for this Python and platform. Without a C compiler only the
pure one is built. Other platforms: `cibuildwheel`, as configured in pyproject.toml.

The check installs the pure wheel, with the packages of requirements-runtime.lock, into an empty environment outside of
the checkout and runs commands there: the version, a scan of the packaged sample, a preset, and the demo, first without
its extra and then with it. The compiled wheel then replaces the pure one, and scans the same sample.
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

sys.path.append(str(Path(__file__).resolve().parents[2]))  # for `deploy`, when this file runs as a script

from deploy.compiled.build import missing_tool

ROOT: Final = Path(__file__).resolve().parents[2]
DIST: Final = ROOT / "dist"
PIP: Final = ("-m", "pip", "--disable-pip-version-check", "--no-input", "install", "--quiet")
SAMPLE: Final = (
    "from importlib.resources import files; print(files('streamproc') / 'samples' / 'trajectories.jsonl.gz')"
)
CORE: Final = "import streamproc; from streamproc.core.compiled import core_kind; print('core:', core_kind())"
SCANNED: Final = "40 runs, 1215 turns: 10 halted"
HALTED: Final = 1  # exit codes of `streamproc`
UNUSABLE: Final = 2


def say(line: str) -> None:
    print(f"dist: {line}", flush=True)


def build(work: Path) -> tuple[Path, Path | None]:
    """Build all into dist/, the wheels from the unpacked source distribution; return the pure and the compiled wheel.

    The compiled one is None if a tool to compile it is missing.
    """
    shutil.rmtree(DIST, ignore_errors=True)
    _hatchling(ROOT, "sdist")
    [sdist] = DIST.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(work, filter="data")
    [source] = work.iterdir()
    _hatchling(source, "wheel")
    [pure] = DIST.glob("*.whl")
    compiled = _compiled(source, pure)
    for built in filter(None, (sdist, pure, compiled)):
        say(f"built {built.relative_to(ROOT)} ({built.stat().st_size // 1024} KiB)")
    return pure, compiled


def _compiled(source: Path, pure: Path) -> Path | None:
    if missing := missing_tool():
        say(f"no compiled wheel, only the pure one: {missing}")
        return None
    say("compiling the core for the wheel of this platform (takes a minute)")
    _hatchling(source, "wheel", native=True)
    [compiled] = set(DIST.glob("*.whl")) - {pure}
    return compiled


def _hatchling(source: Path, target: str, *, native: bool = False) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(DIST)]
    environment = os.environ | {"STREAMPROC_BUILD_NATIVE": "1" if native else "0"}
    done = subprocess.run(
        command, cwd=source, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{done.stdout[-4000:]}\ndist: could not build the {target}; see the output above.")


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


def check(wheel: Path, work: Path) -> tuple[Installed, str]:
    """Install the wheel and use it; return the environment and the path of the sample in it."""
    say("installing the wheel into an empty environment")
    installed = Installed(work)
    locked = ("--require-hashes", "--no-deps", "--only-binary", ":all:", "-r")
    installed.run("python", *PIP, *locked, str(ROOT / "requirements-runtime.lock"))
    installed.run("python", *PIP, "--no-deps", "--no-index", str(wheel))
    version = wheel.name.split("-")[1]
    say(f"using version {version} in an empty directory")
    installed.run("streamproc", "--version", shows=version)
    sample = installed.run("python", "-c", SAMPLE).strip()
    installed.run("streamproc", "scan", sample, expect=HALTED, shows=SCANNED)
    installed.run("streamproc", "policy", "check", "standard", shows="standard")
    installed.run("streamproc", "worker", "--help", shows="streamproc worker")
    # It reads the address after it has found its packages.
    installed.run("streamproc", "otel", "--listen", "nowhere", expect=UNUSABLE, shows="name an address and a port")
    installed.run("streamproc", "demo", expect=UNUSABLE, shows="pip install 'streamproc[demo]'")
    say("running the demo with its extra")
    lock = work / "demo.lock"
    lock.write_text(entry("confluent-kafka"))
    installed.run("python", *PIP, *locked, str(lock))
    installed.run("streamproc", "demo", "--turns-per-second", "40", shows="HALT demo/coder-verifier")
    return installed, sample


def check_compiled(wheel: Path, installed: Installed, sample: str) -> None:
    """Install the compiled wheel in place of the pure one, and compare what it decides."""
    say("using the compiled wheel")
    pure = installed.run("streamproc", "scan", "--format", "jsonl", sample, expect=HALTED)
    installed.run("python", "-c", CORE, shows="core: python")
    installed.run("python", *PIP, "--no-deps", "--no-index", "--force-reinstall", str(wheel))
    installed.run("python", "-c", CORE, shows="core: compiled")
    if installed.run("streamproc", "scan", "--format", "jsonl", sample, expect=HALTED) != pure:
        sys.exit("dist: the compiled wheel decides differently from the pure one.")


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
        pure, compiled = build(work / "source")
        installed, sample = check(pure, work)
        if compiled is not None:
            check_compiled(compiled, installed, sample)
    say("the wheels work" if compiled else "the wheel works")


if __name__ == "__main__":
    main()
