"""The settings of the paper and of this package."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from icone.config import PretrainConfig
from icone.encoders import DEFAULT_FEATURES
from icone.methods import METHODS, chosen_options
from icone.nn.batchnorm import REFERENCE_SAMPLES
from icone.paper.experiments.base import Experiment, Presentation, Scene
from icone.paper.tables import PaperTable, read_printed
from icone.recipe import WARMUP


def _present(scene: Scene) -> Presentation:
    """The settings of the paper and of this package with the chosen recipe, with those of the baselines (A.4)."""
    recipe = scene.options.recipe
    default, icone = PretrainConfig(source="", recipe=recipe), chosen_options("icone", (), recipe)
    printed_recipe = recipe == "paper"
    start = f"N(0, {icone['init_std']})"
    ours: dict[object, object] = {
        "optimizer": "AdamW",
        "learning rate": default.lr if printed_recipe else f"{default.lr} · √(B/{REFERENCE_SAMPLES})",
        "weight decay": default.weight_decay,
        "schedule": default.schedule if printed_recipe else f"{default.schedule}, warm-up over {WARMUP:.0%}",
        "epochs": default.epochs,
        "views": default.views,
        "anchor initialisation": start if printed_recipe else f"untrained embeddings, as long as {start}",
        **{
            ("embedding dimension", dims): f"{DEFAULT_FEATURES[dims]}"
            + ("" if printed_recipe else f", anchors {icone['out']}")
            for dims in (2, 3)
        },
    }
    printed = read_printed("hyperparameters").values
    values = _compared(printed, [ours.get((row, dims), ours.get(row)) for row, dims in _pairs(printed)])
    title = f"settings, recipe {recipe}"
    tables = [PaperTable("hyperparameters", title, values, ["dims"], "tab:hyperparams", None)]
    baselines = read_printed("baselines").values
    found = [chosen_options(method, (), recipe)[option] for method, option in map(_option, baselines["row"])]
    label = "appendix A.4, a list"
    tables.append(
        PaperTable("baselines", "settings of the baselines", _compared(baselines, found), ["setting"], label, None)
    )
    return Presentation(tables)


def _option(row: str) -> tuple[str, str]:
    """Method and option of a row such as `SimCLR: temperature`."""
    title, _, option = row.partition(": ")
    method = next(name for name, kind in METHODS.items() if kind.title == title)
    return method, option.replace(" ", "_")


def _compared(printed: pd.DataFrame, ours: list[object]) -> pd.DataFrame:
    """Texts beside each other, numbers as short as they can be written."""
    values = printed.assign(ours=list(map(_short, ours)), paper=list(map(_short, printed["paper"])))
    values["difference"] = ["" if p == o else "differs" for p, o in zip(values["paper"], values["ours"], strict=True)]
    return values.assign(sd=None, seeds=0, runs=0, wanted=0, status="done")


def _short(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _pairs(table: pd.DataFrame) -> Iterator[tuple[str, int]]:
    return zip(table["row"], table["dims"], strict=True)


HYPERPARAMETERS = Experiment(name="hyperparameters", labels=("tab:hyperparams",), present=_present)
