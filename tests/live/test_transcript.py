"""What a session has spent, read from the end of its transcript."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from streamproc.live.transcript import TranscriptTail


def claude(number: int, output: int) -> dict[str, Any]:
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "output_tokens": output}
    return {"type": "assistant", "message": {"id": f"msg_{number}", "model": "claude-x", "usage": usage}}


def codex(total: int) -> dict[str, Any]:
    usage = {"input_tokens": total, "cached_input_tokens": 0, "output_tokens": total // 2}
    return {"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": usage}}}


def gemini(number: int) -> dict[str, Any]:
    tokens = {"input": 10, "output": 5, "cached": 2, "thoughts": 1}
    return {"type": "gemini", "id": f"m{number}", "model": "gemini-x", "tokens": tokens}


def written(path: Path, *rows: Any, end: str = "\n") -> None:
    with path.open("a") as file:
        file.write("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows) + end)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "session.jsonl"


def test_each_response_of_claude_code_counts_once_though_it_is_written_for_each_block(path: Path) -> None:
    tail = TranscriptTail(str(path), from_end=False)
    assert tail.take() == {}
    written(path, {"type": "user"}, claude(1, 2), claude(1, 7))
    assert tail.take() == {"input_tokens": 100, "cached_tokens": 90, "output_tokens": 7}
    written(path, claude(1, 9), claude(2, 3))
    assert tail.take() == {"input_tokens": 100, "cached_tokens": 90, "output_tokens": 5}
    assert tail.take() == {}
    assert tail.model == "claude-x"


def test_codex_writes_totals(path: Path) -> None:
    tail = TranscriptTail(str(path), from_end=False)
    written(path, codex(10), codex(10), codex(30))
    assert tail.take() == {"input_tokens": 30, "output_tokens": 15}
    written(path, codex(40))
    assert tail.take() == {"input_tokens": 10, "output_tokens": 5}


def test_gemini_writes_tokens_of_messages(path: Path) -> None:
    tail = TranscriptTail(str(path), from_end=False)
    written(path, gemini(1), gemini(1), gemini(2))
    assert tail.take() == {"input_tokens": 20, "output_tokens": 12, "cached_tokens": 4}


def test_a_resumed_session_counts_from_now_on(path: Path) -> None:
    written(path, codex(1_000), claude(1, 5))
    tail = TranscriptTail(str(path), from_end=True)
    written(path, codex(1_010), claude(2, 5))
    assert tail.take() == {"input_tokens": 110, "output_tokens": 10, "cached_tokens": 90}


def test_half_a_line_is_read_when_it_is_whole(path: Path) -> None:
    tail = TranscriptTail(str(path), from_end=False)
    text = json.dumps(codex(10))
    written(path, text[:40], end="")
    assert tail.take() == {}
    written(path, text[40:])
    assert tail.take() == {"input_tokens": 10, "output_tokens": 5}


@pytest.mark.parametrize("row", [
    "no JSON", "[1]", '{"type": "assistant"}', '{"type": "assistant", "message": 7}', "\x1b[31m",
    '{"type": "event_msg", "payload": {"type": "token_count", "info": {"total_token_usage": {"input_tokens": -7}}}}',
    '{"type": "gemini", "tokens": {"input": "many"}}',
])  # fmt: skip
def test_what_cannot_be_read_adds_nothing(path: Path, row: str) -> None:
    tail = TranscriptTail(str(path), from_end=False)
    written(path, row, codex(10))
    assert tail.take() == {"input_tokens": 10, "output_tokens": 5}


def test_a_transcript_that_is_gone_or_was_made_again_breaks_nothing(path: Path, tmp_path: Path) -> None:
    tail = TranscriptTail(str(path), from_end=False)
    written(path, codex(10), codex(20))
    tail.take()
    path.unlink()
    assert tail.take() == {}
    written(path, gemini(1))
    assert tail.take()["input_tokens"] == 10
    assert TranscriptTail(str(tmp_path), from_end=True).take() == {}  # a folder


def test_what_is_no_file_adds_nothing_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero", "a\0b", "a\ud800"):
        assert TranscriptTail(str(path), from_end=False).take() == {}
