"""Makes the report of a run, or of all runs, from what was recorded."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from streamproc import __version__
from streamproc.core.decision import Decision
from streamproc.detectors import BY_CODE
from streamproc.errors import plural
from streamproc.model.turn_texts import CALLS_MAX, CallTexts, excerpt
from streamproc.report import facts
from streamproc.report.history import RunHistory
from streamproc.report.model import (
    CallShown,
    DetectorLook,
    DetectorTally,
    FleetReport,
    Outcome,
    PolicyShown,
    PolicyValue,
    RunReport,
    RunRow,
    SpendShown,
    TurnShown,
)
from streamproc.report.occurrences import occurrences
from streamproc.report.policy_values import PolicyPlaces, PolicyScope
from streamproc.report.recording import Recording
from streamproc.report.words import spent

TURNS_SHOWN: Final = 240  # turns of a run that are listed, in a report about one run
DECISIONS_SHOWN: Final = 40
ROWS_SHOWN: Final = 500  # runs in the table of all runs
REPORTS_SHOWN: Final = 40  # runs whose reports are in a report about all runs
FLEET_TURNS: Final = 1_200  # turns that are listed over all runs of such a report
FLEET_TURNS_MIN: Final = 24  # of each run
EVENTS_SHOWN: Final = 120  # besides turns, of one run
SHOWN_MAX: Final = 240  # characters of each text in the timeline


class ReportBuilder:
    """Makes reports of one recording. `source` is what its policy was loaded from, so that values have their lines."""

    def __init__(self, recording: Recording, source: Any = None) -> None:
        self._recording = recording
        self._places = PolicyPlaces(recording.policy, source)
        policy = recording.policy
        self._policy = PolicyShown(name=policy.name, version=policy.version, hash=policy.hash)

    # -- one run

    def run(self, history: RunHistory, turns_shown: int = TURNS_SHOWN, about: str = "") -> RunReport:
        """Return the report of a run, with at most `turns_shown` turns listed. It is about the decision with the id
        `about`; without it, about the one that halted the run, else about the first warning."""
        main = next((one for one in history.decisions if one.id == about), None) or facts.main_decision(history)
        end = history.turns - 1
        decided = min(end, main.turn or 0) if main is not None else end
        onset = min(decided, main.onset) if main is not None and main.onset is not None else None
        split = onset if onset is not None else decided
        shown, left_out, period = occurrences(history, main, decided) if main and end >= 0 else ([], 0, 1)
        chosen = facts.chosen_turns(history, main, onset, decided, turns_shown)
        scope = PolicyScope(*facts.scope_of(history))
        session = history.scope.session if history.scope is not None else ""
        tree, tree_left_out = self._recording.trees.shown(history.run_id, session)
        about_main: dict[str, Any] = {} if main is None else self._about(history, main, split, decided)
        return RunReport(
            run_id=history.run_id,
            name=self._recording.name_of(history.run_id),
            state=facts.standing(history),
            sentence=facts.sentence(history, main),
            workflow=scope.workflow,
            tenant=scope.tenant,
            user=scope.user,
            turns_total=history.turns,
            first_at=history.at[0] if history.turns else 0,
            last_at=history.at[-1] if history.turns else 0,
            finished=history.finished,
            resumed=facts.resumed(history),
            began=facts.moment(history, onset),
            warned=facts.moment(history, facts.first_warning(history, onset, decided)),
            halted=facts.moment(history, decided if history.halt is not None else None),
            last=facts.moment(history, end),
            total=facts.spend(history, 0, history.turns),
            occurrences=tuple(shown),
            occurrences_left_out=left_out,
            period=period,
            trend=facts.trend(history),
            budgets=(history.budgets_at_halt if history.halt is not None else ()) or history.budgets,
            ring=facts.ring(history, main, onset, decided),
            first_error=facts.first_error(history, onset, decided),
            nodes=tuple(facts.node_rows(history)),
            stretches=tuple(facts.stretches(history)),
            decisions=tuple(history.decisions[:DECISIONS_SHOWN]),
            decisions_left_out=max(0, len(history.decisions) - DECISIONS_SHOWN) + history.decisions_left_out,
            turns=tuple(_turn(history, index) for index in chosen),
            events=tuple(history.noted.shown)[-EVENTS_SHOWN:],
            events_left_out=max(0, history.noted.total - EVENTS_SHOWN),
            tree=tree,
            tree_left_out=tree_left_out,
            content=history.has_content,
            others=tuple(self._others(history, scope)),
            policy=self._policy,
            policy_values=tuple(self._values(history, main, scope)),
            todo=tuple(facts.todo(main)),
            reproduce=self._commands(history, main),
            log=self._where(history),
            version=__version__,
            notes=tuple(facts.notes(history, self._recording.left_out)),
            **about_main,
        )

    def _about(self, history: RunHistory, main: Decision, split: int, decided: int) -> dict[str, Any]:
        """Return the fields about the decision that the report is about, and about what came before and after it."""
        return {
            "code": main.code,
            "detector": name_of(main.code),
            "decision_id": main.id,
            "terminal_status": (main.severity == "halt" and main.terminal_status) or "",
            "stop_reason": (main.severity == "halt" and main.stop_reason) or "",
            "node": main.node or "",
            "badge": main.badge or "",
            "before": facts.spend(history, 0, split),
            "during": facts.spend(history, split, decided + 1),
            "after": facts.spend(history, decided + 1, history.turns),
            "estimate": facts.estimate(history, main, split, decided),
        }

    def _others(self, history: RunHistory, scope: PolicyScope) -> list[DetectorLook]:
        """Return the detectors that had evidence and reported nothing, those with most evidence first."""
        found = {decision.code for decision in history.decisions}
        limits = self._recording.policy.effective(*scope)["detectors"]
        looks = []
        for code, module in BY_CODE.items():
            kinds = module.DETECTOR.kinds
            events = sum(count for bits, count in history.asked.items() if bits & kinds)
            if events and code not in found and limits.get(code) is not None:
                looks.append(DetectorLook(code=code, name=name_of(code), events=events))
        return sorted(looks, key=lambda one: (-one.events, one.code))

    def _values(self, history: RunHistory, main: Decision | None, scope: PolicyScope) -> Iterator[PolicyValue]:
        declared = dict(history.scope.budgets) if history.scope is not None else {}
        return self._places.values([main.code] if main is not None else [], scope, declared)

    def _commands(self, history: RunHistory, main: Decision | None) -> tuple[str, ...]:
        run_id = shlex.quote(history.run_id)
        commands = [one.replace("RUN", run_id) for one in self._recording.commands]
        return (*commands, f"streamproc explain {main.code}") if main is not None else tuple(commands)

    def _where(self, history: RunHistory) -> str:
        first, last = history.first_event, history.last_event
        if first is None or last is None:
            return ""
        logs = self._recording.logs
        if first.unit == "offset":
            return f"{logs[0]}, partition {first.log}, offsets {first.number} to {last.number}"
        begin = f"{logs[first.log]}, {first.unit} {first.number}"
        if first.log == last.log:
            return f"{begin} to {last.number}"
        return f"{begin}, to {logs[last.log]}, {last.unit} {last.number}"

    # -- all runs

    def fleet(self, reports_shown: int = REPORTS_SHOWN, turns_shown: int = FLEET_TURNS) -> FleetReport:
        """Return the report of all runs, with the reports of the first ones that were halted or warned."""
        histories = sorted(self._recording.histories.values(), key=_trouble)
        stuck = [one for one in histories if facts.standing(one) != "unremarkable"][:reports_shown]
        each = max(FLEET_TURNS_MIN, turns_shown // max(1, len(stuck)))
        places = {id(one): number for number, one in enumerate(stuck, 1)}
        name_of = self._recording.name_of
        rows = [_row(one, places.get(id(one), 0), name_of(one.run_id)) for one in histories[:ROWS_SHOWN]]
        states = Counter(map(facts.standing, histories))
        halted = [one for one in histories if one.halt is not None]
        lost = _sum([facts.after_onset(one, one.halt) for one in halted])
        total = _sum([facts.spend(one, 0, one.turns) for one in histories])
        logs = self._recording.logs
        return FleetReport(
            sentence=_fleet_sentence(len(histories), states["halted"], states["warned"], lost),
            runs_total=len(histories),
            halted=states["halted"],
            warned=states["warned"],
            turns_total=total.turns,
            after_onset=lost,
            total=total,
            detectors=tuple(_tallies(histories)),
            runs=tuple(rows),
            runs_left_out=max(0, len(histories) - ROWS_SHOWN),
            reports=tuple(self.run(one, each) for one in stuck),
            policy=self._policy,
            reproduce=tuple(one for one in self._recording.commands if "RUN" not in one),
            log=f"{logs[0]} and {plural(len(logs) - 1, 'more log')}" if len(logs) > 1 else "".join(logs),
            version=__version__,
        )


def _turn(history: RunHistory, index: int) -> TurnShown:
    detail = history.details.get(index)
    texts = detail.texts if detail is not None else None
    calls = tuple(map(shown_call, texts.calls)) if texts is not None else ()
    made = len(detail.turn.calls) if detail is not None else 0
    errors = (detail.turn.errors or detail.turn.call_errors) if detail is not None else None
    return TurnShown(
        turn=index,
        node=history.node(index),
        kind=history.kind(index),
        at=history.at[index],
        place=history.place(index),
        calls=calls,
        calls_left_out=max(0, made - CALLS_MAX) if calls else made,
        said=excerpt(texts.said, SHOWN_MAX) if texts is not None else "",
        left=excerpt(texts.left, SHOWN_MAX) if texts is not None else "",
        failing=detail.turn.tests.failing if detail is not None and detail.turn.tests is not None else None,
        error=excerpt(errors.excerpt, SHOWN_MAX) if errors is not None else "",
        tokens=history.tokens[index],
        cost_usd_micro=history.cost[index],
    )


def _trouble(history: RunHistory) -> tuple[int, int, int]:
    """Return a key that sorts runs: halted first, then warned, each by what the loop took."""
    order = {"halted": 0, "warned": 1, "unremarkable": 2}[facts.standing(history)]
    lost = facts.after_onset(history, history.halt)
    return order, -lost.cost_usd_micro, -lost.turns


def _row(history: RunHistory, place: int, name: str) -> RunRow:
    main = facts.main_decision(history)
    row = RunRow(
        run_id=history.run_id,
        name=name,
        at=history.at[0] if history.turns else 0,
        state=facts.standing(history),
        turns=history.turns,
        workflow=facts.scope_of(history)[0],
        total=facts.spend(history, 0, history.turns),
        place=place,
    )
    if main is None:
        return row
    return msgspec.structs.replace(
        row,
        code=main.code,
        detector=name_of(main.code),
        sentence=main.message,
        onset=main.onset,
        decided=main.turn or 0,
        after_onset=facts.after_onset(history, history.halt),
    )


def _tallies(histories: list[RunHistory]) -> list[DetectorTally]:
    decisions: Counter[str] = Counter()
    halted: defaultdict[str, set[str]] = defaultdict(set)
    warned: defaultdict[str, set[str]] = defaultdict(set)
    for history in histories:
        for one in history.decisions:
            decisions[one.code] += 1
            (halted if one.severity == "halt" else warned)[one.code].add(history.run_id)
    tallies = [
        DetectorTally(
            code=code, name=name_of(code), runs_halted=len(halted[code]), runs_warned=len(warned[code]), decisions=count
        )
        for code, count in decisions.items()
    ]
    return sorted(tallies, key=lambda one: (-one.runs_halted, -one.runs_warned, one.code))


def _sum(spends: list[SpendShown]) -> SpendShown:
    return SpendShown(
        turns=sum(one.turns for one in spends),
        tokens=sum(one.tokens for one in spends),
        cost_usd_micro=sum(one.cost_usd_micro for one in spends),
        ms=sum(one.ms for one in spends),
    )


def _fleet_sentence(runs: int, halted: int, warned: int, lost: SpendShown) -> str:
    if not runs:
        return "The log has no runs."
    if not halted:
        of = f"{warned} of {plural(runs, 'run')} got warnings" if warned else "no detector had anything to report"
        return f"No run was halted; {of}."
    were = "was" if halted == 1 else "were"
    more = f", {warned} more got warnings" if warned else ""
    return f"{halted} of {plural(runs, 'run')} {were} halted{more}. Wasted after the loops began: {spent(lost)}."


def name_of(code: str) -> str:
    """Return the name of a detector; a plug-in has its code only."""
    return BY_CODE[code].DETECTOR.name if code in BY_CODE else ""


def shown_call(call: CallTexts) -> CallShown:
    """Return a call as the report shows it."""
    tool, args, answer = (excerpt(one, SHOWN_MAX) for one in (call.tool, call.args, call.answer))
    outcome: Outcome = "failed" if call.failed else "answered" if call.answer is not None else "no answer"
    return CallShown(tool=tool, args=args, answer=answer, outcome=outcome)
