"""Atomic replacement of files: a reader finds the old content or the new one, never a part; refusals are sentences."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from icone.errors import InputError

TEMPORARY = re.compile(r"\.icone-[0-9a-f]{16}\.tmp")
"""Names of files that are not complete yet."""


@contextlib.contextmanager
def replace_file(path: Path, mode: int | None = None) -> Iterator[Path]:
    """Give a new, empty file in the folder of `path`, and move it there once it is complete and on the disk.

    The name cannot be guessed and the file must not exist before, so nobody can plant a link under it, and two
    writers of one target never meet. Its permissions are `mode`, or those that the umask gives.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".icone-{secrets.token_hex(8)}.tmp")
    temporary.touch(0o666 if mode is None else 0o600, exist_ok=False)
    try:
        final = temporary.stat().st_mode if mode is None else mode
        yield temporary
        temporary.chmod(final)  # safetensors puts another file there, which only its owner may read
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def remove_leftovers(folder: Path) -> None:
    """Delete what killed writers have left in a folder that nobody else writes to now."""
    for path in folder.glob(".icone-*.tmp"):
        if TEMPORARY.fullmatch(path.name):
            path.unlink(missing_ok=True)


def write_sealed(path: Path, content: Any, mode: int | None = None) -> None:
    """Write JSON under a line with its digest, which `read_sealed` checks."""
    text = json.dumps(content).encode()
    with replace_file(path, mode) as temporary:
        temporary.write_bytes(_seal(text) + b"\n" + text)


def read_sealed(path: Path) -> Any:
    """What `write_sealed` wrote; a `ValueError` where the file holds anything else."""
    seal, _, text = path.read_bytes().partition(b"\n")
    if _seal(text) != seal:
        raise ValueError(f"{path} is not what was written")
    return json.loads(text)


def _seal(text: bytes) -> bytes:
    return hashlib.blake2b(text, digest_size=16).hexdigest().encode()


def remove(path: Path) -> None:
    """Delete a file if it is there."""
    with disk_errors(path):
        path.unlink(missing_ok=True)


def move(path: Path, target: Path) -> None:
    """Give a file another name, if it is there."""
    with disk_errors(target):
        if path.is_file():
            target.parent.mkdir(parents=True, exist_ok=True)
            path.replace(target)


def write_json(path: Path, content: dict[str, Any]) -> None:
    text = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    write_text(path, text.encode("utf-8", "backslashreplace").decode())  # \udcff, of a name that is not UTF-8, is JSON


def write_text(path: Path, text: str) -> None:
    """Replace a file whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside `path`, and move it there once it is complete; errors are sentences."""
    with disk_errors(path), replace_file(path) as temporary:
        yield temporary


@contextlib.contextmanager
def disk_errors(path: Path) -> Iterator[None]:
    """Turn what a disk can refuse into a sentence; whatever stood at `path` before is still there."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        code = error.errno if isinstance(error, OSError) else None
        if code in (errno.ENOSPC, errno.EDQUOT) or "No space left" in str(error):
            raise InputError(
                f"the disk is full: could not write {path}. What was saved before is kept; "
                "free some space and continue with --resume"
            ) from error
        if isinstance(error, PermissionError) or code == errno.EROFS or "Permission denied" in str(error):
            raise InputError(f"no permission to write {path}: choose another --out") from error
        if code in (errno.ENOTDIR, errno.EEXIST, errno.EISDIR, errno.ELOOP):
            raise InputError(f"cannot write {path}: a file, folder or link is in the way; choose another") from error
        raise
