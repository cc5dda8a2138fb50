"""What an importer yields, and what one import of many files knows and counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass, field
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final, NamedTuple

import xxhash

from streamproc.errors import plural
from streamproc.importers.content import string
from streamproc.importers.log_file import LogFile, Sample
from streamproc.model.redaction import redact

TITLE_SHOWN: Final = 60  # characters
PROJECT_SHOWN: Final = 40
UNBORN_MAX: Final = 1_000  # sub-agents with a prompt and without a turn
ASKED_READ: Final = 20_000  # characters of the prompt of a sub-agent
PROMPT_READ: Final = 400  # characters of a prompt that are kept until a name is asked for
IGNORED_NAMES_MAX: Final = 40  # different unknown types counted by name


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


class Imported(NamedTuple):
    """A raw event (the fields of `docs/publishing.md`) and its place in the log it comes from."""

    event: dict[str, Any]
    number: int  # of the line or item that began it, from 1
    unit: str = "line"  # what `number` counts: line, step, event, span


@dataclass(slots=True)
class ImportTally:
    """What was read of one format, and what was not."""

    files: int = 0
    runs: set[str] = field(default_factory=set)
    sub_agents: set[str] = field(default_factory=set)  # runs with a parent; also in `runs`
    turns: int = 0
    calls: int = 0
    answered: int = 0  # calls with a result or an error
    ignored: Counter[str] = field(default_factory=Counter)  # records by unknown type
    repeated: int = 0  # records that another record repeats
    bad_lines: int = 0  # lines that are no JSON
    notes: dict[str, None] = field(default_factory=dict)  # sentences for the reader, each once
    names: dict[str, SessionName] = field(default_factory=dict)  # of runs, for people

    def name(self, run_id: str, **said: Any) -> None:
        """Take what a record says about the name of a run: its `title`, `prompt` or `project`."""
        self.names.setdefault(run_id, SessionName()).note(**said)

    def count(self, event: dict[str, Any]) -> None:
        """Count a raw event."""
        run_id = str(event.get("run_id"))
        self.runs.add(run_id)
        if event.get("parent_run_id"):
            self.sub_agents.add(run_id)
        if event.get("type", "turn") != "turn":
            return
        self.turns += 1
        for call in event.get("tool_calls") or ():
            self.calls += 1
            self.answered += "result" in call or "error" in call

    def ignore(self, kind: object) -> None:
        """Count a record whose type is unknown; `kind` may be anything that the file holds."""
        name = kind if isinstance(kind, str) else type(kind).__name__
        if name not in self.ignored and len(self.ignored) >= IGNORED_NAMES_MAX:
            name = "others"
        self.ignored[name[:60]] += 1

    def sentence(self, name: str) -> str:
        """Return `read as: claude-code (3 sessions, 2 sub-agents, 412 turns; …)`."""
        what = [plural(len(self.runs) - len(self.sub_agents), "session")]
        if self.sub_agents:
            what.append(plural(len(self.sub_agents), "sub-agent"))
        what.append(plural(self.turns, "turn"))
        parts = [", ".join(what)]
        if self.ignored:
            parts.append(
                f"{plural(self.ignored.total(), 'record')} of {plural(len(self.ignored), 'unknown type')} ignored"
            )
        if self.repeated:
            parts.append(f"{plural(self.repeated, 'repeated record')} skipped")
        if self.bad_lines:
            parts.append(
                f"{plural(self.bad_lines, 'line')} skipped that {'is' if self.bad_lines == 1 else 'are'} no JSON"
            )
        if self.calls:
            parts.append(f"{100 * self.answered // self.calls} % of calls have results")
        return f"read as: {name} ({'; '.join(parts)})"


@dataclass(slots=True)
class Import:
    """One import: what files share. Pass the same object for all files that are read together."""

    seen: set[int] = field(default_factory=set)  # hashes of ids; a resumed session copies records of the former
    agents: MutableMapping[str, str] = field(default_factory=dict)  # names of sub-agents by their ids
    prompts: dict[str, str] = field(default_factory=dict)  # what sub-agents were asked, by run, until their birth
    born: set[str] = field(default_factory=set)  # runs whose first event was read
    tallies: dict[str, ImportTally] = field(default_factory=dict)  # by format
    lenient: bool = False
    notes: dict[str, None] = field(default_factory=dict)  # sentences about no single format, each once

    def tally(self, name: str) -> ImportTally:
        """Return the tally of a format."""
        return self.tallies.setdefault(name, ImportTally())

    def is_new(self, record_id: str) -> bool:
        """Whether a record is met for the first time, in any file."""
        known = len(self.seen)
        self.seen.add(id_hash(record_id))
        return len(self.seen) > known

    def asked(self, run_id: str, prompt: str) -> None:
        """Take what a run may have been asked to do, if it was not born yet; the first one counts."""
        if prompt and run_id not in self.born and len(self.prompts) < UNBORN_MAX:
            self.prompts.setdefault(run_id, prompt[:ASKED_READ])

    def births(self, found: Iterable[Imported]) -> Iterator[Imported]:
        """Yield raw events, each run's first one after its birth, if another run is known to have started it."""
        for one in found:
            run_id = str(one.event.get("run_id"))
            if run_id not in self.born:
                self.born.add(run_id)
                prompt = self.prompts.pop(run_id, "")
                if one.event.get("parent_run_id") and one.event.get("type") != "run.started":
                    yield one._replace(event=_birth(one.event, prompt))
            yield one

    def knows(self, record_id: str) -> bool:
        """Whether a record was met before, in any file."""
        return id_hash(record_id) in self.seen

    def run_name(self, log: LogFile, *, in_folder: bool = False) -> str:
        """Return the name of the run of a log without one: its stem, after as many of its directories (one at least, if
        it is `in_folder`) as tell it from logs that were read before."""
        names = list(log.names())
        found = names[in_folder:] or names
        return next((name for name in found if self.is_new(f"run {name}")), found[-1])

    def name_of(self, run_id: str) -> str:
        """Return the name by which a person knows a run; empty if its log has none."""
        found = (tally.names[run_id] for tally in self.tallies.values() if run_id in tally.names)
        return next((name.shown() for name in found), "")

    def sentences(self) -> list[str]:
        """Say what was read, format by format, then what is noteworthy."""
        found = [tally.sentence(name) for name, tally in self.tallies.items()]
        return found + [note for tally in self.tallies.values() for note in tally.notes] + list(self.notes)


def _birth(event: dict[str, Any], prompt: str) -> dict[str, Any]:
    """Return the raw event of the birth of a run, by its first event."""
    fields = ("run_id", "session_id", "parent_run_id", "node", "at", "workflow", "tenant", "user")
    born = {name: event[name] for name in fields if event.get(name)}
    event_id = xxhash.xxh3_128_hexdigest(f"{event['run_id']}\0born".encode("utf-8", "surrogatepass"))
    return {"type": "run.started", "event_id": event_id, **born, **({"prompt": prompt} if prompt else {})}


def any_row(is_one: Callable[[dict[str, Any]], object]) -> Callable[[Sample], bool]:
    """Return what recognises a format by any of its records."""
    return lambda sample: any(isinstance(row, dict) and is_one(row) for row in sample.rows)


class Format(NamedTuple):
    """A format of logs: its name, how to recognise it, and how to read it."""

    name: str  # as `--from` takes it
    title: str  # for people
    matches: Callable[[Sample], bool]
    read: Callable[[LogFile, Import], Iterator[Imported]]
    """Yield the raw events of a log, run by run in order of completion. Never raises for the shape of a record: unknown
    types are counted in the format's tally. Events are counted by the caller."""
    places: tuple[str, ...] = ()
    """Where the tool keeps its logs, as globs relative to the home directory, for `scan --recent`."""


def id_hash(record_id: str) -> int:
    """Return the hash by which an import remembers an id."""
    return xxhash.xxh3_64_intdigest(record_id.encode("utf-8", "surrogatepass"))
