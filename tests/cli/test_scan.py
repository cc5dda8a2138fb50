"""`streamproc scan`: exit codes, both formats, and every kind of invalid input."""

from __future__ import annotations

import gzip
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from streamproc.model.controls import read_control
from streamproc.samples import outcomes
from tests.cli.conftest import ROOT, command, honest, jsonl, stuck
from tests.waiting import wait_until

SAMPLES = ROOT / "streamproc" / "samples" / "trajectories.jsonl.gz"


def test_a_stuck_run_is_exit_code_1_and_is_reported_with_turn_reason_and_actions(run, turns_file: Path) -> None:
    result = run("scan", turns_file)

    assert result.exit_code == 1
    assert "HALTED  stuck  at turn 2 of 4, 1 more followed" in result.stdout
    assert "LOOP001  coder repeated the same output 3 times in a row" in result.stdout
    assert "stalled, began at turn 0; the run ends as aborted_stuck" in result.stdout
    assert "to do: switch_to_interactive; or " in result.stdout
    assert "honest" not in result.stdout
    assert "2 runs, 8 turns: 1 halted, 0 warned, 1 without findings. 1 turn came after a halt." in result.stdout
    assert result.stderr == ""


def test_a_run_halted_before_its_first_turn_has_no_turns_after_the_halt(run) -> None:
    graph = {"edges": [["a", "b"], ["b", "a"]]}
    result = run("scan", "-", input=jsonl([{"type": "run.started", "run_id": "trap", "graph": graph}]))

    assert "HALTED  trap  before its first turn\n" in result.stdout
    assert "1 run, 0 turns: 1 halted, 0 warned, 0 without findings. 0 turns came after a halt." in result.stdout


def test_honest_runs_give_exit_code_0(run) -> None:
    result = run("scan", "-", input=jsonl(honest()))

    assert result.exit_code == 0
    assert result.stdout == "1 run, 4 turns: 0 halted, 0 warned, 1 without findings.\n"


def test_a_run_with_only_warnings_is_exit_code_0(run) -> None:
    result = run("scan", "-", input=jsonl(stuck(turns=2)))

    assert result.exit_code == 0
    assert result.stdout.startswith("warn  stuck  turn 1 in coder  standard input:2\n")
    assert result.stdout.endswith("1 run, 2 turns: 0 halted, 1 warned, 0 without findings.\n")


def test_jsonl_is_control_events_in_log_order_and_nothing_else(run, turns_file: Path) -> None:
    result = run("scan", turns_file, "--format", "jsonl")

    controls = [read_control(line) for line in result.stdout.splitlines()]
    assert [(c.run_id, c.severity, c.trigger.turn) for c in controls] == [("stuck", "warn", 1), ("stuck", "halt", 2)]
    assert result.stderr == ""
    assert result.exit_code == 1


def test_several_files_are_one_log_and_gzip_is_decompressed(run, tmp_path: Path) -> None:
    first, second = tmp_path / "a.jsonl", tmp_path / "b.jsonl.gz"
    first.write_text(jsonl(stuck(turns=2)))
    second.write_bytes(gzip.compress(jsonl(stuck(turns=1)).encode()))

    result = run("scan", first, second)

    assert "at turn 2 of 3" in result.stdout


def test_a_named_pipe_is_read(turns_file: Path) -> None:
    script = f'exec "{sys.executable}" -m streamproc scan <(cat "{turns_file}") --format jsonl'
    found = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)

    assert found.stderr == ""
    assert len(found.stdout.splitlines()) == 2


def test_control_events_are_printed_while_the_pipe_is_open() -> None:
    """You can scan a live agent: the halt is printed before the agent ends."""
    process = subprocess.Popen(
        [sys.executable, "-m", "streamproc", "scan", "-", "--format", "jsonl"],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with process:
        assert process.stdout is not None
        process.stdin.write(jsonl(stuck(turns=3)))
        process.stdin.flush()

        severities = [read_control(process.stdout.readline()).severity for _ in range(2)]

        process.stdin.close()
    assert severities == ["warn", "halt"]
    assert process.returncode == 1


@pytest.mark.parametrize(("line", "field"), [
    ("nonsense", "event: not JSON"), ("[]", "event: expected a JSON object"), ('{"node": "coder"}', "run_id: "),
    ('{"run_id": "", "node": "coder"}', "run_id: "), ('{"run_id": 7, "node": "coder"}', "run_id: "),
    ('{"run_id": "r"}', "node: "), ('{"run_id": "r", "node": "coder", "type": "nope"}', "type: "),
    ('{"run_id": "r", "node": "coder", "usage": {"cost_usd": NaN}}', "event: not JSON"),
    ('{"run_id": "r", "node": "coder", "usage": {"cost_usd": "NaN"}}', "usage.cost_usd: "),
    ('{"run_id": "r", "node": "coder", "usage": {"cost_usd": -1}}', "usage.cost_usd: "),
    ('{"run_id": "r", "node": "coder", "at": "9999-01-01T00:00:00Z"}', "at: "),
    ('{"run_id": "r", "node": "coder", "tool_calls": {"name": "x"}}', "tool_calls: "),
    ('{"run_id": "r", "node": "coder", "output": "\\ud800"}', "event: not JSON"),
    ('{"run_id": "r", "node": "coder", "structured_output": ' + "[" * 5000 + "]" * 5000 + "}", "event: not JSON"),
])  # fmt: skip
def test_the_first_invalid_line_ends_the_scan_with_file_line_and_field(
    run, tmp_path: Path, line: str, field: str
) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl(honest(turns=2)) + line + "\n" + jsonl(stuck()))

    result = run("scan", path)

    assert result.exit_code == 2
    assert result.stderr.startswith(f"error: {path}:3: {field}")
    assert result.stdout == ""


def test_lenient_skips_and_counts_invalid_lines(run, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    bad = b'nonsense\n\xff\xfe\n{"run_id": "r"}\n'
    path.write_bytes(jsonl(stuck(turns=2)).encode() + bad + jsonl(stuck(turns=1)).encode())

    result = run("scan", path, "--lenient", "--format", "jsonl")

    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 2
    assert result.stderr == f"{path}: skipped 3 of 6 lines that cannot be used\n"


MISSPELT = [{"run_id": "r", "node": "coder", "tool_calls": [{"name": "write", "argumets": n}]} for n in range(3)]


def test_unknown_fields_are_ignored_and_listed_after_the_summary(run) -> None:
    result = run("scan", "-", input=jsonl([*MISSPELT, {"run_id": "r", "node": "coder", "mood": "grim"}]))

    assert result.exit_code == 0
    assert "unknown field" not in result.stdout
    assert result.stderr.splitlines() == [
        "3 turns had the unknown field tool_calls.argumets; did you mean arguments?",
        "1 turn had the unknown field mood",
    ]


def test_unknown_fields_of_all_files_are_listed_together(run, tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for path in paths:
        path.write_text(jsonl(MISSPELT))

    result = run("scan", *paths)

    assert result.stderr == "6 turns had the unknown field tool_calls.argumets; did you mean arguments?\n"


def test_notes_on_unknown_fields_stay_out_of_the_jsonl(run) -> None:
    events = [{**event, "ouput": "misspelt"} for event in stuck(turns=3)]

    result = run("scan", "-", "--format", "jsonl", input=jsonl(events))

    assert [read_control(line).severity for line in result.stdout.splitlines()] == ["warn", "halt"]
    assert result.stderr == "3 turns had the unknown field ouput; did you mean output?\n"
    assert result.exit_code == 1


def test_strict_ends_the_scan_at_the_first_unknown_field(run, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl([*honest(turns=1), *MISSPELT]))

    result = run("scan", path, "--strict")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr == (
        f"error: {path}:2: tool_calls.argumets: unknown field (did you mean arguments? Rename it, or leave it out)\n"
    )


def test_strict_and_lenient_skip_events_with_unknown_fields(run, tmp_path: Path) -> None:
    path = tmp_path / "turns.jsonl"
    path.write_text(jsonl([*honest(turns=2), *MISSPELT]))

    result = run("scan", path, "--strict", "--lenient")

    assert result.exit_code == 0
    assert "1 run, 2 turns" in result.stdout
    assert result.stderr == f"{path}: skipped 3 of 5 lines that cannot be used\n"


def test_an_event_of_ten_megabytes_is_read(run) -> None:
    events = [{"run_id": "r", "node": "coder", "output": f"{number} " + "x" * 10_000_000} for number in range(2)]

    assert run("scan", "-", input=jsonl(events)).exit_code == 0


def test_ten_thousand_nodes_in_one_run_are_not_a_loop(run) -> None:
    events = ({"run_id": "r", "node": f"n{number}", "output": f"result {number}"} for number in range(10_000))

    result = run("scan", "-", input=jsonl(events))

    assert result.exit_code == 0
    assert "1 run, 10000 turns" in result.stdout


def test_the_same_event_twice_is_one_event(run) -> None:
    events = [{**event, "event_id": "e1"} for event in stuck(turns=6)]

    assert run("scan", "-", input=jsonl(events)).exit_code == 0


def test_turns_after_the_end_of_a_run_are_ignored(run) -> None:
    finished = {"type": "run.finished", "run_id": "stuck", "status": "succeeded"}

    assert run("scan", "-", input=jsonl([*stuck(turns=2), finished, *stuck(turns=4)])).exit_code == 0


def test_an_unreadable_file_gets_an_error_with_a_remedy(run) -> None:
    result = run("scan", "missing.jsonl")

    assert result.exit_code == 2
    assert (
        result.stderr
        == "error: missing.jsonl: No such file or directory. Give logs of agents, or - for standard input\n"
    )


@pytest.mark.parametrize("options", [(), ("--lenient",)])
def test_logs_without_events_are_unusable(run, tmp_path: Path, options: tuple[str, ...]) -> None:
    empty, foreign = tmp_path / "empty.jsonl", tmp_path / "foreign.json"
    empty.touch()
    foreign.write_text('{"name": "left-pad"}')
    for path, words in ((empty, "no events in these logs"), (foreign, "of no format that is known"), ("--", "no logs")):
        result = run("scan", *options, path)

        assert result.exit_code == 2
        assert words in result.stderr
        assert result.stdout == ""


@pytest.mark.parametrize("command", ["scan", "convert"])
def test_a_log_that_mixes_formats_says_what_was_left_out_if_nothing_is_left(run, tmp_path: Path, command: str) -> None:
    path = tmp_path / "mixed.jsonl"
    path.write_text('{"type": "session_meta", "payload": {"id": "x"}}\n' + jsonl(honest()))
    result = run(command, path)
    assert result.exit_code == 2
    assert result.stderr.index("also has records of raw, which were left out") < result.stderr.index("no events in")


def test_foreign_files_of_a_directory_are_skipped_with_a_note(run, turns_file: Path) -> None:
    turns_file.with_name("package.json").write_text('{"name": "left-pad"}')

    result = run("scan", turns_file.parent)

    assert result.exit_code == 1
    assert f"skipped 1 file of no known format: {turns_file.parent / 'package.json'}" in result.stderr


def test_a_damaged_gzip_is_named(run, tmp_path: Path) -> None:
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(gzip.compress(jsonl(honest()).encode())[:-12])

    result = run("scan", path)

    assert result.exit_code == 2
    assert f"{path}: file: damaged gzip" in result.stderr


def test_an_unknown_policy_is_named_with_the_known_ones(run, turns_file: Path) -> None:
    result = run("scan", turns_file, "--policy", "nope")

    assert result.exit_code == 2
    assert "nope" in result.stderr
    assert "standard" in result.stderr


def test_a_policy_decides_which_runs_halt(run, turns_file: Path, tmp_path: Path) -> None:
    policy = tmp_path / "policy.yaml"
    policy.write_text("name: patient\ndetectors:\n  LOOP001: {halt: 9}\n")

    assert run("scan", turns_file, "--policy", policy).exit_code == 0
    assert run("scan", turns_file).exit_code == 1


def test_a_run_id_cannot_send_control_sequences_to_the_terminal(run) -> None:
    result = run("scan", "-", input=jsonl(stuck(run_id="evil\x1b[2Jrun")))

    assert "\x1b" not in result.stdout
    assert "HALTED  evil\\x1b[2Jrun  at turn 2" in result.stdout


def test_stuck_sample_runs_are_halted_and_solved_ones_are_not(run) -> None:
    result = run("scan", SAMPLES, "--format", "jsonl")

    halted = {c.run_id for c in map(read_control, result.stdout.splitlines()) if c.halts}
    solved = {run_id for run_id, outcome in outcomes().items() if outcome.solved}
    assert len(halted) == 10
    assert not halted & solved
    assert "claude_code_coder/jupyter-notebook-server" in solved


def test_no_colour_reaches_a_pipe(run, turns_file: Path) -> None:
    assert "\x1b" not in run("scan", turns_file).stdout


@pytest.mark.long
def test_ctrl_c_ends_a_scan_by_several_processes_and_leaves_none(tmp_path: Path) -> None:
    for number in range(4):
        turns = "".join(f'{{"run_id":"r{number}","node":"n","output":"{turn}"}}\n' for turn in range(100_000))
        (tmp_path / f"{number}.jsonl").write_text(turns)
    process = command("scan", tmp_path, "-j", 3)
    children: list[psutil.Process] = []

    def at_work() -> bool:
        children[:] = psutil.Process(process.pid).children(recursive=True)
        with suppress(psutil.NoSuchProcess):
            return len(children) >= 3 and sum(child.cpu_times().user for child in children) > 1
        return False

    wait_until(at_work, 20, "the reading processes")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=15)

    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert not psutil.wait_procs(children, 5)[1]
