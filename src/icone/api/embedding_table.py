"""Embeddings as a table with what is known about the samples, and as a file: Parquet, npz, CSV, AnnData."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from icone.data import Dataset
from icone.data.labels import without_formula
from icone.errors import optional, printable
from icone.evaluation.projection import PROJECTIONS
from icone.files import replacing

FORMATS = (".parquet", ".npz", ".csv", ".h5ad")
ABOUT = ("id", "path", "label", "group", "split", "prediction")
"""Columns that say something about a sample; the others are features and coordinates."""


def feature_table(dataset: Dataset, features: np.ndarray, splits: list[str] | None = None) -> pd.DataFrame:
    """Id and path of every sample, label, group and split where they are known, and the features."""
    source = dataset.source
    about: dict[str, Any] = {
        "id": list(dataset.ids),
        "path": ["" if path is None else printable(str(path)) for path in dataset.paths],
    }
    if source.labels is not None:
        labels = [source.labels[position] for position in dataset.positions]
        number = source.task == "regression"
        about["label"] = [float(one) if one else np.nan for one in labels] if number else [one or "" for one in labels]
    if dataset.groups is not None:
        about["group"] = [group or "" for group in dataset.groups]
    if splits is not None:
        about["split"] = splits
    columns = pd.DataFrame(features, columns=[f"f{i}" for i in range(features.shape[1])])
    return pd.concat([pd.DataFrame(about), columns], axis=1)


def write_embeddings(table: pd.DataFrame, target: Path) -> None:
    """Write the table whole or not at all, in the format of the name's ending.

    In a CSV, a text that a spreadsheet would run as a formula begins with an apostrophe. Tables of labels may
    hold such ids: they are found with and without it.
    """
    about = [column for column in ABOUT if column in table]
    features = table.filter(regex=r"^f\d+$").to_numpy(np.float32)
    maps: dict[str, Any] = {
        name: table[[f"{name}0", f"{name}1"]].to_numpy(np.float32) for name in PROJECTIONS if f"{name}0" in table
    }
    with replacing(target) as temporary:
        if target.suffix == ".parquet":
            table.to_parquet(temporary, index=False)
        elif target.suffix == ".csv":
            texts = [column for column in about if not pd.api.types.is_numeric_dtype(table[column])]
            safe = {column: table[column].map(without_formula) for column in texts}
            table.assign(**safe).to_csv(temporary, index=False)
        elif target.suffix == ".h5ad":
            _write_anndata(table[about], features, maps, temporary)
        else:
            arrays: dict[str, Any] = {column: _array(table[column]) for column in about}
            with temporary.open("wb") as file:
                np.savez_compressed(file, **arrays, features=features, **maps)


def _array(column: pd.Series[Any]) -> np.ndarray:
    return column.to_numpy(np.float64 if pd.api.types.is_numeric_dtype(column) else str)


def import_anndata() -> Any:
    with optional("anndata", "writing .h5ad"):
        import anndata

    return anndata


def _write_anndata(about: pd.DataFrame, features: np.ndarray, maps: dict[str, np.ndarray], target: Path) -> None:
    """An AnnData file as scanpy reads it: X (N, d), obs by id, coordinates as `X_umap` and so on in obsm."""
    obs = about.drop(columns="id").set_axis(pd.Index(about["id"].astype(str), name="id"))
    for column in {"label", "group", "split"} & set(obs.columns):
        if not pd.api.types.is_numeric_dtype(obs[column]):
            obs[column] = pd.Categorical(obs[column].replace("", None))
    var = pd.DataFrame(index=[f"f{i}" for i in range(features.shape[1])])
    found = import_anndata().AnnData(X=features, obs=obs, var=var, obsm={f"X_{name}": xy for name, xy in maps.items()})
    found.write_h5ad(target, compression="gzip")
