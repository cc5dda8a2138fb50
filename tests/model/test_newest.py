"""A dictionary that keeps its newest entries."""

from __future__ import annotations

from streamproc.model.newest import Newest


def test_the_oldest_go_and_what_is_set_again_is_new() -> None:
    kept: Newest[str, int] = Newest(3)
    kept |= {"a": 1, "b": 2, "c": 3}
    kept["a"] = 4
    assert kept["b"] == 2  # reading keeps nothing
    kept["d"] = 5
    assert list(kept.items()) == [("c", 3), ("a", 4), ("d", 5)]


def test_every_way_to_add_an_entry_is_bounded() -> None:
    kept: Newest[int, list[int]] = Newest(2)
    kept.update({1: [], 2: [], 3: []})
    assert kept.setdefault(3, [0]) == []
    assert kept.setdefault(4, [0]) == [0]
    kept |= {5: [], 6: []}
    assert list(kept) == [5, 6]
