"""Self-supervised image and volume encoders that train at batch size 1."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shlex
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console

from icone.config import DataConfig, EncoderConfig, FinetuneConfig, PretrainConfig
from icone.errors import InputError, InterruptedRun, LostRank, TrainingError, is_out_of_memory, one_line
from icone.paper.commands import Paper
from icone.process import configure_process, is_launched, is_silent
from icone.terminal import Terminal, standard_streams
from icone.validation import check_settings


@dataclass(frozen=True, kw_only=True)
class Pretrain(PretrainConfig):
    """Train an encoder on a folder of images or volumes, unlabelled."""

    batch_size: int | Literal["auto"] = 1  # type: ignore[assignment]
    """Instances per step; auto: 16, as many of them at a time as fit into memory (--micro-batch), which a few steps on
    random samples find out, and activation checkpointing where one does not fit. `icone plan` shows it."""
    out: Path | None = None
    """The run folder (default: runs/ and the name of the source)."""
    resume: bool = False
    """Continue an interrupted run: bit for bit on the same machine and software with the same number of threads, long
    runs on a GPU with --engine captured only."""
    extend: bool = False
    """Continue on a folder that has gained or lost files: known anchors are kept, new files get fresh ones."""
    adjust: bool = False
    """With --resume: go on from the last saved state with another --lr, --weight-decay or --clip-gradient."""
    seeds: int = 1
    """Train this many runs with consecutive seeds into the folders seed-0, seed-1, … of out; with the captured engine
    side by side."""
    devices: int = 1
    """Train this one run on so many GPUs of this machine, or in so many processes on the CPU: each takes its share of
    every batch, so that --batch-size counts the samples of all."""
    debug: bool = False
    """Show the traceback of an error."""

    def __post_init__(self) -> None:
        """Nothing is checked while flags are parsed: `pretrain` does it, and its errors look like all others."""

    def launch(self, words: Sequence[str], errors: Console) -> int:
        """Start the processes that share the run; the result is their exit code."""
        from icone.training.launcher import launch

        if self.seeds > 1:
            raise InputError("--devices shares one run, and --seeds trains several: give one of the two")
        if self.batch_size == "auto":
            raise InputError("--batch-size auto plans for one process: give a number with --devices")
        if self.batch_size < self.devices:
            raise InputError(
                f"{self.devices} processes share every batch, and --batch-size is {self.batch_size}: "
                f"give --batch-size {self.devices} or more, or fewer --devices"
            )
        return launch(words, self.devices, self.device, lambda text: _say(errors, text))

    def run(self, console: Console) -> None:
        from icone.api.closing_summary import pretraining_summary, summary_of_many
        from icone.api.pretrain import default_folder, pretrain, pretrain_many

        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(PretrainConfig)}
        if self.seeds > 1:
            if self.extend or self.adjust:
                raise InputError(
                    "--extend and --adjust continue one run: give its folder with --out and leave --seeds out"
                )
            if self.batch_size == "auto":
                raise InputError("--batch-size auto plans for one run: give a number with --seeds (`icone plan`)")
            seeds = range(self.seed, self.seed + self.seeds)
            folder = self.out or default_folder(self.source)
            configs = [PretrainConfig(**settings | {"seed": seed}) for seed in seeds]
            outs = [folder / f"seed-{seed}" for seed in seeds]
            runs = pretrain_many(configs, outs, resume=self.resume, console=console)
            _say(console, "\n".join(summary_of_many(runs)))
            return
        run = pretrain(
            **settings, out=self.out, resume=self.resume, extend=self.extend, adjust=self.adjust, console=console
        )
        _say(console, "\n".join(pretraining_summary(run)))


@dataclass(frozen=True, kw_only=True)
class Inspect(DataConfig, EncoderConfig):
    """Say what would be understood of a data set, and what was guessed, before anything is trained.

    With --duplicates: list pairs of samples of a run that are nearly the same, and samples far from all others.
    """

    source: Annotated[str, tyro.conf.Positional]
    """What `icone pretrain` takes: a folder, an array file, a CSV with a column `path`, `medmnist:NAME@SIZE`, …; with
    --duplicates a run folder."""
    json: bool = False
    """Print it as JSON."""
    duplicates: bool = False
    """List near-duplicates and outliers among the samples of a run, by its encoder and a perceptual hash."""
    data: str | None = None
    """With --duplicates: where the run's data lies now, if it was moved."""
    device: str = "auto"
    workers: int = 2
    """Threads that read and decode files."""
    cache: str = "auto"
    """Folder that keeps what was found for `icone pretrain`, or `off`; auto: the user's cache folder."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        if self.duplicates:
            self._list_duplicates(console)
            return
        if self.data is not None:
            raise InputError("--data says where the data of a run lies: give --duplicates and a run folder too")
        from icone.api.inspect import inspect

        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        data, as_json, *_ = (settings.pop(name) for name in ("source", "json", "debug", "duplicates", "data"))
        found = inspect(data, **settings, console=Terminal(quiet=True) if as_json else console)
        if as_json:
            _say(console, json.dumps(found, indent=2))

    def _list_duplicates(self, console: Console) -> None:
        from icone.api.find_duplicates import duplicate_tables, find_duplicates

        own = ("source", "json", "duplicates", "data", "data_root", "device", "workers", "cache", "debug")
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
            _say(console, json.dumps(result, indent=2))
            return
        for table in duplicate_tables(result):
            console.print(table)
        pairs, outliers = len(result["duplicates"]), len(result["outliers"])
        _say(console, f"{pairs} near-duplicate pairs and {outliers} outliers among {result['samples']} samples")


@dataclass(frozen=True, kw_only=True)
class PlanVerb(PretrainConfig):
    """Say whether a run fits into memory and how long it takes, by a few steps on random samples (at most 20 s)."""

    batch_size: int | Literal["auto"] = 1  # type: ignore[assignment]
    """Instances per step; auto: what `icone pretrain --batch-size auto` would take."""
    json: bool = False
    """Print it as JSON."""
    debug: bool = False
    """Show the traceback of an error."""

    def __post_init__(self) -> None:
        """Nothing is checked while flags are parsed: `plan` does it, and its errors look like all others."""

    def run(self, console: Console) -> None:
        from icone.api.plan import plan

        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(PretrainConfig)}
        found = plan(**settings, console=Terminal(quiet=True) if self.json else console)
        if self.json:
            _say(console, json.dumps(found, indent=2))


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Download data sets by name; an interrupted download goes on where it stopped, and checksums are verified."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional]
    """`medmnist:NAME@SIZE`, `paper` (the 13 sets of the paper), `imagenette@160` (natural images, 10 classes)."""
    data_root: Path | None = None
    """Folder for the files (default: the medmnist package's own folder, the user's data folder for others)."""
    debug: bool = False
    """Show the traceback of an error."""

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
            _say(console, f"{path} is there  (next: icone inspect {shlex.quote(source)}{root})")


@dataclass(frozen=True, kw_only=True)
class Embed:
    """Write the features of every sample of a folder, with ids and paths."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """A run folder."""
    source: Annotated[str | None, tyro.conf.Positional] = None
    """What to embed (default: the run's own data)."""
    data: str | None = None
    """Where the run's own data lies now, if it was moved."""
    out: Path | None = None
    """The file to write: .parquet, .npz, .csv or .h5ad (AnnData, for scanpy); by tiles also .zarr, a map of features
    that lies over the image (default: embeddings.parquet, by tiles features.zarr)."""
    labels: Path | None = None
    """CSV with labels that are carried along (default: those of the run, for its own data)."""
    label_column: tuple[str, ...] = ()
    """Column of the labels."""
    group_column: str | None = None
    """Column of the groups."""
    projections: tuple[Literal["umap", "tsne", "pca"], ...] = ()
    """Add two coordinates of each of these maps."""
    dense: bool = False
    """Write the feature maps before pooling, (channels, *grid) for every sample, to an .npz file."""
    tiles: bool = False
    """Cut huge images or volumes into tiles of the size that the encoder takes; a run that was trained by tiles does so
    without being told."""
    stride: int | None = None
    """From one tile to the next, in pixels or voxels (default: that of the run, or the edge of a tile)."""
    components: int | None = None
    """Write this many principal components to the map, instead of all features."""
    memory_gb: float | None = None
    """Prepared samples are kept in memory up to this size (default: that of the run, or half of what is free)."""
    data_root: Path | None = None
    """Folder that holds the MedMNIST files."""
    skip_unreadable: bool = False
    """Leave out files that cannot be read, and list them."""
    batch_size: int = 16
    device: str = "auto"
    cache: str | None = None
    """Folder that keeps prepared samples, or `off` (default: the user's own, or off if the run was trained so)."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.api.embed import embed
        from icone.run import Run

        by_tiles = self.tiles or Run.open(self.run_folder).config.tiles is not None
        out = self.out or Path("features.zarr" if by_tiles and not self.dense else "embeddings.parquet")
        table = embed(
            self.run_folder,
            self.source,
            data=self.data,
            labels=self.labels,
            label_column=self.label_column,
            group_column=self.group_column,
            projections=self.projections,
            out=out,
            dense=self.dense,
            tiles=self.tiles,
            stride=self.stride,
            components=self.components,
            memory_gb=self.memory_gb,
            data_root=self.data_root,
            skip_unreadable=self.skip_unreadable,
            batch_size=self.batch_size,
            device=self.device,
            cache=self.cache,
            console=console,
        )
        features = table.filter(regex=r"^f\d+$").shape[1]
        what = "feature maps" if self.dense else f"embeddings of {features} features"
        if out.suffix == ".zarr":
            _say(console, f"wrote a map of the features of {len(table)} tiles to {out}, and a picture of it beside it")
            return
        also = [column for column in ("label", "group", "split") if column in table]
        _say(
            console,
            f"wrote {len(table)} {what} to {out}" + (f", with {', '.join(also)}" if also else ""),
        )


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a run's encoder for other tools: timm, torch.export, ONNX, the Hugging Face Hub, MONAI, nnU-Net."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """A run folder."""
    format: Literal["timm", "torch", "onnx", "hub", "monai", "nnunet"]
    """timm, hub, monai: a folder; torch: a .pt2 file; onnx: an .onnx file; nnunet: a .pth file."""
    out: Path | None = None
    """The file or folder to write (default: named after the run and the format)."""
    licence: str = "unknown"
    """For the model card, as the Hub names licences, for example apache-2.0."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.api.export import export

        target = export(self.run_folder, self.format, self.out, licence=self.licence)
        _say(console, f"wrote {target}  (in Python: icone.from_export({str(target)!r}))")


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Measure a run's encoder: linear probe and kNN where there are labels, geometry always."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """A run folder."""
    labels: Path | None = None
    """CSV with a column of file names or ids and a column `label`; samples without a row take no part in probes."""
    label_column: tuple[str, ...] = ()
    """Column of the labels; several hold 0 or 1 each (multi-label)."""
    group_column: str | None = None
    """Column with the group of every sample (patient, well, embryo), which no split parts."""
    task: Literal["auto", "classification", "regression", "multilabel"] = "auto"
    """What the labels are; auto: by their values, which is said."""
    test: str | None = None
    """An external test set: probes are trained on the run's data and tested on it."""
    test_labels: Path | None = None
    """CSV with the labels of the external test set (default: those it brings)."""
    data: str | None = None
    """Where the run's data lies now, if it was moved."""
    data_root: Path | None = None
    """Folder that holds the MedMNIST files."""
    official_test: bool = False
    """Test on the source's official test split."""
    test_fraction: float = 0.2
    """Share that tests the probes where the run held out nothing."""
    label_fractions: tuple[float, ...] = ()
    """Train probes on these shares of the labels too, several draws each, for example 0.01 0.1 0.5: how many labels
    does pretraining save?"""
    untrained: bool = True
    """Measure the encoder before training too: what the verdict compares with."""
    geometry_instances: int = 256
    """Samples whose random views give LiDAR and alignment; 0 leaves the two out."""
    device: str = "auto"
    cache: str | None = None
    """Folder that keeps prepared samples, or `off` (default: the user's own, or off if the run was trained so)."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.api.evaluate import efficiency_table, evaluate, notes, result_table, score_sentences

        result = evaluate(
            self.run_folder,
            data=self.data,
            labels=self.labels,
            label_column=self.label_column,
            group_column=self.group_column,
            task=self.task,
            test=self.test,
            test_labels=self.test_labels,
            data_root=self.data_root,
            official_test=self.official_test,
            test_fraction=self.test_fraction,
            label_fractions=self.label_fractions,
            untrained=self.untrained,
            geometry_instances=self.geometry_instances,
            device=self.device,
            cache=self.cache,
            console=console,
        )
        console.print(result_table(result))
        if (efficiency := efficiency_table(result)) is not None:
            console.print(efficiency)
        verdict = result["verdict"]
        for text in (verdict["headline"], *verdict["evidence"], *score_sentences(result), verdict["advice"]):
            if text:
                _say(console, text)
        for note in notes(result):
            _say(console, f"note: {note}")


@dataclass(frozen=True, kw_only=True)
class Finetune(FinetuneConfig):
    """Train a run's encoder with labels, beside its linear probe and the same network from scratch."""

    run_folder: Annotated[Path, tyro.conf.Positional]
    """A run folder; it stays as it is."""
    labels: Path | None = None
    """CSV with a column of file names or ids and a column `label` (default: those of the run or its source)."""
    label_column: tuple[str, ...] = ()
    """Column of the labels; several hold 0 or 1 each (multi-label)."""
    group_column: str | None = None
    """Column with the group of every sample (patient, well, embryo), which no split parts."""
    task: Literal["auto", "classification", "regression", "multilabel"] = "auto"
    """What the labels are; auto: by their values, which is said."""
    test: str | None = None
    """An external test set: what is trained on the run's data is tested on it."""
    test_labels: Path | None = None
    """CSV with the labels of the external test set (default: those it brings)."""
    official_test: bool = False
    """Test on the source's official test split."""
    test_fraction: float = 0.2
    """Share that tests where the run held out nothing."""
    scratch: bool = True
    """Fine-tune the same network from random weights too, to compare with."""
    out: Path | None = None
    """The folder to write (default: the run's name and -finetuned)."""
    resume: bool = False
    """Go on after an interruption, with the last finished epoch."""
    data: str | None = None
    """Where the run's data lies now, if it was moved."""
    data_root: Path | None = None
    """Folder that holds the MedMNIST files."""
    device: str = "auto"
    cache: str | None = None
    """Folder that keeps prepared samples, or `off` (default: the user's own, or off if the run was trained so)."""
    debug: bool = False
    """Show the traceback of an error."""

    def __post_init__(self) -> None:
        """Nothing is checked while flags are parsed: `finetune` does it, and its errors look like all others."""

    def run(self, console: Console) -> None:
        from icone.api.closing_summary import finetuning_summary
        from icone.api.finetune import finetune
        from icone.api.finetune_table import finetune_sentences, finetune_table

        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        folder, data, _ = (settings.pop(name) for name in ("run_folder", "data", "debug"))
        found = finetune(folder, data, **settings, console=console)
        result = found.result
        console.print(finetune_table(result))
        for text in (result["data"]["note"], *finetune_sentences(result)):
            _say(console, text)
        for note in result["data"]["notes"]:
            _say(console, f"note: {note}")
        _say(console, "\n".join(finetuning_summary(found.folder, found.history)))


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Write what a fine-tuned network says about every sample of a folder."""

    folder: Annotated[Path, tyro.conf.Positional]
    """A folder of `icone finetune`."""
    source: Annotated[str | None, tyro.conf.Positional] = None
    """What to predict (default: the data of the run)."""
    out: Path = Path("predictions.csv")
    """The file to write: .csv or .parquet."""
    data_root: Path | None = None
    """Folder that holds the MedMNIST files."""
    skip_unreadable: bool = False
    """Leave out files that cannot be read, and list them."""
    batch_size: int = 16
    device: str = "auto"
    cache: str | None = None
    """Folder that keeps prepared samples, or `off` (default: the user's own, or off if the run was trained so)."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.api.predict import predict

        table = predict(
            self.folder,
            self.source,
            out=self.out,
            data_root=self.data_root,
            skip_unreadable=self.skip_unreadable,
            batch_size=self.batch_size,
            device=self.device,
            cache=self.cache,
            console=console,
        )
        _say(console, f"wrote {len(table)} predictions to {self.out}")


@dataclass(frozen=True, kw_only=True)
class Methods:
    """List the methods: what prevents collapse, the smallest batch, labels, cost; or the options of one."""

    name: Annotated[str | None, tyro.conf.Positional] = None
    """Show the options of this method."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.methods.capabilities import method_table, option_table

        console.print(method_table() if self.name is None else option_table(self.name))


@dataclass(frozen=True, kw_only=True)
class Report:
    """Write one HTML page about a run or a fine-tuning, or several side by side; it opens from disk, offline."""

    run_folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders; those that have not been evaluated are evaluated first. Or folders of `icone finetune`."""
    out: Path = Path("report.html")
    """The file to write."""
    projections: tuple[Literal["umap", "tsne", "pca"], ...] = ("umap", "pca")
    """Maps to choose from; t-SNE takes longest."""
    table: Path | None = None
    """CSV with a column of file names or ids; the map can be coloured by its other columns."""
    thumbnails: bool = True
    """Show pictures of the samples, which needs the data."""
    data: str | None = None
    """Where the data of the runs lies now, if it was moved."""
    data_root: Path | None = None
    """Folder that holds the MedMNIST files."""
    cache: str | None = None
    """Folder that keeps prepared samples, or `off` (default: the user's own, or off if the run was trained so)."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.report import report

        target = report(
            self.run_folders,
            out=self.out,
            projections=self.projections,
            table=self.table,
            thumbnails=self.thumbnails,
            data=self.data,
            data_root=self.data_root,
            cache=self.cache,
            console=console,
        )
        _say(console, f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB): open it in a browser")


@dataclass(frozen=True, kw_only=True)
class Figures:
    """Save the pictures of an evaluated run, or of several side by side, as PDF and PNG."""

    run_folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders."""
    out: Path = Path("figures")
    """Folder for the files."""
    names: tuple[Literal["history", "geometry", "spectrum", "plane", "map", "confusion", "gallery"], ...] = ()
    """Which ones (default: all that the runs have data for)."""
    projection: Literal["umap", "tsne", "pca"] = "umap"
    """Of the map."""
    data: str | None = None
    """Where the data of the runs lies now, if it was moved."""
    data_root: Path | None = None
    """Folder that holds the MedMNIST files."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.report import save_figures

        paths = save_figures(
            self.run_folders,
            self.out,
            self.names,
            projection=self.projection,
            data=self.data,
            data_root=self.data_root,
        )
        for path in paths:
            _say(console, f"wrote {path}")


@dataclass(frozen=True, kw_only=True)
class CacheVerb:
    """Show what is kept on disk about data that was read before; check it, or delete it."""

    folder: Annotated[str, tyro.conf.Positional] = "auto"
    """The folder that was given as `--cache` (auto: the user's cache folder)."""
    check: bool = False
    """Read everything and compare it with its checksums; delete what is damaged."""
    clear: bool = False
    """Delete everything."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.data.cache import upkeep

        upkeep(self.folder, console, check=self.check, clear=self.clear)


@dataclass(frozen=True, kw_only=True)
class Demo:
    """Pretrain at batch size 1 on generated volumes and images, and show what it changed."""

    out: Path = Path("runs/demo")
    """Folder for the two runs; replaced if it holds an earlier demo."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.demo import demo

        demo(self.out, console)


Command = (
    Annotated[Pretrain, tyro.conf.subcommand("pretrain")]
    | Annotated[Inspect, tyro.conf.subcommand("inspect")]
    | Annotated[PlanVerb, tyro.conf.subcommand("plan")]
    | Annotated[Fetch, tyro.conf.subcommand("fetch")]
    | Annotated[Embed, tyro.conf.subcommand("embed")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Finetune, tyro.conf.subcommand("finetune")]
    | Annotated[Predict, tyro.conf.subcommand("predict")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Figures, tyro.conf.subcommand("figures")]
    | Annotated[Methods, tyro.conf.subcommand("methods")]
    | Annotated[CacheVerb, tyro.conf.subcommand("cache")]
    | Annotated[Paper, tyro.conf.subcommand("paper")]
    | Annotated[Demo, tyro.conf.subcommand("demo")]
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the return value is the exit code.

    0: done. 1: runs of a sweep have failed. 2: something given is wrong, or a file or disk refuses. 3: training cannot
    go on. 70: a mistake of ours. 74: standard output could not be written. 130: interrupted.
    """
    configure_process()
    words = list(sys.argv[1:] if arguments is None else arguments)
    with standard_streams() as output:
        try:
            code = _run(words, Terminal(stderr=True))
        except SystemExit as end:  # flags that cannot be parsed, --help
            code = end.code if isinstance(end.code, int) else 0
        output.flush()
        if output.error is None:
            return code
        _say(Terminal(stderr=True), f"error: cannot write to standard output ({one_line(output.error)})")
        return code or 74


def _run(words: Sequence[str], errors: Console) -> int:
    """The boundary: whatever a command raises becomes a sentence and an exit code."""
    try:
        _check_words(words)
        if list(words) == ["--version"]:
            _say(Terminal(), _version())
            return 0
        command = tyro.cli(Command, prog="icone", args=words, description=__doc__)
        check_settings(command.verb if isinstance(command, Paper) else command)
        if isinstance(command, Pretrain) and command.devices > 1 and not is_launched():
            return command.launch(words, errors)
        command.run(Terminal(quiet=is_silent()))
        return 0
    except InterruptedRun as error:
        if not is_silent():
            _say(errors, f"{error}. {_way_on(words)}")
        return 130
    except KeyboardInterrupt:
        _say(errors, "interrupted")
        return 130
    except Exception as error:  # the last place where a person can be told in a sentence
        if "--debug" in words:
            raise
        if isinstance(error, LostRank) and error.is_said:
            return 3
        sentence, code = _explained(error)
        if is_silent():
            time.sleep(PAUSE)  # rank 0 has most likely the same to say, and this process is ended meanwhile
            sentence = f"rank {os.environ['RANK']}: {sentence}"
        _say(errors, sentence)
        return code


def _version() -> str:
    """What a report of a mistake should name, as the packages are installed: importing torch takes seconds."""
    import platform
    from importlib.metadata import version

    from icone.recipe import RECIPE_VERSION

    return (
        f"icone {version('icone')} (recipe {RECIPE_VERSION}), torch {version('torch')}, "
        f"Python {platform.python_version()}"
    )


PAUSE = 5.0
"""Seconds after which a rank speaks of its own error, if it is still there."""


def _explained(error: Exception) -> tuple[str, int]:
    """What to tell a person about an error, and the exit code."""
    if isinstance(error, InputError):
        return f"error: {error}", 2
    if isinstance(error, TrainingError):
        return f"training stopped: {error}", 3
    if isinstance(error, OSError) and (error.filename or error.errno in REFUSED_BY_THE_SYSTEM):
        return f"error: {_refusal(error)}", 2
    if is_out_of_memory(error):
        return f"error: not enough memory ({one_line(error)})", 2
    return (
        f"error: this is a mistake of icone, not yours ({type(error).__name__}: {one_line(error)}). "
        f"The traceback is in {_write_traceback(error)}: please report it",
        70,
    )


def _show_download(bar: Any, task: Any, done: int, total: int) -> None:
    bar.update(task, completed=done, total=total or None)


REFUSED_BY_THE_SYSTEM = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EMFILE, errno.ENFILE)


def _refusal(error: OSError) -> str:
    paths = " and ".join(os.fsdecode(name) for name in (error.filename, error.filename2) if name)
    reason = error.strerror or one_line(error)
    return f"cannot use {paths}: {reason}" if paths else reason


def _write_traceback(error: Exception) -> str:
    try:
        number, name = tempfile.mkstemp(prefix="icone-traceback-", suffix=".txt")
        with os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write("".join(traceback.format_exception(error)))
    except OSError as refusal:
        return f"nowhere, because the temporary folder refuses it ({one_line(refusal)}); --debug shows it"
    return name


def _check_words(words: Sequence[str]) -> None:
    """Refuse empty words, which would be taken for the current folder."""
    for before, word in zip(["", *words], words, strict=False):
        if word == "" or (word.startswith("--") and word.endswith("=")):
            flag = word.rstrip("=") or (before if before.startswith("--") else "an argument")
            raise InputError(f"{flag} is empty: give a value, or leave it out")


def _way_on(words: Sequence[str]) -> str:
    """How to go on with what was interrupted; how torchrun was called we do not know."""
    if is_launched() and "ICONE_LAUNCHER" not in os.environ:
        return "Go on with the same command and --resume"
    return f"Go on with: {shlex.join(['icone', *_to_go_on(words)])}"


def _to_go_on(words: Sequence[str]) -> list[str]:
    if words[:1] in (["paper"], ["demo"]):  # a sweep goes on where it was, a demo begins again
        return [*words]
    return [*words] if "--resume" in words else [*(w for w in words if w != "--extend"), "--resume"]


def _say(console: Console, text: str) -> None:
    console.print(text, soft_wrap=True)
