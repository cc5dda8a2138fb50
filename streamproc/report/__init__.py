"""Reports that explain why runs were halted: one file for a person, Markdown for a ticket, JSON for a program."""

from __future__ import annotations

from streamproc.report.markdown import markdown_of
from streamproc.report.model import FleetReport, Report, RunReport
from streamproc.report.recording import Recording
from streamproc.report.writing import FORMATS, fleet_report, html_of, json_of, report_of, write_report

__all__ = [
    "FORMATS", "FleetReport", "Recording", "Report", "RunReport", "fleet_report", "html_of", "json_of", "markdown_of",
    "report_of", "write_report",
]  # fmt: skip
