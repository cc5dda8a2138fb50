"""The board in a policy file: its schema, how layers are merged, and which boards are invalid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from streamproc.core.board.config import state_name

GUARDS_MAX: Final = 12  # each takes a bit of every task's memory
STATES_MAX: Final = 40
BATCH_MAX: Final = 1_000

BoardProblem = tuple[tuple[str, ...], str, str]
"""The path of a setting within the board, what is wrong with it, and the remedy."""


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


States = Annotated[list[str], BeforeValidator(_as_list)]
Size = Annotated[int, Field(ge=0, le=BATCH_MAX, strict=True)]


class GuardSetting(BaseModel):
    """The evidence that the transitions from some states into others require."""

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
    """A board. With a `path` it is complete; without one it changes parts of the board of the layer below."""

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
    tasks_of_turns: bool = False


def merge_board(below: Mapping[str, Any], setting: BoardSetting | None) -> dict[str, Any]:
    """Return the board below with this setting applied. Guards and sizes merge one by one; `false` removes a guard."""
    if setting is None:
        return dict(below)
    given = setting.model_dump(mode="json", by_alias=True, exclude_unset=True)
    merged = {} if setting.path is not None else dict(below)
    for name, value in given.items():
        merged[name] = {**merged.get(name, {}), **value} if name in ("guards", "batch") else value
    if "guards" in merged:
        merged["guards"] = {name: guard for name, guard in merged["guards"].items() if guard is not None}
    return merged


def board_problems(board: Mapping[str, Any]) -> Iterator[BoardProblem]:
    """Yield every mistake of a board."""
    path = board.get("path") or []
    declared = dict.fromkeys(map(state_name, [*path, *board.get("transitions", {}), *board.get("aside", {})]))
    if len({*map(state_name, path)}) < len(path):
        yield ("path",), "names a state twice", "keep one"
    if len(declared) > STATES_MAX:
        yield ("path",), f"{len(declared)} states", f"declare at most {STATES_MAX}"
    for place, names in _state_references(board):
        unknown = [name for name in names if state_name(name) not in declared]
        if unknown:
            yield place, f"no such state: {', '.join(unknown)}", f"there are: {', '.join(declared)}"
    for name, guard in board.get("guards", {}).items():
        if not guard.get("into"):
            yield ("guards", name, "into"), "is missing", "name the states that the guard protects"
    if len(board.get("guards", {})) > GUARDS_MAX:
        yield ("guards",), f"{len(board['guards'])} guards", f"declare at most {GUARDS_MAX}"
    if not board.get("done"):
        yield ("done",), "is missing", "name the states in which a task is done"
        return
    yield from _unreachable(board, path, declared)


def _state_references(board: Mapping[str, Any]) -> Iterator[tuple[tuple[str, ...], Iterable[str]]]:
    """Yield every setting that refers to states, with those states."""
    if board.get("initial"):
        yield ("initial",), [board["initial"]]
    for section in ("transitions", "aside"):
        for source, targets in board.get(section, {}).items():
            yield (section, source), targets
    for section in ("in_progress", "done", "blocked", "failed"):
        yield (section,), board.get(section, ())
    for status, state in board.get("forced", {}).items():
        yield ("forced", status), [state]
    for name, guard in board.get("guards", {}).items():
        for side in ("from", "into"):
            yield ("guards", name, side), guard.get(side, ())
        if guard.get("back_to"):
            yield ("guards", name, "back_to"), [guard["back_to"]]


def _unreachable(board: Mapping[str, Any], path: list[str], declared: Iterable[str]) -> Iterator[BoardProblem]:
    """Yield states that cannot be reached from the first one. Parked states can be entered from anywhere."""
    transitions: dict[str, set[str]] = {name: set() for name in declared}
    states = [state_name(name) for name in path]
    for source, target in pairwise(states):
        transitions[source].add(target)
    for section in ("transitions", "aside"):
        for source, targets in board.get(section, {}).items():
            transitions[state_name(source)] |= {state_name(target) for target in targets}
    parked = {state_name(name) for name in board.get("aside", {})}
    first = state_name(board.get("initial") or (path[0] if path else ""))
    done = {state_name(name) for name in board.get("done", ())}
    reached, waiting = {first}, [first]
    while waiting:
        found = transitions.get(waiting.pop(), set()) - reached - parked
        reached |= found
        waiting += found
    if first not in transitions:
        return  # reported as an unknown state
    if done <= set(transitions) and not done & reached:
        what = f"no transition leads from {first} to {', '.join(sorted(done))}"
        yield ("done",), what, "add the state to the path or to transitions"
    if any(not transitions.get(name) and name not in done | parked | set(states) for name in reached):
        return  # a state without transitions may be left for any other state
    for source in board.get("transitions", {}):
        if state_name(source) not in reached | parked | done | set(states) | {
            target for targets in transitions.values() for target in targets
        }:
            yield ("transitions", source), "no transition leads to this state", "correct its name, or add a transition"
