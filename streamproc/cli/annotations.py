"""Mistakes as annotations of GitHub Actions: workflow commands, which its runner reads from the output of a step."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamproc.model.escaping import escape

if TYPE_CHECKING:
    from streamproc.errors import Problem

IN_MESSAGES: Final = str.maketrans({"%": "%25", "\r": "%0D", "\n": "%0A"})
IN_PROPERTIES: Final = {**IN_MESSAGES, **str.maketrans({":": "%3A", ",": "%2C"})}


def annotation(file: str, problem: Problem) -> str:
    """Return the line that annotates the place of a mistake. `file` is the policy file as it was named."""
    message = f"{problem.what} ({problem.remedy})" if problem.remedy else problem.what
    place = {"file": _from_here(file) if file else "", "line": problem.line, "col": problem.column}
    properties: dict[str, object] = {**place, "title": f"streamproc: {problem.field}"}
    written = ",".join(f"{name}={_escaped(value, IN_PROPERTIES)}" for name, value in properties.items() if value)
    return f"::error {written}::{_escaped(message, IN_MESSAGES)}"


def _from_here(file: str) -> str:
    """Return a path as GitHub expects it: from the root of the repository, in which a step starts."""
    path = Path(file)
    here = Path.cwd()
    return path.relative_to(here).as_posix() if path.is_relative_to(here) else path.as_posix()


def _escaped(value: object, signs: dict[int, str]) -> str:
    return escape(str(value)).translate(signs)
