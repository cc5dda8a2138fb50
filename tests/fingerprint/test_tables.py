"""The automata of the masks' patterns find what `re` finds."""

from __future__ import annotations

import re

import pytest

from deploy.compiled.tables import Automaton, CharTable, Unsupported, written
from streamproc.fingerprint.mask import ASKED, SEARCHED
from tests.fingerprint.automata import end_of_match, search
from tests.fingerprint.texts import hard_texts, mutated_texts

TEXTS = [*mutated_texts(1, 1_500), *hard_texts(300)]


@pytest.mark.parametrize("pattern", dict(SEARCHED).values(), ids=dict(SEARCHED))
def test_an_automaton_finds_the_matches_that_re_finds(pattern: str) -> None:
    automaton, found = Automaton(pattern), 0
    for text in TEXTS:
        spans = [match.span() for match in re.finditer(pattern, text)]
        found += len(spans)
        assert search(automaton, text).spans == spans, text
    assert found > 50


@pytest.mark.parametrize("pattern", dict(ASKED).values(), ids=dict(ASKED))
def test_an_automaton_answers_as_re_does(pattern: str) -> None:
    table, answers = CharTable(pattern), set[bool]()
    keys = [
        "elapsed", "xelapsed", "é_ms", "tookMs\\", "tİmeout", "ttl", "TTL_ms", "\u0131nterval", "12e", "1٢", "x1",
        "delay\u017f",
    ]  # fmt: skip
    for text in [*keys, *(text[:24] for text in TEXTS)]:
        answer = re.match(pattern, text) is not None
        answers.add(answer)
        assert (end_of_match(table, text, 0)[0] >= 0) == answer, text
    assert answers == {False, True}


@pytest.mark.parametrize(("pattern", "what"), [
    (r"ab(?=c)", "ASSERT"), (r"(a)\1", "GROUPREF"), (r"a(?s:.)", "flags"), (r"a[é-ü]", "RANGE"),
    (r"éa", "a start beyond ASCII"), (r"a$", "AT"),
])  # fmt: skip
def test_a_pattern_without_an_automaton_is_refused(pattern: str, what: str) -> None:
    with pytest.raises(Unsupported, match=what):
        Automaton(pattern)


def test_tables_are_the_same_whenever_they_are_made() -> None:
    assert written() == written()
