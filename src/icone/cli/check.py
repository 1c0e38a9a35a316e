"""The verbs that look at what was learned and at what is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console

from icone.cli.flags import LabelFlags, RunDataFlags, Verb, settings_of
from icone.terminal import say


@dataclass(frozen=True, kw_only=True)
class Evaluate(LabelFlags):
    """Measure a run's encoder.

    How the features are spread (geometry), and where there are labels, what a linear probe and kNN read from them; both
    before and after training, with a verdict.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder, or the folder that --seeds has filled: mean ± standard deviation over its seeds."""
    label_fractions: tuple[float, ...] = ()
    """Train probes on these shares of the labels too, several draws each, for example 0.01 0.1 0.5: how many labels
    does pretraining save?"""
    finetune_draws: int = 0
    """With --label-fractions: fine-tune the encoder too, in so many draws of labels for every share, for example 3; 0:
    not at all. Each trains a network, which takes long; what is finished is kept for the same command."""
    finetune_epochs: int | None = None
    """With --finetune-draws: as --epochs of `icone finetune`."""
    from_scratch: bool = False
    """With --finetune-draws: train the same network from random weights too, with the same labels."""
    untrained: bool = True
    """Measure the encoder before training too: what the verdict compares with."""
    geometry_instances: int = 256
    """Samples whose random views give recognition, LiDAR and alignment; 0 leaves the three out."""

    def run(self, console: Console) -> None:
        from icone.api.evaluate import evaluate, evaluate_seeds, evaluation_parts, seeds_parts
        from icone.readable import show
        from icone.seeds import seed_folders

        settings = settings_of(self, "run_folder")
        if seed_folders(self.run_folder):
            show(console, seeds_parts(evaluate_seeds(self.run_folder, **settings, console=console)))
        else:
            show(console, evaluation_parts(evaluate(self.run_folder, **settings, console=console)))


@dataclass(frozen=True, kw_only=True)
class Report(RunDataFlags):
    """Write one HTML page about a run, or several side by side.

    It opens from disk, offline. A folder of `icone finetune` has a page too.
    """

    run_folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, or folders of seeds; those that have not been evaluated are evaluated first. Or folders of `icone
    finetune`."""
    out: Path | None = None
    """The file to write (default: report.html in the run folder or the folder of seeds; of several runs in this folder,
    with their names: report-scans-more.html)."""
    projections: tuple[Literal["umap", "tsne", "pca"], ...] = ("umap", "pca")
    """Maps to choose from; t-SNE takes longest."""
    table: Path | None = None
    """CSV with a column of file names or ids; the map can be coloured by its other columns."""
    thumbnails: bool = True
    """Show pictures of the samples, which needs the data."""
    cache: str | None = None
    """Folder that keeps prepared samples, or `off` (default: the user's own, or off if the run was trained so)."""

    def run(self, console: Console) -> None:
        from icone.evaluation.verdict import Verdict
        from icone.outputs import output_of_runs
        from icone.report import report
        from icone.seeds import expand_seeds

        runs = expand_seeds(self.run_folders)
        out = self.out or (output_of_runs(runs, "report.html") if runs else None)
        replaced = ", in place of the one that was there" if out is not None and out.exists() else ""
        target = report(self.run_folders, **settings_of(self, "run_folders") | {"out": out}, console=console)
        for run in runs:
            if not run.is_finetuned and (result := run.result) is not None:
                headline = Verdict.from_json(result["verdict"]).headline
                say(console, headline if len(runs) == 1 else f"{run.folder}: {headline}")
        say(console, f"wrote {target} ({target.stat().st_size / 1e6:.1f} MB){replaced}: open it in a browser")


@dataclass(frozen=True, kw_only=True)
class Figures(RunDataFlags):
    """Save the pictures of evaluated runs as PDF and PNG."""

    run_folders: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Run folders, or folders of seeds: mean and standard deviation over epochs."""
    out: Path | None = None
    """Folder for the files (default: figures in the run folder or the folder of seeds; of several runs in this folder,
    with their names: figures-scans-more)."""
    names: tuple[Literal["history", "geometry", "spectrum", "plane", "map", "confusion", "gallery"], ...] = ()
    """Which ones (default: all that the runs have data for)."""
    projection: Literal["umap", "tsne", "pca"] = "umap"
    """How the map places samples in the plane."""

    def run(self, console: Console) -> None:
        from icone.outputs import output_of_runs
        from icone.report import save_figures
        from icone.seeds import expand_seeds

        runs = expand_seeds(self.run_folders)
        out = self.out or (output_of_runs(runs, "figures") if runs else Path("figures"))
        paths = save_figures(self.run_folders, out, **settings_of(self, "run_folders", "out"))
        for path in paths:
            say(console, f"wrote {path}")


@dataclass(frozen=True, kw_only=True)
class CacheVerb(Verb):
    """Show what is kept on disk of data; check it, or delete it."""

    folder: Annotated[str, tyro.conf.Positional] = "auto"
    """The folder that was given as `--cache` (auto: the user's cache folder)."""
    check: bool = False
    """Read everything and compare it with its checksums; delete what is damaged."""
    clear: bool = False
    """Delete everything."""

    def run(self, console: Console) -> None:
        from icone.data.cache import upkeep

        upkeep(self.folder, console, check=self.check, clear=self.clear)
