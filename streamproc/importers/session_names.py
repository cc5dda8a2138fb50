"""Names by which a person knows sessions: their titles or first prompts, and their projects."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

from streamproc.importers.content import string
from streamproc.model.redaction import redact

TITLE_SHOWN: Final = 60  # characters
PROJECT_SHOWN: Final = 40
PROMPT_READ: Final = 400  # characters of a prompt that are kept until a name is asked for


@dataclass(slots=True)
class SessionName:
    """What a log says about a session."""

    title: str = ""  # the last one
    chosen: bool = False  # whether a person gave it: it outranks later titles that were made up
    prompt: str = ""  # the beginning of the first one
    project: str = ""  # the working directory at the start

    def note(self, *, title: Any = "", chosen: bool = False, prompt: Any = "", project: Any = "") -> None:
        """Take what a record says."""
        if string(title).strip() and (chosen or not self.chosen):
            self.title, self.chosen = string(title).strip()[:PROMPT_READ], chosen
        self.prompt = self.prompt or string(prompt).strip()[:PROMPT_READ]
        self.project = self.project or string(project)

    def shown(self) -> str:
        """Return `"Fix the login", shop`, without secrets; empty if nothing is known."""
        name = redact(self.title or self.prompt, TITLE_SHOWN)
        path = PureWindowsPath(self.project) if "\\" in self.project else PurePosixPath(self.project)
        return ", ".join(filter(None, (f'"{name}"' if name else "", redact(path.name, PROJECT_SHOWN))))
