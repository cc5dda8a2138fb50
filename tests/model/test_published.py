"""Records that workers publish, as anybody may read them: JSON that is none is a `ValueError`, whatever it is."""

from __future__ import annotations

import pytest

from streamproc.model.controls import read_control


@pytest.mark.parametrize("raw", [
    b"", b"{", b"\xff", b"[]", b'{"id": 1}', b'{"id": "c", "odd": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
], ids=["nothing", "cut off", "no UTF-8", "a list", "another type", "nested"])  # fmt: skip
def test_what_is_no_control_event_is_a_value_error(raw: bytes) -> None:
    with pytest.raises(ValueError, match="no ControlEvent"):
        read_control(raw)
