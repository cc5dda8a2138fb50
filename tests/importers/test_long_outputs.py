"""Outputs of tools that make a pattern of an importer try the same text again and again."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamproc.importers.mini_swe_agent import ELIDED, FENCED
from streamproc.importers.openhands_v0 import SUFFIXES

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

MANY = 300_000  # a pattern that is not linear takes minutes for so many
TOO_LONG_S = 60


@pytest.mark.parametrize("text", ["1" * MANY, "\n" * MANY, "```bash" + "\n" * MANY], ids=["digits", "breaks", "fence"])
def test_a_trajectory_with_a_long_output_is_read_in_time(tmp_path: Path, text: str) -> None:
    messages = [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "Fix it."},
        {"role": "assistant", "content": "```bash\nls\n```"},
        {"role": "user", "content": f"<returncode>0</returncode>\n<output>\n{text}\n</output>"},
        {"role": "assistant", "content": text},
    ]
    log = tmp_path / "run.traj.json"
    log.write_text(json.dumps({"info": {}, "messages": messages, "trajectory_format": "mini-swe-agent-1"}))
    command = [sys.executable, "-m", "streamproc", "scan", str(log)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOO_LONG_S, check=False)
    assert (done.returncode, "read as: mini-swe-agent" in done.stderr) == (0, True)


def test_endings_of_an_output_are_looked_for_once() -> None:
    code = (
        "from streamproc.importers.openhands_v0 import SUFFIXES\n"
        f"assert SUFFIXES.sub('', '\\n' * {MANY}) == '\\n' * {MANY}"
    )
    subprocess.run([sys.executable, "-c", code], timeout=TOO_LONG_S, check=True)


def test_they_still_find_what_they_found() -> None:
    ending = "\n\n[Current working directory: /a]\n[Python interpreter: /b]\n[Command finished with exit code 1]\n"
    assert SUFFIXES.sub("", f"done {ending}") == "done"
    assert SUFFIXES.sub("", f"a [Python interpreter: /b] and{ending}") == "a [Python interpreter: /b] and"
    assert SUFFIXES.sub("", "[Command finished with exit code 1]") == ""
    assert ELIDED.sub("characters elided", "a12 characters elided\n7 characters") == "acharacters elided\n7 characters"
    found = FENCED.search("so\n```bash \n\n  ls -l\n```\n```bash\nrm x\n```")
    assert found[1] == "  ls -l"
