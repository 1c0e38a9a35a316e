"""The verbs of `icone paper`."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro
from rich.console import Console

from icone.errors import InputError, optional
from icone.paper.options import Options
from icone.paper.transfer_verbs import STORE, PaperExport, PaperImport, say_notes
from icone.terminal import counted, either, say
from icone.validation import check_settings

if TYPE_CHECKING:
    from icone.paper.engines.events import SweepEngine
    from icone.paper.store import Store
    from icone.paper.sweep import Tally

FAILED_RUNS = 1
"""Exit code of a sweep in which a run failed or could not be finished."""
TIME_IS_UP = 75
"""Exit code of a sweep that has reached its time limit with runs left: the same command goes on (EX_TEMPFAIL)."""
SHOWN_PROBLEMS = 10


@dataclass(frozen=True, kw_only=True)
class Stored(Options):
    """Options with the place where runs are kept."""

    store: Path | None = None
    """The sweep's folder; several sweeps may share it (default: runs/paper, or runs/paper-smoke with --smoke)."""
    debug: bool = False
    """Show the traceback of an error."""

    def __post_init__(self) -> None:
        """Nothing is checked while flags are parsed: errors come later and look like all others."""

    def chosen(self) -> Options:
        return Options(**{f.name: getattr(self, f.name) for f in dataclasses.fields(Options)})

    def open_store(self) -> Store:
        from icone.paper.store import Store

        return Store(self.folder())

    def folder(self) -> Path:
        return self.store or (STORE.with_name("paper-smoke") if self.smoke else STORE)


@dataclass(frozen=True, kw_only=True)
class PaperList(Stored):
    """List every table and figure of the paper.

    The list says what each needs, its runs, how many are done, and estimated GPU hours.
    """

    def run(self, console: Console) -> None:
        from icone.paper.listing_cache import recall
        from icone.paper.listing_table import listing_table, stored_listing

        options, folder = self.chosen(), self.folder()
        stored = stored_listing(options, folder / "outcomes") or recall(options, folder)
        if stored is not None:
            console.print(listing_table(stored))
            return
        from icone.paper.listing import experiment_lines

        store = self.open_store()
        console.print(listing_table(experiment_lines(options, store)))
        say_notes(store, console)


@dataclass(frozen=True, kw_only=True)
class PaperRun(Stored):
    """Run what is missing of some experiments.

    Run again, it redoes nothing. The exit code is 1 where a run failed, and 75 where --max-minutes left runs to do.
    """

    experiments: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Names from `icone paper list`, or `all`."""
    dry_run: bool = False
    """Say what would run, and how long that takes on this device; run and write nothing."""
    retry_failed: bool = False
    """Run failed runs again."""
    max_minutes: float | None = None
    """Stop after this many minutes: what will end in time starts first, what is running then is saved, and the same
    command goes on."""
    engine: Literal["local", "ray"] = "local"
    """local: worker processes on this machine; ray: tasks on a Ray cluster."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`, …; auto: CUDA where there is one."""
    workers: int | None = None
    """Processes beside each other at most (default: 2 on a GPU, as memory allows; 1 on a CPU)."""
    side_by_side: int = 5
    """Seeds that train side by side in one process on a GPU, as memory allows."""
    address: str = "auto"
    """ray: address of the cluster; `local` starts one on this machine."""
    gpus_per_run: float | None = None
    """ray: share of a GPU per run (default: by measured memory, a whole one where nothing is known)."""
    cpus_per_run: float = 1.0
    """ray: CPUs per run."""
    node_cache: Path | None = None
    """Copy data sets to this folder of each machine first."""
    shared_store: bool = False
    """ray: all machines see the store, so a run lost with its machine goes on from its last saved state."""
    keep_encoders: bool = False
    """Keep the trained encoders; without this a run leaves metrics and, for the first seed, features."""

    def run(self, console: Console) -> None:
        from icone.paper.listing import experiment_lines
        from icone.paper.sweep import announce, plan_sweep, sweep

        if not self.experiments:
            raise InputError("name at least one experiment, or `all`; `icone paper list` shows them")
        here = self.engine == "local"
        if self.dry_run:
            store, device, options = self.open_store(), self._device_name() if here else None, self.chosen()
            plan = plan_sweep(self.experiments, options, store, console, self.retry_failed, here, device)
            announce(plan, self.experiments, options, store, console, device, self.side_by_side, self.max_minutes)
            say_notes(store, console)
            ended = sum(plan.before.values())
            say(console, f"nothing was run; {counted(ended, 'run')} of it {either(ended, 'has', 'have')} ended before")
            return
        store = self.open_store().create()
        engine = self._engine(store)
        tally = sweep(
            self.experiments, self.chosen(), store, engine, console, self.retry_failed, data_is_here=here,
            device=self._device_name() if here else None, together=self.side_by_side, max_minutes=self.max_minutes,
        )  # fmt: skip
        experiment_lines(Options(smoke=self.smoke), store)  # so that `list` answers at once
        say_notes(store, console)
        self._say_tally(tally, console)
        if tally.postponed:
            raise SystemExit(TIME_IS_UP)
        if tally.problems:
            raise SystemExit(FAILED_RUNS)

    def _say_tally(self, tally: Tally, console: Console) -> None:
        for problem in tally.problems[:SHOWN_PROBLEMS]:
            say(console, problem)
        if len(tally.problems) > SHOWN_PROBLEMS:
            say(console, f"and {len(tally.problems) - SHOWN_PROBLEMS} more reasons")
        unfinished = f", {tally.unfinished} unfinished" if tally.unfinished else ""
        unfinished += f", {tally.left_out} left out" if tally.left_out else ""
        unfinished += f", {tally.postponed} left for the next time" if tally.postponed else ""
        again = "; --retry-failed runs the failed ones again" if tally.failed else ""
        words = ["icone", "paper", "show", *self.experiments, *(["--smoke"] if self.smoke else [])]
        words += ["--store", str(self.store)] if self.store else []
        following = "" if tally.postponed else f"  (next: {shlex.join(words)})"
        say(
            console,
            f"{counted(tally.executed, 'run')} executed; in all {tally.done} done, {tally.undefined} undefined, "
            f"{tally.failed} failed{unfinished}{again}{following}",
        )
        if tally.postponed:
            limit = f"{self.max_minutes:g} minutes"
            say(console, f"the rest did not fit into {limit}: what was begun is saved, and the same command goes on")
            if not tally.executed:
                say(console, "no run has ended in this time: should that happen again and again, give it more")

    def _device_name(self) -> str:
        from icone.api.build import pick_device
        from icone.paper.execute import device_name

        return device_name(pick_device(self.device))

    def _engine(self, store: Store) -> SweepEngine:
        from icone.api.build import pick_device
        from icone.paper.execute import ExecutionSettings

        check_settings(self)
        common = {"device": self.device, "data_root": self.data_root, "keep_encoders": self.keep_encoders}
        if self.engine == "ray":
            from icone.paper.engines.cluster import RayEngine

            setting = ExecutionSettings(**common, node_cache=self.node_cache)  # type: ignore[arg-type]
            return RayEngine(
                store, setting, self.address, self.gpus_per_run, self.cpus_per_run, shared_store=self.shared_store
            )
        from icone.paper.engines.local import LocalEngine

        on_gpu = pick_device(self.device).type == "cuda"
        workers = self.workers or (2 if on_gpu else 1)
        setting = ExecutionSettings(**common, node_cache=self.node_cache)  # type: ignore[arg-type]
        return LocalEngine(store, setting, workers, together=self.side_by_side if on_gpu else 1)


@dataclass(frozen=True, kw_only=True)
class PaperShow(Stored):
    """Show tables with the paper's numbers and ours, and draw figures.

    Figures are PDF and PNG, numbers CSV and Parquet.
    """

    experiments: Annotated[tuple[str, ...], tyro.conf.Positional]
    """Names from `icone paper list`, or `all`."""
    out: Path | None = None
    """Folder for the files (default: figures/ in the store)."""

    def run(self, console: Console) -> None:
        from icone.paper.show import show

        if not self.experiments:
            raise InputError("name at least one experiment, or `all`; `icone paper list` shows them")
        store = self.open_store()
        out = self.out
        if out is None and store.folder.exists() and not store.is_writable:
            store.note(f"no files were written, because {store.folder} is read-only: give a folder with --out")
        else:
            out = out or store.folder / "figures"
        show(self.experiments, self.chosen(), store, out, console)
        say_notes(store, console)


@dataclass(frozen=True, kw_only=True)
class PaperReport(Stored):
    """Write one page with every table and figure.

    The paper stands beside ours. The page needs no network and no program but a browser.
    """

    experiments: Annotated[tuple[str, ...], tyro.conf.Positional] = ("all",)
    """Names from `icone paper list` (default: all)."""
    out: Path | None = None
    """File to write; one that ends in .md gets the tables as Markdown (default: paper.html in the store)."""
    runs: Path | None = None
    """Instead of a store, a folder with a text of yours (page.md) and the runs.csv files of `show`: the tables that the
    text asks for are filled in (docs/experiments.md says how)."""

    def run(self, console: Console) -> None:
        from icone.paper.overview import write_report
        from icone.paper.results_page import write_page
        from icone.validation import check_target

        out = self.out or (self.runs or self.folder()) / "paper.html"
        check_target(out)
        if self.runs is not None:
            say(console, f"written to {write_page(self.runs, out)}")
            return
        store = self.open_store()
        say(console, f"written to {write_report(self.experiments, self.chosen(), store, out)}")
        say_notes(store, console)


@dataclass(frozen=True, kw_only=True)
class Paper:
    """The paper's tables and figures: list them, run them, show them, carry their runs to another machine."""

    verb: tyro.conf.OmitSubcommandPrefixes[
        Annotated[PaperList, tyro.conf.subcommand("list")]
        | Annotated[PaperRun, tyro.conf.subcommand("run")]
        | Annotated[PaperShow, tyro.conf.subcommand("show")]
        | Annotated[PaperReport, tyro.conf.subcommand("report")]
        | Annotated[PaperExport, tyro.conf.subcommand("export")]
        | Annotated[PaperImport, tyro.conf.subcommand("import")]
    ]
    VERBS: ClassVar[dict[str, type[Any]]] = {
        "list": PaperList,
        "run": PaperRun,
        "show": PaperShow,
        "report": PaperReport,
        "export": PaperExport,
        "import": PaperImport,
    }

    def run(self, console: Console) -> None:
        if not isinstance(self.verb, (PaperList, PaperExport, PaperImport)):
            with optional("paper", "icone paper"):
                import matplotlib  # noqa: F401  # which all others come to, sooner or later
        self.verb.run(console)
