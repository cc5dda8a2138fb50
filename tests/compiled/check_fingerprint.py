"""The compiled fingerprint compared with pure Python (`make test-compiled`).

``STREAMPROC_CORE=compiled python -m tests.compiled.check_fingerprint --count 100000`` compares as many mutated texts.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import pytest
import xxhash

from streamproc.fingerprint import HashKey, hash as hashes, mask as masks
from streamproc.fingerprint.marks import LAST_WORDS, STATE_WORDS, marks_of
from streamproc.fingerprint.passed import PASSED_WORDS, has_passed
from tests.fingerprint.test_marks import RUNNING
from tests.fingerprint.texts import hard_texts, long_texts, mutated_texts, sample_texts

KEY = HashKey("a key of this test")


@contextmanager
def pure_python() -> Iterator[None]:
    """Take the way of a process without a build."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(masks, "mask", masks._mask)
        patch.setattr(hashes, "mask", masks._mask)
        patch.setattr(hashes, "scan", None)
        yield


def results(text: str) -> tuple[object, ...]:
    masked = [masks.mask(text, **how) for how in ({}, {"produced": True}, {"produced": True, "artifact": True})]
    plain = hashes.content(text), hashes.artifact(text), hashes.words(text), hashes.compared(text, None)
    return *masked, *plain, hashes.content(text, KEY)


def differing(texts: Iterable[str]) -> list[str]:
    """Return the texts whose results differ."""
    found = []
    for text in texts:
        with pure_python():
            expected = results(text)
        if results(text) != expected:
            found.append(text)
    return found


def test_the_compiled_fingerprint_is_used() -> None:
    assert masks.mask is masks.scan.mask


def test_texts_of_the_samples_have_the_same_masks_and_hashes() -> None:
    assert len(sample_texts()) > 500
    assert differing(sample_texts()) == []


def test_mutated_texts_have_the_same_masks_and_hashes() -> None:
    assert differing(mutated_texts(seed=7, count=5_000)) == []


@pytest.mark.parametrize("size", [1, 40, 3_000])
def test_hard_texts_have_the_same_masks_and_hashes(size: int) -> None:
    assert differing(hard_texts(size)) == []


def test_texts_at_the_limits_have_the_same_masks_and_hashes() -> None:
    assert differing(long_texts()) == []


def test_every_character_is_masked_alike_wherever_it_stands() -> None:
    """Around each character are those that the patterns look at."""
    blocks = (
        [*range(0x3100)], [*range(0xA000, 0x10000, 7)], [*range(0x10000, 0x110000, 97)], [*range(0x1D7CE, 0x1D800)],
    )  # fmt: skip
    places = (
        "a{}1 ", "1{}m ", "12:00{}2s ", '"took{}":1 ', "{}pid 7{} ", "{}/tmp/x{}y ", "/tmp/{}/1{}a/-aBc{}eF ",
        "{}5s in {}5s ", "{}1.5s", "[x]{}9 Foo{} ",
    )  # fmt: skip
    for block in blocks:
        for place in places:
            assert differing(["".join(place.replace("{}", chr(char)) for char in block)]) == []


def test_a_hash_of_any_length_is_that_of_the_package() -> None:
    assert masks.scan is not None
    dice = random.Random(3)
    for size in range(600):
        data = dice.randbytes(size)
        assert masks.scan.hash64(data) == xxhash.xxh3_64_intdigest(data)


def marked_but_not_hinted(texts: Iterable[str], seed: int) -> list[tuple[object, str]]:
    """Return the calls that have marks although `scan` says that they have none."""
    assert masks.scan is not None
    dice = random.Random(seed)
    found = []
    for text in texts:
        for _ in range(dice.randrange(4)):
            place = dice.randrange(len(text) + 1)
            text = text[:place] + dice.choice(STATED) + text[place:]
        args = dice.choice(ARGUMENTS)
        if not masks.scan.may_have_marks(args, text) and marks_of(args, text):
            found.append((args, text))
    return found


STATED = (
    *RUNNING, *STATE_WORDS, *LAST_WORDS, "STATUS: Pending", "\nWaiting for x", "\u212a", "\u0130", "4711", " ", "\n",
)  # fmt: skip
WRITTEN_TEXT = "a line of a text that is written\n" * 4
ARGUMENTS: tuple[object, ...] = (
    None, {}, {"command": "ls"}, {"command": "sleep 20"}, {"cmd": ["sh", "-c", "sleep 20"]}, {"command": ["sleep 20"]},
    {"command": f"cat >> a.md << EOF\n{WRITTEN_TEXT}EOF"}, {"script": f"tee -a x << EOF\n{WRITTEN_TEXT}"}, "sleep 20",
    {"path": "a", "content": WRITTEN_TEXT}, {"path": WRITTEN_TEXT, "text": "x"}, {"pid": 4711}, {"session_id": "4711"},
    '{"pid": 4711}', '{"command": "sleep 20"}', [1], 7, {"file_path": "a.py"},
)  # fmt: skip


def test_no_call_with_marks_is_missed() -> None:
    texts = [*sample_texts(), *RUNNING, *mutated_texts(seed=9, count=20_000), *long_texts()]
    assert marked_but_not_hinted(texts, seed=1) == []
    assert masks.scan is not None
    assert not all(masks.scan.may_have_marks({"command": "ls"}, text) for text in texts)


def test_no_answer_that_says_how_a_check_went_is_missed() -> None:
    assert masks.scan is not None
    dice, missed, quiet = random.Random(3), [], 0
    for text in [*sample_texts(), *mutated_texts(seed=5, count=20_000), *long_texts()]:
        word = dice.choice((*PASSED_WORDS, "12 passed", "Success", "0 errors", "no output", "\u212a", " ", "\n"))
        for answer in (text, text + dice.choice((word, word.upper())), f"{word} {text}"):
            has_words = masks.scan.may_say_passed(answer)
            quiet += not has_words
            missed += [answer] if has_passed(answer) != has_passed(answer, has_words=has_words) else []
    assert missed == []
    assert quiet > 1_000


@pytest.mark.parametrize("value", [None, b"text", 7])
def test_what_is_no_text_is_refused(value: object) -> None:
    assert masks.scan is not None
    for read in (masks.scan.mask, masks.scan.content, masks.scan.words, masks.scan.features, masks.scan.may_say_passed):
        with pytest.raises(TypeError):
            read(value)


def main() -> int:
    """Compare many mutated texts; return 0 if all have the same results."""
    parser = argparse.ArgumentParser(prog="python -m tests.compiled.check_fingerprint", description=__doc__)
    parser.add_argument("--count", type=int, default=100_000, help="mutated texts (default: 100000)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31), help="default: random")
    options = parser.parse_args()
    found = differing(mutated_texts(options.seed, options.count))
    for text in found[:20]:
        sys.stdout.write(f"{text!a}\n")
    sys.stdout.write(f"seed {options.seed}: {options.count} texts, {len(found)} differ\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
