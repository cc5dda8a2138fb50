"""Run the examples of adapters as a user does: `python examples/integrations/NAME`."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.docs.pages import ROOT, blocks


def printed(name: str) -> str:
    """Return the output of an example, which needs no broker, key or network and exits with 0."""
    environment = {
        key: os.environ[key] for key in os.environ if not key.startswith("STREAMPROC_") or key == "STREAMPROC_CORE"
    }
    ended = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "integrations" / name)],
        env=environment | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def run_blocks(page: str) -> None:
    """Run the Python blocks of the page of an adapter, whose framework only this environment may have."""
    names = {"__name__": page}
    for block in blocks(ROOT / "docs" / "integrations" / page):
        if block.language == "python":
            exec(compile(block.text, str(block), "exec", dont_inherit=True), names)


def shown(page: str) -> str:
    """Return the output that the page of an adapter shows."""
    [block] = [block for block in blocks(ROOT / "docs" / "integrations" / page) if block.language == "console"]
    return block.text.partition("\n")[2]
