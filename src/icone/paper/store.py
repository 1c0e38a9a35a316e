"""The folder that a sweep leaves behind: who works on which run, what came out, one table of all results.

    outcomes/KEY.ATTEMPT.json   written once, never changed: the end of one execution of a run
    results.parquet             all outcomes merged, one row per run and metric (see docs/experiments.md)
    runs/KEY/                   what an unfinished run needs to go on; afterwards what pictures need
    claims/KEY                  locked by the process that executes the run
    requests/EXPERIMENT.json    the options an experiment was last run with
    listing.json                what `icone paper list` found out (`icone.paper.listing_cache`)

Several sweeps may share a store: a run is executed under its claim, which the system releases when the process ends,
however it ends. Listing needs the names in outcomes/ and one Parquet file, whatever the number of runs. What does not
belong there is passed over with a note, and a store that cannot be written can still be read.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from filelock import FileLock, Timeout
from pyarrow import ArrowException

from icone.errors import InputError, one_line
from icone.files import replacing, write_json, write_text
from icone.paper.outcome import Outcome, Status, outcome_from_json
from icone.paper.results import COLUMNS, merge, read_results, rows_of, typed
from icone.paper.spec import KEY_LENGTH, RunSpec

OUTCOME_NAME = re.compile(rf"([0-9a-f]{{{KEY_LENGTH}}})\.([1-9][0-9]*)\.json")


class Record(NamedTuple):
    """The name of an outcome file."""

    key: str
    attempt: int

    @property
    def name(self) -> str:
        return f"{self.key}.{self.attempt}"


class Store:
    """A sweep's folder; every method may be called by several processes at once."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.outcomes = self.folder / "outcomes"
        self.results_file = self.folder / "results.parquet"
        self.notes: dict[str, None] = {}
        """What was passed over, a sentence each, in the order in which it was found."""

    def create(self) -> Store:
        """Make the folders; a place where nothing can be written is an error now."""
        try:
            for name in ("", "outcomes", "runs", "claims", "requests"):
                folder = self.folder / name
                folder.mkdir(parents=True, exist_ok=True)
                if not _may_write(folder):
                    raise PermissionError(errno.EACCES, "no permission to write", str(folder))
        except OSError as error:
            raise InputError(
                f"cannot use {self.folder} as a store ({error.strerror}): choose another --store"
            ) from error
        return self

    @property
    def is_writable(self) -> bool:
        return _may_write(self.folder)

    def run_folder(self, key: str) -> Path:
        return self.folder / "runs" / key

    # Executing

    @contextlib.contextmanager
    def claim(self, key: str) -> Iterator[bool]:
        """Hold a run for this process; False where another process holds it."""
        lock = FileLock(self.folder / "claims" / key, timeout=0)
        try:
            lock.acquire()
        except Timeout:
            yield False
            return
        try:
            yield True
        finally:
            lock.release()

    def executions(self, key: str) -> int:
        """How often a run was begun, by whomever."""
        path = self.run_folder(key) / "executions"
        return len(path.read_text().splitlines()) if path.is_file() else 0

    def record(self, spec: RunSpec, outcome: Outcome) -> None:
        """Write the outcome of an execution, after all earlier ones of the run."""
        content = {"spec": spec.to_json(), "outcome": outcome.to_json()}
        free = (path for n in itertools.count(1) if not (path := self._path(Record(spec.key, n))).exists())
        write_text(next(free), json.dumps(content) + "\n")

    # Reading

    def records(self) -> list[Record]:
        """All outcomes by name, in one look at the folder."""
        if not self.outcomes.is_dir():
            return []
        records, others = [], []
        with os.scandir(self.outcomes) as entries:
            for entry in entries:
                name = OUTCOME_NAME.fullmatch(entry.name)
                if name and entry.is_file():
                    records.append(Record(name[1], int(name[2])))
                elif not entry.name.startswith("."):  # hidden: being written, or a file manager's own
                    others.append(entry.name)
        if others:
            self.note(f"passed over in {self.outcomes}, because no run wrote it: {', '.join(sorted(others))}")
        return records

    def last_records(self) -> dict[str, Record]:
        """The outcome that counts, by run: the last one."""
        last: dict[str, Record] = {}
        for record in self.records():
            if record.key not in last or last[record.key].attempt < record.attempt:
                last[record.key] = record
        return last

    def last_record(self, key: str) -> Record | None:
        """The outcome of one run that counts, without a look at the others."""
        attempts = (Record(key, attempt) for attempt in itertools.count(1))
        there = itertools.takewhile(lambda record: self._path(record).exists(), attempts)
        return max((record for record in there if self._path(record).is_file()), default=None)

    def outcome(self, record: Record) -> Outcome:
        return outcome_from_json(self._content(record)["outcome"])

    def results(self) -> pd.DataFrame:
        """One row per run and metric of all outcomes; outcomes since the last call are merged into the file.

        A damaged outcome is passed over: its run has not run. Where nothing can be written, the table exists in memory.
        """
        if not self.outcomes.is_dir():
            raise InputError(f"there is no store at {self.folder}: give --store, or start one with `icone paper run`")
        with contextlib.ExitStack() as held:
            try:
                held.enter_context(self._lock())
            except OSError:  # a store that cannot be written
                return self._merged(write=False)
            return self._merged(write=True)

    def _merged(self, write: bool) -> pd.DataFrame:
        known = self._known_results()
        last = {record.name: record for record in self.last_records().values()}
        merged = set(known["record"].cat.categories)
        new = [row for name in sorted(last.keys() - merged) for row in self._rows(last[name])]
        if not new and merged <= last.keys():
            return known
        table = merge(known[known["record"].isin(last.keys())], new)
        if write:
            try:
                with replacing(self.results_file) as temporary:
                    table.to_parquet(temporary, index=False, compression="zstd")
            except (InputError, OSError) as error:
                self.note(f"{self.results_file} is not up to date: {error}")
        return table

    def _known_results(self) -> pd.DataFrame:
        """The merged table, which can always be made again from the outcomes."""
        try:
            return read_results(self.results_file)
        except (OSError, ValueError, TypeError, KeyError, ArrowException) as error:  # whatever damage can do to Parquet
            self.note(f"{self.results_file} is damaged and made again from the outcomes ({one_line(error)})")
            return typed(pd.DataFrame(columns=list(COLUMNS)))

    def _rows(self, record: Record) -> list[dict[str, Any]]:
        """The rows of one outcome; none where its file is damaged."""
        content = self.content(record)
        return [] if content is None else rows_of(record.name, content)

    def content(self, record: Record) -> dict[str, Any] | None:
        """What the file of an outcome holds, `spec` and `outcome`; None where it is damaged, with a note."""
        try:
            content = self._content(record)
            rows_of(record.name, content)
            return content
        except (InputError, KeyError, TypeError, ValueError, AttributeError) as error:
            self.note(
                f"{self._path(record)} is damaged ({one_line(error)}): its run counts as not run, and is done again"
            )
            return None

    def statuses(self) -> dict[str, Status]:
        """done, failed or undefined, by run."""
        runs = self.results().drop_duplicates("run") if self.outcomes.is_dir() else None
        return {} if runs is None else dict(zip(runs["run"].astype(str), runs["status"].astype(str), strict=True))  # type: ignore[arg-type]

    def peaks(self) -> dict[str, int]:
        """Largest memory of the finished runs, in bytes."""
        runs = self.results().drop_duplicates("run")
        done = runs[runs["status"] == "done"]
        return dict(zip(done["run"].astype(str), (1e9 * done["peak_gb"]).astype(int).tolist(), strict=True))

    def _lock(self) -> FileLock:
        """Held while a file that belongs to all sweeps is replaced."""
        return FileLock(self.folder / "results.lock")

    def _content(self, record: Record) -> dict[str, Any]:
        path = self._path(record)
        try:
            content: dict[str, Any] = json.loads(path.read_text().replace('"beside":', '"processes":'))  # its old name
        except (OSError, ValueError) as error:
            raise InputError(f"cannot read {path} ({one_line(error)})") from error
        return content

    def _path(self, record: Record) -> Path:
        return self.outcomes / f"{record.name}.json"

    def note(self, text: str) -> None:
        """Keep a sentence for the user; the same one is kept once."""
        self.notes[text] = None

    # What was asked for

    def remember(self, experiment: str, options: dict[str, Any]) -> None:
        with self._lock():
            write_json(self.folder / "requests" / f"{experiment}.json", options)

    def remembered(self, experiment: str) -> dict[str, Any] | None:
        """The options that an experiment was last run with in this store."""
        path = self.folder / "requests" / f"{experiment}.json"
        if not path.is_file():
            return None
        try:
            return dict(json.loads(path.read_text()))
        except (OSError, ValueError, TypeError) as error:
            self.note(f"{path} is damaged ({one_line(error)}): how {experiment} was last run is not known")
            return None


def _may_write(folder: Path) -> bool:
    return os.access(folder, os.W_OK, effective_ids=os.access in os.supports_effective_ids)
