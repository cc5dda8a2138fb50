"""deploy/local/redis.py: Redis for tests, benchmarks and laptops."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import redis as client

from deploy.local import redis

SCRIPT = Path(redis.__file__)
GONE = 2**22 + 1  # above the highest process number that Linux gives out


def fake_server(directory: Path, version: str) -> Path:
    """A `redis-server` that can only print its version."""
    program = directory / "redis-server"
    program.write_text(f"#!/bin/sh\necho 'Redis server v={version} sha=0'\n")
    program.chmod(0o755)
    return program


@pytest.fixture
def no_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)


def test_the_server_of_the_system_is_preferred_to_that_of_the_wheel(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = fake_server(tmp_path, "7.0.15")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert redis.find_server() == str(program)


@pytest.mark.usefixtures("no_wheel")
def test_without_a_server_the_message_says_how_to_install_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(redis.RedisUnavailableError, match=r"Redis 6\.2 .*missing.*\n.*apt-get install redis-server"):
        redis.find_server()


@pytest.mark.usefixtures("no_wheel")
def test_the_message_names_a_server_that_is_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = fake_server(tmp_path, "6.0.16")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(redis.RedisUnavailableError, match=rf"{program} is 6\.0\)"):
        redis.find_server()


def test_the_error_of_a_server_that_exits_at_once_shows_the_end_of_its_log(own_redis: redis.Server) -> None:
    with pytest.raises(redis.RedisUnavailableError, match=r"did not start(.*\n)+.*no-such-option"):
        own_redis.start(0, "--no-such-option", "1")
    assert own_redis.running() is None


def test_a_killed_server_restarts_on_its_port_with_its_data(own_redis: redis.Server) -> None:
    port = own_redis.start().port
    with client.Redis(port=port) as connection:
        connection.set("kept", "yes")

    assert own_redis.start().port == port  # the running one, not a second
    assert own_redis.kill()
    assert own_redis.running() is None
    assert not redis.answers(port)

    assert own_redis.start(port).port == port
    with client.Redis(port=port) as connection:
        assert connection.get("kept") == b"yes"
    assert own_redis.stop()
    assert not own_redis.stop()


@pytest.mark.redis
def test_the_command_starts_a_server_prints_its_address_and_stops_it(tmp_path: Path) -> None:
    def command(*words: str) -> subprocess.CompletedProcess[str]:
        script = [sys.executable, str(SCRIPT), *words, "--dir", str(tmp_path)]
        return subprocess.run(script, capture_output=True, text=True, check=False)

    try:
        started = command("start")
        name, _, url = started.stdout.strip().partition("=")
        assert (name, started.returncode) == ("STREAMPROC_REDIS", 0)
        with client.Redis.from_url(url) as connection:
            assert connection.ping()
        assert command("status").stdout == started.stdout
    finally:
        stopped = command("stop")
    assert (stopped.returncode, command("status").returncode) == (0, 1)
