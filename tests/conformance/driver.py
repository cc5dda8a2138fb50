"""What the conformance suite needs of a framework: play a model, call tools, and be watched."""

from __future__ import annotations

import asyncio
import base64
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, NamedTuple

from streamproc import Watch

MODEL: Final = "gpt-4o-mini"  # the name of the model, as users of the framework write it
INPUT_TOKENS: Final = 100  # of each answer
OUTPUT_TOKENS: Final = 10


class Say(NamedTuple):
    """An answer of the model: a text, or calls of tools by name with their arguments."""

    text: str = ""
    calls: tuple[tuple[str, dict[str, Any]], ...] = ()


Model = Callable[[str, list[str]], Say]
"""Answers what was asked (the newest message of a person), with the results of the tools that were called for it."""


class Unsupported(Exception):  # it is no error
    """The framework has nothing of the kind, for the reason given."""


@dataclass
class Job:
    """Work for one agent in one run: what it is asked, and how its model answers."""

    model: Model
    prompts: Sequence[str]
    tools: Sequence[Callable[..., Any]] = ()
    way: str = "chat"
    """``chat``: one after another in one conversation; ``map``: each on its own, one after another, as programs of this
    framework do it; ``beside``: each on its own, all at once."""
    watch: Watch | None = None
    """None: without the adapter."""
    run_id: str = "r1"
    times: int = 1
    """How often the adapter is there."""
    grades: bool = False
    """Whether the answers are objects, ``{"grade": text}``, asked for as structured output."""
    more: dict[str, Any] = field(default_factory=dict)


def image_part(data: bytes) -> list[dict[str, Any]]:
    """Return an image as the content of a message, as OpenAI writes it."""
    return [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{base64.b64encode(data).decode()}"}}]


def told(result: Any) -> Any:
    """Return what a loop that people write sends of a result: parts of a message as they are, else its text."""
    is_content = isinstance(result, list) and result and isinstance(result[0], dict) and "type" in result[0]
    return result if is_content else str(result)


async def result_of(result: Any) -> Any:
    """Return what a tool returned, which may be asynchronous."""
    return await result if inspect.isawaitable(result) else result


class Driver:
    """A framework. `run` does a job and returns the answers; a halt leaves it as `Halted`."""

    name: ClassVar[str]
    without: ClassVar[dict[str, str]] = {}
    """Rows and sessions that make no sense here, with the reason."""
    problem: ClassVar[type[Exception]] = ValueError
    """What a tool raises to tell its model of a failure."""
    decides: ClassVar[dict[str, tuple[str, int] | None]] = {}
    """Sessions (`sessions.py`) whose tools tell the model something else here."""

    async def run(self, job: Job) -> list[str]:
        """Do a job."""
        raise NotImplementedError

    def fails(self, message: str) -> Callable[..., Any]:
        """Return a tool, ``run(cmd)``, that fails with this message so that the model hears of it."""

        def run(cmd: str) -> str:
            raise ValueError(message)

        return run

    def image(self, data: bytes) -> Any:
        """Return an image as tools of this framework do."""
        raise Unsupported("tools return no images")

    async def retry(self, watch: Watch) -> int:
        """Let the framework refuse an answer of the model again and again; return how often the model answered."""
        raise Unsupported("no output retries")

    async def hand_over(self, watch: Watch) -> int:
        """Let two agents hand over to each other without end; return how often the model answered."""
        raise Unsupported("no hand-overs")

    async def resume(self, job: Job, go_on: Callable[[], None]) -> list[str]:
        """Do a job that is halted, call `go_on`, and continue it where it was stopped."""
        raise Unsupported("no conversation to go on with")

    async def all(self, jobs: Sequence[Job]) -> list[Any]:
        """Do all jobs at once; return the answers or the exception of each."""
        return await asyncio.gather(*map(self.caught, jobs))

    async def caught(self, job: Job) -> Any:
        """Do a job, and return what it raises."""
        try:
            return await self.run(job)
        except BaseException as problem:  # noqa: BLE001  # Halted is no Exception
            return problem
