"""``streamproc scan``: run the engine over files, without a broker."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from streamproc.cli.inputs import Files, Lenient, Strict, opened
from streamproc.cli.options import Policy
from streamproc.cli.terminal import examples, json_line, line

if TYPE_CHECKING:
    from streamproc.core.decision import Decision
    from streamproc.replay.scan import Scan

app = typer.Typer()

Format = Annotated[
    Literal["text", "jsonl"],
    typer.Option("--format", help="text: a readable report; jsonl: one control event a line, in log order."),
]


@app.command(
    epilog=examples(
        "streamproc scan trajectories.jsonl.gz",
        "streamproc scan a.jsonl b.jsonl --policy policy.yaml --format jsonl",
        "my-agent | streamproc scan - --lenient",
    )
)
def scan(
    files: Files, policy: Policy = None, format_: Format = "text", lenient: Lenient = False, strict: Strict = False
) -> None:
    """Find loops, stalls and overspending in recorded runs. Exit 0: no halt; 1: at least one; 2: unusable input."""
    from streamproc.fingerprint import HashKey
    from streamproc.policy import load_policy
    from streamproc.replay.scan import Scan
    from streamproc.settings import load_settings

    settings = load_settings(policy=policy)
    chosen = load_policy(settings.policy)
    key = HashKey.of(settings.hash_key.get_secret_value())
    with opened(files, lenient, "scanning", strict=strict) as sources:
        scanning = Scan(sources, chosen, key)
        halted = _print_jsonl(scanning) if format_ == "jsonl" else _print_text(scanning)
    if halted:
        raise typer.Exit(1)


def _print_jsonl(scanning: Scan) -> bool:
    from streamproc.core.decision import encode_decision

    halted = False
    for decision in scanning:
        json_line(encode_decision(decision).decode())
        halted = halted or decision.severity == "halt"
    return halted


def _print_text(scanning: Scan) -> bool:
    from streamproc.cli.report import by_run, run_lines, summary

    decisions: list[Decision] = list(scanning)
    turns = scanning.turns_of()
    for run_id, own in by_run(decisions).items():
        for text in run_lines(run_id, own, turns[run_id]):
            line(text)
    line(summary(decisions, turns))
    return any(decision.severity == "halt" for decision in decisions)
