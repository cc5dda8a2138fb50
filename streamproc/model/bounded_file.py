"""Reads files that people name, such as policies, without filling the memory with a device or the wrong file."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Final

FILE_BYTES_MAX: Final = 16 << 20  # a policy of 50 000 values has less than one


def bounded_bytes(path: str | Path, bytes_max: int = FILE_BYTES_MAX) -> bytes:
    """Return the content of a file. Raises `OSError` that names it, also for one of more than `bytes_max`."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(bytes_max + 1)
    except OSError as error:  # of reading, it names no file
        error.filename = error.filename or str(path)
        raise
    if len(content) > bytes_max:
        raise OSError(errno.EFBIG, f"it has more than {bytes_max} bytes", str(path))
    return content


def bounded_text(path: str | Path, bytes_max: int = FILE_BYTES_MAX) -> str:
    """Return the content of a file in UTF-8. Raises `OSError` as `bounded_bytes` does, and `UnicodeDecodeError`."""
    return bounded_bytes(path, bytes_max).decode("utf-8").replace("\r\n", "\n")
