"""Runs the tests of adapters against the real frameworks: ``make integrations``.

Each directory of ``tests/frameworks`` has a ``requirements.lock``, which becomes an environment in
``.local/integrations``, as these frameworks cannot share ``.venv``. The others run in ``.venv``. When all frameworks
were asked for and pass, the table of docs/integrations/index.md is written. Exits with 1 if tests fail, after those of
the others.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TESTS = ROOT / "tests" / "frameworks"
ENVIRONMENTS = ROOT / ".local" / "integrations"
REPORTS = ROOT / ".local" / "conformance"
SHARED = "the shared environment"
PIP = ["-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet"]


def frameworks(names: list[str]) -> list[str]:
    """Return the frameworks to test: those named, or all."""
    known = sorted(lock.parent.name for lock in TESTS.glob("*/requirements.lock"))
    if unknown := sorted(set(names) - set(known)):
        sys.exit(f"integrations: no framework is called {', '.join(unknown)}; there are {', '.join(known)}")
    return names or known


def environment(name: str) -> Path:
    """Return the Python of a framework's environment, which is made again if its lock or ours has changed."""
    lock, home = TESTS / name / "requirements.lock", ENVIRONMENTS / name
    python, ready = home / "bin" / "python", home / "lock.sha256"
    wanted = hashlib.sha256(lock.read_bytes() + (ROOT / "pyproject.toml").read_bytes()).hexdigest()
    if ready.exists() and ready.read_text() == wanted:
        return python
    print(f"integrations: {name}: installing its lock", flush=True)
    venv.EnvBuilder(with_pip=True, clear=True).create(home)
    install = [str(python), *PIP, "install", "--no-deps"]
    subprocess.run([*install, "--require-hashes", "-r", str(lock)], check=True)
    subprocess.run([*install, "--no-build-isolation", "--editable", str(ROOT)], check=True)
    ready.write_text(wanted)
    return python


def passes(name: str) -> bool:
    """Run the tests of one framework, and say how long they took."""
    started = time.monotonic()
    variables = {key: value for key, value in os.environ.items() if not key.startswith("STREAMPROC_")}
    variables["STREAMPROC_CORE"] = "python"  # what is compiled here is for the Python of .venv
    pytest = ["-m", "pytest", "-q", f"--junitxml={REPORTS / name}.xml"]
    if name == SHARED:
        # The test of the page's table is left out: the table is made of what is found here.
        command = [sys.executable, *pytest, "tests/conformance", "--ignore=tests/conformance/test_table.py"]
    else:  # the frameworks' own warnings are not ours to fix
        command = [str(environment(name)), *pytest, "-W", "default", f"--confcutdir={TESTS}", str(TESTS / name)]
    passed = not subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    outcome = "passed" if passed else "FAILED"
    print(f"integrations: {name}: {outcome} in {time.monotonic() - started:.0f} s", flush=True)
    return passed


def main() -> None:
    names = frameworks(sys.argv[1:])
    if is_all := not sys.argv[1:]:
        names = [SHARED, *names]
    results = {name: passes(name) for name in names}
    if failed := [name for name, passed in results.items() if not passed]:
        sys.exit(f"integrations: failed: {', '.join(failed)}")
    if is_all:
        sys.path.insert(0, str(ROOT))
        from tests.conformance.table import PAGE, write

        write(REPORTS / f"{name}.xml" for name in names)
        print(f"integrations: wrote the table of {PAGE.relative_to(ROOT)}")
    print(f"integrations: all {len(results)} passed")


if __name__ == "__main__":
    main()
