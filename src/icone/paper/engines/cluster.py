"""Runs as tasks on a Ray cluster: fractions of GPUs, retries when a process or a machine is lost."""

from __future__ import annotations

import dataclasses
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from icone.errors import InputError, one_line, optional
from icone.files import replacing
from icone.paper.engines.events import Event, Limit, Observe, Task
from icone.paper.engines.packing import Packing
from icone.paper.execute import ExecutionSettings, execute_one, full_disk_halts
from icone.paper.outcome import Outcome, SweepHalted
from icone.paper.spec import RunSpec
from icone.paper.store import Store
from icone.paper.time_limit import TimeLimit

POLL_SECONDS = 1.0
ELSEWHERE_SECONDS = 5.0
LOSSES = 5
"""How often a run may lose its process or its machine before the sweep goes on without it."""
SMALLEST_SHARE = 0.05
CONNECT_SECONDS = 30.0
"""How long a cluster may take to answer, with the start of the process that asks."""


class Returned(NamedTuple):
    """What a task brings back: the outcome, and the files of its folder where the store is not shared."""

    outcome: Outcome
    files: dict[str, bytes]


def execute_remotely(spec: RunSpec, setting: ExecutionSettings, folder: Path | None) -> Returned:
    """One run on a machine of the cluster: in its folder of the shared store, or in a temporary one."""
    if folder is not None:
        return Returned(execute_one(spec, folder, setting), {})
    with tempfile.TemporaryDirectory(prefix="icone-") as place:
        outcome = execute_one(spec, Path(place), setting)
        files = {path.name: path.read_bytes() for path in Path(place).iterdir() if path.is_file()}
        return Returned(outcome, files)


@dataclass
class _Flight:
    """A submitted task; the driver holds the claim of its run until it is back."""

    task: Task
    claim: ExitStack
    whole: bool
    """Whether it has a GPU for itself."""


class RayEngine:
    """Submits runs, writes what comes back into the store, and submits again what was lost with a machine.

    Claims belong to the driver: when it ends, Ray ends its tasks, and the claims are free. Only the driver needs to see
    the store; where all machines do (`shared_store`), a lost run goes on from its last saved state.
    """

    def __init__(
        self,
        store: Store,
        setting: ExecutionSettings,
        address: str = "auto",
        gpus_per_run: float | None = None,
        cpus_per_run: float = 1.0,
        *,
        shared_store: bool = False,
    ) -> None:
        self.ray = _ray()
        self.store, self.setting, self.shared_store = store, setting, shared_store
        self.gpus_per_run, self.cpus_per_run = gpus_per_run, cpus_per_run
        self._connect(address)
        self._check_shares()
        self.packing = Packing(0, slots=1)
        self.task = self.ray.remote(max_retries=0)(execute_remotely)
        self.limit: Limit = TimeLimit()

    def learn(self, spec: RunSpec, peak_bytes: int) -> None:
        self.packing.learn(spec, peak_bytes)

    def run(self, tasks: Sequence[Task], observe: Observe, limit: Limit | None = None) -> None:
        """Execute all tasks; runs that another sweep executes are waited for. Nothing goes on beyond the limit."""
        self.observe, self.limit = observe, limit or self.limit
        self.queue = sorted(tasks, key=lambda task: not task.begun)
        self.waiting: list[tuple[float, Task]] = []
        self.flights: dict[Any, _Flight] = {}
        self.losses: dict[str, int] = {}
        try:
            while self.queue or self.waiting or self.flights:
                self._submit()
                if self.limit.is_over or not (self.flights or self.waiting):
                    break
                self._collect()
            self._cancel()
            for _ in range(len(self.flights)):  # what ended all the same
                self._collect()
        except (KeyboardInterrupt, SweepHalted):
            self._cancel()
            raise
        finally:
            for flight in self.flights.values():
                flight.claim.close()

    def _cancel(self) -> None:
        """Ask all tasks to stop, and give them time to save their states."""
        for reference in self.flights:
            self.ray.cancel(reference, force=False)  # the run sees it as a wish to stop
        if self.flights:
            self.ray.wait(list(self.flights), num_returns=len(self.flights), timeout=60)

    def _next_task(self) -> Task | None:
        """Take from the queue the first task that fits into the time that is left; where none does, the first one."""
        if self.limit.is_over:
            return None
        otherwise = self.queue[0] if self.queue and self.limit.is_worth_beginning else None
        task = next((task for task in self.queue if self.limit.how_many([task])), otherwise)
        if task is not None:
            self.queue.remove(task)
        return task

    def _submit(self) -> None:
        """Keep the cluster busy, with a few tasks waiting; more would only hold claims."""
        now = time.monotonic()
        self.queue += [task for at, task in self.waiting if at <= now]
        self.waiting = [(at, task) for at, task in self.waiting if at > now]
        while self.queue and len(self.flights) < self._window() and (task := self._next_task()) is not None:
            claim = ExitStack()
            if not claim.enter_context(self.store.claim(task.spec.key)):
                claim.close()
                self._wait(task)
                continue
            last = self.store.last_record(task.spec.key)
            if last is not None and last.attempt > task.after:  # somebody was quicker
                claim.close()
                self.observe(Event("finished", task.spec, self.store.outcome(last)))
                continue
            self._launch(task, claim)

    def _launch(self, task: Task, claim: ExitStack) -> None:
        share = self._share(task)
        folder = self.store.run_folder(task.spec.key).resolve() if self.shared_store else None
        remote = self.task.options(num_cpus=self.cpus_per_run, num_gpus=share, name=f"icone-{task.spec.key}")
        setting = dataclasses.replace(self.setting, processes=max(1, round(1 / share)) if share else 1)
        self.flights[remote.remote(task.spec, setting, folder)] = _Flight(task, claim, share in (0, 1))
        self.observe(Event("started", task.spec))

    def _collect(self) -> None:
        if not self.flights:
            time.sleep(POLL_SECONDS if self.waiting and not self.queue else 0)
            return
        ready, _ = self.ray.wait(list(self.flights), num_returns=1, timeout=POLL_SECONDS)
        for reference in ready:
            flight = self.flights.pop(reference)
            with flight.claim:
                try:
                    returned: Returned = self.ray.get(reference)
                except SweepHalted as error:  # Ray raises what a task raised as an error of both types
                    raise SweepHalted(str(error.cause)) from error  # type: ignore[attr-defined]
                except self.ray.exceptions.RayError as error:
                    self._lost(flight.task, error)
                    continue
                with full_disk_halts():
                    self._take(flight, returned)

    def _take(self, flight: _Flight, returned: Returned) -> None:
        task, outcome = flight.task, returned.outcome
        if outcome.out_of_memory and not flight.whole:
            self._requeue(task._replace(alone=True))
            return
        for name, content in returned.files.items():
            with replacing(self.store.run_folder(task.spec.key) / name) as temporary:
                temporary.write_bytes(content)
        self.store.record(task.spec, outcome)
        if outcome.device_bytes:
            self.packing.capacity = min(self.packing.capacity or outcome.device_bytes, outcome.device_bytes)
            self.packing.learn(task.spec, outcome.peak_bytes)
        self.observe(Event("finished", task.spec, outcome))

    def _lost(self, task: Task, error: Exception) -> None:
        """A process or machine is gone, or Ray refuses the task: try again a few times, then leave it unfinished."""
        count = self.losses[task.spec.key] = self.losses.get(task.spec.key, 0) + 1
        if count < LOSSES:
            self._requeue(task)
            return
        reason = f"lost {count} times, last by {type(error).__name__}: {str(error).strip().splitlines()[0]}"
        self.observe(Event("unfinished", task.spec, reason=reason))

    def _requeue(self, task: Task) -> None:
        self.queue.append(task)
        self.observe(Event("waiting", task.spec))

    def _wait(self, task: Task) -> None:
        self.waiting.append((time.monotonic() + ELSEWHERE_SECONDS, task))
        self.observe(Event("waiting", task.spec))

    def _share(self, task: Task) -> float:
        """The part of a GPU that a run gets: as asked for, by measured memory, or a whole one."""
        if self.setting.device == "cpu" or not self.ray.cluster_resources().get("GPU"):
            return 0
        if task.alone:
            return 1
        if self.gpus_per_run is not None:
            return self.gpus_per_run
        need = self.packing.need(task.spec) if self.packing.capacity else None
        if need is None:
            return 1
        steps = math.ceil(need / self.packing.capacity / SMALLEST_SHARE)
        return min(1, steps * SMALLEST_SHARE)

    def _window(self) -> int:
        cpus = float(self.ray.cluster_resources().get("CPU", 1))
        return max(4, math.ceil(1.5 * cpus / self.cpus_per_run))

    def _connect(self, address: str) -> None:
        if self.ray.is_initialized():
            return
        if address != "local":
            _try_to_reach(address)
        try:
            self.ray.init(address=address, log_to_driver=False, logging_level="ERROR")
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise _unreachable(address, one_line(error)) from error

    def _check_shares(self) -> None:
        """Refuse what no machine of the cluster could ever give a run: Ray would wait for one without a word."""
        machines = [node["Resources"] for node in self.ray.nodes() if node["Alive"]]
        on_gpu = self.setting.device != "cpu"
        for flag, resource, share in (
            ("--cpus-per-run", "CPU", self.cpus_per_run),
            ("--gpus-per-run", "GPU", self.gpus_per_run if on_gpu else None),
        ):
            largest = max((machine.get(resource, 0) for machine in machines), default=0)
            if share is not None and share > largest:
                raise InputError(
                    f"{flag}={share:g} is more than any machine of the cluster has: the largest has {largest:g}"
                )


def _try_to_reach(address: str) -> None:
    """Connect from another process first: where nobody answers, Ray tries for minutes and ends the process."""
    code = "import ray, sys; ray.init(address=sys.argv[1], log_to_driver=False, logging_level='ERROR')"
    try:
        tried = subprocess.run(
            [sys.executable, "-c", code, address], capture_output=True, text=True, timeout=CONNECT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise _unreachable(address, f"no answer within {CONNECT_SECONDS:g} s") from error
    if tried.returncode:
        raise _unreachable(address, (tried.stderr.strip().splitlines() or ["no reason given"])[-1])


def _unreachable(address: str, reason: str) -> InputError:
    return InputError(
        f"cannot reach a Ray cluster at {address!r} ({reason}): start one with `ray start --head`, give its --address, "
        "or `--address local` for this machine"
    )


def _ray() -> Any:
    with optional("cluster", "--engine ray"):
        import ray
        import ray.exceptions
    return ray
