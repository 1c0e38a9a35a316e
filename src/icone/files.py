"""Atomic replacement of files: a reader finds the old content or the new one, never a part."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path

_TEMPORARY = re.compile(r"\.icone-[0-9a-f]{16}\.tmp")


@contextlib.contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """Give a new, empty file beside `path`, and move it there once it is complete and on the disk.

    The name cannot be guessed and the file must not exist before, so nobody can plant a link under it, and two
    writers of one target never meet. Its permissions are those that the umask gives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".icone-{secrets.token_hex(8)}.tmp")
    temporary.touch(exist_ok=False)
    try:
        mode = temporary.stat().st_mode
        yield temporary
        temporary.chmod(mode)  # safetensors puts another file there, which only its owner may read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Delete what killed writers have left in a folder that nobody else writes to now."""
    for path in folder.glob(".icone-*.tmp"):
        if _TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)
