"""Healthy waiting: the same call again and again, about something that changes by itself."""

from __future__ import annotations

from benchmarks.quality.traces.noise import Noise
from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import narrate

UNKNOWN_REPEATS_MAX: int = 2  # equal answers in a row that are still allowed before a call is known to be a poll
KNOWN_REPEATS_MAX: int = 9  # the same for a known poll: the catalogue allows less than ten


def changing_answers(script: Script) -> None:
    """A job that makes progress at every poll."""
    done = 0
    job = script.words.name()
    for _ in range(script.times(3, 25)):
        narrate(script, 0.4)
        script.call("get_status", {"job": job}, f"{job}: {done} of 900 files done")
        done += script.dice.randint(1, 30)


def with_standstills(script: Script) -> None:
    """A job that pauses sometimes, and continues."""
    job, done = script.words.name(), 0
    looks = [1, 1, *(script.times(1, KNOWN_REPEATS_MAX) for _ in range(script.times(2, 5)))]
    for same in looks:
        for _ in range(same):
            narrate(script, 0.3)
            script.call("get_status", {"job": job}, f"{job}: {done} of 900 files done")
        done += script.dice.randint(1, 30)


def standstills_but_for_the_time(script: Script) -> None:
    """A log that grows, pauses except for a time stamp, and grows again."""
    log, noise = [script.words.sentence()], Noise(script.dice)
    command = {"command": f"tail -n 50 {script.words.path()}.log"}
    for same in [1, 1, 1, *(script.times(1, KNOWN_REPEATS_MAX) for _ in range(3))]:
        for _ in range(same):
            script.call("bash", command, noise("\n".join(log)))
        log.append(script.words.sentence())


def slow_to_start(script: Script) -> None:
    """A job without progress at the first polls, then with progress."""
    job = script.words.name()
    for _ in range(UNKNOWN_REPEATS_MAX):
        script.call("get_status", {"job": job}, f"{job} is queued")
    for step in range(script.times(2, 8)):
        script.call("get_status", {"job": job}, f"{job}: step {step}, {script.words.sentence()}")


def two_polls(script: Script) -> None:
    """Two jobs, polled in turn; one may pause while the other makes progress."""
    jobs = [script.words.name(), script.words.name()]
    done = [0, 0]
    for _ in range(script.times(4, 14)):
        for number, job in enumerate(jobs):
            script.call("get_status", {"job": job}, f"{job}: {done[number]} of 900 files done")
        moved = script.dice.choice(((1, 1), (1, 0), (0, 1)))
        done = [count + step for count, step in zip(done, moved, strict=True)]


def sleep_and_poll(script: Script) -> None:
    """Sleeps with a constant answer between polls with changing answers."""
    job = script.words.name()
    sleep = {"command": f"sleep {script.dice.choice((5, 30, 60))}"}
    answer = script.dice.choice(("", "(no output)", "slept"))
    looks = [1, 1, *(script.times(1, 6) for _ in range(script.times(2, 4)))]
    for done, same in enumerate(looks):
        for _ in range(same):
            script.call("bash", sleep, answer)
            narrate(script, 0.2)
            script.call("bash", {"command": f"status {job}"}, f"{job}: {done} of 900 files done")


def polls_of_several_agents(script: Script) -> None:
    """A team whose members all poll the same build while it makes progress."""
    job = script.words.name()
    nodes = script.team(3)
    for done in range(script.times(3, 10)):
        for node in nodes:
            script.call("get_status", {"job": job}, f"{job}: {done} of 90 files done", node=node)


def waiting_for_a_colleague(script: Script) -> None:
    """One node polls another node's status and gets the same answer while that one works."""
    waiting, working = script.team(2)
    for _ in range(script.times(3, 12)):
        script.call("check_inbox", {}, "no new messages", node=waiting)
        script.call("read_file", {"path": script.words.path()}, script.words.code(4), node=working)
    script.call("check_inbox", {}, script.words.text(2), node=waiting)


FRAGMENTS = (
    changing_answers, with_standstills, standstills_but_for_the_time, slow_to_start, two_polls, sleep_and_poll,
    polls_of_several_agents, waiting_for_a_colleague,
)  # fmt: skip
