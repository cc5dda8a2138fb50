"""Which logs a path means, and which format each has."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, Final

from streamproc.errors import InvalidEvent, Problem
from streamproc.importers.content import items, mapping, string
from streamproc.importers.imported import Format
from streamproc.importers.log_file import EVENT_FOLDER, STDIN, LogFile, Sample, event_files

LOG_NAME: Final = re.compile(r"\.(jsonl|ndjson|json|traj)(\.gz|\.zst)?$|\.jsonl\.\d+$|^opencode\.db$", re.IGNORECASE)
MESSAGES: Final = "messages"
UNKNOWN: Final = "of no format that is known"
MAGENTIC: Final = "a log of Magentic-One, which has messages of agents and no calls"
RAW: Final = "raw"  # JSONL of raw turns, which needs no importer


def log_paths(paths: Sequence[str], left_out: list[str] | None = None, exclude: Sequence[str] = ()) -> list[str]:
    """Return the logs that paths mean, each once: a file as it is, the logs in a directory, what a pattern matches.

    A directory of events counts as one log. Links that lead out of a directory are not followed; their paths are added
    to `left_out`. Of a pattern or a directory, what `exclude` has a pattern for is left out. Raises `InvalidEvent` for
    a pattern or a directory without any.
    """
    found: dict[str, None] = {}
    away: list[str] = [] if left_out is None else left_out
    for path in paths:
        logs = list(_logs_of(path, away))
        if not logs:
            what = "no file matches" if glob.has_magic(path) else "no logs in this directory"
            remedy = "give .jsonl, .json or .traj files, also .gz or .zst"
            if away:
                what = f"{what}, only links that lead out of it"
                remedy = "give the files themselves"
            raise InvalidEvent([Problem("path", what, remedy, path)])
        found |= {log: None for log in logs if log == path or not is_excluded(log, exclude)}
    return list(found)


def is_excluded(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches a path, or the name of the file or of a directory on the way to it."""
    parts = Path(path).parts
    return any(fnmatch(path, one) or any(fnmatch(part, one.rstrip("/")) for part in parts) for one in patterns)


def _logs_of(path: str, away: list[str]) -> Iterator[str]:
    if path == STDIN:
        yield path
    elif Path(path).is_dir():
        yield from _logs_in(Path(path), Path(path).resolve(), away)
    elif glob.has_magic(path) and not Path(path).exists():
        for match in sorted(glob.glob(str(Path(path).expanduser()), recursive=True)):  # noqa: PTH207  # Path.glob takes no absolute pattern
            if Path(match).is_dir():
                yield from _logs_in(Path(match), Path(match).resolve(), away)
            elif not Path(match).is_fifo():  # opening one waits for its writer
                yield match
    else:
        yield path  # reading it says what is wrong


def _logs_in(folder: Path, inside: Path, away: list[str]) -> Iterator[str]:
    """Yield the logs in a directory, and the paths of what may not be looked into: opening them says why. No link leads
    out of the directory `inside`; those that would are added to `away`."""
    try:
        if event_files(folder):
            yield str(folder)
            for entry in sorted(folder.iterdir()):  # a conversation may hold those of its sub-agents
                if entry.is_dir() and not entry.is_symlink() and entry.name != EVENT_FOLDER:
                    yield from _logs_in(entry, inside, away)
            return
        # In the order of paths, in which a session's file comes before the directory of its sub-agents.
        for entry in sorted(folder.iterdir(), key=lambda entry: f"{entry.name}/" if entry.is_dir() else entry.name):
            named = LOG_NAME.search(entry.name) is not None
            if entry.is_symlink() and (named or entry.is_dir()) and _leads_out(entry, inside):
                away.append(str(entry))
            elif entry.is_dir():
                if not entry.is_symlink() and entry.name != ".git":
                    yield from _logs_in(entry, inside, away)
            elif named and (entry.is_file() or not entry.exists()):
                yield str(entry)  # also a broken link, but no pipe: opening one waits for its writer
    except OSError as error:
        yield str(error.filename or folder)


def _leads_out(link: Path, inside: Path) -> bool:
    try:
        return not link.resolve().is_relative_to(inside)
    except (OSError, RuntimeError):  # a link to itself
        return False


def format_of(log: LogFile, formats: Sequence[Format]) -> Format | None:
    """Return the format of a log by its content; None for raw turns. Raises `InvalidEvent` for anything else."""
    sample = log.sample()
    if known := known_as(sample):
        raise InvalidEvent([Problem("format", f"it is {known}", "leave the file out", log.name)])
    for one in formats:
        if one.matches(sample):
            return one
    if not (sample.rows or sample.damage):
        return None
    if any(isinstance(row, dict) and "run_id" in row for row in sample.rows):
        if not isinstance(sample.document, dict):
            return None
        remedy = "write a raw turn on one line, as jq -c does, or leave the file out"
        raise InvalidEvent([Problem("format", f"it is a JSON document {UNKNOWN}", remedy, log.name)])
    if sample.damage:
        raise InvalidEvent([Problem("format", sample.damage, sample.remedy, log.name)])
    if misspelt := _misspelt_run_id(sample.rows):
        remedy = "name it run_id; a turn needs run_id and node"
        raise InvalidEvent([Problem("format", f"it has {misspelt} in place of run_id", remedy, log.name)])
    what = f"it is JSON {UNKNOWN}" if sample.document is not None else f"its first lines are {UNKNOWN}"
    remedy = f"name the format with --from: {', '.join(names(formats))}; or leave the file out"
    raise InvalidEvent([Problem("format", what, remedy, log.name)])


def _misspelt_run_id(rows: Sequence[Any]) -> str:
    """Return what rows of raw turns have in place of `run_id`; empty if they have nothing like it."""
    for row in rows:
        for key in row if isinstance(row, dict) else ():
            if key.lower().replace("-", "").replace("_", "") == "runid":
                return str(key)
    return ""


def contradicted(log: LogFile, chosen: Format | None, formats: Sequence[Format]) -> str:
    """Return the format that the content of a log shows, if it is not at all of the chosen one; None is raw turns."""
    sample = log.sample()
    is_raw = any(isinstance(row, dict) and "run_id" in row for row in sample.rows)
    if is_raw if chosen is None else chosen.matches(sample):
        return ""
    return next((one.name for one in formats if one.matches(sample)), RAW if is_raw else "")


def others_in(log: LogFile, found: Format, formats: Sequence[Format]) -> list[str]:
    """Return the other formats of rows at the beginning and the end of a log: reading it as one leaves them out.
    Messages are not named, because parts of other formats look like them."""
    if log.is_folder or log.is_document():
        return []
    others: dict[str, None] = {}
    for row in [*log.sample().rows, *log.last_rows()]:
        one = Sample(log.path, [row], None)
        if found.matches(one):
            continue
        if isinstance(row, dict) and {"run_id", "node"} <= row.keys():
            others[RAW] = None
        others |= {other.name: None for other in formats if other.name != MESSAGES and other.matches(one)}
    return list(others)


def named(name: str, formats: Sequence[Format]) -> Format | None:
    """Return the format of a name; None for `raw`. Raises `InvalidEvent` for another name."""
    if name == RAW:
        return None
    for one in formats:
        if one.name == name:
            return one
    raise InvalidEvent([Problem("--from", f"no format is named {name}", f"choose from {', '.join(names(formats))}")])


def names(formats: Sequence[Format]) -> list[str]:
    """Return what `--from` takes."""
    return [RAW, *(one.name for one in formats)]


def known_as(sample: Sample) -> str:
    """Return what a log is that no importer reads, and why; empty for any other."""
    document = mapping(sample.document)
    if {"history", "mistake_step"} <= document.keys():
        return "a failure of the Who&When data set, which has messages of agents and no calls"
    if {"simulations", "tasks", "info"} <= document.keys():
        return "results of tau2-bench, whose messages are nested in simulations"
    if document.get("type") == "TeamState" and "agent_states" in document:
        return "the state of an AutoGen team, and no log of its turns"
    rows = [mapping(row) for row in sample.rows]
    if any(row.get("type") == "OrchestrationEvent" and "source" in row for row in rows):
        return MAGENTIC
    if any(string(mapping(message).get("role")).startswith("Orchestrator (") for message in items(sample.document)[:9]):
        return MAGENTIC
    if any(string(row.get("kind")).startswith("SpanKind.") and "context" in row for row in rows):
        return "spans as OpenTelemetry prints them for people, and no OTLP: export them as OTLP in JSON instead"
    if any(map(_is_of_cursor, rows)):
        return "a transcript of Cursor, which has no results of calls"
    return ""


def _is_of_cursor(row: dict[str, Any]) -> bool:
    content = items(mapping(row.get("message")).get("content"))
    return row.keys() <= {"role", "message"} and "role" in row and any("type" in mapping(block) for block in content)
