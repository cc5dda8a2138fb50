"""LOOP001 and LOOP006: whose repeat it is, and which texts are alike."""

from __future__ import annotations

import pytest

from streamproc.detectors.base import call, said
from streamproc.model.wire import Content, Turn
from tests.feeding import Feed, Raw, decisions

SENTENCE = (
    "There is no code in your last message that I could run. Please write one block of code and say in which language."
    * 2
)


def test_the_sentence_of_a_harness_is_about_the_node_that_it_answers() -> None:
    turns: list[Raw] = [
        turn
        for n in range(5)
        for turn in (said("coder", f"Let me think about part {n} again."), said("terminal", SENTENCE))
    ]
    [*_, halt] = [one for one in decisions(turns) if one.code == "LOOP001"]
    assert (halt.node, halt.severity) == ("coder", "halt")
    assert halt.message.startswith("terminal gave coder the same answer 5 times in a row")
    worked = [call("look", {}, "nothing", node="terminal"), *turns]
    [*_, own] = [one for one in decisions(worked) if one.code == "LOOP001"]
    assert own.node == "terminal", "a node that works repeats itself"


@pytest.mark.parametrize(
    ("sims", "warned"),
    [((0b0, 0b111, 0b111_111), True), ((0b0, 0b111_111, 0b111), True), ((0b0, 0b111_111, 0b111_111_111_111), False)],
    ids=["a chain", "by way of the new one", "two pairs apart"],
)
def test_a_text_may_be_near_the_first_one_by_way_of_another(sims: tuple[int, ...], warned: bool) -> None:
    feed = Feed()
    found = [
        one.code
        for n, sim in enumerate(sims)
        for one in feed.event(Turn(w=1, run_id="r", node="a", output=Content(n + 9, n + 9, sim + (1 << 40), 500)))
    ]
    assert ("LOOP006" in found) == warned
