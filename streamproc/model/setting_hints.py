"""What is likely to be a mistake about settings: a ``.env`` that is not read, and a variable whose name is misspelt."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from typing import Final

UNREAD_FILE: Final = ".env"  # read by earlier versions
UNREAD_BYTES_MAX: Final = 65_536  # of it, to see whether it has settings
CLOSE: Final = 0.75  # how similar a name must be: Kubernetes sets STREAMPROC_PORT and the like for a service
KUBERNETES: Final = ("_SERVICE_", "_PORT")  # parts of such names

_reported: set[str] = set()


@lru_cache(maxsize=1)
def report_unread_file(prefix: str, env_file: str) -> None:
    """Say once on standard error that a ``.env`` of the working directory is not read, if it has settings."""
    path, named = Path(UNREAD_FILE), os.environ.get(env_file, "")
    try:
        if not path.is_file() or (named and path.samefile(named)):
            return
        with path.open("rb") as file:
            lines = file.read(UNREAD_BYTES_MAX).splitlines()
    except OSError:
        return
    if any(line.strip().removeprefix(b"export ").lstrip().startswith(prefix.encode()) for line in lines):
        sys.stderr.write(
            f"streamproc: {UNREAD_FILE} in the working directory is not read. If its settings are yours, name it: "
            f"{env_file}={UNREAD_FILE}\n"
        )


def take_misspelt(prefix: str, settings: Iterable[str], others: Iterable[str]) -> list[str]:
    """Return a sentence for each variable of the environment that is no setting and looks like one, each only once."""
    known, sentences = [*settings, *others], []
    for variable in sorted(os.environ):
        name = variable.upper().removeprefix(prefix)
        if name in (variable.upper(), *known) or variable in _reported or any(part in name for part in KUBERNETES):
            continue
        if close := get_close_matches(name, known, n=1, cutoff=CLOSE):
            _reported.add(variable)
            sentences.append(f"{variable} is no setting, and has no effect: did you mean {prefix}{close[0]}?")
    return sentences
