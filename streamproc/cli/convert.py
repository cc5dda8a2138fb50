"""``streamproc convert``: write logs of any known format as raw turns."""

from __future__ import annotations

import gzip
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, BinaryIO, cast

import typer

from streamproc.cli.inputs import Files, Format, Lenient, Strict, opened
from streamproc.cli.output import Quiet, refuse_logs, written_file
from streamproc.cli.terminal import examples, fail, note
from streamproc.errors import plural

app = typer.Typer()

ConvertedFile = Annotated[
    str | None,
    typer.Option(
        "--output",
        "-o",
        help="Write to this file, compressed if its name ends with .gz or .zst. Default: standard output.",
    ),
]


@app.command(
    epilog=examples(
        "streamproc convert session.jsonl -o turns.jsonl.gz",
        "streamproc convert ~/logs --from raw | streamproc scan -",
    )
)
def convert(
    paths: Files,
    format_name: Format = None,
    output: ConvertedFile = None,
    lenient: Lenient = False,
    strict: Strict = False,
    quiet: Quiet = False,
) -> None:
    """Write logs as raw turns, one JSON object a line, which give the same decisions. Texts are written as they are.

    Exit 0: written; 2: unusable input, or no events in it.
    """
    import orjson

    from streamproc.replay.source import line_event_id

    refuse_logs([output], paths)
    events = 0
    ordinals: Counter[str] = Counter()
    with (
        _written(output) as write,
        opened(paths, lenient, "converting", strict=strict, format_name=format_name, quiet=quiet) as sources,
    ):
        for source in sources:
            for found in source.read_without_ids():
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


@contextmanager
def _written(path: str | None) -> Iterator[Callable[[bytes], object]]:
    """Yield how to write lines."""
    if path is None:
        yield sys.stdout.buffer.write
        sys.stdout.buffer.flush()
        return
    with written_file(path), _opened(path) as stream:
        yield stream.write


def _opened(path: str) -> BinaryIO:
    if path.endswith(".gz"):
        return cast(BinaryIO, gzip.open(path, "wb", compresslevel=6))
    if path.endswith(".zst"):
        import zstandard

        return cast(BinaryIO, zstandard.open(path, "wb"))
    return Path(path).open("wb")
