"""What the model of `make live` does in each scenario: the next call, or a text that ends the turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

HELP: Final = "Do the work. Help the other agent."  # what a sub-agent is asked
PROMPT: Final = "Do the work."  # what each session is asked; what came before the last prompt does not count
STOPPED: Final = "streamproc stopped this session"
STUCK_MAX: Final = 25  # calls of a stuck session that nothing stops, or texts: then it ends
STATUSES: Final = ("waiting for 3 jobs", "waiting for 2 jobs", "waiting for 1 job", "all jobs are done")
FILES: Final = {"notes.txt": "one\ntwo\nthree\n", "plan.txt": "first\nsecond\n", "status.txt": f"{STATUSES[0]}\n"}
HONEST: Final = (
    "cat notes.txt", "cat plan.txt", "ls", "wc -c notes.txt", "grep -n two notes.txt", "sort -r plan.txt",
)  # fmt: skip
SAYING: Final = "I will look into the failing build next."
END: Final = "The work is done."

STUCK: Final = ("loops", "swings", "fails", "ignores", "says")
ALL: Final = (*STUCK, "honest", "waits")
_STARTED: Final = re.compile(r'"agent_id": ?"([^"]+)"')
DELEGATES: Final = "delegates"  # starts a sub-agent, which is stuck


@dataclass(frozen=True, slots=True)
class Heard:
    """What a request says of the session: the results of calls since the last prompt, oldest first, and whether it is
    that of a sub-agent."""

    results: tuple[str, ...]
    helps: bool = False

    @property
    def is_denied(self) -> bool:
        """Whether the model was told that the session is stopped."""
        return any(STOPPED in result for result in self.results)


@dataclass(frozen=True, slots=True)
class Step:
    """What the model answers: a shell command to run, a sub-agent to start or to wait for, or a text."""

    command: str = ""
    agent: str = ""
    wait_for: str = ""
    text: str = ""


@dataclass(slots=True)
class Play:
    """A scenario that a session plays. `calls_max` ends a stuck session that nothing stops. `before` is called with
    the number of results that are known, before the model answers."""

    scenario: str
    folder: Path
    calls_max: int = STUCK_MAX
    before: Callable[[int], None] = lambda _: None
    requests: int = field(default=0, init=False)

    def step(self, heard: Heard) -> Step:
        """Return what the model does next."""
        done = len(heard.results)
        self.before(done)
        self.requests += 1
        if self.scenario == DELEGATES and not heard.helps:
            return self._delegate(heard)
        if self.scenario == "says":
            return Step(text=SAYING)
        if self.scenario == "waits":
            return self._wait(heard)
        if self.scenario == "honest":
            return Step(HONEST[done]) if done < len(HONEST) else Step(text=END)
        if done >= self.calls_max or (heard.is_denied and self.scenario != "ignores"):
            return Step(text=END)
        files = {"swings": ("notes.txt", "plan.txt"), "fails": ("missing.txt",)}.get(self.scenario, ("notes.txt",))
        return Step(f"cat {files[done % len(files)]}")

    def _delegate(self, heard: Heard) -> Step:
        """Start a sub-agent; wait for it where the CLI has only told its id."""
        if not heard.results:
            return Step(agent=HELP)
        started = _STARTED.search(heard.results[-1])
        return Step(wait_for=started[1]) if started is not None else Step(text=END)

    def _wait(self, heard: Heard) -> Step:
        """Look at a file that changes after every second look."""
        if heard.results and STATUSES[-1] in heard.results[-1]:
            return Step(text=END)
        status = STATUSES[min(len(heard.results) // 2, len(STATUSES) - 1)]
        (self.folder / "status.txt").write_text(f"{status}\n")
        return Step("cat status.txt")
