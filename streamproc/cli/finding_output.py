"""The findings of a scan, printed as they come, for people or as control events."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.cli.inputs import report_reading
from streamproc.cli.terminal import fail, json_line

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamproc.cli.inputs import OpenedLogs
    from streamproc.core.decision import Decision
    from streamproc.replay.scan import Scan


class FindingOutput:
    """Prints the findings of a scan as they come, in one of the two formats, and a summary."""

    def __init__(self, *, jsonl: bool, show: int, quiet: bool, verbose: bool) -> None:
        from streamproc.replay.turn_log import TurnLog

        self.jsonl, self.quiet = jsonl, quiet
        self.turn_log = None if jsonl or quiet else TurnLog()
        self._halted = False
        self._around, self._verbose = show, verbose

    def all_of(self, scan: Scan, sources: OpenedLogs) -> bool:
        """Print the findings of a scan of sources, and its summary. Return whether a run was halted."""
        self.begin(scan)
        for decision in scan:
            self.add(decision)
        if not scan.events and not self.quiet:  # what was left out may be why
            report_reading(sources, sources.reading, sources.unknown_fields)
        return self.end(sources.skipped)

    def begin(self, scan: Scan) -> None:
        """Prepare for the findings of this scan."""
        self._scan = scan
        if not self.jsonl:
            from streamproc.cli.findings import FindingReport
            from streamproc.replay.turn_log import TurnLog

            turns = self.turn_log or TurnLog()
            self._report = FindingReport(scan, turns, around=self._around, verbose=self._verbose)

    def add(self, decision: Decision) -> None:
        """Print a finding."""
        self._halted = self._halted or decision.severity == "halt"
        if self.jsonl:
            from streamproc.core.decision import encode_decision

            json_line(encode_decision(decision).decode())
        elif not self.quiet:
            self._report.add(decision)

    def end(self, skipped: Mapping[str, Exception] | None = None) -> bool:
        """Print the summary. Return whether a run was halted. Logs without any event are an error."""
        if not self._scan.events:
            for error in (skipped or {}).values():
                raise error
            raise fail(
                "no events in these logs: they are empty, or hold no turns; give others, or name the format by --from"
            )
        if self.turn_log is not None:
            self.turn_log.finish()
        if not self.jsonl:
            self._report.summary(len(skipped or ()))
        return self._halted
