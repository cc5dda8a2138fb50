"""What people do with the containers, and what must work all the time.

Each step is a function, and the steps follow each other as listed in `STEPS`.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from typing import Final

from deploy.containers import observe
from deploy.containers.engine import Engine
from deploy.containers.stack import HARDENED, IMAGE, PROJECT, ScenarioError, Stack, container, expect, matching, wait

Say = Callable[[str], None]
WORKERS: Final = ("worker-1", "worker-2")
LINE_MAX: Final = 240  # characters of a line of a log that are shown
STATE: Final = "/var/lib/streamproc"
UNHEALTHY_S: Final = 180  # its check fails three times, after 10 s each, every 15 s
STOP_S: Final = 45  # two workers and what they have in hand; their grace period is longer
IMPOSSIBLE_ADVICE: Final = ("pip install", "make compile", "make clean", "streamproc demo")
BUSY: Final = "EventPerformanceMonitor"  # Kafka reports a busy machine as an error
TROUBLE: Final = (
    "Read-only file system", "read-only file system", "Permission denied", "ermission denied", "peration not permitted",
    "UnsatisfiedLinkError", "AssertionError", "worker crashed", "worker stalled", "Traceback",
)  # fmt: skip


def build(stack: Stack) -> None:
    """The image builds."""
    stack.docker("build", "--file", "deploy/Dockerfile", "--tag", IMAGE, ".")


def image(stack: Stack) -> None:
    """The image has a compiled core and no compiler; its files cannot be written; `doctor` advises what is possible."""
    report = stack.image("doctor", expect=1)  # there is no Kafka
    expect("core=compiled" in report, "the core is not compiled", report)
    advice = matching(report.splitlines(), IMPOSSIBLE_ADVICE)
    expect(not advice, "doctor gives advice that the image cannot follow", advice)
    stack.image("-c", "! command -v gcc && ! command -v cc", entrypoint="sh")
    stack.image("-c", f'[ "$(id -u)" = 10001 ] && ! touch /opt/streamproc/x && touch {STATE}/x', entrypoint="sh")
    left = stack.image("-c", f"ls -A {STATE}", entrypoint="sh").split()
    expect(not left, f"a new volume begins with the image's {STATE}, which is not empty", left)


def up(stack: Stack) -> None:
    """`docker compose up --build` starts Kafka, Redis, the topics and two workers, and agents are halted."""
    stack.compose("up", "--build", "--detach")
    stack.healthy("kafka", "redis", *WORKERS)
    stack.ready(*WORKERS)
    expect(stack.state("topics").get("ExitCode") == 0, "topics did not exit with 0", stack.state("topics"))
    stack.halted()


def first_start(stack: Stack) -> None:
    """A first start logs no error, `doctor` finds none, and no volume is without a name."""
    errors = [line for line in stack.log() if re.search(r"\b(ERROR|FATAL|CRITICAL)\b", line) and BUSY not in line]
    expect(not errors, "a first start logs errors", errors[:5])
    report = stack.streamproc("doctor")
    expect(len(re.findall(r"^ok   (?:Redis|Kafka) ", report, re.MULTILINE)) == 2, "doctor reaches not all", report)
    advice = matching(report.splitlines(), IMPOSSIBLE_ADVICE)
    expect(not advice, "doctor gives advice that the container cannot follow", advice)
    for service in ("kafka", "redis", *WORKERS):
        mounts = json.loads(stack.docker("inspect", "--format", "{{json .Mounts}}", container(service)))
        named = [mount["Name"] for mount in mounts if mount["Type"] == "volume"]
        expect(all(name.startswith(f"{PROJECT}_") for name in named), f"{service} has a volume without a name", named)
    for worker in WORKERS:
        left = stack.shell(worker, f"ls -A {STATE}", "its state cannot be listed").split()
        expect(not matching(left, [".bash", ".profile"]), f"{worker}: files of a home directory are in its state", left)


def watched(stack: Stack) -> None:
    """People see the halts: in `watch`, and in `runs`."""
    seen = stack.shell("worker-1", "timeout 10 streamproc watch --since 5m; true", "watch does not run")
    expect(re.search(r"^halt", seen, re.MULTILINE), "watch shows no halt", seen)
    known(stack)


def known(stack: Stack) -> None:
    """Every halted run is in `runs`."""
    halted = [
        json.loads(line)["run_id"]
        for line in stack.streamproc("runs", "--halted", "--json").splitlines()
        if line.startswith("{")
    ]
    differ = sorted(set(stack.agents) ^ set(halted))
    expect(not differ, "`runs --halted` shows other runs than were halted", differ)


def hardened(stack: Stack) -> None:
    """No process has capabilities or can get more, and no root file system can be written."""
    for service in ("kafka", "redis", *WORKERS):
        stack.shell(service, HARDENED, "it has capabilities, may get some, or can write its root file system")


def worker_killed(stack: Stack) -> None:
    """A worker is killed."""
    stack.kill("worker-1")
    stack.ready("worker-1")
    stack.halted()


def worker_frozen(stack: Stack) -> None:
    """A worker hangs: its container is unhealthy, agents are halted by the other one, and it comes back."""
    stack.docker("kill", "--signal", "STOP", container("worker-1"))
    wait(lambda: stack.health("worker-1") == "unhealthy", UNHEALTHY_S, "a frozen worker to be unhealthy")
    stack.halted()
    stack.docker("kill", "--signal", "CONT", container("worker-1"))
    stack.ready("worker-1")
    stack.healthy("worker-1")


def kafka_killed(stack: Stack) -> None:
    """Kafka is killed."""
    stack.kill("kafka")
    stack.healthy("kafka")  # workers stay ready meanwhile, and an agent that starts needs it
    stack.ready(*WORKERS)
    stack.halted()


def kafka_restarted(stack: Stack) -> None:
    """Kafka is restarted."""
    stack.compose("restart", "kafka")
    stack.healthy("kafka")
    stack.ready(*WORKERS)
    stack.halted()


def worker_recreated(stack: Stack) -> None:
    """A worker gets a new container, as at an upgrade."""
    stack.compose("up", "--detach", "--no-deps", "--force-recreate", "worker-1")
    stack.ready("worker-1")
    stack.halted()


def all_recreated(stack: Stack) -> None:
    """Everything gets new containers."""
    stack.compose("up", "--detach", "--force-recreate")
    stack.ready(*WORKERS)
    stack.halted()


def down_and_up(stack: Stack) -> None:
    """`down` and `up`: the volumes keep every run, and a replay decides the same."""
    stack.compose("down")
    stack.compose("up", "--detach")
    stack.healthy("kafka", "redis", *WORKERS)
    stack.ready(*WORKERS)
    stack.halted()
    known(stack)
    stack.streamproc("replay", "--all", "--diff")  # exits 0 if identical


def logs(stack: Stack) -> None:
    """Nothing was refused on the way, and no worker crashed."""
    trouble = matching(stack.log(), TROUBLE)
    expect(not trouble, "the logs have trouble", trouble[:5])


def stopped(stack: Stack) -> None:
    """Workers stop in time, with exit code 0."""
    began = time.monotonic()
    stack.compose("stop", *WORKERS)
    took_s = time.monotonic() - began
    expect(took_s < STOP_S, f"stopping took {took_s:.0f} s")
    codes = {worker: stack.state(worker).get("ExitCode") for worker in WORKERS}
    expect(set(codes.values()) == {0}, "workers did not exit with 0", codes)


STEPS: Final[tuple[Callable[[Stack], None], ...]] = (
    build, image, up, first_start, watched, hardened, worker_killed, worker_frozen, kafka_killed, kafka_restarted,
    worker_recreated, all_recreated, down_and_up, observe.profile, observe.page, observe.metrics,
    logs, stopped, observe.alert,
)  # fmt: skip


def play(engine: Engine, say: Say) -> int:
    """Do all steps on an engine, and remove everything; return the exit code."""
    say(f"engine: {engine.name}")
    say(f"base images: {engine.images}")
    stack = Stack(engine)
    try:
        stack.remove()
        stack.profile = ()
        for step in STEPS:
            began = time.monotonic()
            step(stack)
            say(f"{time.monotonic() - began:5.1f} s  {(step.__doc__ or '').splitlines()[0]}")
    except ScenarioError as problem:
        say(f"FAILED: {step.__name__}: {(step.__doc__ or '').splitlines()[0]} {problem}")
        stack.profile = ("--profile", "observe")
        say(stack.compose("ps", "--all", "--format", "{{.Service}} {{.Status}}", expect=None))
        for line in stack.log("--tail", "8"):
            say(line[:LINE_MAX])
        return 1
    finally:
        stack.remove()
    say(f"all {len(STEPS)} steps work; {len(stack.agents)} agents were halted")
    return 0
