"""The settings of the paper and of this package."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from icone.config import PretrainConfig
from icone.encoders import DEFAULT_FEATURES
from icone.methods import method_options
from icone.nn.batchnorm import REFERENCE_SAMPLES
from icone.paper.experiments.base import Experiment, Presentation, Scene
from icone.paper.printed import read_printed
from icone.paper.tables import PaperTable


def _present(scene: Scene) -> Presentation:
    """The settings of the paper and the defaults of this package, which are not those of `--recipe paper`."""
    default, icone = PretrainConfig(source=""), method_options("icone")
    ours: dict[object, object] = {
        "optimizer": "AdamW",
        "learning rate": f"{default.lr} · √(B/{REFERENCE_SAMPLES})",
        "weight decay": default.weight_decay,
        "schedule": "cosine",
        "epochs": default.epochs,
        "views": default.views,
        "anchor initialisation": f"untrained embeddings, as long as N(0, {icone['init_std']})",
        **{("embedding dimension", dims): f"{DEFAULT_FEATURES[dims]}, anchors {icone['out']}" for dims in (2, 3)},
    }
    printed = read_printed("hyperparameters").values
    values = printed.assign(ours=[str(ours.get((row, dims), ours.get(row))) for row, dims in _pairs(printed)])
    values["paper"] = values["paper"].astype(str)
    values["difference"] = ["" if p == o else "differs" for p, o in zip(values["paper"], values["ours"], strict=True)]
    values = values.assign(sd=None, seeds=0, runs=0, wanted=0, status="done")
    return Presentation([PaperTable("hyperparameters", "settings", values, ["dims"], "tab:hyperparams", None)])


def _pairs(table: pd.DataFrame) -> Iterator[tuple[str, int]]:
    return zip(table["row"], table["dims"], strict=True)


HYPERPARAMETERS = Experiment(name="hyperparameters", labels=("tab:hyperparams",), present=_present)
