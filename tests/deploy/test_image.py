"""The Dockerfile, parsed, and what it puts into the image: tests run without Docker. `make containers` builds it."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys

import pytest

from streamproc.metrics import exposing
from streamproc.settings import load_settings
from tests.deploy.dockerfile import DOCKERFILE, PINNED, ROOT, final_stage, instructions


def test_every_stage_has_the_same_base_pinned_by_its_digest() -> None:
    bases = [arguments.split()[0] for word, arguments in instructions(DOCKERFILE) if word == "FROM"]
    assert len(bases) == 2
    assert len(set(bases)) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+" + PINNED, bases[0])
    assert "syntax=" not in DOCKERFILE  # it would fetch a builder, by a tag


def test_the_image_runs_as_an_unprivileged_user_and_stops_on_sigterm() -> None:
    stage = final_stage()
    user = stage["USER"].split(":")[0]
    assert user.isdigit()  # a number: an orchestrator can check that it is not root
    assert int(user) > 0
    assert stage["STOPSIGNAL"] == "SIGTERM"
    assert stage["ENTRYPOINT"] == '["streamproc"]'  # no shell to swallow the signal


def test_the_image_installs_by_hash_without_resolving() -> None:
    installs = [
        arguments for word, arguments in instructions(DOCKERFILE) if word == "RUN" and "pip install" in arguments
    ]
    assert "--require-hashes" in installs[0]
    assert all("--no-deps" in install for install in installs)


def test_the_image_is_compiled_and_its_last_stage_has_no_compiler() -> None:
    builds = [arguments for word, arguments in instructions(DOCKERFILE) if "--no-build-isolation" in arguments]
    assert [build.startswith("STREAMPROC_BUILD_NATIVE=1 pip install") for build in builds] == [True]
    assert "STREAMPROC_CORE=compiled python -c" in builds[0]  # fails the build of the image, not its use
    assert "cython" in builds[0].partition("pip uninstall")[2]
    assert "gcc" not in DOCKERFILE.rpartition("FROM")[2]
    assert "streamproc/_compiled" in (ROOT / ".dockerignore").read_text().splitlines()  # of another Python


def test_copied_files_exist_and_are_sent_to_the_builder() -> None:
    included = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copies = [arguments.split() for word, arguments in instructions(DOCKERFILE) if word == "COPY"]
    sources = {source for copy in copies if not copy[0].startswith("--from") for source in copy[:-1]}
    assert sources == included
    assert all((ROOT / source).exists() for source in sources)


def test_a_volume_for_state_begins_empty() -> None:
    """A new volume gets what the image has there; `--create-home` would put the files of /etc/skel into it."""
    [user] = [arguments for word, arguments in instructions(DOCKERFILE) if word == "RUN" and "useradd" in arguments]
    assert "--no-create-home" in user
    assert "--create-home" not in user.replace("--no-create-home", "")
    assert f"install --directory --owner=10001 --group=10001 {final_stage()['WORKDIR']}" in user


def health_check(address: str, *more: str) -> tuple[int, str]:
    """Run the health check of the image as it stands, from its source; its exit code and what it says."""
    command = json.loads(final_stage()["HEALTHCHECK"].partition("CMD ")[2])
    [copied] = [arguments.split() for word, arguments in instructions(DOCKERFILE) if arguments.endswith(command[-1])]
    ran = subprocess.run(
        [sys.executable, *command[1:-1], str(ROOT / copied[0]), *more],
        env={"STREAMPROC_METRICS": address}, capture_output=True, text=True, check=False, timeout=30,
    )  # fmt: skip
    assert not ran.stderr
    return ran.returncode, ran.stdout


@pytest.mark.parametrize("listens", ["127.0.0.1", "0.0.0.0", "[::1]", "[::]"])
async def test_the_health_check_says_what_the_process_says(listens: str) -> None:
    missing = ["waiting for the broker and its topics"]
    async with exposing(load_settings(metrics=f"{listens}:0"), lambda: iter(()), lambda: missing) as port:
        address = f"{listens}:{port}"
        assert await asyncio.to_thread(health_check, address) == (1, "waiting for the broker and its topics\n")
        assert await asyncio.to_thread(health_check, address, "/healthz") == (0, "ok\n")
        missing.clear()
        assert await asyncio.to_thread(health_check, address) == (0, "ready\n")


async def test_a_process_that_does_not_answer_is_not_healthy() -> None:
    async with exposing(load_settings(metrics="127.0.0.1:0"), lambda: iter(()), list) as port:
        pass
    code, said = await asyncio.to_thread(health_check, f"127.0.0.1:{port}")
    assert (code, said.partition(":")[0]) == (1, "nothing answers on 127.0.0.1")
    assert health_check("")[0] == 1


def test_without_another_address_a_process_answers_inside_its_container_only() -> None:
    assert "STREAMPROC_METRICS=127.0.0.1:9464" in final_stage()["ENV"]
