"""Runs on this machine: worker processes on one device, packed by measured memory."""

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkServerProcess

import torch

from icone.api.build import pick_device
from icone.data.memory import free_bytes
from icone.evaluation.probes import MOST_THREADS
from icone.paper.engines.events import Event, Limit, Observe, Task
from icone.paper.engines.packing import Packing
from icone.paper.engines.worker import WorkerReport, serve
from icone.paper.execute import ExecutionSettings
from icone.paper.outcome import SweepHalted
from icone.paper.spec import RunSpec
from icone.paper.store import Store
from icone.paper.time_limit import TimeLimit

POLL_SECONDS = 1.0
ELSEWHERE_SECONDS = 5.0
"""How long a run that another sweep executes is left alone before we look again."""
STOP_SECONDS = 60.0
"""How long workers may take to save their state when the sweep is stopped."""
CONTEXT_BYTES = 700_000_000
"""What a process takes on a GPU besides its tensors."""


@dataclass
class _Worker:
    process: ForkServerProcess
    connection: Connection
    group: list[Task] = field(default_factory=list)

    @property
    def name(self) -> str:
        return str(self.process.pid)


class LocalEngine:
    """A pool of processes; each holds the claim of what it executes, so nothing of a killed sweep stays locked.

    A process gets up to `together` runs of one shape at a time, which it trains side by side where it can.
    """

    def __init__(self, store: Store, setting: ExecutionSettings, workers: int, together: int = 1) -> None:
        device = pick_device(setting.device)
        if setting.threads is None:
            setting = dataclasses.replace(setting, threads=threads_of_a_process(device, workers))
        self.store, self.setting, self.slots, self.together = store, setting, workers, together
        if device.type == "cuda":
            capacity = torch.cuda.mem_get_info(device)[0]
            self.packing = Packing(capacity, slots=workers, overhead=CONTEXT_BYTES)
        else:
            capacity = free_bytes()
            self.packing = Packing(capacity, slots=workers, guess=capacity // workers)
        self.workers: list[_Worker] = []
        self.limit: Limit = TimeLimit()

    def learn(self, spec: RunSpec, peak_bytes: int) -> None:
        self.packing.learn(spec, peak_bytes)

    def run(self, tasks: Sequence[Task], observe: Observe, limit: Limit | None = None) -> None:
        """Execute all tasks; runs that another sweep executes are waited for. Nothing goes on beyond the limit."""
        self.observe, self.limit = observe, limit or self.limit
        self.queue = _groups(tasks, self.together)
        self.waiting: list[tuple[float, Task]] = []
        try:
            while self.queue or self.waiting or self.packing.running:
                self._wake()
                self._start_what_fits()
                if self.limit.is_over or not (self.packing.running or self.waiting):
                    break
                self._listen()
            self._stop()
            self._hear_the_last()
        except (KeyboardInterrupt, SweepHalted):
            self._stop()
            raise
        finally:
            self._close()

    def _wake(self) -> None:
        now = time.monotonic()
        due = [task for at, task in self.waiting if at <= now]
        self.waiting = [(at, task) for at, task in self.waiting if at > now]
        self.queue += [[task] for task in due]

    def _start_what_fits(self) -> None:
        """Give groups to free workers, the first in the queue that fits each time."""
        while len(self.packing.running) < self.slots and not self.limit.is_over:
            group = self._next_group()
            if not group:
                return
            worker = next((w for w in self.workers if not w.group and w.process.is_alive()), None) or self._hire()
            worker.group = group
            self.packing.start(worker.name, [task.spec for task in group], group[0].alone)
            worker.connection.send([task._replace(processes=len(self.packing.running)) for task in group])
            for task in group:
                self.observe(Event("started", task.spec))

    def _next_group(self) -> list[Task]:
        """Take from the queue what fits now: a group, or its first runs where all would not fit beside each other.

        What fits into the time that is left comes first. Where nothing does, the first group that there is room for is
        begun, because its state is saved at the limit.
        """
        for in_time in (True, False) if self.limit.is_worth_beginning else (True,):
            for place, group in enumerate(self.queue):
                size = self.packing.together(group[0].spec, len(group))
                if in_time:
                    size = self.limit.how_many(group[:size], len(self.packing.running) + 1)
                if size and self.packing.fits([task.spec for task in group[:size]], group[0].alone):
                    self.queue[place : place + 1] = [group[size:]] if size < len(group) else []
                    return group[:size]
        return []

    def _listen(self) -> None:
        busy = {worker.connection: worker for worker in self.workers if worker.group}
        if not busy:
            time.sleep(POLL_SECONDS if self.waiting and not self.queue else 0)
            return
        for connection in wait(list(busy), timeout=POLL_SECONDS):
            worker = busy[connection]  # type: ignore[index]
            self.packing.end(worker.name)
            tasks, worker.group = {task.spec.key: task for task in worker.group}, []
            try:
                reports: Iterable[WorkerReport] = worker.connection.recv()
            except (EOFError, ConnectionResetError):
                self._died(worker, tasks.values())
                continue
            for report in sorted(reports, key=lambda report: report.kind == "halted"):
                self._take(tasks[report.key], report)

    def _take(self, task: Task, report: WorkerReport) -> None:
        outcome = report.outcome
        if report.kind == "halted":
            raise SweepHalted(report.reason)
        if report.kind != "finished" or outcome is None:
            self.waiting.append((time.monotonic() + ELSEWHERE_SECONDS, task))
            self.observe(Event("waiting", task.spec))
        elif outcome.out_of_memory and not task.alone:
            self.queue.append([task._replace(alone=True)])
            self.observe(Event("waiting", task.spec))
        else:
            self.packing.learn(task.spec, outcome.peak_bytes)
            self.observe(Event("finished", task.spec, outcome))

    def _died(self, worker: _Worker, tasks: Iterable[Task]) -> None:
        """A process that was killed, by the system for its memory perhaps: its runs are tried once more, alone.

        A run whose process ends a second time stays unfinished, unless another sweep has it.
        """
        self.workers.remove(worker)
        worker.process.join()
        for task in tasks:
            if task.alone and not self._elsewhere(task):
                code = worker.process.exitcode
                reason = f"its process ended twice, last with exit code {code} (-9: killed, often for memory)"
                self.observe(Event("unfinished", task.spec, reason=reason))
            else:
                self.queue.append([task._replace(alone=True)])
                self.observe(Event("waiting", task.spec))

    def _elsewhere(self, task: Task) -> bool:
        """Whether another sweep executes a run, or has ended it."""
        last = self.store.last_record(task.spec.key)
        with self.store.claim(task.spec.key) as ours:
            return not ours or (last is not None and last.attempt > task.after)

    def _hire(self) -> _Worker:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["icone.paper.engines.worker"])
        ours, theirs = context.Pipe()
        process = context.Process(target=serve, args=(theirs, self.store.folder, self.setting), daemon=False)
        process.start()
        theirs.close()
        worker = _Worker(process, ours)
        self.workers.append(worker)
        return worker

    def _stop(self) -> None:
        """Ask busy workers to save their state, and give them time to do it."""
        for worker in self.workers:
            if worker.group and worker.process.pid is not None:
                os.kill(worker.process.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_SECONDS
        for worker in self.workers:
            if worker.group:
                worker.connection.poll(max(0.0, end - time.monotonic()))

    def _hear_the_last(self) -> None:
        """Take the outcomes of runs that ended while they were asked to stop."""
        for worker in self.workers:
            if worker.group and worker.connection.poll():
                tasks = {task.spec.key: task for task in worker.group}
                try:
                    reports: Iterable[WorkerReport] = worker.connection.recv()
                except (EOFError, ConnectionResetError):  # it was not training, and ended at once
                    continue
                for report in reports:
                    if report.kind == "finished":
                        self._take(tasks[report.key], report)

    def _close(self) -> None:
        for worker in self.workers:
            worker.connection.close()  # idle workers see it and leave
        for worker in self.workers:
            worker.process.join(timeout=5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()


def threads_of_a_process(device: torch.device, workers: int) -> int | None:
    """Threads of each of so many processes; None: as many as PyTorch takes.

    A CPU trains with all of its cores. Beside a GPU the processor only measures, by products so small that many threads
    get in each other's way.

    >>> threads_of_a_process(torch.device("cpu"), 1) is None, threads_of_a_process(torch.device("cpu"), 1000)
    (True, 1)
    """
    if workers == 1 and device.type == "cpu":
        return None
    share = max(1, torch.get_num_threads() // workers)
    return share if device.type == "cpu" else min(MOST_THREADS, share)


def _groups(tasks: Sequence[Task], together: int) -> list[list[Task]]:
    """Runs of one shape in groups: first what was begun before, then the largest batches.

    The memory of large batches bounds that of the smaller ones.
    """
    ordered = sorted(tasks, key=lambda task: (not task.begun, -task.spec.config.batch_size * task.spec.config.views))
    by_shape: dict[tuple[object, ...], list[Task]] = {}
    for task in ordered:
        by_shape.setdefault(task.spec.shape, []).append(task)
    return [group[i : i + together] for group in by_shape.values() for i in range(0, len(group), together)]
