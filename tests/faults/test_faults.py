"""Every fault ends in the same way: what is on the control topic is what `streamproc scan` says of the same log.

No decision is missing, none is made up, copies carry the same id and the same words; each run's state in the changelog
is the one of the scan; everything is committed. `make faults` plays the long form of each, again and again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.stage import Form, Part, Stage

if TYPE_CHECKING:
    from collections.abc import Iterator

FORM = Form.of_environment()


@pytest.fixture(scope="module")
def stage(request: pytest.FixtureRequest, brokers: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Plays all the parts that were asked for."""
    asked = [item.callspec.params["part"] for item in request.session.items if _is_mine(item)]
    stage = Stage(FORM, brokers, tmp_path_factory.mktemp("faults"), asked)
    yield stage
    stage.close()


def _is_mine(item: pytest.Item) -> bool:
    return getattr(item, "originalname", "") == test_no_decision_is_lost_and_none_is_made_up.__name__


@pytest.mark.parametrize("part", FORM.parts(), ids=lambda part: f"{part.fault}, {part.path}")
def test_no_decision_is_lost_and_none_is_made_up(stage: Stage, part: Part) -> None:
    stage.result(part)
