"""Masking takes time in proportion to the text, whatever it contains: characters read are counted, not seconds."""

from __future__ import annotations

import pytest

from deploy.compiled.tables import Automaton
from streamproc.fingerprint.mask import SEARCHED
from tests.fingerprint.automata import search
from tests.fingerprint.texts import HARD, hard_texts

pytestmark = [pytest.mark.security, pytest.mark.usefixtures("nobodys_settings")]

SIZE = 2_000
READS_MAX = 8  # of each character, for one pattern


@pytest.mark.parametrize("pattern", dict(SEARCHED).values(), ids=dict(SEARCHED))
def test_twice_the_text_takes_twice_the_steps(pattern: str) -> None:
    automaton = Automaton(pattern)
    for part, text, longer in zip(HARD, hard_texts(SIZE), hard_texts(2 * SIZE), strict=True):
        steps = search(automaton, text).steps
        assert steps <= READS_MAX * SIZE, part
        assert search(automaton, longer).steps <= 2.2 * steps + 100, part
