"""Honest waiting: the same call again and again, about something that moves by itself."""

from __future__ import annotations

from benchmarks.quality.traces.noise import Noise
from benchmarks.quality.traces.script import Script
from benchmarks.quality.traces.work import narrate

UNKNOWN_STANDSTILL: int = 2  # equal answers in a row that are still allowed before a call is known to be a poll
KNOWN_STANDSTILL: int = 9  # and after: the catalogue gives a poll at least ten


def changing_answers(script: Script) -> None:
    """A job that gets further at every look."""
    done = 0
    job = script.words.name()
    for _ in range(script.times(3, 25)):
        narrate(script, 0.4)
        script.call("get_status", {"job": job}, f"{job}: {done} of 900 files done")
        done += script.dice.randint(1, 30)


def with_standstills(script: Script) -> None:
    """A job that stands still now and then, and goes on."""
    job, done = script.words.name(), 0
    looks = [1, 1, *(script.times(1, KNOWN_STANDSTILL) for _ in range(script.times(2, 5)))]
    for same in looks:
        for _ in range(same):
            narrate(script, 0.3)
            script.call("get_status", {"job": job}, f"{job}: {done} of 900 files done")
        done += script.dice.randint(1, 30)


def standstills_but_for_the_time(script: Script) -> None:
    """A log that grows, stands still but for a time stamp, and grows again."""
    log, noise = [script.words.sentence()], Noise(script.dice)
    command = {"command": f"tail -n 50 {script.words.path()}.log"}
    for same in [1, 1, 1, *(script.times(1, KNOWN_STANDSTILL) for _ in range(3))]:
        for _ in range(same):
            script.call("bash", command, noise("\n".join(log)))
        log.append(script.words.sentence())


def slow_to_start(script: Script) -> None:
    """Nothing happens at the first looks, then it moves."""
    job = script.words.name()
    for _ in range(UNKNOWN_STANDSTILL):
        script.call("get_status", {"job": job}, f"{job} is queued")
    for step in range(script.times(2, 8)):
        script.call("get_status", {"job": job}, f"{job}: step {step}, {script.words.sentence()}")


def two_polls(script: Script) -> None:
    """Two jobs, looked at in turn; one of them may stand still while the other moves."""
    jobs = [script.words.name(), script.words.name()]
    done = [0, 0]
    for _ in range(script.times(4, 14)):
        for number, job in enumerate(jobs):
            script.call("get_status", {"job": job}, f"{job}: {done[number]} of 900 files done")
        moved = script.dice.choice(((1, 1), (1, 0), (0, 1)))
        done = [count + step for count, step in zip(done, moved, strict=True)]


def sleep_and_poll(script: Script) -> None:
    """Sleeps, whose answer never changes, between looks, whose answer does."""
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
    """A team whose members all wait for the same build, and see it move."""
    job = script.words.name()
    nodes = script.team(3)
    for done in range(script.times(3, 10)):
        for node in nodes:
            script.call("get_status", {"job": job}, f"{job}: {done} of 90 files done", node=node)


def waiting_for_a_colleague(script: Script) -> None:
    """One node asks again and again whether another is done, and gets the same answer while that one works."""
    waiting, working = script.team(2)
    for _ in range(script.times(3, 12)):
        script.call("check_inbox", {}, "no new messages", node=waiting)
        script.call("read_file", {"path": script.words.path()}, script.words.code(4), node=working)
    script.call("check_inbox", {}, script.words.text(2), node=waiting)


FRAGMENTS = (
    changing_answers, with_standstills, standstills_but_for_the_time, slow_to_start, two_polls, sleep_and_poll,
    polls_of_several_agents, waiting_for_a_colleague,
)  # fmt: skip
