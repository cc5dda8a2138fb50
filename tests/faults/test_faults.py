"""After every fault, the control topic holds the decisions of `streamproc scan` on the same log.

No decision is missing, none is made up, and copies are identical. Each run's state in the changelog equals that of the
scan, and everything is committed. `make faults` runs the long form of each fault repeatedly.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.runner import Case, Mode, Runner

MODE = Mode.from_environment()


@pytest.fixture(scope="module")
def runner(request: pytest.FixtureRequest, brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runner]:
    """Runs all selected cases."""
    selected = [item.callspec.params["case"] for item in request.session.items if _is_a_case(item)]
    runner = Runner(MODE, brokers, tmp_path_factory.mktemp("faults"), selected)
    yield runner
    runner.close()


def _is_a_case(item: pytest.Item) -> bool:
    return getattr(item, "originalname", "") == test_no_decision_is_lost_and_none_is_made_up.__name__


@pytest.mark.long
@pytest.mark.parametrize("case", MODE.cases(), ids=lambda case: f"{case.fault}, {case.path}")
def test_no_decision_is_lost_and_none_is_made_up(runner: Runner, case: Case) -> None:
    runner.result(case)
