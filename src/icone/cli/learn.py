"""The verbs that come to an encoder: from a look at the data to a trained or fine-tuned run."""

from __future__ import annotations

import dataclasses
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from icone.cli.flags import ConfigFlags, LabelFlags, Verb, settings_of
from icone.config import DataConfig, EncoderConfig, FinetuneConfig, PretrainConfig
from icone.errors import InputError
from icone.find_runs import is_finetuned, is_pretrained
from icone.terminal import Terminal, say


@dataclass(frozen=True, kw_only=True)
class Fetch(Verb):
    """Download data sets by name.

    An interrupted download goes on where it stopped, and checksums are verified.
    """

    names: Annotated[tuple[str, ...], tyro.conf.Positional]
    """`medmnist:NAME@SIZE`, `paper` (the 13 sets of the paper), `imagenette@160` (natural images, 10 classes)."""
    data_root: Path | None = None
    """Folder for the files (default: the medmnist package's own folder, the user's data folder for others)."""

    def run(self, console: Console) -> None:
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

        from icone.data.fetch import fetch
        from icone.paper.datasets import PAPER_2D, PAPER_3D

        if not self.names:
            raise InputError("say what to fetch: medmnist:NAME@SIZE, paper or imagenette@160")
        paper = [f"medmnist:{name}@224" for name in PAPER_2D] + [f"medmnist:{name}@64" for name in PAPER_3D]
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
        for name in [one for given in self.names for one in (paper if given == "paper" else [given])]:
            with Progress(*columns, console=console, transient=True) as bar:
                task = bar.add_task(name, total=None)
                show = partial(_show_download, bar, task)
                path, source = fetch(name, self.data_root, show)
            root = f" --data-root {shlex.quote(str(self.data_root))}" if self.data_root and source == name else ""
            say(console, f"{path} is there  (next: icone inspect {shlex.quote(source)}{root})")


@dataclass(frozen=True, kw_only=True)
class Inspect(ConfigFlags, DataConfig, EncoderConfig):
    """Say what would be understood of a data set, and what was guessed.

    Nothing is trained. Of a run folder it says what the run is, and how it ended. With --duplicates: list pairs of
    samples of a run that are nearly the same, and samples far from all others.
    """

    source: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SOURCE")]
    """What `icone pretrain` takes: a folder, an array file, a CSV with a column `path`, `medmnist:NAME@SIZE`, …; with
    --duplicates a run folder."""
    json: bool = False
    """Print it as JSON."""
    duplicates: bool = False
    """List near-duplicates and outliers among the samples of a run, by its encoder and their pictures."""
    data: str | None = None
    """With --duplicates: where the run's data lies now, if it was moved."""
    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`, …; auto: CUDA where there is one."""
    workers: int = 2
    """Threads that read and decode files."""
    cache: str = "auto"
    """Folder that keeps what was found for `icone pretrain`, or `off`; auto: the user's cache folder."""

    def run(self, console: Console) -> None:
        if self.duplicates:
            self._list_duplicates(console)
            return
        if self.data is not None:
            raise InputError("--data says where the data of a run lies: give --duplicates and a run folder too")
        if is_pretrained(Path(self.source)) or is_finetuned(Path(self.source)):
            self._sum_up(console)
            return
        from icone.api.inspect import inspect, inspection_parts
        from icone.readable import show

        settings = settings_of(self, "source", "json", "duplicates", "data", "config")
        found = inspect(self.source, **settings, console=Terminal(quiet=True) if self.json else console)
        if self.json:
            say(console, json.dumps(found, indent=2))
        else:
            show(console, inspection_parts(found, shlex.join(["icone", "plan", self.source])))

    def _sum_up(self, console: Console) -> None:
        """Say what a run is, how it ended, and what was measured about it."""
        from icone.api.evaluate import evaluation_parts
        from icone.api.summaries import finetune_parts, pretraining_summary
        from icone.readable import show
        from icone.run import Run

        if self.json:
            raise InputError("--json is for data: what is known of a run is in its config.json and result.json")
        if is_finetuned(Path(self.source)):
            run = Run(self.source)
            command = shlex.join(["icone", "predict", str(run.folder)])
            say(console, f"{run.folder} holds a fine-tuned network ({command} NEW_SAMPLES)")
            show(console, finetune_parts(run.read_json("result.json")) if run.result_file.is_file() else [])
            return
        run = Run.open(self.source)
        say(console, repr(run).strip("<>"))
        summary = pretraining_summary(run)[1:] if run.finished else []
        result = run.result
        for line in summary if result is None else summary[:2]:  # time and loss; what the live probe saw is out of date
            say(console, line)
        if result is not None:
            show(console, evaluation_parts(result))

    def _list_duplicates(self, console: Console) -> None:
        from icone.api.find_duplicates import duplicate_parts, find_duplicates
        from icone.readable import show

        own = ("source", "config", "json", "duplicates", "data", "data_root", "device", "workers", "cache", "debug")
        others = [f for f in dataclasses.fields(self) if f.name not in own and getattr(self, f.name) != f.default]
        if others:
            flags = ", ".join("--" + f.name.replace("_", "-") for f in others)
            raise InputError(f"with --duplicates a run is read as it was trained: leave out {flags}")
        result = find_duplicates(
            self.source,
            data=self.data,
            data_root=self.data_root,
            device=self.device,
            cache=None if self.cache == "auto" else self.cache,
            console=Terminal(quiet=True) if self.json else console,
        )
        if self.json:
            say(console, json.dumps(result, indent=2))
            return
        show(console, duplicate_parts(result))


@dataclass(frozen=True, kw_only=True)
class PlanVerb(ConfigFlags, PretrainConfig):
    """Say whether a run fits into memory and how long it takes.

    A few steps on random samples find it out, in at most 20 s.
    """

    batch_size: int | Literal["auto"] | None = None  # type: ignore[assignment]
    """Samples per step (default: 16 images, or one volume or point); auto: what `icone pretrain --batch-size auto`
    would take."""
    json: bool = False
    """Print it as JSON."""

    def run(self, console: Console) -> None:
        from icone.api.plan import plan
        from icone.api.planning import plan_parts
        from icone.readable import show

        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(PretrainConfig)}
        found = plan(**settings, console=Terminal(quiet=True) if self.json else console)
        if self.json:
            say(console, json.dumps(found, indent=2))
        else:
            show(console, plan_parts(found))


@dataclass(frozen=True, kw_only=True)
class Pretrain(ConfigFlags, PretrainConfig):
    """Train an encoder on a folder of images or volumes, unlabelled."""

    batch_size: int | Literal["auto"] | None = None  # type: ignore[assignment]
    """Samples per step (default: 16 images, or one volume or point); auto: 16, as many of them at a time as fit into
    memory (--micro-batch), which a few steps on random samples find out, and activation checkpointing where one does
    not fit. `icone plan` shows it."""
    out: Path | None = None
    """The run folder (default: runs/ and the name of the source)."""
    resume: bool = False
    """Continue an interrupted run: bit for bit on the same machine and software with the same number of threads, long
    runs on a GPU with --engine captured only."""
    extend: bool = False
    """Continue on a folder that has gained or lost files, or with other --epochs: known samples keep their anchors, new
    ones get fresh ones, and an epoch that was interrupted is repeated."""
    adjust: bool = False
    """With --resume: go on from the last saved state with another --lr, --weight-decay or --clip-gradient."""
    seeds: int = 1
    """Train this many runs with consecutive seeds into the folders seed-0, seed-1, … of --out; with the captured
    engine side by side."""
    devices: int = 1
    """Train this one run on so many GPUs of this machine, or in so many processes on the CPU: each takes its share of
    every batch, so that --batch-size counts the samples of all."""

    def launch(self, words: Sequence[str], errors: Console) -> int:
        """Start the processes that share the run; the result is their exit code."""
        from icone.training.launcher import launch

        if self.seeds > 1:
            raise InputError("--devices shares one run, and --seeds trains several: give one of the two")
        if self.batch_size == "auto":
            raise InputError("--batch-size=auto plans for one process: give a number with --devices")
        if self.batch_size is not None and self.batch_size < self.devices:
            raise InputError(
                f"{self.devices} processes share every batch, and --batch-size is {self.batch_size}: "
                f"give --batch-size={self.devices} or more, or fewer --devices"
            )
        return launch(words, self.devices, self.device, lambda text: say(errors, text))

    def run(self, console: Console) -> None:
        from icone.api.build import join_settings
        from icone.api.pretrain import pretrain, pretrain_many
        from icone.api.summaries import pretraining_summary, summary_of_many
        from icone.outputs import default_folder

        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(PretrainConfig)}
        if self.seeds > 1:
            if self.extend or self.adjust:
                raise InputError(
                    "--extend and --adjust continue one run: give its folder with --out and leave --seeds out"
                )
            if self.batch_size == "auto":
                raise InputError("--batch-size=auto plans for one run: give a number with --seeds (`icone plan`)")
            seeds = range(self.seed, self.seed + self.seeds)
            folder = self.out or default_folder(self.source)
            config, choice = join_settings(settings, {})
            configs = [dataclasses.replace(config, seed=seed) for seed in seeds]
            outs = [folder / f"seed-{seed}" for seed in seeds]
            runs = pretrain_many(configs, outs, resume=self.resume, choice=choice, console=console)
            say(console, "\n".join(summary_of_many(runs)))
            return
        run = pretrain(
            **settings, out=self.out, resume=self.resume, extend=self.extend, adjust=self.adjust, console=console
        )
        say(console, "\n".join(pretraining_summary(run)))


@dataclass(frozen=True, kw_only=True)
class Finetune(LabelFlags, FinetuneConfig):
    """Train a run's encoder with labels.

    The result stands beside a linear probe of the encoder and, unless --no-scratch, the same network from scratch.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder; it stays as it is."""
    scratch: bool = True
    """Fine-tune the same network from random weights too, to compare with."""
    out: Path | None = None
    """The folder to write (default: beside the run, with its name and -finetuned: runs/scans-finetuned)."""
    resume: bool = False
    """Go on after an interruption, with the last finished epoch."""

    def run(self, console: Console) -> None:
        from icone.api.finetune import finetune
        from icone.api.summaries import finetune_parts, finetuning_summary
        from icone.readable import show

        found = finetune(self.run_folder, **settings_of(self, "run_folder"), console=console)
        show(console, finetune_parts(found.result))
        say(console, "\n".join(finetuning_summary(found.folder, found.history)))


@dataclass(frozen=True, kw_only=True)
class Methods(Verb):
    """List the methods, or explain the options of one.

    The list says what prevents collapse, the smallest batch, whether labels are needed, and the cost.
    """

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Show the options of this method."""

    def run(self, console: Console) -> None:
        from icone.methods.capabilities import find_capability, method_table, option_table

        if self.name is None:
            console.print(method_table())
            return
        method = find_capability(self.name)
        console.print(option_table(method))
        say(console, f"example: {method.example}")


@dataclass(frozen=True, kw_only=True)
class Demo(Verb):
    """Pretrain on generated volumes, one sample a step, and show what it changed."""

    out: Path = Path("runs/demo")
    """Folder of the run; replaced if it holds an earlier demo."""

    def run(self, console: Console) -> None:
        from icone.demo import demo

        demo(self.out, console)


def _show_download(bar: Any, task: Any, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total or None)
