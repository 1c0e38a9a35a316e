"""Settings of a wrong type or out of range are refused by their name, in every verb."""

from __future__ import annotations

import dataclasses
import math
import typing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import icone
from icone.config import ImageViews, PretrainConfig, ViewsConfig
from icone.config_text import from_json, to_json
from icone.errors import InputError
from icone.paper.options import Options
from icone.report.figures import save_figures
from icone.report.write import report
from icone.validation import RANGES, check_folder, check_target, checked, user_path

WRONG_TYPES: list[tuple[str, object]] = [
    ("epochs", "3"), ("epochs", 3.0), ("epochs", True), ("epochs", None), ("epochs", [3]), ("batch_size", 1.5),
    ("batch_size", "1"), ("views", None), ("lr", "1e-4"), ("lr", None), ("lr", 1j), ("weight_decay", "0"),
    ("seed", 0.0), ("seed", "0"), ("size", "32"), ("size", (32, 32)), ("subset", 0.5), ("features", [8]),
    ("width", "1"), ("skip_unreadable", "yes"), ("skip_unreadable", 1), ("stop_on_collapse", None),
    ("options", 3), ("options", [1]), ("options", {"view_weight": 0}), ("log", "abacus"), ("include", 3),
    ("log", ("abacus",)), ("snapshots", 1.5), ("snapshots", "3"), ("snapshots", (1.5,)),
    ("method", None), ("method", 3), ("encoder", None),
    ("device", 0), ("cache", None), ("data_root", 3), ("labels", ""), ("labels", ["a.csv"]),
    ("precision", "fp64"), ("precision", 32), ("engine", "warp"), ("fit", True), ("split", "all"),
    ("intensity", None), ("image_views", None), ("image_views", {"blur": 0}), ("image_views", ViewsConfig()),
    ("source", None), ("source", 3),
]  # fmt: skip
WRONG_NUMBERS: list[tuple[str, object]] = [
    ("seed", -1), ("seed", 10**23), ("split_seed", -1), ("lr", 0), ("lr", -1e-4), ("lr", 1e308), ("lr", math.nan),
    ("lr", math.inf), ("lr", 10**400), ("features", -1), ("features", 0), ("imbalance", math.nan), ("imbalance", 0.5),
    ("memory_gb", -1), ("memory_gb", math.nan), ("memory_gb", math.inf), ("checkpoint_seconds", math.nan),
    ("checkpoint_seconds", -1), ("workers", 0), ("workers", 10**9), ("size", 7), ("size", 10**9), ("width", math.nan),
    ("width", 0), ("width", 1e9), ("subset", -1), ("subset", 0), ("test_fraction", math.nan), ("test_fraction", 1),
    ("test_fraction", -0.1), ("snapshots", (-1,)), ("snapshots", (0,)), ("probe_every", -1),
    ("batch_size", 0),
    ("batch_size", 10**30), ("epochs", 0), ("epochs", 10**30), ("accumulate", 0), ("views", 1), ("views", 10**9),
    ("weight_decay", -1), ("weight_decay", math.nan), ("clip_gradient", 0), ("clip_gradient", math.inf),
    ("spacing", 0), ("spacing", math.nan),
]  # fmt: skip
WRONG_VIEWS: list[tuple[str, object]] = [
    ("crop_scale", (1.0, 0.2)), ("crop_scale", (0.2, 0.5, 1.0)), ("crop_scale", 0.2), ("flip", 2.0), ("flip", "half"),
    ("blur_sigma", (-1.0, 2.0)), ("blur_kernel", 22), ("blur_kernel", 10**6 + 1), ("blur_kernel", 3.0), ("hue", 0.6),
    ("jitter", math.nan), ("brightness", math.inf),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), WRONG_TYPES + WRONG_NUMBERS)
def test_a_setting_that_no_run_can_use_is_named(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^{name} must be .+, got "):
        PretrainConfig(**{"source": "scans", name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(("name", "value"), WRONG_VIEWS)
def test_views_are_checked_before_data_is_read(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^image_views.{name} must be .+, got "):
        PretrainConfig(source="scans", image_views=ImageViews(**{name: value}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "plain", [[], None, {}, {"source": 3}, {"source": "s", "epochs": "3"}, {"source": "s", "lr": None}]
)
def test_a_stored_configuration_is_checked_too(plain: Any) -> None:
    with pytest.raises(InputError):
        from_json(plain)


def test_what_fits_gets_the_type_of_its_annotation() -> None:
    config = PretrainConfig(
        source=Path("scans"),  # type: ignore[arg-type]
        epochs=np.int64(3),  # type: ignore[arg-type]
        lr=np.float32(0.5),  # type: ignore[arg-type]
        width=1,
        labels="~/labels.csv",  # type: ignore[arg-type]
        options=["view_weight=0"],  # type: ignore[arg-type]
        image_views=ImageViews(crop_scale=[1, 1]),  # type: ignore[arg-type]
    )
    assert (config.source, config.epochs, config.lr, config.width) == ("scans", 3, 0.5, 1.0)
    assert [type(v) for v in (config.source, config.epochs, config.lr, config.width)] == [str, int, float, float]
    assert config.labels == Path.home() / "labels.csv"
    assert config.options == ("view_weight=0",)
    assert config.image_views.crop_scale == (1.0, 1.0)
    assert from_json(to_json(config)) == config


@pytest.mark.parametrize(
    ("name", "value"),
    [("include", "*.png"), ("exclude", "masks"), ("label_column", "grade"), ("options", "view_weight=0"),
     ("log", "wandb"), ("snapshots", 3)],
)  # fmt: skip
def test_one_value_is_a_list_of_one(name: str, value: Any) -> None:
    settings: list[dict[str, Any]] = [{name: value}, {name: [value]}]
    alone, listed = (PretrainConfig(source="scans", **given) for given in settings)
    assert getattr(alone, name) == (value,)
    assert alone == listed


def test_one_text_is_a_list_of_one_for_every_argument() -> None:
    assert checked("projections", "pca", typing.get_type_hints(icone.embed)["projections"]) == ("pca",)
    assert checked("projections", "pca", typing.get_type_hints(report)["projections"]) == ["pca"]
    assert checked("names", "map", typing.get_type_hints(save_figures)["names"]) == ["map"]
    assert checked("label_fractions", 1, typing.get_type_hints(icone.evaluate)["label_fractions"]) == (1.0,)
    assert checked("crop", 96, typing.get_type_hints(PretrainConfig)["crop"]) == 96
    with pytest.raises(InputError, match="projections must be a list of which each is one of"):
        checked("projections", "pcs", typing.get_type_hints(report)["projections"])


@pytest.mark.parametrize("config", [PretrainConfig(source="scans"), Options()])
def test_every_default_is_allowed(config: Any) -> None:
    hints = typing.get_type_hints(type(config))
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        assert checked(field.name, value, hints[field.name]) == value
        for inner in dataclasses.fields(value) if dataclasses.is_dataclass(value) else ():
            rule = RANGES[f"{field.name}.{inner.name}"]  # every setting of a view has one
            assert rule.is_met(getattr(value, inner.name))


@pytest.mark.parametrize(
    ("name", "value"),
    [("lr", 0.0), ("seeds", 0), ("size", 3), ("width", math.nan), ("batch_sizes", (0,)), ("epochs", "3")],
)
def test_options_of_the_paper_are_checked_alike(name: str, value: object) -> None:
    with pytest.raises(InputError, match=f"^{name} must be"):
        Options(**{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("verb", "arguments", "name"),
    [
        (icone.pretrain, {"source": None}, "source"),
        (icone.pretrain, {"source": ""}, "source"),
        (icone.pretrain, {"source": "scans", "out": 3}, "out"),
        (icone.pretrain, {"source": "scans", "out": ""}, "out"),
        (icone.pretrain, {"source": "scans", "resume": "yes"}, "resume"),
        (icone.pretrain, {"source": "scans", "epochs": "3"}, "epochs"),
        (icone.embed, {"run": None}, "run"),
        (icone.embed, {"run": "run", "source": ""}, "source"),
        (icone.embed, {"run": "run", "batch_size": 0}, "batch_size"),
        (icone.embed, {"run": "run", "out": ["a.csv"]}, "out"),
        (icone.evaluate, {"run": "run", "test_fraction": math.nan}, "test_fraction"),
        (icone.evaluate, {"run": "run", "geometry_instances": -1}, "geometry_instances"),
        (icone.evaluate, {"run": "run", "labels": 3}, "labels"),
        (icone.report, {"runs": 3}, "runs"),
        (icone.report, {"runs": ["run"], "thumbnails": "no"}, "thumbnails"),
        (icone.load_encoder, {"run": "run", "device": 0}, "device"),
    ],
)
def test_arguments_in_python_are_checked_alike(verb: Any, arguments: dict[str, Any], name: str) -> None:
    with pytest.raises(InputError, match=f"^{name} must be .+, got "):
        verb(**arguments)


def test_a_home_that_does_not_exist_is_said() -> None:
    assert user_path("~/x") == Path.home() / "x"
    with pytest.raises(InputError, match="no such user"):
        user_path("~nosuchuser/x")
    with pytest.raises(InputError, match="no such user"):
        icone.data.read_sample("~nosuchuser/x.npy")
    with pytest.raises(InputError, match="no such user"):
        icone.pretrain("synthetic:gaussians", out="~nosuchuser/x")


def test_targets_that_could_not_be_written_are_refused_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    check_target(tmp_path / "new" / "a.csv")
    check_target(tmp_path / "file")
    for path, reason in {"": "is a folder", "file/a.csv": "is a file", "loop/a.csv": "leads nowhere"}.items():
        with pytest.raises(InputError, match=reason):
            check_target(tmp_path / path)
    with pytest.raises(InputError, match="no ordinary file"):
        check_target(Path("/dev/null"))
    with pytest.raises(InputError, match="cannot write in /proc"):
        check_folder(Path("/proc/x"))

    def refused(**_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("tempfile.TemporaryFile", refused)
    with pytest.raises(InputError, match="no permission"):
        check_folder(tmp_path / "new")
