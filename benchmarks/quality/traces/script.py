"""The script of a trace: turns are written one after another, and loops are labelled as they are planted."""

from __future__ import annotations

import random
from types import TracebackType
from typing import Any, Final, NamedTuple

from benchmarks.quality.labels import Episode, RawEvent, Trace
from benchmarks.quality.traces.words import Words

START_MS: Final = 1_767_225_600_000  # 2026-01-01
PEOPLE: Final = ("user", "human", "customer")
LONE: Final = ("agent", "claude-code", "coder", "assistant")
ROLES: Final = (
    "planner", "researcher", "writer", "reviewer", "verifier", "architect", "tester", "critic", "analyst", "editor",
    "executor", "repairer", "surfer", "librarian", "moderator", "translator",
)  # fmt: skip


class Made(NamedTuple):
    """A call with its answer."""

    tool: str
    args: Any
    result: Any


class Script:
    """Writes one trace. Everything in it follows from its kind and its seed."""

    def __init__(self, kind: str, seed: int) -> None:
        self.dice = random.Random(f"{kind}/{seed}")
        self.words = Words(self.dice)
        self.preset = ""
        self.agent = self.dice.choice(LONE)
        self.made: list[Made] = []
        self._kind, self._seed = kind, seed
        self._events: list[RawEvent] = []
        self._episodes: list[Episode] = []
        self._at_ms: int | None = START_MS if self.dice.random() < 0.5 else None
        self._hired = 0

    def trace(self) -> Trace:
        """Return the finished trace."""
        return Trace(self._kind, self._seed, tuple(self._events), tuple(self._episodes), preset=self.preset)

    @property
    def next(self) -> int:
        """The position of the next event."""
        return len(self._events)

    @property
    def has_person(self) -> bool:
        """Whether a person has spoken."""
        return any(event.get("type") == "user.message" or event.get("node") in PEOPLE for event in self._events)

    def add(self, event: RawEvent) -> int:
        """Write any event and return its position."""
        if self._at_ms is not None:
            self._at_ms += self.dice.randrange(500, 30_000)
            event = {"at": self._at_ms} | event
        self._events.append({"run_id": f"{self._kind}/{self._seed}"} | event)
        return len(self._events) - 1

    def say(self, node: str, text: str, **more: Any) -> int:
        """Write a turn with a text."""
        return self.add({"node": node, "output": text, **more})

    def call(self, tool: str, args: Any, result: Any = None, *, node: str = "", **more: Any) -> int:
        """Write a turn with one tool call, by default of the lone agent. A result of None is not reported."""
        made = {"name": tool, "args": args} | ({} if result is None else {"result": result})
        self.made.append(Made(tool, args, result))
        return self.add({"node": node or self.agent, "tool_calls": [made], **more})

    def fail(self, tool: str, args: Any, error: str, *, node: str = "", **more: Any) -> int:
        """Write a turn with one failed tool call."""
        made = {"name": tool, "args": args, "error": error}
        return self.add({"node": node or self.agent, "tool_calls": [made], **more})

    def again(self, made: Made, *, node: str = "") -> int:
        """Repeat a known call with its known answer."""
        return self.call(*made, node=node)

    def tested(self, node: str, failed: list[str], total: int, **more: Any) -> int:
        """Write a verifier's turn."""
        report = {"failed": list(failed), "passed": total - len(failed), "total": total}
        return self.add({"node": node, "tests": report, **more})

    def redeliver(self, event_id: str, times: int) -> None:
        """Give the last event this id and repeat it."""
        self._events[-1] |= {"event_id": event_id}
        self._events += [dict(self._events[-1]) for _ in range(times)]

    def team(self, size: int) -> list[str]:
        """Return nodes without a turn so far in this run."""
        first = self._hired
        self._hired += size
        return [self._role(number) for number in range(first, first + size)]

    def _role(self, number: int) -> str:
        again, place = divmod(number, len(ROLES))
        return ROLES[place] + (f"-{again + 1}" if again else "")

    def wait(self, milliseconds: int) -> None:
        """Let time pass without an event."""
        if self._at_ms is not None:
            self._at_ms += milliseconds

    def chance(self, probability: float) -> bool:
        """Return a random yes or no."""
        return self.dice.random() < probability

    def times(self, least: int, most: int) -> int:
        """Return a random number, both ends included, with a bias to small ones."""
        return min(self.dice.randint(least, most), self.dice.randint(least, most))

    def loop(self, code: str, *, warn: int = 0, halt: int = 0, also: tuple[str, ...] = ()) -> Loop:
        """Start a loop with the next event. `warn` and `halt` are the catalogue's thresholds; 0: none."""
        return Loop(self, code, warn, halt, also)

    def label(self, episode: Episode) -> None:
        """Add a planted loop."""
        self._episodes.append(episode)


class Loop:
    """A loop while it is planted: it counts steps and records when a threshold is met."""

    def __init__(self, script: Script, code: str, warn: int, halt: int, also: tuple[str, ...]) -> None:
        self._script, self._code, self._warn, self._halt, self._also = script, code, warn, halt, also
        self._onset = script.next
        self._warn_at: int | None = None
        self._halt_at: int | None = None

    def __enter__(self) -> Loop:
        return self

    def counted(self, count: int) -> None:
        """Set the count that the last event reached, in the unit of the thresholds."""
        last = self._script.next - 1
        if count >= self._warn > 0 and self._warn_at is None:
            self._warn_at = last
        if count >= self._halt > 0 and self._halt_at is None:
            self._halt_at = last

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is not None:
            return
        missing = (self._warn and self._warn_at is None) or (self._halt and self._halt_at is None)
        assert not missing, f"a planted {self._code} never met its threshold"
        end = self._script.next - 1
        self._script.label(Episode(self._code, self._onset, end, self._warn_at, self._halt_at, self._also))
