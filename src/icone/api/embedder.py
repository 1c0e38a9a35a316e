"""The scikit-learn door: `icone.Embedder().fit(X).transform(X)`."""

from __future__ import annotations

import dataclasses
import io
import math
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.utils.data import Dataset as TorchDataset

from icone.api.build import check_data
from icone.api.embed import load_encoder
from icone.api.pretrain import pretrain
from icone.api.run_data import for_other_data
from icone.data import Dataset, load_for_inference
from icone.data.prepare import VALUES_AT_ONCE
from icone.data.sources.dataframe import PATH_COLUMNS
from icone.data.sources.objects import PATH, Arrangement, as_array, as_list
from icone.data.sources.registry import one_sample
from icone.errors import InputError
from icone.evaluation.features import FrozenEncoder, extract
from icone.recipe import BASE_LR
from icone.terminal import Terminal

MOST = 64
"""Samples of an array that are encoded at a time, at most."""


class Embedder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A scikit-learn transformer that learns an encoder without labels and returns its features.

    `X` is an array of images or volumes, (n, C, *size) or (n, *size), or of points, (n, features); or files: a list of
    paths, whose features come in the same order; or whatever else `icone.pretrain` takes. Labels `y` are used by
    supervised methods alone. The arguments are those of `icone.pretrain`; `settings` holds further ones
    (`settings={"precision": "fp32", "features": 8}`). `out` keeps the run folder, else it is temporary. After `fit`,
    `encoder_` is the frozen encoder and `history_` has a row per epoch.

    >>> X = np.random.default_rng(0).normal(size=(20, 4))
    >>> Embedder(epochs=1, settings={"features": 8}).fit(X).transform(X).shape
    (20, 8)
    """

    def __init__(
        self,
        *,
        encoder: Any = "auto",
        method: Any = "icone",
        options: Mapping[str, Any] | None = None,
        views: Any = 2,
        epochs: int = 100,
        batch_size: int | None = None,
        size: int | None = None,
        lr: float = BASE_LR,
        device: str = "auto",
        random_state: int = 0,
        out: str | Path | None = None,
        verbose: bool = False,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.encoder = encoder
        self.method = method
        self.options = options
        self.views = views
        self.epochs = epochs
        self.batch_size = batch_size
        self.size = size
        self.lr = lr
        self.device = device
        self.random_state = random_state
        self.out = out
        self.verbose = verbose
        self.settings = settings

    def fit(self, X: Any, y: Any = None) -> Embedder:  # noqa: N803
        """Train an encoder on the samples; the arrays are left as they are."""
        samples = self._checked(X, reset=True)
        labels = None if y is None else np.asarray(y)
        with tempfile.TemporaryDirectory(prefix="icone-") as folder:
            run = pretrain(
                samples,
                encoder=self.encoder,
                method=self.method,
                options=self.options or {},
                views=self.views,
                labels=labels,
                epochs=self.epochs,
                batch_size=self.batch_size,
                lr=self.lr,
                device=self.device,
                seed=self.random_state,
                out=Path(folder) / "run" if self.out is None else self.out,
                console=Terminal() if self.verbose else Terminal(file=io.StringIO()),
                **{"size": self.size, **(self.settings or {})},
            )
            self.encoder_: FrozenEncoder = load_encoder(run)
            self.history_ = run.history
            self.config_ = for_other_data(run.config)
        return self

    def transform(self, X: Any) -> np.ndarray:  # noqa: N803
        """The features (n, features) of samples like those that it was fitted on, a row for every sample.

        A sample that cannot be used is an error, also where `settings` let `fit` leave such samples out.
        """
        check_is_fitted(self)
        samples = self._checked(X, reset=False)
        if not isinstance(samples, np.ndarray):
            return extract(self.encoder_, self._every_one(samples))
        preparation, values = self.encoder_.preparation, max(1, math.prod(samples.shape[1:]))
        at_once = max(1, min(preparation.samples_at_once(most=MOST), VALUES_AT_ONCE // values))
        arrange = Arrangement(samples.shape[1:], (self.settings or {}).get("axes"))
        with torch.inference_mode():
            rows = [
                self.encoder_(np.stack([arrange(sample) for sample in samples[start : start + at_once]]))
                for start in range(0, len(samples), at_once)
            ]
        features: np.ndarray = torch.cat(rows).float().cpu().numpy()
        return features

    def _every_one(self, samples: Any) -> Dataset:
        """The prepared samples, of which none is left out."""
        tolerant = dataclasses.replace(self.config_, skip_unreadable=True)
        dataset = load_for_inference(samples, self.encoder_.preparation, tolerant)
        if dataset.skipped:
            others = f" ({len(dataset.skipped)} of {len(dataset.skipped) + len(dataset)} samples)"
            raise InputError(
                f"{dataset.skipped[0].reason}{others if len(dataset.skipped) > 1 else ''}; transform gives a row for "
                "every sample: mend it, or leave it out of X"
            )
        return dataset

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray:
        """`f0`, `f1`, …, as in the tables of `icone.embed`."""
        check_is_fitted(self)
        return np.array([f"f{i}" for i in range(self.encoder_.num_features)], dtype=object)

    def __sklearn_tags__(self) -> Any:
        """Features are float32, whatever the samples are."""
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _checked(self, X: Any, *, reset: bool) -> Any:  # noqa: N803
        """Points by the rules of scikit-learn; all else as it is, because `pretrain` looks at it."""
        if getattr(X, "ndim", 2) > 2:
            return as_array(X)
        if isinstance(X, Iterator):
            check_data("X", X)
        if holds_samples(X):
            return as_list(X) if reset else one_sample(as_list(X))
        points: np.ndarray = validate_data(self, X, reset=reset, dtype=np.float32, ensure_min_samples=2 if reset else 1)
        return points


def holds_samples(data: Any) -> bool:
    """Whether data is no table of numbers: a path, a list of paths or images, a Dataset, a table of paths.

    >>> holds_samples(["a.png", "b.png"]), holds_samples([[1.0, 2.0], [3.0, 4.0]])
    (True, False)
    """
    if hasattr(data, "columns"):
        return any(str(column).strip().lower() in PATH_COLUMNS for column in data.columns)
    data = as_list(data)
    if isinstance(data, (list, tuple)):
        return any(isinstance(one, (*PATH, Image.Image)) or getattr(one, "ndim", 0) > 1 for one in data)
    return isinstance(data, (*PATH, TorchDataset))
