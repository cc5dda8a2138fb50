"""deploy/local/audit.py: its findings in the lock files; a package without an answer does not pass."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from deploy.local import audit


def run(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, audit.__file__, *options], capture_output=True, text=True, check=False)


def test_offline_it_checks_hashes_and_lists_licences() -> None:
    done = run("--offline")

    assert (done.returncode, done.stderr) == (0, "")
    assert (
        f"{len(audit.entries('requirements.lock'))} packages in requirements.lock, each with a version" in done.stdout
    )
    assert "audit: BSD-3-Clause: " in done.stdout or "audit: BSD License: " in done.stdout
    assert "known vulnerabilities: not checked (--offline)" in done.stdout


def test_a_package_without_hashes_or_an_exact_version_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "ROOT", tmp_path)
    hashed = f"good==1.0 ; python_version < '3.13' \\\n    --hash=sha256:{'0' * 64}\n"
    (tmp_path / "some.lock").write_text(hashed + "bare==2.0\nloose>=3 \\\n    --hash=sha256:" + "0" * 64 + "\n")

    assert audit.unpinned("some.lock") == ["bare", "loose"]


@pytest.mark.parametrize(
    ("output", "code", "bad", "reported"),
    [
        ("No known vulnerabilities found", 0, False, ""),
        ("Found 2 known vulnerabilities in 1 package", 1, True, ""),
        ("ERROR:pip_audit._cli:six: Dependency not found on PyPI and could not be audited: six (1.17.0)", 1, True,
         "NOT AUDITED: ERROR:pip_audit._cli:six: Dependency not found"),
        ("requests.exceptions.ConnectionError: no route", 1, True, "NOT AUDITED: requests.exceptions.ConnectionError"),
        ("", 1, True, "NOT AUDITED: pip-audit printed nothing"),
    ],
)  # fmt: skip
def test_only_an_audited_lock_passes(
    output: str, code: int, bad: bool, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A stub prints what pip-audit would."""
    program = tmp_path / "pip-audit"
    program.write_text(f"#!/bin/sh\necho '{output}' >&2\nexit {code}\n")
    program.chmod(0o755)
    monkeypatch.setattr(audit, "pip_audit", lambda: program)

    assert audit.vulnerable("requirements.lock") is bad
    assert reported in capsys.readouterr().out
