"""Findings of a scan for people: what repeated, in which lines of which file, since when, and what to do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from streamproc.cli.report import counts, end_line, halt_line, hash_lines, to_do, value_lines
from streamproc.cli.terminal import COLOURS, clean, paint, say
from streamproc.core.decision import hex16
from streamproc.errors import plural
from streamproc.importers.content import text_of
from streamproc.model.formats import money, short
from streamproc.model.redaction import redact, redact_json

if TYPE_CHECKING:
    from streamproc.core.decision import Decision, Evidence
    from streamproc.replay.scan import Scan, Spent
    from streamproc.replay.turn_log import CallExcerpt, TurnExcerpt, TurnLog

ARGS_SHOWN: Final = 120  # characters
ANSWER_SHOWN: Final = 100
OUTPUT_SHOWN: Final = 160
NUMBERS_SHOWN: Final = 6  # lines of one occurrence
OCCURRENCES_SHOWN: Final = 4  # of one finding: a loop of more steps shows its first
HALTS_SHOWN: Final = 50  # runs in the summary
INDENT: Final = " " * 6
MAIN_ARGS: Final = ("command", "cmd", "file_path", "path", "pattern", "query", "url", "code", "input")
SIDE_ARGS: Final = ("description", "timeout", "explanation")  # of shells; they say nothing about what is done


@dataclass(slots=True)
class Occurrences:
    """The same thing in several turns."""

    text: str
    answer: str = ""
    turns: list[TurnExcerpt] = field(default_factory=list)


class FindingReport:
    """Prints each finding of a scan when it is found, and a summary at the end."""

    def __init__(self, scan: Scan, turns: TurnLog, *, around: int = 0, verbose: bool = False) -> None:
        self._scan, self._turns = scan, turns
        self._around, self._verbose = around, verbose

    def add(self, decision: Decision) -> None:
        """Print a finding."""
        severity = paint(f"{decision.severity:<4}", COLOURS.get(decision.severity, "cyan"), bold=True)
        index = decision.turn or 0
        run = self._scan.runs.read(decision.run_id)
        turn = "before its first turn" if run is not None and not run.turns else f"turn {index}"
        node = f" in {clean(decision.node)}" if decision.node else ""
        say(f"{severity}  {clean(decision.run_id)}  {turn}{node}  {self._place(decision)}", 6)
        say(f"{INDENT}{clean(decision.code)}  {clean(decision.message)}", 8)
        shown = False
        for one in occurrences(decision, self._known(decision, index)):
            shown = True
            say(f"{INDENT}{self._occurrence(one)}", 8)
        for text in self._details(decision, shown):
            say(f"{INDENT}{text}", 8)
        if decision.severity == "halt" and self._around:
            self._show_around(decision.run_id, index)
        say("", 0)

    def summary(self, skipped: int = 0) -> None:
        """Print what became of the runs: those that were halted, how many there were, and how many files not read."""
        turns = self._scan.turns_of()
        decisions = [one for own in self._scan.decisions.values() for one in own]
        halts = [next((one for one in own if one.severity == "halt"), None) for own in self._scan.decisions.values()]
        halted = [one for one in halts if one is not None]
        for halt in halted[:HALTS_SHOWN]:
            after = self._scan.spent_after_halt(halt.run_id)
            say(f"{halt_line(halt, turns[halt.run_id])}{_costs([after], ': ')}", 8)
            if name := self._scan.name_of(halt.run_id):
                say(f"{' ' * 8}{clean(name)}{f', {_day_time(halt.at)[:16]} UTC' if halt.at else ''}", 8)
        if len(halted) > HALTS_SHOWN:
            say(f"… and {len(halted) - HALTS_SHOWN} more", 8)
        if costs := _costs([self._scan.spent_by(run_id) for run_id in turns]):
            rest = _costs([self._scan.spent_after_halt(halt.run_id) for halt in halted], "; after halts: ")
            say(f"In all: {costs}{rest}.", 8)
        not_read = f" {plural(skipped, 'file')} skipped, or read in part." if skipped else ""
        say(counts(decisions, turns) + not_read, 0)

    def _place(self, decision: Decision) -> str:
        place = self._scan.place
        path = clean(self._scan.sources[place.source].log.name)
        at = f", {_day_time(decision.at)}" if decision.at else ""
        return f"{path}:{place.number}{at}" if place.unit == "line" else f"{path}, {place.unit} {place.number}{at}"

    def _known(self, decision: Decision, index: int) -> dict[int, TurnExcerpt]:
        """Return the turns that a finding is about, as far as they are known."""
        evidence = decision.evidence
        if evidence is not None and evidence.turns:
            wanted = set(evidence.turns)
            known = self._turns.turns(decision.run_id, min(wanted), max(wanted))
            return {number: turn for number, turn in known.items() if number in wanted}
        if decision.onset is None:
            return {}
        return self._turns.turns(decision.run_id, decision.onset, index)

    def _occurrence(self, one: Occurrences) -> str:
        times = [turn.at for turn in one.turns if turn.at is not None]
        spoken = f", {_span(times[0], times[-1])}" if times else ""
        answer = f' → "{one.answer}"' if one.answer else ""
        return f"{clean(one.text)} ({self._numbers(one.turns)}{spoken}){clean(answer)}"

    def _numbers(self, turns: Sequence[TurnExcerpt]) -> str:
        """Return `lines 812, 840, 869`, log by log."""
        parts = []
        logs = list(dict.fromkeys(turn.source for turn in turns))
        for log in logs:
            own = [turn for turn in turns if turn.source == log]
            numbers = [str(turn.number) for turn in own]
            if len(numbers) > NUMBERS_SHOWN:
                numbers = [*numbers[:2], "…", *numbers[-3:]]
            unit = own[0].unit if len(own) == 1 else f"{own[0].unit}s"
            name = f"{clean(Path(self._scan.sources[log].path).name)} " if len(logs) > 1 else ""
            parts.append(f"{name}{unit} {', '.join(numbers)}")
        return "; ".join(parts)

    def _details(self, decision: Decision, shown: bool) -> Iterator[str]:
        if decision.severity == "halt":
            yield end_line(decision)
        if decision.evidence is not None and (self._verbose or (decision.severity == "halt" and not shown)):
            yield from value_lines(decision.evidence)
        elif decision.evidence is not None and decision.severity == "halt" and decision.evidence.tool is None:
            yield from hash_lines(decision.evidence)
        if decision.severity == "halt":
            yield to_do(decision)

    def _show_around(self, run_id: str, index: int) -> None:
        """Print the turns before a halt, and those after it as soon as they are there."""
        for number, turn in self._turns.turns(run_id, index - self._around, index).items():
            say(self._turn_line(number, turn, halted=number == index), 8)
        self._turns.when(run_id, index + self._around, lambda: self._show_after(run_id, index))

    def _show_after(self, run_id: str, index: int) -> None:
        after = self._turns.turns(run_id, index + 1, index + self._around)
        if after:
            say(f"after the halt of {clean(run_id)}:", 6)
        for number, turn in after.items():
            say(self._turn_line(number, turn, halted=False), 8)
        if after:
            say("", 0)

    def _turn_line(self, index: int, turn: TurnExcerpt, *, halted: bool) -> str:
        time = f"{_day_time_ms(turn.at)[11:]}  " if turn.at is not None else ""
        what = [_with_answer(call) for call in turn.calls]
        if turn.output:
            what.insert(0, _quoted(turn.output, OUTPUT_SHOWN))
        if turn.error:
            what.append(f"error: {turn.error}")
        mark = paint(">", "red", bold=True) if halted else " "
        place = f"{turn.unit} {turn.number}"
        return f"    {mark} turn {index}, {place}  {time}{clean(turn.node)}  {clean('; '.join(what) or 'no texts')}"


def occurrences(decision: Decision, turns: dict[int, TurnExcerpt]) -> list[Occurrences]:
    """Group the turns of a finding by what they repeat. Only what the finding names counts, if it does."""
    evidence = decision.evidence
    if evidence is None or not turns:
        return []
    found: dict[Any, Occurrences] = {}
    for turn in turns.values():
        subject = _subject(turn, evidence, decision.code)
        if subject is None:
            continue
        key, text, answer = subject
        if key not in found:
            found[key] = Occurrences(text)
        found[key].answer = answer
        found[key].turns.append(turn)
    groups = list(found.values())
    if not evidence.turns and len(groups) > 1:  # of all turns since the onset: what repeats
        groups = [one for one in groups if len(one.turns) > 1] or groups[-1:]
    return groups[:OCCURRENCES_SHOWN]


def _subject(turn: TurnExcerpt, evidence: Evidence, code: str) -> tuple[Any, str, str] | None:
    """Return what a turn repeats: a key that is equal for the same thing, the thing, and the answer to it."""
    if evidence.tool is not None or evidence.args_hash is not None:
        for call in turn.calls:
            if hex16(call.key) == evidence.args_hash or (evidence.args_hash is None and call.name == evidence.tool):
                return call.key, _call_text(call), _answer(call)
        return None
    if evidence.edge and len(evidence.edge) > 1:
        edge = " → ".join(evidence.edge)
        return ("edge", edge, _excerpt(turn.output, ANSWER_SHOWN)) if turn.node in evidence.edge else None
    if evidence.query is not None and turn.query:
        return turn.query.casefold(), f"{turn.node} asked {_quoted(turn.query, OUTPUT_SHOWN)}", ""
    if turn.error and (evidence.first_error is not None or code.startswith(("ERROR", "INFRA"))):
        return turn.error_norm, f"{turn.node}: {turn.error}", ""
    if turn.failing and (evidence.failing_tests or evidence.failing):
        return tuple(turn.failing), f"{turn.node}: failing tests {', '.join(turn.failing)}", ""
    if turn.calls and not (turn.output and code in OUTPUT_CODES):
        call = turn.calls[0]
        return call.key, _call_text(call), _answer(call)
    if turn.output:
        return (turn.node, turn.output_norm), f"{turn.node}: {_quoted(turn.output, OUTPUT_SHOWN)}", ""
    return None


OUTPUT_CODES: Final = frozenset({"LOOP001", "LOOP006", "LOOP008", "LOOP010", "LOOP011"})  # about texts, not calls


def _costs(spends: Sequence[Spent], before: str = "") -> str:
    """Return tokens and money in all, as far as they are known."""
    tokens, cost = sum(one.tokens for one in spends), sum(one.cost_usd_micro for one in spends)
    parts = [f"{short(tokens)} tokens"] if tokens else []
    if cost:
        parts.append(money(cost))
    return before + ", ".join(parts) if parts else ""


def _call_text(call: CallExcerpt) -> str:
    args = _args_text(call.args)
    return f"{call.name}: {args}" if args else call.name


def _with_answer(call: CallExcerpt) -> str:
    answer = _answer(call)
    return f'{_call_text(call)} → "{answer}"' if answer else _call_text(call)


def _args_text(args: Any) -> str:
    """Return arguments as people write them: the command or path first, other arguments by name."""
    if isinstance(args, str) and args[:1] == "{":
        with suppress(orjson.JSONDecodeError):
            args = orjson.loads(args)
    if not isinstance(args, dict):
        return "" if args is None else _excerpt(args, ARGS_SHOWN)
    args = redact_json(args)
    main = next((name for name in MAIN_ARGS if isinstance(args.get(name), str)), None)
    rest = {name: part for name, part in args.items() if name != main and (main is None or name not in SIDE_ARGS)}
    if main is None and len(rest) == 1:
        return _excerpt(next(iter(rest.values())), ARGS_SHOWN)
    parts = [] if main is None else [args[main]]
    return redact(", ".join([*parts, *(f"{name}={_plain(part)}" for name, part in rest.items())]), ARGS_SHOWN)


def _answer(call: CallExcerpt) -> str:
    if call.answer is None or call.answer == "":
        return ""
    return _excerpt(call.answer, ANSWER_SHOWN)


def _plain(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, dict) and "type" in one for one in value):
        return text_of(value)
    return orjson.dumps(value).decode()


def _excerpt(value: Any, limit: int) -> str:
    """Return the beginning of a value on one line, without secrets."""
    if not isinstance(value, str):
        value = _plain(redact_json(value))
    return redact(value, limit)


def _quoted(text: str, limit: int) -> str:
    return f'"{_excerpt(text, limit)}"'


def _span(first: int, last: int) -> str:
    begin, end = _day_time_ms(first), _day_time_ms(last)
    if begin == end:
        return begin
    return f"{begin} to {end[11:] if begin[:10] == end[:10] else end}"


def _day_time_ms(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _day_time(at: str) -> str:
    return at[:19].replace("T", " ")
