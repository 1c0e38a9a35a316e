"""A process that executes runs one group after the other and writes their outcomes into the store."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from contextlib import ExitStack
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal, NamedTuple

from icone.errors import InputError, one_line
from icone.paper.engines.events import Task
from icone.paper.execute import ExecutionSettings, Job, execute, full_disk_halts
from icone.paper.outcome import Outcome
from icone.paper.store import Store
from icone.process import configure_process
from icone.wording import command_line


class WorkerReport(NamedTuple):
    """What became of a run in a worker: its outcome; `elsewhere`: another process has it; `stopped`: asked to stop.

    `halted`: nothing more can be written, for the `reason` given.
    """

    key: str
    kind: Literal["finished", "elsewhere", "stopped", "halted"]
    outcome: Outcome | None = None
    reason: str = ""


def serve(connection: Connection, folder: Path, setting: ExecutionSettings) -> None:
    """The life of a worker: groups of runs in, reports out, until the other side closes or goes away."""
    os.setpgrp()  # Ctrl-C in the terminal is for the sweep, which then asks its workers to stop
    configure_process()
    store = Store(folder)
    while True:
        try:
            group: Sequence[Task] | None = connection.recv()
        except (EOFError, ConnectionResetError):  # the sweep has ended
            return
        if group is None:
            return
        with command_line():  # outcomes are stored, and read with `icone paper show`
            reports = work(store, group, setting)
        try:
            connection.send(reports)
        except (BrokenPipeError, ConnectionResetError):
            return  # the sweep is gone; the outcomes are in the store


def work(store: Store, group: Sequence[Task], setting: ExecutionSettings) -> list[WorkerReport]:
    """Execute a group of tasks under their claims and record the outcomes.

    Training and measuring turn their errors into outcomes, so an error that arrives here is one of the store: a full
    disk, rights that were taken away, a share that is gone.
    """
    reports: dict[str, WorkerReport] = {}
    keys = [task.spec.key for task in group]
    try:
        with ExitStack() as claims:
            jobs = []
            for task in group:
                spec = task.spec
                if not claims.enter_context(store.claim(spec.key)):
                    reports[spec.key] = WorkerReport(spec.key, "elsewhere")
                    continue
                last = store.last_record(spec.key)
                if last is not None and last.attempt > task.after:  # somebody was quicker
                    reports[spec.key] = WorkerReport(spec.key, "finished", store.outcome(last))
                    continue
                jobs.append(_job(store, task, reports))
            with full_disk_halts():
                execute(jobs, dataclasses.replace(setting, processes=max(task.processes for task in group)))
    except KeyboardInterrupt:  # of a run, its state is saved
        reports = {key: WorkerReport(key, "stopped") for key in keys} | reports
    except (InputError, OSError) as error:
        reports = {key: WorkerReport(key, "halted", reason=one_line(error)) for key in keys} | reports
    return list(reports.values())


def _job(store: Store, task: Task, reports: dict[str, WorkerReport]) -> Job:
    spec = task.spec

    def finish(outcome: Outcome) -> None:
        if task.alone or not outcome.out_of_memory:  # too little memory is final only where a run was alone
            store.record(spec, outcome)
        reports[spec.key] = WorkerReport(spec.key, "finished", outcome)

    return Job(spec, store.run_folder(spec.key), finish)
