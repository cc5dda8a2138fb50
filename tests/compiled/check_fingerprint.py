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
from streamproc.model.wire import Content
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


def results(text: str) -> tuple[str, Content, Content, Content]:
    return masks.mask(text), hashes.content(text), hashes.words(text), hashes.content(text, KEY)


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
    assert masks.scan is not None
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
        [*range(0x3100)],
        [*range(0xA000, 0x10000, 7)],
        [*range(0x10000, 0x110000, 97)],
        [*range(0x1D7CE, 0x1D800)],
    )
    places = ("a{}1 ", "1{}m ", "12:00{}2s ", '"took{}":1 ', "{}pid 7{} ", "{}/tmp/x{}y ", "[x]{}9 Foo{} ")
    for block in blocks:
        for place in places:
            assert differing(["".join(place.replace("{}", chr(char)) for char in block)]) == []


def test_a_hash_of_any_length_is_that_of_the_package() -> None:
    assert masks.scan is not None
    dice = random.Random(3)
    for size in range(600):
        data = dice.randbytes(size)
        assert masks.scan.hash64(data) == xxhash.xxh3_64_intdigest(data)


@pytest.mark.parametrize("value", [None, b"text", 7])
def test_what_is_no_text_is_refused(value: object) -> None:
    assert masks.scan is not None
    for read in (masks.scan.mask, masks.scan.content, masks.scan.words, masks.scan.features):
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
