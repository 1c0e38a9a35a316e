"""Using a run: its encoder with preprocessing, and embeddings of other data."""

from __future__ import annotations

import dataclasses
import math
import os
import zipfile
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from torch import nn

from icone.api.build import (
    NOTHING,
    WITH_PLAIN,
    Given,
    check_given,
    given_objects,
    make_encoder,
    make_views,
    memory_errors,
    own_randomness,
    pick_device,
)
from icone.api.embedding_table import FORMATS, feature_table, import_anndata, write_embeddings
from icone.api.run_data import (
    check_moved,
    has_lost_labels,
    note_splits,
    open_run_data,
    with_moved_labels,
    without_labels,
)
from icone.config import PretrainConfig, is_object, with_given
from icone.data import Dataset, Preparation, load_for_inference, open_source
from icone.data.labels import has_column
from icone.data.sources.registry import one_sample
from icone.encoders.calibration import calibrate_batch_norm, calibration_rows
from icone.errors import InputError
from icone.evaluation.features import FrozenEncoder, extract, extract_maps
from icone.evaluation.projection import ProjectionName, project
from icone.files import replacing
from icone.run import Run, refuse_own_file
from icone.tensor_files import load_weights, read_tensors
from icone.terminal import Terminal, counted, either, say
from icone.training.context import kept_random_state
from icone.training.progress import ProgressBar
from icone.validation import check_arguments, check_folder, check_target
from icone.views import PlainViews, Views

LEFT_OUT_SHOWN = 20
"""Samples that could not be read of which a reason is printed."""
ONE_POSITION = (
    "the feature maps have a single position and say nothing about places: pretrain with a larger {flag}, or with an "
    "encoder that shrinks its samples less"
)
CALIBRATION_VIEWS = 2
"""Random views of every sample that calibrates: the fewest that a run trains on."""
CALIBRATION_SEED = 30_000
"""Draws these views, whatever the seed of the run: all untrained encoders see the same."""


@check_arguments
def load_encoder(
    run: str | Path | Run, device: str = "cpu", *, encoder: nn.Module | None = None, views: Any = None
) -> FrozenEncoder:
    """The trained encoder of a run with its preprocessing, in eval mode; it needs no instance ids.

    A run that was given its encoder or its views as Python objects needs an `encoder` of the same architecture again,
    whose weights do not matter, and `views` if they have a function `plain`. The `Run` that `icone.pretrain` returned
    remembers them.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    weights = run.trained_weights()
    given = given_objects(run, encoder, views, "icone.load_encoder(run, {}=…)")
    frozen = _new_encoder(run, dataclasses.replace(given, views=given.views or plain_views(run.config)))
    load_weights(frozen.encoder, weights, run.encoder_file)
    return frozen.to(pick_device(device))


def plain_views(config: PretrainConfig) -> Views | None:
    """Views for a run whose own were given as an object, where only the deterministic one is needed."""
    pipeline = config.pipeline
    return PlainViews() if is_object(pipeline) and not pipeline.endswith(WITH_PLAIN) else None


def untrained_encoder(
    run: Run, dataset: Dataset, device: str = "cpu", given: Given = NOTHING, *, from_scratch: bool = False
) -> FrozenEncoder:
    """The encoder of a run as it was before its first step, the run's own samples being in `dataset`.

    With `from_scratch` weights that the run started from (`--weights`) are left out: it is as the seed makes it.

    Its BatchNorm layers get the statistics of random views of training samples, as they would in training
    (`icone.encoders.calibration`); held-out samples take no part.
    """
    frozen = _new_encoder(run, given)
    if run.initial_file.is_file() and not (from_scratch and not is_object(run.config.encoder)):
        load_weights(frozen.encoder, read_tensors(run.initial_file)[0], run.initial_file)
    frozen = frozen.to(pick_device(device))
    held_out = set(run.instances["test_ids"])
    seen = torch.tensor([row for row, name in enumerate(dataset.ids) if name not in held_out])
    where = next(frozen.parameters()).device
    images = partial(dataset.for_views, num_views=CALIBRATION_VIEWS, seed=CALIBRATION_SEED, epoch=0)
    with kept_random_state(where, CALIBRATION_SEED):
        calibrate_batch_norm(
            frozen.encoder,
            calibration_rows(len(seen), at_once=frozen.preparation.samples_at_once(CALIBRATION_VIEWS)),
            lambda rows: frozen.encode_views(images(seen[rows]).to(where), CALIBRATION_VIEWS),
        )
    return frozen


def _new_encoder(run: Run, given: Given) -> FrozenEncoder:
    """The encoder of a run with the weights of its seed, or of the object that was given, on the CPU."""
    config, preparation = run.config, run.preparation
    with own_randomness(torch.device("cpu")):
        encoder = make_encoder(config, preparation, given)
    return FrozenEncoder(encoder, preparation, make_views(config, preparation, given))


@check_arguments
def embed(
    run: str | Path | Run,
    source: Any = None,
    *,
    data: Any = None,
    encoder: nn.Module | None = None,
    views: Any = None,
    labels: Any = None,
    label_column: tuple[str, ...] = (),
    group_column: str | None = None,
    projections: tuple[ProjectionName, ...] = (),
    out: str | Path | None = None,
    dense: bool = False,
    tiles: bool = False,
    stride: int | None = None,
    components: int | None = None,
    memory_gb: float | None = None,
    data_root: Path | None = None,
    skip_unreadable: bool = False,
    batch_size: int | None = None,
    device: str = "auto",
    cache: str | None = None,
    console: Console | None = None,
) -> pd.DataFrame:
    """Embeddings of whatever `icone.pretrain` can train on (default: the run's own data), one row per sample.

    A single sample is a path of one image or volume, a PIL image, or an array in a list, `[x]`.

    `data` says where the run's own data is now, or gives it again. `encoder` and `views` are for runs that were given
    theirs as Python objects, as for `load_encoder`. Columns: `id`,
    `path`; `label`, `group` and `split`, where they are known; the features `f0`, `f1`, …; and two coordinates of each
    of the `projections` (`umap0`, `umap1`). Labels and groups are those of the source, of the run for its own data, or
    of `labels` (a CSV or an object). `split` is the part that the run gave its own samples, or what the source says.

    With `out`, written as .parquet, .npz, .csv or .h5ad (AnnData: features in `X`, the rest in `obs` and `obsm`);
    control characters and bytes that are not UTF-8 in names are written as backslash escapes.

    With `dense`, `out` is an .npz file that gets the feature maps before pooling: `features` (N, channels, *grid),
    float32, with `id` and `path` in the same order. The table that is returned then has no features.

    With `tiles` (a run that was trained by tiles needs no telling) every tile of huge images is a sample, `stride`
    apart. Where `out` ends in .zarr, it is a map for every image as OME-Zarr, (features, *grid), or with `components`
    that many principal components, and beside it a .png of the first three as colours. The table then has no features.
    Prepared tiles are kept in memory up to `memory_gb`. `batch_size` samples pass through the encoder at a time
    (default: 16, fewer where samples are large).
    """
    if source is not None and data is not None:
        raise InputError("--data says where the run's own data lies now: leave out what else is to be embedded")
    check_given(source=source, data=data, labels=labels)
    run = run if isinstance(run, Run) else Run.open(run)
    by_tiles = tiles or run.config.tiles is not None
    source = source if by_tiles else one_sample(source)
    given = given_objects(run, encoder, views, "icone.embed(run, x, {}=…)")
    console = console or Terminal()
    target = Path(out) if out is not None else None
    if dense and (target is None or target.suffix != ".npz"):
        raise InputError("dense features are written as one .npz file: give its name with --out")
    if dense and run.preparation.crops and not by_tiles:
        raise InputError("samples of a run with --crop differ in size: --tiles --out=MAP.zarr maps their features")
    is_map = target is not None and target.suffix == ".zarr"
    if target is not None and target.suffix not in FORMATS and not (is_map and by_tiles):
        also = ", .zarr (a map)" if by_tiles else "; .zarr is for --tiles" if is_map else ""
        raise InputError(f"cannot write {target}: the name must end in {', '.join(FORMATS)}{also}")
    if components is not None and not is_map:
        raise InputError("--components are of a map of tiles: give --tiles and an --out that ends in .zarr")
    if stride is not None and not by_tiles:
        raise InputError("--stride is about tiles: give --tiles too")
    if target is not None:
        (check_folder if is_map else check_target)(target)
        refuse_own_file(target)
    if target is not None and target.suffix == ".h5ad":
        import_anndata()  # refuses before any work where it is not installed
    config = with_moved_labels(run.config, data)
    remembered = run.objects if source is None and data is None else {}
    are_gone = source is None and labels is None and remembered.get("labels") is None
    if are_gone and has_lost_labels(config, remembered.get("data", data)):
        say(
            console,
            f"note: the labels of {run.folder} were a Python object: they are left out; --labels gives them again",
        )
        config = without_labels(config)
    config = _embedding_config(config, source is None, labels, tuple(label_column), group_column, console)
    changes: dict[str, Any] = {"skip_unreadable": skip_unreadable}
    if source is not None:  # patterns choose among the files of the run's own folder
        changes |= {"include": (), "exclude": ()}
    if by_tiles:
        if len(set(run.preparation.size)) > 1:
            raise InputError(f"tiles are cubes or squares, and the run was trained on crops of {run.config.crop}")
        edge = config.tiles or max(run.preparation.size, default=0)
        config = dataclasses.replace(config, crop=None, spacing=None)
        changes |= {"crop_overlap": PretrainConfig.crop_overlap, "tiles": edge, "stride": stride}
    config = with_given(config, **changes, memory_gb=memory_gb, cache=cache, data_root=data_root)
    frozen = load_encoder(run, device, encoder=given.encoder, views=given.views)
    if by_tiles and frozen.preparation.crops:  # a tile is a window
        frozen.preparation = dataclasses.replace(frozen.preparation, crops=False)
    with memory_errors():
        given_labels = None if isinstance(labels, (str, os.PathLike)) else labels
        data = remembered.get("data", data)
        given_labels = remembered.get("labels") if labels is None else given_labels
        if source is None:
            opened = open_run_data(run.folder, config, data, given_labels)
        else:
            opened = open_source(source, config, given_labels)
            note_splits(opened, config, console)
        if data is not None and (config.tiles, config.stride) == (run.config.tiles, run.config.stride):
            check_moved(run, opened, config, console)
        dataset = load_with_notes(opened, config, frozen.preparation, console)
        batch_size = batch_size or frozen.preparation.samples_at_once()
        if dense and target is not None:
            names, grid = _write_feature_maps(frozen, dataset, target, batch_size, console)
            if math.prod(grid) == 1:
                flag = "--size" if run.config.tiles is None else "--tiles"
                say(console, f"note: {ONE_POSITION.format(flag=flag)}")
            return names
        if is_map and target is not None:
            from icone.api.tile_map import write_tile_map

            write_tile_map(frozen, dataset, target, batch_size, components, console)
            return feature_table(dataset, np.empty((len(dataset), 0), np.float32))
        features = extract_with_progress(frozen, dataset, console, batch_size)
        table = feature_table(dataset, features, splits_of(run, dataset, is_own=source is None))
        for name in projections:
            xy = project(features, name).xy
            table = table.assign(**{f"{name}{axis}": xy[:, axis] for axis in (0, 1)})
    if target is not None:
        write_embeddings(table, target)
    return table


def _embedding_config(
    config: PretrainConfig,
    is_own: bool,
    labels: Any,
    label_column: tuple[str, ...],
    group_column: str | None,
    console: Console,
) -> PretrainConfig:
    """The run's configuration with the labels of what is embedded: its own, or those that are given."""
    if labels is None and is_own and config.labels is not None and not config.labels.is_file():
        way_out = "--labels=NEWTABLE.csv says where they are now"
        say(console, f"note: {config.labels} is no longer there: labels and groups are left out; {way_out}")
        return dataclasses.replace(config, labels=None, label_column=(), group_column=None)
    kept = labels is None and is_own
    if group_column is None and is_own and config.group_column is not None:
        if kept or has_column(labels, config.group_column):
            group_column = config.group_column
        else:
            console.print(f"note: the labels have no column {config.group_column}: groups are left out", soft_wrap=True)
    return dataclasses.replace(
        config,
        labels=Path(labels) if isinstance(labels, (str, os.PathLike)) else config.labels if kept else None,
        label_column=label_column or (config.label_column if kept else ()),
        group_column=group_column,
        task=config.task if kept else "auto",
    )


def splits_of(run: Run, dataset: Dataset, is_own: bool) -> list[str] | None:
    """The split of every sample, or None where nothing is known."""
    assigned = dataset.source.assigned
    found = ["" if assigned is None else assigned[position] for position in dataset.positions]
    if is_own:
        of_run = dict.fromkeys(run.instances["ids"], "train") | dict.fromkeys(run.instances["test_ids"], "test")
        if run.config.split != "train":
            of_run |= dict.fromkeys(run.instances["ids"], run.config.split)
        found = [of_run.get(name, split) for name, split in zip(dataset.ids, found, strict=True)]
    return found if any(found) else None


def load_with_notes(
    data: Any, config: PretrainConfig, preparation: Preparation, console: Console, only: Collection[str] | None = None
) -> Dataset:
    """Samples of a data set (of these ids, or all) prepared like those of a run; what goes wrong is printed."""
    with ProgressBar(console) as bar:
        dataset = load_for_inference(data, preparation, config, lambda text: say(console, f"note: {text}"), bar, only)
    if left_out := dataset.skipped:
        say(console, f"note: {counted(len(left_out), 'sample')} {either(len(left_out), 'is', 'are')} left out:")
        for problem in left_out[:LEFT_OUT_SHOWN]:
            say(console, f"  {problem.reason}")
        if len(left_out) > LEFT_OUT_SHOWN:
            say(console, f"  and {len(left_out) - LEFT_OUT_SHOWN:,} more")
    return dataset


def extract_with_progress(
    encoder: FrozenEncoder, dataset: Dataset, console: Console, batch_size: int | None = None
) -> np.ndarray:
    """Features of a dataset with a progress bar."""
    with ProgressBar(console) as bar:
        return extract(encoder, dataset, batch_size, partial(bar, "embedding"))


def _write_feature_maps(
    encoder: FrozenEncoder, dataset: Dataset, target: Path, batch_size: int, console: Console
) -> tuple[pd.DataFrame, tuple[int, ...]]:
    """Write an .npz file batch by batch, whole or not at all: what NumPy's `savez` writes, without having it all.

    The result is a table without features, and the grid of a map.
    """
    names = feature_table(dataset, np.empty((len(dataset), 0), np.float32))
    with (
        replacing(target) as temporary,
        zipfile.ZipFile(temporary, "w") as archive,
        ProgressBar(console) as bar,
    ):
        for column in ("id", "path"):
            with archive.open(f"{column}.npy", "w") as file:
                np.lib.format.write_array(file, names[column].to_numpy(str), allow_pickle=False)
        with archive.open("features.npy", "w", force_zip64=True) as file:
            batches = extract_maps(encoder, dataset, batch_size, partial(bar, "embedding"))
            for number, maps in enumerate(batches):
                if number == 0:
                    header = {"descr": "<f4", "fortran_order": False, "shape": (len(dataset), *maps.shape[1:])}
                    np.lib.format.write_array_header_1_0(file, header)
                file.write(maps.astype("<f4").tobytes())
    return names, maps.shape[2:]
