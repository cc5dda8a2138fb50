"""Run the compiled core under AddressSanitizer and UndefinedBehaviorSanitizer: ``make sanitize``.

A copy of this checkout below `.local/` gets a core with checks of every access to memory and every operation in C. The
tests of core, laws and golden traces, the comparison with pure Python, and the fuzzer run on it; the first error of a
sanitizer ends them. Takes about 10 minutes, and needs gcc with its sanitizers.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COPY = ROOT / ".local/sanitized"
CHECKS = "-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer"
LEFT_OUT = (".git", ".venv", ".local", ".*_cache", ".hypothesis", "__pycache__", "_compiled", "node_modules", "build")
TESTS = (
    "tests/compiled/check.py",
    "tests/compiled/check_fingerprint.py",
    "tests/core",
    "tests/laws",
    "tests/test_golden.py",
)
FUZZED = "5000"  # malformed inputs, over all readers


def library(name: str) -> str:
    """Return the path of a sanitizer's library. Exits if there is none."""
    cc = (os.environ.get("CC") or "gcc").split()[0]
    found = subprocess.run([cc, f"-print-file-name={name}"], capture_output=True, text=True, check=False).stdout.strip()
    if not Path(found).is_absolute():
        sys.exit(f"sanitize: {cc} has no {name}; install gcc with libsanitizer, or set CC to one that has it")
    return found


def main() -> None:
    libraries = f"{library('libasan.so')} {library('libubsan.so')}"
    shutil.rmtree(COPY, ignore_errors=True)
    shutil.copytree(ROOT, COPY, ignore=shutil.ignore_patterns(*LEFT_OUT), symlinks=True)
    environment = os.environ | {
        "PYTHONPATH": str(COPY), "LD_PRELOAD": libraries, "CFLAGS": CHECKS, "LDFLAGS": CHECKS,
        "PYTHONMALLOC": "malloc",  # Python's own allocator hides what is written past a block
        "ASAN_OPTIONS": "detect_leaks=0",  # Python keeps what it has interned
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }  # fmt: skip
    for what, command in (
        ("compiling a core with checks", ["deploy/compiled/build.py"]),
        ("running tests", ["-m", "pytest", "-q", "-x", "-n", "2", *TESTS]),
        ("giving readers malformed inputs", ["-m", "tests.fuzz", "--unguided", "--inputs", FUZZED]),
    ):
        print(f"sanitize: {what}", flush=True)
        needs_core = {} if what.startswith("compiling") else {"STREAMPROC_CORE": "compiled"}
        ended = subprocess.run([sys.executable, *command], cwd=COPY, env=environment | needs_core, check=False)
        if ended.returncode:
            sys.exit(f"sanitize: {' '.join(command)} ended with {ended.returncode}: see above")
    print("sanitize: no error")


if __name__ == "__main__":
    main()
