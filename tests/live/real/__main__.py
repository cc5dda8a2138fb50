"""Runs the real coding CLIs against a model on loopback, and checks that those that are stuck are stopped: `make live`.

    python -m tests.live.real                          # the CLIs of the lock, installed with npm into .local/live
    python -m tests.live.real --clis DIR               # those in a folder
    python -m tests.live.real --only claude,loops      # a part: CLIs and checks
    python -m tests.live.real --record tests/live/recorded

Prints a line for each check. Exits 0 if all of them are as expected, 1 if one is not, and 3 if nothing ran.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.live.real.checks import CHECKS, ONLY_FOR, Seen, Stage, together
from tests.live.real.clis import CLIS, RealCli
from tests.live.real.fake_model import FakeModel
from tests.live.real.packages import install, version_of
from tests.live.real.recording import record
from tests.live.real.worlds import Failure

EXIT_FAILED: Final = 1
EXIT_NOTHING_RAN: Final = 3
TOGETHER: Final = "together"
AT_ONCE: Final = 3
ROW: Final = "{:<7} {:<9} {:<9} {:>6}  {:<41} {}"
ALL_CHECKS: Final = (*CHECKS, TOGETHER)


def main() -> int:
    """Run the checks."""
    options = _options()
    if unknown := options.only - {*CLIS, *ALL_CHECKS}:
        print(f"live: NOTHING RAN: there is no {', '.join(sorted(unknown))}")
        return EXIT_NOTHING_RAN
    began = time.monotonic()
    try:
        programs = options.clis or install()
    except OSError as problem:
        print(f"live: NOTHING RAN: the CLIs cannot be installed: {problem}")
        return EXIT_NOTHING_RAN
    versions = {name: found for name in CLIS if (found := version_of(name, programs.resolve()))}
    names = [name for name in versions if _is_chosen(name, options.only, CLIS)]
    if not names:
        print(f"live: NOTHING RAN: {programs} has none of {', '.join(CLIS)} that starts")
        return EXIT_NOTHING_RAN
    for name in CLIS.keys() - versions.keys():
        print(f"live: {name} is not in {programs}: it is not tested")
    with _folder(options.keep) as folder, FakeModel().serving() as model:
        kept = partial(record, options.record, versions) if options.record else lambda *_: None
        stage = Stage(model, programs.resolve(), folder, kept)
        failed, ran = _run(stage, [CLIS[name] for name in names], versions, options.only)
    print(f"live: {ran} checks, {failed} failed, {time.monotonic() - began:.0f} s")
    if not ran:
        print("live: NOTHING RAN")
        return EXIT_NOTHING_RAN
    return EXIT_FAILED if failed else 0


@contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    """Make the folder of all homes, which is removed in the end unless it is `kept`."""
    if kept is not None:
        kept.mkdir(parents=True)
        yield kept.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="live-", ignore_cleanup_errors=True) as folder:
        yield Path(folder).resolve()


def _run(stage: Stage, clis: list[RealCli], versions: dict[str, str], only: set[str]) -> tuple[int, int]:
    """Run all checks that are chosen, several at once; return how many have failed, and how many there were."""
    tasks: list[tuple[str, str, Callable[[], Seen]]] = [
        (cli.name, name, partial(check, stage, cli))
        for name, check in CHECKS.items()
        for cli in clis
        if _is_chosen(name, only, ALL_CHECKS) and cli.name in ONLY_FOR.get(name, CLIS)
    ]
    if len(clis) > 1 and _is_chosen(TOGETHER, only, ALL_CHECKS):
        tasks.append(("all", TOGETHER, partial(together, stage, clis)))
    failed = 0
    print(ROW.format("CLI", "version", "scenario", "ms", "expected", "seen"), flush=True)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for (who, name, _), found in zip(tasks, pool.map(_outcome, (task for *_, task in tasks)), strict=True):
            failed += found.failed
            seen = f"FAILED: {found.seen}" if found.failed else "the same"
            print(ROW.format(who, versions.get(who, ""), name, found.ms, found.expected, seen), flush=True)
    return failed, len(tasks)


def _outcome(check: Callable[[], Seen]) -> Seen:
    try:
        return check()
    except (Failure, AssertionError) as problem:
        return Seen("no fault", str(problem), 0)
    except Exception:  # noqa: BLE001 (the other checks go on)
        return Seen("no fault", traceback.format_exc(), 0)


def _is_chosen(name: str, only: set[str], names: Iterable[str]) -> bool:
    """Whether a CLI or a check is chosen: by its name, or because no other of its kind is."""
    return name in only or only.isdisjoint(names)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.live.real", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--clis", type=Path, metavar="DIR", help="the folder with the programs claude, codex and gemini"
    )
    parser.add_argument(
        "--only", type=lambda text: set(text.split(",")), default=set(), metavar="NAMES",
        help=f"some CLIs and checks: {', '.join([*CLIS, *ALL_CHECKS])}",
    )  # fmt: skip
    parser.add_argument("--record", type=Path, metavar="DIR", help="keep the events of each session, without its paths")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="a new folder for the homes, which stay there")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
