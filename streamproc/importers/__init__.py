"""Logs of other tools as raw turns: one module for each format, found by content.

`FORMATS` lists them in the order in which they are tried. A new format is a module with a `FORMAT`, listed here.
"""

from streamproc.importers import (
    atif,
    claude_code,
    claude_stream,
    codex,
    codex_exec,
    copilot_cli,
    gemini_cli,
    gemini_stream,
    langfuse,
    langsmith,
    messages,
    mini_swe_agent,
    opencode,
    openhands,
    openhands_v0,
    otlp,
    pi,
    swe_agent,
)
from streamproc.importers.imported import Format, Import, Imported, ImportTally
from streamproc.importers.log_file import LogFile, LogRow, Sample

__all__ = ["FORMATS", "Format", "Import", "ImportTally", "Imported", "LogFile", "LogRow", "Sample"]

FORMATS: tuple[Format, ...] = (
    atif.FORMAT,
    opencode.FORMAT,
    swe_agent.FORMAT,
    mini_swe_agent.FORMAT,
    otlp.FORMAT,
    langfuse.FORMAT,
    langsmith.FORMAT,
    openhands_v0.FORMAT,
    openhands.FORMAT,
    codex.FORMAT,
    claude_code.FORMAT,
    claude_stream.FORMAT,
    codex_exec.FORMAT,
    gemini_cli.FORMAT,
    gemini_stream.FORMAT,
    copilot_cli.FORMAT,
    pi.FORMAT,
    messages.FORMAT,  # anything with roles and contents
)
