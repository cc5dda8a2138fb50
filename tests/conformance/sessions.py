"""One session, played on each framework: what is decided about it may not depend on the framework."""

from __future__ import annotations

import asyncio
import dataclasses
import struct
import zlib
from collections.abc import Callable
from typing import Any, ClassVar, Final, NamedTuple

import pytest
from pydantic import BaseModel

from streamproc import Halted, Monitor, Watch
from tests.conformance.driver import INPUT_TOKENS, Driver, Job, Model, Say, Unsupported
from tests.integrations.fed import recorded

SIZE: Final = 20  # of an image


class Call(NamedTuple):
    """A command, and what the tool gives: a value; else a text that it fails with, or the number of an image."""

    cmd: str
    result: Any = None
    error: str = ""
    image: int = 0


Steps = list[list[Call]]


class Score(BaseModel):
    done: int
    of: int = 12


@dataclasses.dataclass
class Point:
    x: int
    y: int = 12


# Where a framework tells its model the text of an object: the engine cannot know that an address is no news.
AS_TEXT: Final = {"equal objects with an address": ("LOOP003", 5)}


class Handle:
    """Its text has an address."""


_WORDS: Final = tuple(
    f"Let me look at the {what} of the {whose}."
    for whose in ("parser", "server", "cache", "queue", "client")
    for what in ("tests", "names", "limits", "errors", "types")
)
MANY: Final = 9
ROUNDS: Final = 1_000  # of the event loop, in which a framework takes the result of a tool that has returned


def _png(number: int) -> bytes:
    """Return an image: Claude Code looks into it."""
    row = b"\0" + bytes([20 * number] * 3 * SIZE)
    head = struct.pack(">IIBBBBB", SIZE, SIZE, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(row * SIZE)), (b"IEND", b""))
    packed = (struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
              for kind, data in chunks)  # fmt: skip
    return b"\x89PNG\r\n\x1a\n" + b"".join(packed)


def _one(*calls: Call) -> Steps:
    return [[call] for call in calls]


def _values(make: Callable[[int], Any]) -> dict[str, tuple[Steps, tuple[str, int] | None]]:
    name = type(make(0)).__name__
    return {
        f"equal {name}": (_one(*(Call("status", make(1)) for _ in range(6))), ("LOOP003", 3)),
        f"different {name}": (_one(*(Call("status", make(n)) for n in range(MANY))), None),
    }


SESSIONS: Final[dict[str, tuple[Steps, tuple[str, int] | None]]] = {
    "the same answer": (_one(*[Call("pytest", "test_a fails")] * 6), ("LOOP003", 3)),
    "errors with an equal first line": (
        _one(*(call for n in range(8)
               for call in (Call(f"sed {n}", "ok"), Call("pytest", error=f"Command failed\n{12 - n} failed")))), None,
    ),
    "the same error of two lines": (_one(*[Call("pytest", error="Command failed\n12 failed")] * 6), ("LOOP003", 3)),
    "different images": (_one(*(Call("shot", image=n) for n in range(1, MANY))), None),
    "equal images": (_one(*[Call("shot", image=1)] * 6), ("LOOP003", 3)),
    "nothing, 20 times": (_one(*(Call(f"touch f{n}") for n in range(20))), None),
    "an empty text, 20 times": (_one(*(Call(f"touch f{n}", "") for n in range(20))), None),
    **_values(lambda n: Score(done=n)),
    **_values(lambda n: Point(n)),
    **_values(lambda n: {"done": n, "of": 12}),
    **_values(lambda n: (n, 12)),
    **_values(lambda n: ValueError(f"{n} of 12")),
    **_values(lambda n: b"\x00\xff%d" % n),
    "equal objects with an address": (_one(*(Call("open", Handle()) for _ in range(6))), ("LOOP003", 3)),
    "parallel calls, one of which fails": (
        [[Call(f"cat f{n}", f"def f{n}: {_WORDS[n]}"), Call("make", error="no rule")] for n in range(12)], None,
    ),
    "equal parallel calls, one of which fails": (
        [[Call("cat f", "line"), Call("make", error="no rule")] for _ in range(9)], ("LOOP003", 6),
    ),
}  # fmt: skip


NARRATED: Final = ("the same answer", "errors with an equal first line", "the same error of two lines")


def _played(steps: Steps, *, narrated: bool) -> Model:
    rest = list(enumerate(steps))

    def model(asked: str, results: list[str]) -> Say:
        if not rest:
            return Say("Done.")
        number, calls = rest.pop(0)
        return Say(_WORDS[number] if narrated else "", tuple(("run", {"cmd": call.cmd}) for call in calls))

    return model


class SameSession:
    """What may not depend on the framework."""

    driver: ClassVar[Driver]

    @pytest.mark.parametrize("name", SESSIONS)
    def test_same_session(self, name: str) -> None:
        self._decides(name)

    @pytest.mark.parametrize("name", NARRATED)
    def test_same_session_in_other_words(self, name: str) -> None:
        self._decides(name, narrated=True)

    def test_twelve_equal_workers_at_once(self) -> None:
        if "honest_equal_instances_in_parallel" in self.driver.without:
            pytest.skip(self.driver.without["honest_equal_instances_in_parallel"])

        def run(cmd: str) -> str:
            """Run a command."""
            return "All checks passed!"

        def model(asked: str, results: list[str]) -> Say:
            calls = ("ruff --version", f"ruff check {asked}", "ruff check .")
            return Say("It is clean.") if len(results) >= 3 else Say(calls=(("run", {"cmd": calls[len(results)]}),))

        monitor = Monitor()
        watch = Watch(monitor)
        job = Job(model, [f"Check f{n}.py." for n in range(12)], [run], way="beside", watch=watch)
        assert asyncio.run(self.driver.run(job)) == ["It is clean."] * 12
        assert monitor.halted("r1") is None
        status = monitor.status("r1")
        assert status is not None
        assert status.turns == 12 * 4
        assert watch.faults == 0, watch.last_fault

    def test_cancelled_while_a_tool_runs(self) -> None:
        """What the agent did until then is reported, once."""
        watch = Watch(Monitor())
        fed = recorded(watch)

        async def cancelled() -> None:
            hangs, returned = asyncio.Event(), asyncio.Event()

            async def run(cmd: str) -> str:
                """Run a command."""
                if cmd == "hang":
                    hangs.set()
                    await asyncio.Event().wait()
                returned.set()
                return "2 failed"

            async def ready() -> None:
                await hangs.wait()
                await returned.wait()
                for _ in range(ROUNDS):
                    await asyncio.sleep(0)

            def model(asked: str, results: list[str]) -> Say:
                return Say(calls=(("run", {"cmd": "pytest"}), ("run", {"cmd": "hang"})))

            task = asyncio.create_task(self.driver.run(Job(model, ["Fix it."], [run], watch=watch)))
            await asyncio.wait({task, asyncio.create_task(ready())}, return_when=asyncio.FIRST_COMPLETED)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(cancelled())
        [turn] = [event for event in fed if event["type"] == "turn"]
        assert [call.get("result") for call in turn["tool_calls"]] in (["2 failed"], ["2 failed", None])
        assert turn["usage"]["input_tokens"] == INPUT_TOKENS
        assert watch.faults == 0, watch.last_fault

    def _decides(self, name: str, *, narrated: bool = False) -> None:
        if name in self.driver.without:
            pytest.skip(self.driver.without[name])
        steps, expected = SESSIONS[name]
        expected = self.driver.decides.get(name, expected)
        monitor = Monitor()
        watch = Watch(monitor)
        calls: dict[str, list[Call]] = {}
        ran = []
        for call in (call for step in steps for call in step):
            calls.setdefault(call.cmd, []).append(call)

        def run(cmd: str) -> Any:
            """Run a command."""
            ran.append(cmd)
            call = calls[cmd].pop(0)
            if call.error:
                raise self.driver.problem(call.error)
            return self.driver.image(_png(call.image)) if call.image else call.result

        try:
            asyncio.run(self.driver.run(Job(_played(steps, narrated=narrated), ["Do it."], [run], watch=watch)))
        except Unsupported as reason:
            pytest.skip(str(reason))
        except Halted:
            pass
        halt = monitor.halted("r1")
        assert watch.faults == 0, watch.last_fault
        assert (None if halt is None else (halt.code, len(ran))) == expected
