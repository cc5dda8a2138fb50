"""What every adapter must do, written once: each method is a row of the table in docs/integrations/index.md."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar

import pytest

from streamproc import Halted, Monitor, Watch, load_policy
from tests.conformance.driver import MODEL, Driver, Job, Model, Say, Unsupported
from tests.conformance.sessions import SameSession

POLICY = {
    "prices": {MODEL: {"input_per_million_usd": "1000", "output_per_million_usd": "10000"}},  # 0.20 USD an answer
    "budgets": {"maxCostUsd": "2.00"},
}
STEPS = 40  # of a model that would never end by itself


def calling(tool: str, args: list[dict[str, Any]], last: str = "Done.") -> Model:
    """A model that makes these calls one after another, and then says that it is done."""

    def model(asked: str, results: list[str]) -> Say:
        return Say(last) if len(results) >= len(args) else Say(calls=((tool, args[len(results)]),))

    return model


def stuck(asked: str, results: list[str]) -> Say:
    return Say("Done.") if len(results) >= STEPS else Say(calls=(("run", {"cmd": "pytest"}),))


def saying(text: str) -> Model:
    return lambda asked, results: Say(text)


class HonestWork:
    """What no adapter and no importer may stop."""

    driver: ClassVar[Driver]

    @pytest.fixture(autouse=True)
    def _in_this_process(self, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
        monkeypatch.delenv("STREAMPROC_BROKERS", raising=False)
        self.ran: list[Any] = []
        self.monitor = Monitor()
        self.watch = Watch(self.monitor)
        row = request.node.name.removeprefix("test_")
        if row in self.driver.without:
            pytest.skip(self.driver.without[row])

    def run(self, cmd: str) -> str:
        """Run a command."""
        self.ran.append(cmd)
        return "2 failed: test_login, test_logout" if cmd == "pytest" else f"the result of {cmd}"

    def tool(self, name: str, answer: Any) -> Any:
        """A tool with one argument; `answer` gets the argument and how often the tool ran before."""

        def tool(arg: str) -> str:
            self.ran.append(arg)
            return str(answer(arg, len(self.ran) - 1))

        tool.__name__, tool.__doc__ = name, f"The tool {name}."
        return tool

    def do(self, job: Job) -> list[str]:
        try:
            return asyncio.run(self.driver.run(job))
        except Unsupported as reason:
            pytest.skip(str(reason))

    def is_untouched(self, model: Model, prompts: list[str], tools: Any = (), **more: Any) -> list[str]:
        """Do honest work twice, with and without the adapter: nothing is halted, and nothing differs."""
        without = self.do(Job(model, prompts, tools, **more))
        ran, self.ran = self.ran, []
        found = self.do(Job(model, prompts, tools, watch=self.watch, **more))
        assert self.monitor.halted("r1") is None
        order = sorted if more.get("way") == "beside" else list  # agents beside each other act in any order
        assert (found, order(self.ran)) == (without, order(ran))
        assert self.watch.faults == 0, self.watch.last_fault
        assert self.turns() >= len(prompts), "not all was watched"
        return found

    def turns(self) -> int:
        """Return how many turns were judged."""
        status = self.monitor.status("r1")
        return 0 if status is None else status.turns

    def run_tool(self) -> Any:
        def run(cmd: str) -> str:
            """Run a command."""
            return self.run(cmd)

        return run

    def test_honest_changing_polls(self) -> None:
        poll = self.tool("poll", lambda arg, times: f"{times + 1} of 12 files are copied")
        self.is_untouched(calling("poll", [{"arg": "7"}] * 12), ["Copy."], [poll])

    def test_honest_batch_of_files(self) -> None:
        write = self.tool("write", lambda arg, times: "ok")
        self.is_untouched(calling("write", [{"arg": f"file{n}.py"} for n in range(12)]), ["Write them."], [write])

    def test_honest_unavailable_then_available(self) -> None:
        answers = ["HTTP 503 Service Unavailable", "HTTP 503 Service Unavailable", "200 the page"]
        fetch = self.tool("fetch", lambda arg, times: answers[min(times, 2)])
        self.is_untouched(calling("fetch", [{"arg": "/a"}] * 3), ["Fetch it."], [fetch])

    def test_honest_parallel_equal_calls(self) -> None:
        ping = self.tool("ping", lambda arg, times: "pong")

        def model(asked: str, results: list[str]) -> Say:
            return Say("Done.") if len(results) >= 6 else Say(calls=(("ping", {"arg": "a"}),) * 6)

        self.is_untouched(model, ["Ping it six times."], [ping])

    def test_honest_map_of_thirty_items(self) -> None:
        items = [f"Is document {n} relevant? Say yes or no." for n in range(30)]
        assert self.is_untouched(saying("yes"), items, way="map") == ["yes"] * 30

    def test_honest_ten_documents_graded_alike(self) -> None:
        items = [f"Grade document {n}: whale {n} swims." for n in range(10)]
        self.is_untouched(saying("relevant"), items, way="map", grades=True)

    def test_honest_equal_instances_in_parallel(self) -> None:
        guide = self.tool("guide", lambda arg, times: "Write short sentences.")

        def model(asked: str, results: list[str]) -> Say:
            calls = (("guide", {"arg": "style"}), ("guide", {"arg": asked}))
            return Say(f"The report.{asked}") if len(results) > 1 else Say(calls=(calls[len(results)],))

        self.is_untouched(model, ["Write about whales."] * 3, [guide], way="beside")

    def test_honest_edit_and_test_rounds(self) -> None:
        def run(cmd: str) -> str:
            """Run a command."""
            self.ran.append(cmd)
            return f"{4 - len(self.ran) // 2} failed" if cmd == "pytest" else "ok"

        cmds = itertools.chain.from_iterable((f"sed {n}", "pytest") for n in range(4))
        self.is_untouched(calling("run", [{"cmd": cmd} for cmd in cmds]), ["Fix it."], [run])

    def test_honest_chat_of_ten_commands(self) -> None:
        commands = [f"rename {name} to {name}_old" for name in "abcdefghij"]
        assert self.is_untouched(saying("Done."), commands) == ["Done."] * 10

    def test_honest_cached_tool(self) -> None:
        guide = self.tool("guide", lambda arg, times: "Write short sentences.")
        items = [f"Write page {n}." for n in range(8)]
        self.is_untouched(calling("guide", [{"arg": "style"}], "I have written it."), items, [guide], way="map")


class Conformance(SameSession, HonestWork):
    """What every adapter must do."""

    def is_halted(self, job: Job, *codes: str) -> None:
        with pytest.raises(Halted):
            self.do(job)
        halt = self.monitor.halted("r1")
        assert halt.code in codes, halt
        assert self.watch.faults == 0, self.watch.last_fault

    # Stuck: stopped when promised.

    def test_stuck_equal_calls(self) -> None:
        self.is_halted(Job(stuck, ["Fix it."], [self.run_tool()], watch=self.watch), "LOOP003")
        assert self.ran == ["pytest"] * 3

    def test_stuck_equal_errors(self) -> None:
        job = Job(stuck, ["Fix it."], [self.driver.fails("no such file")], watch=self.watch)
        self.is_halted(job, "LOOP003", "ERROR001", "ERROR003", "ERROR005")
        status = self.monitor.status("r1")
        assert status.turns <= 4

    def test_stuck_equal_calls_without_a_result(self) -> None:
        def run(cmd: str) -> None:
            """Run a command."""
            self.ran.append(cmd)

        self.is_halted(Job(stuck, ["Fix it."], [run], watch=self.watch), "LOOP003")
        assert self.ran == ["pytest"] * 3

    def test_stuck_output_retries(self) -> None:
        self._stops(self.driver.retry)

    def test_stuck_hand_overs(self) -> None:
        self._stops(self.driver.hand_over, 20)

    def test_stuck_map_of_one_item(self) -> None:
        job = Job(saying("Relevant."), ["Is document 7 relevant?"] * STEPS, way="map", watch=self.watch)
        self.is_halted(job, "LOOP001", "LOOP008", "LOOP002")
        status = self.monitor.status("r1")
        assert status.turns <= 5

    def _stops(self, what: Callable[[Watch], Awaitable[int]], most: int = 6) -> None:
        async def run() -> Any:
            try:
                return await what(self.watch)
            except (Halted, Unsupported) as ended:
                return ended

        ended = asyncio.run(run())
        if isinstance(ended, Unsupported):
            pytest.skip(str(ended))
        assert isinstance(ended, Halted), f"{ended} answers"
        status = self.monitor.status("r1")
        assert status.turns <= most
        assert self.watch.faults == 0, self.watch.last_fault

    # Money, resume, twice, many at once, faults of ours.

    def test_money(self) -> None:
        self.monitor = Monitor(load_policy(POLICY))
        self.watch = Watch(self.monitor)
        write = self.tool("write", lambda arg, times: f"written {times}")
        model = calling("write", [{"arg": f"file{n}.py"} for n in range(STEPS)])
        self.is_halted(Job(model, ["Write them."], [write], watch=self.watch), "BUDGET007")
        status = self.monitor.status("r1")
        assert (status.turns, status.cost_usd_micro) == (11, 2_200_000)

    def test_resume_repeats_nothing(self) -> None:
        def model(asked: str, results: list[str]) -> Say:
            return Say("Done.") if len(results) >= 3 else Say(calls=(("run", {"cmd": "pytest"}),))

        job = Job(model, ["Fix it."], [self.run_tool()], watch=self.watch)
        try:
            found = asyncio.run(self.driver.resume(job, lambda: self.watch.resume("r1", reason="looked at")))
        except Unsupported as reason:
            pytest.skip(str(reason))
        assert found[-1] == "Done."
        assert self.ran == ["pytest"] * 3

    def test_watched_twice_counts_once(self) -> None:
        cmds = [{"cmd": f"pytest {n}"} for n in range(5)]
        for times in (1, 2):
            monitor = Monitor()
            watch = Watch(monitor)
            self.do(Job(calling("run", cmds), ["Fix it."], [self.run_tool()], watch=watch, times=times))
            status = monitor.status("r1")
            assert status.turns == 6
            assert status.total_tokens == 6 * 110

    def test_fifty_at_once_stay_apart(self) -> None:
        def jobs() -> list[Job]:
            tools = [self.run_tool()]
            honest = calling("run", [{"cmd": f"pytest {n}"} for n in range(5)])
            return [
                Job(stuck if n % 2 else honest, ["Fix it."], tools, watch=self.watch, run_id=f"r{n}") for n in range(50)
            ]

        found = asyncio.run(self.driver.all(jobs()))
        for number, one in enumerate(found):
            assert isinstance(one, Halted) if number % 2 else one == ["Done."], (number, one)
            status = self.monitor.status(f"r{number}")
            assert status is not None
            assert status.turns == (3 if number % 2 else 6)
        assert self.ran.count("pytest") == 75

    def test_a_broken_adapter_breaks_no_agent(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def broken(*_: Any, **__: Any) -> Any:
            raise RuntimeError("broken")

        for name in ("feed", "check", "halted", "reporters"):
            monkeypatch.setattr(self.watch._backend, name, broken)
        cmds = [{"cmd": f"pytest {n}"} for n in range(3)]
        found = self.do(Job(calling("run", cmds), ["Fix it."], [self.run_tool()], watch=self.watch))
        assert found == ["Done."]
        assert self.ran == [one["cmd"] for one in cmds]
        assert self.watch.faults > 0
