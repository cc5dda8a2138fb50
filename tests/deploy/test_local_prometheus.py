"""deploy/local/prometheus.py: promtool and Prometheus on a machine that has neither installed."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from deploy.local import prometheus


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without any program but those in the returned folder."""
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(prometheus, "FOLDER", tmp_path / "local" / "prometheus")
    return tmp_path / "bin"


def test_the_program_of_the_system_is_preferred_to_the_unpacked_one(bare: Path) -> None:
    assert prometheus.find("promtool") is None
    unpacked = program(prometheus.FOLDER / "usr" / "bin", "promtool", "")
    assert prometheus.find("promtool") == str(unpacked)
    installed = program(bare, "promtool", "")
    assert prometheus.find("promtool") == str(installed)


@pytest.mark.usefixtures("bare")
def test_without_apt_it_says_what_is_skipped_and_how_to_install_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert prometheus.main() == 0
    assert "NO PROMTOOL" in (shown := capsys.readouterr()).err
    assert "apt-get install prometheus" in shown.err
    assert not shown.out


def test_a_package_that_cannot_be_downloaded_leaves_nothing_behind(bare: Path) -> None:
    program(bare, "apt-get", "exit 100")
    program(bare, "dpkg-deb", "exit 2")
    prometheus.fetch()
    assert not prometheus.FOLDER.exists()


def test_a_package_that_cannot_be_unpacked_leaves_nothing_behind(bare: Path) -> None:
    program(bare, "apt-get", "echo torn > prometheus.deb")
    program(bare, "dpkg-deb", 'echo half > "$3/promtool"; exit 2')
    prometheus.fetch()
    assert not prometheus.FOLDER.exists()


def test_the_program_that_was_found_runs() -> None:
    path = prometheus.find("promtool")
    if path is None:
        pytest.skip(prometheus.MISSING)
    assert "promtool" in subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout
