"""The verbs that use an encoder: features, predictions, files for other tools."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro
from rich.console import Console

from icone.cli.flags import InferenceFlags, RunDataFlags, Verb, settings_of
from icone.terminal import counted, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

REPLACED = "; the file that was there is replaced (--out chooses another)"
PREDICTIONS_SHOWN = 10
"""Predictions up to which they are printed too."""


@dataclass(frozen=True, kw_only=True)
class Embed(RunDataFlags, InferenceFlags):
    """Write the features of every sample, with ids and paths."""

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder."""
    source: Annotated[str | None, tyro.conf.Positional] = None
    """What to embed (default: the run's own data)."""
    out: Path | None = None
    """The file to write: .parquet, .npz, .csv or .h5ad (AnnData, for scanpy); by tiles also .zarr, a map of features
    that lies over the image (default: in the run folder, embeddings.parquet, by tiles features.zarr, with --dense
    feature-maps.npz; of other data with its name, such as embeddings-new.parquet)."""
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

    def run(self, console: Console) -> None:
        from icone.api.embed import embed
        from icone.outputs import output_of_run
        from icone.run import Run

        by_tiles = self.tiles or Run.open(self.run_folder).config.tiles is not None
        name = "feature-maps.npz" if self.dense else "features.zarr" if by_tiles else "embeddings.parquet"
        out = self.out or output_of_run(self.run_folder, name, self.source)
        replaced = REPLACED if out.exists() else ""
        table = embed(self.run_folder, **settings_of(self, "run_folder") | {"out": out}, console=console)
        features = table.filter(regex=r"^f\d+$").shape[1]
        if out.suffix == ".zarr":
            say(
                console,
                f"wrote a map of the features of {counted(len(table), 'tile')} to {out}, and a picture of it beside it",
            )
            return
        if self.dense:
            say(console, f"wrote feature maps of {counted(len(table), 'sample')} to {out}{replaced}")
            return
        also = [column for column in ("label", "group", "split") if column in table]
        say(
            console,
            f"wrote {counted(len(table), 'embedding')} of {counted(features, 'feature')} to {out}"
            + (f", with {', '.join(also)}" if also else "")
            + replaced,
        )


@dataclass(frozen=True, kw_only=True)
class Predict(InferenceFlags):
    """Write what a fine-tuned network says about every sample."""

    folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="FOLDER")]
    """A folder of `icone finetune`."""
    source: Annotated[str | None, tyro.conf.Positional] = None
    """What to predict (default: the data of the run)."""
    out: Path | None = None
    """The file to write: .csv or .parquet (default: predictions.csv in the folder, or predictions-NAME.csv after the
    name of SOURCE)."""

    def run(self, console: Console) -> None:
        from icone.api.predict import predict
        from icone.outputs import output_of_run
        from icone.readable import show

        out = self.out or output_of_run(self.folder, "predictions.csv", self.source)
        replaced = REPLACED if out.exists() else ""
        settings = settings_of(self, "folder", "source") | {"out": out}
        table = predict(self.folder, self.source, **settings, console=console)
        if len(table) <= PREDICTIONS_SHOWN:
            show(console, [_few_predictions(table)])
        say(console, f"wrote {counted(len(table), 'prediction')} to {out}{replaced}")


def _few_predictions(table: pd.DataFrame) -> Table:
    """Id, prediction and, of classes and labels, the highest probability of every sample."""
    from rich.table import Column, Table

    shown = Table(Column("id", overflow="fold"), Column("prediction", overflow="fold"))
    answers = [f"{value:.4g}" if isinstance(value, float) else value for value in table["prediction"]]
    columns = [table["id"].astype(str), answers]
    probabilities = table.filter(regex="^p_")
    if probabilities.shape[1]:
        shown.add_column("highest probability", justify="right")
        columns.append([f"{value:.3f}" for value in probabilities.max(axis=1)])
    for row in zip(*columns, strict=True):
        shown.add_row(*row)
    return shown


@dataclass(frozen=True, kw_only=True)
class Export(Verb):
    """Write a run's network for other tools.

    These are timm, torch.export, ONNX, the Hugging Face Hub, MONAI and nnU-Net. The weights alone are in the run folder
    already: encoder.safetensors.
    """

    run_folder: Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """A run folder; torch and onnx take that of `icone finetune` too."""
    format: Literal["timm", "torch", "onnx", "hub", "monai", "nnunet"]
    """timm, hub, monai: a folder; torch: a .pt2 file; onnx: an .onnx file; nnunet: a .pth file."""
    out: Path | None = None
    """The file or folder to write (default: encoder-timm, encoder-onnx.onnx, … in the run folder)."""
    licence: str = "unknown"
    """For the model card, as the Hub names licences, for example apache-2.0."""

    def run(self, console: Console) -> None:
        from icone.api.export import export

        target = export(self.run_folder, self.format, self.out, licence=self.licence)
        say(console, f"wrote {target}  (in Python: icone.from_export({str(target)!r}))")
