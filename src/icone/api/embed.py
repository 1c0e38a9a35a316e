"""Using a run: its encoder with preprocessing, and embeddings of other data."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from rich.console import Console
from rich.progress import Progress

from icone.api.build import make_encoder, make_views, memory_errors, own_randomness, pick_device
from icone.config import PretrainConfig
from icone.data import Dataset, Preparation, load_for_inference
from icone.data.labels import without_formula
from icone.encoders.calibration import calibrate_batch_norm, calibration_rows
from icone.errors import InputError, printable
from icone.evaluation.features import FrozenEncoder, extract
from icone.run import Run, load_weights, refuse_own_file, replacing
from icone.terminal import Terminal
from icone.training.context import kept_random_state
from icone.validation import check_arguments, check_target

FORMATS = (".parquet", ".npz", ".csv")
CALIBRATION_VIEWS = 2
"""Random views of every sample that calibrates: the fewest that a run trains on."""
CALIBRATION_SEED = 30_000
"""Draws these views, whatever the seed of the run: all untrained encoders see the same."""


@check_arguments
def load_encoder(run: str | Path | Run, device: str = "cpu") -> FrozenEncoder:
    """The trained encoder of a run with its preprocessing, in eval mode; it needs no instance ids."""
    run = run if isinstance(run, Run) else Run.open(run)
    weights = run.trained_weights()
    frozen = _new_encoder(run)
    load_weights(frozen.encoder, weights, run.encoder_file)
    return frozen.to(pick_device(device))


def untrained_encoder(run: Run, dataset: Dataset, device: str = "cpu") -> FrozenEncoder:
    """The encoder of a run as it was before its first step, the run's own samples being in `dataset`.

    Its BatchNorm layers get the statistics of random views of training samples, as they would in training
    (`icone.encoders.calibration`); held-out samples take no part.
    """
    frozen = _new_encoder(run).to(pick_device(device))
    held_out = set(run.instances["test_ids"])
    seen = torch.tensor([row for row, name in enumerate(dataset.ids) if name not in held_out])
    where = next(frozen.parameters()).device
    with kept_random_state(where, CALIBRATION_SEED):
        calibrate_batch_norm(
            frozen.encoder,
            calibration_rows(len(seen)),
            lambda rows: frozen.encode_views(dataset.images_at(seen[rows]).to(where), CALIBRATION_VIEWS),
        )
    return frozen


def _new_encoder(run: Run) -> FrozenEncoder:
    """The encoder of a run with the weights of its seed, on the CPU."""
    config, preparation = run.config, run.preparation
    with own_randomness(torch.device("cpu")):
        encoder = make_encoder(config, preparation)
    return FrozenEncoder(encoder, preparation, make_views(config, preparation))


@check_arguments
def embed(
    run: str | Path | Run,
    source: str | Path | None = None,
    *,
    out: str | Path | None = None,
    data_root: Path | None = None,
    skip_unreadable: bool = False,
    batch_size: int = 16,
    device: str = "auto",
    cache: str | None = None,
    console: Console | None = None,
) -> pd.DataFrame:
    """Embeddings of a folder, an array file or a named set (default: the run's own data), one row per sample.

    Columns: `id`, `path`, and the features `f0`, `f1`, …. With `out`, written as .parquet, .npz or .csv; control
    characters and bytes that are not UTF-8 in names are written as backslash escapes.
    """
    run = run if isinstance(run, Run) else Run.open(run)
    console = console or Terminal()
    target = Path(out) if out is not None else None
    if target is not None and target.suffix not in FORMATS:
        raise InputError(f"cannot write {target}: the name must end in {', '.join(FORMATS)}")
    if target is not None:
        check_target(target)
        refuse_own_file(target)
    config = dataclasses.replace(
        run.config, source=str(source or run.config.source), labels=None, skip_unreadable=skip_unreadable
    )
    if cache is not None:
        config = dataclasses.replace(config, cache=cache)
    if data_root is not None:
        config = dataclasses.replace(config, data_root=data_root)
    encoder = load_encoder(run, device)
    with memory_errors():
        dataset = load_with_notes(config, encoder.preparation, console)
        features = extract_with_progress(encoder, dataset, batch_size, console)
    table = feature_table(dataset, features)
    if target is not None:
        write_embeddings(table, target)
    return table


def load_with_notes(
    config: PretrainConfig, preparation: Preparation, console: Console, only: Collection[str] | None = None
) -> Dataset:
    """Samples of a configuration's source (of these ids, or all) like those of a run; what goes wrong is printed."""

    def note(text: str) -> None:
        console.print(f"note: {text}", highlight=False, soft_wrap=True, markup=False)

    return load_for_inference(config.source, preparation, config, report=note, only=only)


def extract_with_progress(encoder: FrozenEncoder, dataset: Dataset, batch_size: int, console: Console) -> np.ndarray:
    """Features of a dataset with a progress bar."""
    with Progress(console=console, transient=True) as bar:
        task = bar.add_task("embedding", total=len(dataset))
        return extract(encoder, dataset, batch_size, lambda done, _: bar.update(task, completed=done))


def feature_table(dataset: Dataset, features: np.ndarray) -> pd.DataFrame:
    columns = pd.DataFrame(features, columns=[f"f{i}" for i in range(features.shape[1])])
    paths = ["" if path is None else printable(str(path)) for path in dataset.paths]
    return pd.concat([pd.DataFrame({"id": list(dataset.ids), "path": paths}), columns], axis=1)


def write_embeddings(table: pd.DataFrame, target: Path) -> None:
    """Write the table whole or not at all, in the format of the name's ending.

    In a CSV, an id or path that a spreadsheet would run as a formula begins with an apostrophe. Tables of labels may
    hold such ids: they are found with and without it.
    """
    with replacing(target) as temporary:
        if target.suffix == ".parquet":
            table.to_parquet(temporary, index=False)
        elif target.suffix == ".csv":
            safe = {column: table[column].map(without_formula) for column in ("id", "path")}
            table.assign(**safe).to_csv(temporary, index=False)
        else:
            features = table.filter(regex=r"^f\d+$").to_numpy(np.float32)
            ids, paths = (table[column].to_numpy(str) for column in ("id", "path"))
            with temporary.open("wb") as file:
                np.savez_compressed(file, id=ids, path=paths, features=features)
