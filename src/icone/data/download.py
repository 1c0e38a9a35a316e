"""Downloads that go on where they stopped, and count only once their checksum is right."""

from __future__ import annotations

import hashlib
import http.client
from collections.abc import Callable
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from filelock import FileLock

from icone.errors import InputError, one_line

Progress = Callable[[int, int], None]
"""Called with the bytes that are there and those of the whole file (0 where the server does not say)."""

TIMEOUT = 30.0
"""Seconds without a byte after which the connection counts as broken."""
PIECE = 2**20


def download(url: str, path: Path, md5: str, progress: Progress = lambda done, total: None) -> None:
    """Fetch a file with this checksum, unless it is there; what an earlier attempt received is kept and completed.

    The file has another name (`….part`) until its checksum is right, so that nobody takes a part for the whole. Of
    several processes one downloads and the others wait.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(path.with_name(f".{path.name}.lock")):
            if path.exists():
                return
            _receive(url, part, progress)
            if file_md5(part) != md5:
                part.unlink()
                raise InputError(
                    f"what {url} gives is not the expected file (its checksum differs): it was deleted; try again, or "
                    "fetch it elsewhere"
                )
            part.replace(path)
    except (OSError, http.client.HTTPException) as error:  # no network, no such file, no permission, disk full
        kept = part.stat().st_size if part.exists() else 0
        again = f" {kept / 1e6:.1f} MB are there, and the same command goes on from them." if kept else ""
        raise InputError(f"cannot download {url} ({one_line(error)}): is this machine offline?{again}") from error
    path.with_name(f".{path.name}.lock").unlink(missing_ok=True)


def _receive(url: str, part: Path, progress: Progress) -> None:
    """Append to `part` what it lacks."""
    have = part.stat().st_size if part.exists() else 0
    request = Request(url, headers={"Range": f"bytes={have}-"} if have else {})
    try:
        answer = urlopen(request, timeout=TIMEOUT)
    except HTTPError as error:
        if error.code == 416 and have:  # there is nothing after what we have
            return
        raise
    with answer, part.open("ab") as file:
        if answer.status != 206:  # the server sends the whole file
            file.truncate(0)
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if length else 0
        while piece := answer.read(PIECE):
            file.write(piece)
            have += len(piece)
            progress(have, total)
    if total and have < total:
        raise OSError(f"the connection broke after {have / 1e6:.1f} of {total / 1e6:.1f} MB")


def file_md5(path: Path) -> str:
    """The MD5 sum of a file, which data sets publish beside their files."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "md5").hexdigest()
