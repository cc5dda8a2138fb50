"""Hashes: equal content gives equal hashes, different content different ones."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime
from typing import Any

import pytest
import xxhash
from hypothesis import given, settings, strategies as st

from streamproc.fingerprint.hash import canonical, content, h64, markdown, patch, signature
from streamproc.fingerprint.similarity import SIZE_MIN, simhash

EXAMPLES = settings(max_examples=80, deadline=None, derandomize=True, print_blob=True)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


def backwards(value: Any) -> Any:
    """Return the same JSON with the keys of every object reversed."""
    if isinstance(value, dict):
        return {key: backwards(inner) for key, inner in reversed(value.items())}
    return [backwards(inner) for inner in value] if isinstance(value, list) else value


@given(JSON)
@EXAMPLES
def test_the_order_of_keys_is_ignored(value: Any) -> None:
    assert canonical(value) == canonical(backwards(value))


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=4) | st.lists(JSON, max_size=4))
@EXAMPLES
def test_json_in_a_string_is_parsed(value: Any) -> None:
    assert canonical(json.dumps(value)) == canonical(value)
    assert canonical(json.dumps(value, indent=2, ensure_ascii=False)) == canonical(value)


@given(JSON, JSON)
@EXAMPLES
def test_values_with_different_meanings_have_different_text(one: Any, other: Any) -> None:
    written = (json.dumps(one, sort_keys=True), json.dumps(other, sort_keys=True))
    if not isinstance(one, str) and not isinstance(other, str) and -0.0 not in (one, other):
        assert (canonical(one) == canonical(other)) == (written[0] == written[1])


@pytest.mark.parametrize("text", ["{not json", "[1, 2", "{}x", '{"a":' * 500 + "1" + "}" * 500, "[" * 5_000, "plain"])
def test_text_that_is_not_json_is_unchanged(text: str) -> None:
    assert canonical(text) == text


@pytest.mark.parametrize("value", [{1, 2}, object, datetime(2026, 1, 1, tzinfo=UTC), 10**40, "\ud800", [b"bytes"]])
def test_python_objects_can_be_compared(value: Any) -> None:
    assert canonical(value) == canonical(value)
    assert h64(canonical(value)) == h64(canonical(value))


def test_a_hash_is_xxh3_64() -> None:
    assert h64("abc") == xxhash.xxh3_64_intdigest(b"abc") == h64(b"abc")
    assert h64("é") == xxhash.xxh3_64_intdigest("é".encode())
    assert h64("\ud800") != h64("\ud801")


@given(st.text(max_size=200))
@EXAMPLES
def test_the_exact_hash_depends_on_every_character(text: str) -> None:
    one = content(text)
    assert one == content(text)
    assert (one.exact, one.size) == (h64(text), len(text))
    assert content(text + "!").exact != one.exact


def test_time_stamps_change_the_exact_hash_alone() -> None:
    one, other = content("failed at 12:00:01"), content("failed at 12:00:07")
    assert one.exact != other.exact
    assert one.norm == other.norm != content("passed at 12:00:01").norm


def test_a_difference_in_the_middle_of_a_long_text_counts() -> None:
    lines = [f"{n} of many" for n in range(40_000)]
    text = "\n".join(lines)
    lines[20_000] = "something else"
    one, other = content(text), content("\n".join(lines))
    assert one.norm != other.norm
    stamped = content("2026-01-01T10:00:00Z" + text), content("2026-01-01T10:00:09Z" + text)
    assert stamped[0].norm == stamped[1].norm


PATCH = """diff --git a/app.py b/app.py
index 83db48f..bf26a5e 100644
--- a/app.py\t2026-01-01 10:00:00
+++ b/app.py\t2026-01-01 10:00:00
@@ -10,7 +10,7 @@ def main():
     x = 1
-    return x
+    return x + 1
"""


@pytest.mark.parametrize(("old", "new"), [
    ("83db48f..bf26a5e", "83db48f..0123abc"), ("2026-01-01 10:00:00", "2026-02-02 11:11:11"),
    ("@@ -10,7 +10,7 @@ def main():", "@@ -31,7 +31,7 @@ def main():"), ("x = 1\n", "x = 1  \n"),
])  # fmt: skip
def test_git_metadata_in_a_patch_is_ignored(old: str, new: str) -> None:
    moved = PATCH.replace(old, new)
    assert moved != PATCH
    assert patch(moved).norm == patch(PATCH).norm
    assert patch(moved).exact != patch(PATCH).exact


@pytest.mark.parametrize(
    ("old", "new"),
    [("return x + 1", "return x + 2"), ("app.py", "web.py"), ("-    return x\n", ""), ("x = 1", "x = 2")],
)
def test_the_changes_of_a_patch_count(old: str, new: str) -> None:
    assert patch(PATCH.replace(old, new)).norm != patch(PATCH).norm


def test_a_plain_file_is_hashed_as_text() -> None:
    assert patch("import os\n") == content("import os\n")


def test_the_white_space_of_markdown_is_ignored() -> None:
    assert markdown("# Plan\n\n* one\n* two\n").norm == markdown("# Plan\n* one  \n\n\n* two").norm
    assert markdown("# Plan\n* one").norm != markdown("# Plan\n* two").norm


def test_an_error_signature_follows_the_requirement() -> None:
    """The first 50 characters of each of the first 3 messages, joined with a bar."""
    messages = ["API error: channel_not_found " + "x" * 80, "second", "third", "fourth"]
    exact, _ = signature(messages)
    assert exact == h64("|".join(message[:50] for message in messages[:3]))
    assert signature([*messages[:3], "another fourth"])[0] == exact
    assert signature([messages[0][:50] + "y", *messages[1:]])[0] == exact
    assert signature([messages[0], "another second", "third"])[0] != exact
    assert signature(["third", "second", messages[0]])[0] != exact


def test_the_normalised_signature_is_masked() -> None:
    one = signature(["Request 550e8400-e29b-41d4-a716-446655440000 refused"])
    other = signature(["Request 6ba7b810-9dad-11d1-80b4-00c04fd430c8 refused"])
    assert one[0] != other[0]
    assert one[1] == other[1] != signature(["Request 6ba7b810-9dad-11d1-80b4-00c04fd430c8 granted"])[1]


WORDS = ("whale", "ship", "storm", "harbour", "captain", "mast", "rope", "sail", "deck", "wave")


def words(seed: int, count: int = 300) -> list[str]:
    dice = random.Random(seed)
    return [dice.choice(WORDS) + str(n % 17)
            for n in range(count)]  # fmt: skip


def test_similar_texts_have_similar_simhashes() -> None:
    text = words(1)
    near = [*text[:150], "unexpected", *text[150:]]
    assert (simhash(" ".join(text)) ^ simhash(" ".join(near))).bit_count() <= 6
    assert (simhash(" ".join(text)) ^ simhash(" ".join(words(2)))).bit_count() > 10
    assert simhash(" ".join(text)) == simhash(" ".join(text))


def test_a_short_text_has_no_simhash() -> None:
    assert simhash("a b " * (SIZE_MIN // 4 - 1)) == 0
    assert simhash("word " * SIZE_MIN) != 0
    assert simhash("x" * 10_000) == 0  # one word, and no pair
