"""The folder that a sweep leaves behind: who works on which run, what came out, one table of all results.

    outcomes/KEY.ATTEMPT.json   written once, never changed: the end of one execution of a run
    results.parquet             all outcomes merged, one row per run and metric (see docs/experiments.md)
    runs/KEY/                   what an unfinished run needs to go on; afterwards what pictures need
    claims/KEY                  locked by the process that executes the run
    requests/EXPERIMENT.json    the options an experiment was last run with

Several sweeps may share a store: a run is executed under its claim, which the system releases when the process ends,
however it ends. Listing needs the names in outcomes/ and one Parquet file, whatever the number of runs.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from filelock import FileLock, Timeout

from icone.errors import InputError
from icone.experiments.outcome import Outcome, Status, outcome_from_json
from icone.experiments.results import merge, read_results, rows_of
from icone.experiments.spec import RunSpec
from icone.runs import replacing, write_json, write_text


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

    def create(self) -> Store:
        """Make the folders; a place where nothing can be written is an error now."""
        try:
            for name in ("outcomes", "runs", "claims", "requests"):
                (self.folder / name).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"cannot use {self.folder} as a store ({error.strerror}): choose another --store"
            ) from error
        return self

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
        last = self.last_record(spec.key)
        attempt = 1 if last is None else last.attempt + 1
        write_text(self.outcomes / f"{spec.key}.{attempt}.json", json.dumps(content) + "\n")

    # Reading

    def records(self) -> list[Record]:
        """All outcomes by name, in one look at the folder."""
        if not self.outcomes.is_dir():
            return []
        names = (e.name.removesuffix(".json").split(".") for e in os.scandir(self.outcomes) if e.name[0] != ".")
        return [Record(key, int(attempt)) for key, attempt in names]

    def last_records(self) -> dict[str, Record]:
        """The outcome that counts, by run: the last one."""
        last: dict[str, Record] = {}
        for record in self.records():
            if record.key not in last or last[record.key].attempt < record.attempt:
                last[record.key] = record
        return last

    def last_record(self, key: str) -> Record | None:
        """The outcome of one run that counts, without a look at the others."""
        attempts = itertools.takewhile(
            lambda attempt: (self.outcomes / f"{key}.{attempt}.json").exists(), itertools.count(1)
        )
        return max((Record(key, attempt) for attempt in attempts), default=None)

    def outcome(self, record: Record) -> Outcome:
        return outcome_from_json(self._content(record)["outcome"])

    def results(self) -> pd.DataFrame:
        """One row per run and metric of all outcomes; outcomes since the last call are merged into the file."""
        if not self.outcomes.is_dir():
            raise InputError(f"there is no store at {self.folder}: give --store, or start one with `icone paper run`")
        with self._lock():
            known = read_results(self.results_file)
            last = {record.name: record for record in self.last_records().values()}
            merged = set(known["record"].cat.categories)
            if merged == last.keys():
                return known
            new = [row for name in last.keys() - merged for row in rows_of(name, self._content(last[name]))]
            table = merge(known[known["record"].isin(last.keys())], new)
            with replacing(self.results_file) as temporary:
                table.to_parquet(temporary, index=False, compression="zstd")
            return table

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
        path = self.outcomes / f"{record.name}.json"
        try:
            content: dict[str, Any] = json.loads(path.read_text())
        except (OSError, json.JSONDecodeError) as error:
            raise InputError(f"cannot read {path} ({error}): delete it, and the run is done again") from error
        return content

    # What was asked for

    def remember(self, experiment: str, options: dict[str, Any]) -> None:
        with self._lock():
            write_json(self.folder / "requests" / f"{experiment}.json", options)

    def remembered(self, experiment: str) -> dict[str, Any] | None:
        """The options that an experiment was last run with in this store."""
        path = self.folder / "requests" / f"{experiment}.json"
        return json.loads(path.read_text()) if path.is_file() else None
