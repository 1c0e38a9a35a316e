"""Finished runs in one small file, to be carried to another store.

The file is a zip archive: `about.json` (format, version of the recipe), `runs.jsonl` (a run a line: its key, what it
was and what came out), `requests/EXPERIMENT.json` (the options that it was last run with), and where asked for
`features/KEY/features.npz` (what maps are drawn from). Nothing in it can be executed, and nothing tells where things
lie on the machine that wrote it (`icone.paper.places`). On import every key is computed again from what the run says it
was: a run that does not have the key it claims is refused.
"""

from __future__ import annotations

import contextlib
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from icone.errors import InputError, one_line
from icone.files import replacing
from icone.paper.experiments import EXPERIMENTS
from icone.paper.measure import FEATURES
from icone.paper.options import options_from_json
from icone.paper.outcome import Outcome, outcome_from_json
from icone.paper.places import place_in, request_without_places, run_without_places
from icone.paper.results import rows_of
from icone.paper.spec import RunSpec, spec_from_json
from icone.paper.store import Store
from icone.recipe import RECIPE_VERSION
from icone.terminal import counted
from icone.validation import user_path

FORMAT = 1
ABOUT, RUNS, REQUESTS, FEATURE_FOLDER = "about.json", "runs.jsonl", "requests/", "features/"
LARGEST_LINE = 50_000_000
"""Bytes of one run, unpacked; a trace of thousands of epochs has less."""


class Exported(NamedTuple):
    """What a file holds."""

    runs: int
    features: int
    bytes: int
    failed: int
    """Runs that are not in it: they have failed, and no import takes such runs."""


@dataclass
class Imported:
    """What became of the runs of a file or store."""

    added: int = 0
    known: int = 0
    """This store had ended them before."""
    failed: int = 0
    """Not taken: they have failed elsewhere, and may be run here."""
    others: int = 0
    """Not taken: their key is not that of what they say they were, in this version of the recipe."""
    features: int = 0
    requests: int = 0


class _Carried(NamedTuple):
    key: str
    spec: RunSpec
    outcome: Outcome


def export_runs(store: Store | str | Path, out: str | Path, *, features: bool = False) -> Exported:
    """Write the last outcome of every run of a store, and how its experiments were asked for, to one file.

    `features` adds what the maps of `umap` and the pictures of `synthetic` are drawn from. The file may be published:
    of the paths of data only the last names stay, and the name of the host is left out. A run whose key holds a path,
    such as one that starts from `weights` in a folder, is left out with a note of the store. Failed runs are left out
    too: their reasons are full of paths, and no import takes them.
    """
    store, out = _opened(store), Path(out)
    if not store.outcomes.is_dir():
        raise InputError(f"there is no store at {store.folder}: give --store")
    known = {r.key: content for r in sorted(store.last_records().values()) if (content := store.content(r))}
    ended = {key: content for key, content in known.items() if content["outcome"]["status"] != "failed"}
    kept = _without_places(ended, store)
    pictures = [store.run_folder(key) / FEATURES for key in kept] if features else []
    pictures = [path for path in pictures if path.is_file()]
    about = {"format": FORMAT, "recipe_version": RECIPE_VERSION, "runs": len(kept)}
    lines = (json.dumps({"key": key, **content}, separators=(",", ":")) for key, content in kept.items())
    with replacing(out) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr(ABOUT, json.dumps(about))
        archive.writestr(RUNS, "".join(f"{line}\n" for line in lines))
        for name in EXPERIMENTS:
            if (options := store.remembered(name)) is not None:
                archive.writestr(f"{REQUESTS}{name}.json", json.dumps(request_without_places(options)))
        for path in pictures:
            archive.write(path, f"{FEATURE_FOLDER}{path.parent.name}/{FEATURES}", zipfile.ZIP_STORED)
    return Exported(len(kept), len(pictures), out.stat().st_size, len(known) - len(ended))


def _without_places(contents: dict[str, dict[str, Any]], store: Store) -> dict[str, dict[str, Any]]:
    """Runs as they may be published, by key; the store notes what is left out, because a path is part of its key."""
    told = {key: run_without_places(content) for key, content in contents.items()}
    bound = {key: place for key, content in told.items() if (place := place_in(content["spec"]))}
    if bound:
        store.note(
            f"left out ({counted(len(bound), 'run')}), because a path of this machine is part of the key, such as "
            f"{next(iter(bound.values()))}: `icone paper import` takes them where it can read the folder of the store"
        )
    return {key: content for key, content in told.items() if key not in bound}


def import_runs(store: Store | str | Path, sources: Iterable[str | Path]) -> dict[str, Imported]:
    """Take the finished runs of files of `export_runs`, or of other stores, into a store; what it knows stays.

    All sources are read and checked before anything is written. The result counts by source.
    """
    store = _opened(store)
    paths = [user_path(source) for source in sources]
    contents = [_read_store(path) if path.is_dir() else _read_file(path) for path in paths]
    store.create()
    for content in contents:
        added = _take(store, content.runs, content.tally)
        for key, features in content.features(added):
            with replacing(store.run_folder(key) / FEATURES) as temporary:
                temporary.write_bytes(features)
            content.tally.features += 1
        _take_requests(store, content.requests, content.tally)
        store.notes.update(content.notes)
    store.results()
    return {str(path): content.tally for path, content in zip(paths, contents, strict=True)}


class _Content(NamedTuple):
    """What a source holds, checked."""

    runs: list[_Carried]
    requests: dict[str, Any]
    tally: Imported
    features: Callable[[list[str]], Iterator[tuple[str, bytes]]]
    """Of these runs, what pictures are drawn from, one after the other; it is read later without pickle."""
    notes: dict[str, None]


def _opened(store: Store | str | Path) -> Store:
    return store if isinstance(store, Store) else Store(store)


def _read_store(folder: Path) -> _Content:
    other, count = Store(folder), Imported()
    if not other.outcomes.is_dir():
        raise InputError(f"{folder} is not a store: it has no folder outcomes")
    contents = ((record.key, other.content(record)) for record in sorted(other.last_records().values()))
    runs = [run for key, content in contents if content and (run := _carried(key, content, count, folder))]
    requests = {name: options for name in EXPERIMENTS if (options := other.remembered(name)) is not None}

    def features(keys: list[str]) -> Iterator[tuple[str, bytes]]:
        yield from ((k, path.read_bytes()) for k in keys if (path := other.run_folder(k) / FEATURES).is_file())

    return _Content(runs, requests, count, features, other.notes)


def _read_file(path: Path) -> _Content:
    count = Imported()
    with _reading(path), zipfile.ZipFile(path) as archive:
        _check_about(json.loads(archive.read(ABOUT)), path)
        runs = [run for key, content in _lines(archive, path) if (run := _carried(key, content, count, path))]
        entries = set(archive.namelist())
        requests = {
            name: json.loads(archive.read(entry))
            for name in EXPERIMENTS
            if (entry := f"{REQUESTS}{name}.json") in entries
        }

    def features(keys: list[str]) -> Iterator[tuple[str, bytes]]:
        with _reading(path), zipfile.ZipFile(path) as archive:
            for key in keys:
                if (entry := f"{FEATURE_FOLDER}{key}/{FEATURES}") in entries:
                    yield key, archive.read(entry)

    return _Content(runs, requests, count, features, {})


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Whatever can be wrong with an archive is a sentence."""
    try:
        yield
    except InputError:
        raise
    except (OSError, zipfile.BadZipFile, KeyError, EOFError, NotImplementedError, RuntimeError, ValueError) as error:
        raise InputError(
            f"cannot read {path} ({one_line(error)}): give a file of `icone paper export`, or the folder of a store"
        ) from error


def _check_about(about: dict[str, Any], path: Path) -> None:
    if about.get("format") != FORMAT:
        raise InputError(f"{path} has format {about.get('format')}, and this version reads {FORMAT}: update icone")


def _lines(archive: zipfile.ZipFile, path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    with archive.open(RUNS) as file:
        for number, line in enumerate(iter(lambda: file.readline(LARGEST_LINE), b""), start=1):
            try:
                content = json.loads(line)
                yield str(content.pop("key")), content
            except (ValueError, KeyError, AttributeError, TypeError) as error:
                raise InputError(f"{path} is damaged: run {number} cannot be read ({one_line(error)})") from error


def _carried(key: str, content: dict[str, Any], count: Imported, place: Path) -> _Carried | None:
    """A run as it was recorded, if it is to be taken; an `InputError` where its record is damaged."""
    try:
        rows_of(f"{key}.1", content)
        spec, outcome = spec_from_json(content["spec"]), outcome_from_json(content["outcome"])
        is_itself = spec.key == key
    except InputError:  # a method or an option that this version does not know
        is_itself = False
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{place} is damaged: run {key} cannot be read ({one_line(error)})") from error
    if not is_itself:
        count.others += 1
        return None
    if outcome.status == "failed":
        count.failed += 1
        return None
    return _Carried(key, spec, outcome)


def _take(store: Store, carried: Iterable[_Carried], count: Imported) -> list[str]:
    """Record what the store has not ended itself; the keys of these runs."""
    statuses, added = store.statuses(), []
    for run in carried:
        if statuses.get(run.key) in ("done", "undefined"):
            count.known += 1
            continue
        store.record(run.spec, run.outcome)
        count.added += 1
        added.append(run.key)
    return added


def _take_requests(store: Store, requests: dict[str, Any], count: Imported) -> None:
    """Remember how experiments were run that this store has not run, where their data can be found here by its name."""
    for name, plain in requests.items():
        if store.remembered(name) is not None:
            continue
        try:
            options = options_from_json({**plain, "data_root": None})
            EXPERIMENTS[name].cells(options)
        except (InputError, TypeError, ValueError) as error:
            store.note(f"{name} was run with options that do not hold here ({one_line(error)}): give yours to `show`")
            continue
        store.remember(name, options.to_json())
        count.requests += 1
