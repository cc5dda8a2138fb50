"""Answers of checks, in the forms of the tools that give them: whether they say that the check has passed."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from streamproc.detectors.base import call
from streamproc.fingerprint.passed import has_passed
from tests.feeding import decisions

PASSED = (
    "12 passed", "12 passed, see the issues", "  5 passing (12ms)", "Tests:       5 passed, 5 total",
    "5/5 tests passed",
    "Success: no issues found in 3 source files", "All checks passed!", "OK", "Ran 5 tests in 0.1s\n\nOK (skipped=1)",
    "OK (5 tests, 9 assertions)", "12 examples, 0 failures", "3 tests, 0 failures", "0 issues.", "0 problems",
    "0 errors, 0 warnings, 0 informations ", "svelte-check found 0 errors and 0 warnings", "Found 0 errors.",
    "✔ No ESLint warnings or errors", "No syntax errors detected in index.php", " [OK] No errors", "No errors found!",
    "5 files inspected, no offenses detected", "Done linting! Found 0 violations, 0 serious in 5 files.",
    "✔ 0 errors, 0 warnings and 0 suggestions in 1 file.", "Summary: 0 error(s)",
    "1 chart(s) linted, 0 chart(s) failed",
    "Passed: 0 failure(s), 0 warning(s) on 5 files.", "Tests run: 5, Failures: 0, Errors: 0, Skipped: 0",
    "Valid: 3, Invalid: 0, Errors: 0, Skipped: 0", "# tests 5\n# pass 5\n# fail 0", "TAP version 13\nok 1 - adds\n1..1",
    "ok  \texample.com/add\t(cached)", "?   \texample.com/cmd\t[no test files]\nok  \texample.com/add\t0.003s",
    "test result: ok. 5 passed; 0 failed; 0 ignored", "    Finished `dev` profile [unoptimized] target(s) in 0.01s",
    "Build succeeded.\n    0 Warning(s)\n    0 Error(s)", "BUILD SUCCESSFUL in 1s",
    "Success! The configuration is valid.",
    "nginx: the configuration file syntax is ok", "Syntax OK", "deploy.pl syntax OK", "Already up to date.",
    "Checking formatting...\nAll matched files use Prettier code style!", "12 files left unchanged",
    "All done!\n5 files would be left unchanged.", "Checked 12 files. No fixes applied.",
    "Your code has been rated at 10.00/10", '{"status":"ok"}', '{"status": "healthy", "version": 3}',
    "> app@1.0.0 lint\n> eslint .\n", "\n> app@1.0.0 typecheck\n> tsc --noEmit\n\n", "0 of 12 tests failed",
    "", "\n", "(Bash completed with no output)", "Tool ran without output or errors", "(no output)", "(No content)",
    "Your command ran successfully and did not produce any output.", "Command executed successfully with no output",
    "<returncode>0</returncode>\n<output>\n</output>", "Exit code: 0\nWall time: 0.2 seconds\nOutput:\n",
    "[The command completed with exit code 0.]\n[Current working directory: /app]", "$ tsc\nDone in 0.31s.",
)  # fmt: skip
NOT_PASSED = (
    "42", "None", "1 failed", "3 passed, 2 failed", "FAILED test_a.py::test_add - assert 3 == 4", "make: *** [a] 1",
    "5 examples, 1 failure", "1 error, 0 warnings", "0 errors, 2 warnings", "✖ 3 problems (0 errors, 3 warnings)",
    "10 issues", "Found 10 errors.", "5 passing\n1 failing", "12 passed, 2 warnings", "FAILED (failures=1)",
    "FAILED (errors=0, failures=2)", "Tests run: 5, Failures: 1, Errors: 0", "test result: FAILED. 3 passed; 2 failed",
    "ERROR: 0 tests collected", "Error: 0 items found", "error 0x80070005", "ok 1 - adds\nnot ok 2 - subtracts",
    "FAIL\texample.com/add\t0.003s\nok  \texample.com/sub\t(cached)", "5 files inspected, 2 offenses detected",
    "Valid: 2, Invalid: 1, Errors: 0, Skipped: 0", "Summary: 2 error(s)", "0 passing", "3/5 tests passed",
    "3 of 5 tests passed", "The check has not passed.", "Success: no issues found\nwarning: unused variable",
    "bash: eslint: command not found", "No module named 'app'", "no such file or directory: a.py", "token look book",
    "Traceback (most recent call last):\n  File 'a.py'\nok", '{"status":"down"}', "Your code has been rated at 9.10/10",
    "> app@1.0.0 lint\n> eslint .\n\na.js: 3:1 unexpected token", "invalid syntax",
    "Command failed with no output", "<returncode>1</returncode>\n<output>\n</output>", "Exit code: 2\nOutput:\n", "[]",
    "<returncode>0</returncode>\n<output>\n4.2\n</output>", "There is no output file 4.2", "x" * 600,
)  # fmt: skip


def rounds(times: int, answer: str) -> list[dict[str, Any]]:
    """Return edits, each followed by a check with this answer."""
    turns = []
    for n in range(times):
        turns.append(call("edit", {"path": "a.py", "old_str": "x", "new_str": f"x + {n}"}, f"edit {n} done"))
        turns.append(call("check", {}, answer))
    return turns


@pytest.mark.parametrize("answer", PASSED)
def test_an_answer_that_says_so_has_passed(answer: str) -> None:
    assert has_passed(answer)


@pytest.mark.parametrize("answer", NOT_PASSED)
def test_what_names_trouble_or_says_nothing_of_it_has_not(answer: str) -> None:
    assert not has_passed(answer)


@pytest.mark.parametrize("answer", PASSED)
def test_a_passing_check_after_each_edit_is_no_loop(answer: str) -> None:
    assert decisions(rounds(9, answer)) == []


@pytest.mark.parametrize("answer", NOT_PASSED)
def test_another_one_after_each_edit_is_a_loop(answer: str) -> None:
    assert [decision.code for decision in decisions(rounds(6, answer))] == ["LOOP012"] * 2


@pytest.mark.parametrize("answer", PASSED)
def test_the_end_of_a_long_answer_says_it(answer: str) -> None:
    long = f"{'collected 12 items; ' * 40}\n{answer}"
    assert has_passed(long) or not has_passed(f"collected 12 items;\n{answer}")  # what says nothing is short


@pytest.mark.parametrize(("result", "expected"), [
    ({"stdout": "", "stderr": "", "interrupted": False}, True),
    ({"stdout": "0 errors, 0 warnings", "stderr": ""}, True),
    ({"stdout": "ok", "stderr": "warning: unused"}, False),
    ({"stdout": "4.2", "stderr": ""}, False),
    ({"output": "", "exit_code": 0}, True),
    ({"output": "", "exit_code": 1}, False),
    ({"output": "12 passed", "exitCode": 1}, False),
    ({"output": {"text": "12 passed"}}, True),
    ({"rows": []}, False),
])  # fmt: skip
def test_a_result_with_outputs_says_what_they_say(result: dict[str, Any], expected: bool) -> None:
    assert has_passed(json.dumps(result), result) is expected


NONE, TROUBLE = ("no", "0", "No", "zero"), ("issues", "errors", "problems", "failures", "warnings", "violations")


@pytest.mark.parametrize(("none", "what"), list(product(NONE, TROUBLE)))
def test_none_of_any_trouble_has_passed_and_one_has_not(none: str, what: str) -> None:
    assert has_passed(f"Checked 3 files: {none} {what} found")
    assert not has_passed(f"Checked 3 files: 1 {what} found")
    assert not has_passed(f"Checked 3 files: {none} {what} found, 1 failed")
