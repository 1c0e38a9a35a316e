"""What `icone paper list` found out about a store, kept there so that the next list answers at once.

Importing PyTorch and describing all runs of the paper takes seconds. `listing.json` in the store keeps which runs an
experiment has, what each was expected to take, and how the known ones ended. The next list reads it and the names of
the outcomes, and opens only the outcomes that are new. It is made again where anything has changed that it was made of:
the package, the options, the data, or a tenth of the outcomes, which would correct the estimates.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from icone.files import replace_file
from icone.paper.listing_table import Estimate, Line, Listing

if TYPE_CHECKING:
    from icone.paper.options import Options

KEPT = "listing.json"
NEW_OUTCOMES = 0.1
"""Share of the outcomes that may be new before the estimates are made again."""
_OUTCOME = re.compile(r"([0-9a-f]+)\.([1-9][0-9]*)\.json")
_STATUSES = ("done", "failed", "undefined")


class KeptExperiment(NamedTuple):
    """One experiment, or all together, in brief."""

    name: str
    labels: str
    needs: str
    runs: list[str]
    undefined: list[str]
    """Runs that cannot exist."""
    expected: dict[str, list[float]]
    """Of the runs that had not ended: estimated seconds, and 1 where the store had measured runs like it."""


def keep(options: Options, folder: Path, listing: Listing, parts: Iterable[KeptExperiment], ended: Mapping[str, str],
         ) -> None:  # fmt: skip
    """Keep a listing in its store; `ended` says how the outcomes ended, by the names of their files."""
    content = {
        "made_of": fingerprint(options, folder),
        "hardware": [listing.device, listing.table_hardware],
        "ended": dict(ended),
        "parts": [part._asdict() for part in parts],
    }
    with replace_file(folder / KEPT) as temporary:
        temporary.write_text(json.dumps(content), encoding="utf-8")


def recall(options: Options, folder: Path) -> Listing | None:
    """The listing of a store by what is kept there; None where that does not hold, or something needs a note."""
    if "icone.paper.experiments" in sys.modules:  # a program may have registered one of its own
        return None
    try:
        content = json.loads((folder / KEPT).read_text(encoding="utf-8"))
        if content["made_of"] != fingerprint(options, folder):
            return None
        statuses = _statuses(folder / "outcomes", content["ended"])
        *lines, total = [_line(KeptExperiment(**part), statuses) for part in content["parts"]]
        return Listing(lines, total, *content["hardware"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # none, damaged, or an outcome that is
        return None


def fingerprint(options: Options, folder: Path) -> str:
    """A digest of what decides which runs there are: the package, the options, their data, and this machine."""
    package = Path(__file__).parents[1]
    requests = {path.name: path.read_text() for path in sorted((folder / "requests").glob("*.json"))}
    asked = [options.to_json(), *map(json.loads, requests.values())]
    about = [
        list(_files(package)), options.to_json(), requests, platform.node(), os.environ.get("CUDA_VISIBLE_DEVICES"),
        [list(_files(path)) for plain in asked for path in _data(plain)],
    ]  # fmt: skip
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()


def _data(plain: Mapping[str, Any]) -> Iterator[Path]:
    """The folders and files that options name; a set that is known by its name is no file."""
    names = [*plain.get("datasets", ()), plain.get("labels"), plain.get("natural_images")]
    yield from (path for name in names if name and (path := Path(name).expanduser()).exists())


def _files(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, size and time of a file, or of all below a folder, without bytecode."""
    if path.is_file():
        yield str(path), path.stat().st_size, path.stat().st_mtime_ns
    for current, folders, names in os.walk(path, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "__pycache__")))
        for name in sorted(names):
            found = os.stat(os.path.join(current, name))
            yield os.path.join(current, name), found.st_size, found.st_mtime_ns


def _statuses(outcomes: Path, ended: Mapping[str, str]) -> dict[str, str]:
    """How every run ended; a ValueError where too much is new, or where there is something that no run wrote."""
    last: dict[str, tuple[int, str]] = {}
    for name in os.listdir(outcomes):
        match = _OUTCOME.fullmatch(name)
        if match is None and not name.startswith("."):
            raise ValueError(name)
        if match is not None:
            last[match[1]] = max(last.get(match[1], (0, "")), (int(match[2]), name))
    new = [name for _, name in last.values() if name not in ended]
    if len(new) > NEW_OUTCOMES * max(len(ended), 200):
        raise ValueError(f"{len(new)} new outcomes")
    read = {name: json.loads((outcomes / name).read_text())["outcome"]["status"] for name in new}
    if not set(read.values()) <= set(_STATUSES):
        raise ValueError("an outcome is damaged")
    return {key: ended[name] if name in ended else read[name] for key, (_, name) in last.items()}


def _line(part: KeptExperiment, statuses: Mapping[str, str]) -> Line:
    cannot = set(part.undefined)
    found = [statuses.get(key, "undefined" if key in cannot else "") for key in part.runs]
    left = [part.expected[key] for key, status in zip(part.runs, found, strict=True) if not status]
    estimate = Estimate(sum(one[0] for one in left), sum(int(one[1]) for one in left), len(left))
    done, undefined, failed = (found.count(status) for status in ("done", "undefined", "failed"))
    return Line(part.name, part.labels, part.needs, len(part.runs), done, undefined, failed, estimate)
