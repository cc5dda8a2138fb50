"""The board in a policy file: its form, how layers are laid over each other, and what can be wrong with it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from streamproc.core.board.config import state_name

GUARDS_MAX: Final = 12  # each takes a bit of every task's memory
STATES_MAX: Final = 40
BATCH_MAX: Final = 1_000

Complaint = tuple[tuple[str, ...], str, str]


def _several(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


States = Annotated[list[str], BeforeValidator(_several)]
Size = Annotated[int, Field(ge=0, le=BATCH_MAX, strict=True)]


class GuardSetting(BaseModel):
    """What the ways from some states into others ask for."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    from_: States = Field([], alias="from")
    into: States = []
    when: Literal["", "ui", "module"] = ""
    items: list[str] = []
    verdict: str = ""
    ticket: bool = False
    override: bool = False
    back_to: str = ""


def _none_for_false(value: Any) -> Any:
    return None if value is False else value


Guard = Annotated[GuardSetting | None, BeforeValidator(_none_for_false, json_schema_input_type=GuardSetting | bool)]


class BoardSetting(BaseModel):
    """A board. One with a `path` stands for itself; one without changes parts of the board below it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: States | None = Field(None, min_length=2)
    initial: str = ""
    transitions: dict[str, States] = {}
    aside: dict[str, States] = {}
    in_progress: States = []
    done: States = []
    blocked: States = []
    failed: States = []
    forced: dict[Literal["blocked", "stalled", "escalated"], str] = {}
    guards: dict[str, Guard] = {}
    batch: dict[str, Size] = {}
    design_kinds: list[str] = []
    cycle_phases: States = []


def laid_over(below: Mapping[str, Any], setting: BoardSetting | None) -> dict[str, Any]:
    """The board below with this setting over it. Guards and sizes are taken one by one; `false` removes a guard."""
    if setting is None:
        return dict(below)
    given = setting.model_dump(mode="json", by_alias=True, exclude_unset=True)
    found = {} if setting.path is not None else dict(below)
    for name, value in given.items():
        found[name] = {**found.get(name, {}), **value} if name in ("guards", "batch") else value
    if "guards" in found:
        found["guards"] = {name: asked for name, asked in found["guards"].items() if asked is not None}
    return found


def complaints(board: Mapping[str, Any]) -> Iterator[Complaint]:
    """All that is wrong with a board, with the place within it."""
    path = board.get("path") or []
    declared = dict.fromkeys(map(state_name, [*path, *board.get("transitions", {}), *board.get("aside", {})]))
    if len({*map(state_name, path)}) < len(path):
        yield ("path",), "names a state twice", "keep one"
    if len(declared) > STATES_MAX:
        yield ("path",), f"{len(declared)} states", f"{STATES_MAX} at most"
    for place, names in _named(board):
        unknown = [name for name in names if state_name(name) not in declared]
        if unknown:
            yield place, f"no such state: {', '.join(unknown)}", f"there are: {', '.join(declared)}"
    for name, asked in board.get("guards", {}).items():
        if not asked.get("into"):
            yield ("guards", name, "into"), "is missing", "name the states into which it is asked"
    if len(board.get("guards", {})) > GUARDS_MAX:
        yield ("guards",), f"{len(board['guards'])} guards", f"{GUARDS_MAX} at most"
    if not board.get("done"):
        yield ("done",), "is missing", "name the states in which a task is done"
        return
    yield from _unreachable(board, path, declared)


def _named(board: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Iterable[str]]]:
    """Where a board speaks of states that it must have."""
    if board.get("initial"):
        yield ("initial",), [board["initial"]]
    for section in ("transitions", "aside"):
        for source, targets in board.get(section, {}).items():
            yield (section, source), targets
    for section in ("in_progress", "done", "blocked", "failed"):
        yield (section,), board.get(section, ())
    for status, state in board.get("forced", {}).items():
        yield ("forced", status), [state]
    for guard, asked in board.get("guards", {}).items():
        for side in ("from", "into"):
            yield ("guards", guard, side), asked.get(side, ())
        if asked.get("back_to"):
            yield ("guards", guard, "back_to"), [asked["back_to"]]


def _unreachable(board: Mapping[str, Any], path: list[str], declared: Iterable[str]) -> Iterator[Complaint]:
    """States that no way from the first one leads to. States aside can be entered from anywhere."""
    ways: dict[str, set[str]] = {name: set() for name in declared}
    states = [state_name(name) for name in path]
    for source, target in pairwise(states):
        ways[source].add(target)
    for section in ("transitions", "aside"):
        for source, targets in board.get(section, {}).items():
            ways[state_name(source)] |= {state_name(target) for target in targets}
    aside = {state_name(name) for name in board.get("aside", {})}
    first = state_name(board.get("initial") or (path[0] if path else ""))
    done = {state_name(name) for name in board.get("done", ())}
    reached, waiting = {first}, [first]
    while waiting:
        found = ways.get(waiting.pop(), set()) - reached - aside
        reached |= found
        waiting += found
    if first not in ways:
        return  # that was told
    if done <= set(ways) and not done & reached:
        yield ("done",), f"no way leads from {first} to {', '.join(sorted(done))}", "add it to the path or transitions"
    if any(not ways.get(name) and name not in done | aside | set(states) for name in reached):
        return  # from a state that leads nowhere any way is taken
    for source in board.get("transitions", {}):
        if state_name(source) not in reached | aside | done | set(states) | {
            target for targets in ways.values() for target in targets
        }:
            yield ("transitions", source), "no way leads to this state", "correct its name, or add a way"
