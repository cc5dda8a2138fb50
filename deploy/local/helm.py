"""Finds a Helm on this machine; with Go, builds one into .local/helm. `make helm` and the tests of the chart use it.

    python deploy/local/helm.py            # prints STREAMPROC_HELM=...

``STREAMPROC_HELM`` names another one. Exits 0 without one, too: what needs it is skipped, and says so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / ".local" / "helm"
VARIABLE = "STREAMPROC_HELM"
MODULE = "helm.sh/helm/v4/cmd/helm@v4.3.1"  # Go verifies it by its checksum database
OLDEST = 3  # major version; the golden files come from the one above
BUILD_TIMEOUT_S = 1_800
MISSING = (
    "NO HELM: the chart's templates are not rendered; its golden files are checked all the same. "
    f"`make helm` builds one where there is a Go (3 minutes), or set {VARIABLE} to the path of a Helm 3 or 4."
)


def find() -> str | None:
    """Return the path of a Helm: the named one, the one built here, or the installed one; None if there is none."""
    built = FOLDER / "helm"
    return os.environ.get(VARIABLE) or (str(built) if built.exists() else shutil.which("helm"))


def build() -> str | None:
    """Build Helm with Go. Return its path; None if there is no Go, or the build fails."""
    go = shutil.which("go")
    if go is None:
        return None
    say(f"building {MODULE} into .local/helm (3 minutes or more)")
    environment = os.environ | {"GOBIN": str(FOLDER), "CGO_ENABLED": "0"}
    try:
        done = subprocess.run(
            [go, "install", "-trimpath", "-ldflags=-s -w", MODULE],
            env=environment, capture_output=True, text=True, check=False, timeout=BUILD_TIMEOUT_S,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        say(f"not built within {BUILD_TIMEOUT_S} s; run it again: Go keeps what it has built")
        return None
    if done.returncode:
        say(f"not built: {done.stderr.strip()[-1000:]}")
        return None
    return find()


def say(text: str) -> None:
    """Print a line on standard error."""
    print(f"helm: {text}", file=sys.stderr, flush=True)


def main() -> int:
    path = find() or build()
    if path is None:
        say(MISSING)
    else:
        print(f"{VARIABLE}={path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
