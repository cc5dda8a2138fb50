"""``streamproc convert``: write logs of any known format as raw turns."""

from __future__ import annotations

from collections import Counter

import typer

from streamproc.cli.inputs import Files, Format, Lenient, Strict, opened
from streamproc.cli.output import LinesFile, Quiet, lines_to, refuse_logs
from streamproc.cli.terminal import examples, fail, note
from streamproc.errors import plural

app = typer.Typer()


@app.command(
    epilog=examples(
        "streamproc convert session.jsonl -o turns.jsonl.gz", "streamproc convert ~/logs --from raw | streamproc scan -"
    )
)
def convert(
    paths: Files,
    format_name: Format = None,
    output: LinesFile = None,
    lenient: Lenient = False,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Write logs as raw turns, one JSON object a line, which give the same decisions. Texts are written as they are.

    Exit 0: written; 2: unusable input, or no events in it.
    """
    import orjson

    from streamproc.fingerprint import is_fingerprinted
    from streamproc.importers.raw_turns import line_event_id

    refuse_logs([output], paths)
    events = 0
    ordinals: Counter[str] = Counter()
    with (
        lines_to(output) as write,
        opened(paths, lenient, "converting", strict=strict, format_name=format_name, quiet=quiet) as sources,
    ):
        for source in sources:
            for found in source.read_without_ids():
                if is_fingerprinted(found.raw):
                    raise fail(f"{source.path}: has fingerprints and no texts: `scan` and `publish` read it as it is")
                raw = dict(found.raw)
                ordinal = ordinals[run_id := raw["run_id"]]
                ordinals[run_id] = ordinal + 1
                if not found.event.event_id:
                    raw["event_id"] = line_event_id(run_id, ordinal)
                write(orjson.dumps(raw, default=str) + b"\n")
                events += 1
            source.log.release()
    if not events:
        raise fail(
            "no events in these logs: they are empty, or hold no turns; give others, or name the format by --from"
        )
    if output is not None and not quiet:
        note(f"{output}: {plural(events, 'event')} of {plural(len(ordinals), 'run')}")
