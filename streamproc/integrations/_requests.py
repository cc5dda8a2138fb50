"""What models are asked, as the `request` of their turns, by loops around a model."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Final

from streamproc.fingerprint.requests import Prompt, as_json, request_of
from streamproc.model.newest import Newest

__all__ = ["ASKED_MAX", "Requests", "as_json", "request_of"]

ASKED_MAX: Final = 3  # messages of a person in a row that are one request, such as a document and a question about it
LOOPS_MAX: Final = 10_000  # loops whose request is remembered


class Requests:
    """The requests of loops around a model, in which the system prompt counts as it was at first: some programs keep
    notes in it, and others send what was asked only once. A long prompt that goes on where the one before of its node
    ended is the same request: some programs write all that has happened into one message."""

    def __init__(self) -> None:
        self._prompts: Newest[Hashable, Prompt] = Newest(LOOPS_MAX)  # by run and node
        self._asked: Newest[Hashable, tuple[str | None, str | None]] = Newest(LOOPS_MAX)  # by loop, with the request

    def of(self, loop: tuple[Hashable, ...], asked: Sequence[Any], instructions: str, *, goes_on: bool) -> str | None:
        """Return the request of the next answer of a loop: `asked` are the newest messages of a person, and `goes_on`
        says whether the model has answered them before. A `loop` begins with its run and ends with its node."""
        about = self._about((loop[0], loop[-1]), asked)
        before = self._asked.get(loop)
        if before is not None and goes_on and (not asked or before[0] == about):
            return before[1]
        if not asked:
            return request_of(instructions)
        request = request_of(about, instructions) if instructions else about
        self._asked[loop] = about, request
        return request

    def _about(self, node: Hashable, asked: Sequence[Any]) -> str | None:
        about = request_of(asked[0] if len(asked) == 1 else list(asked))
        if len(asked) != 1 or not isinstance(asked[0], str):
            return about
        prompt = self._prompts[node] = Prompt.after(self._prompts.get(node), asked[0], about)
        return prompt.about
