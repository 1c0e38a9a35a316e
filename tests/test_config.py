"""Configurations survive JSON and refuse numbers that no run can use."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from icone.config import ImageViews, PretrainConfig, differences, from_json, to_json
from icone.errors import InputError


def test_json_round_trip_keeps_every_type() -> None:
    config = PretrainConfig(
        source="scans",
        data_root=Path("some/where"),
        options=("diversity=sigreg",),
        image_views=ImageViews(crop_scale=(0.3, 0.9), blur=0.0),
        subset=12,
    )
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_unknown_stored_setting_is_refused() -> None:
    plain = to_json(PretrainConfig(source="scans")) | {"flux": 1}
    with pytest.raises(InputError, match="flux"):
        from_json(plain)


def test_differences_name_what_changes_the_experiment_only() -> None:
    old = PretrainConfig(source="scans", workers=1, device="cpu")
    new = dataclasses.replace(old, workers=4, device="cuda", lr=0.1, image_views=ImageViews(flip=0.0))
    assert {line.split(":")[0] for line in differences(old, new)} == {"lr", "image_views"}


@pytest.mark.parametrize(
    "setting",
    [
        {"views": 1}, {"batch_size": 0}, {"epochs": 0}, {"accumulate": 0}, {"lr": 0.0}, {"lr": float("nan")},
        {"weight_decay": -1.0}, {"clip_gradient": 0.0}, {"test_fraction": 1.0}, {"size": 4}, {"workers": 0},
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_by_name(setting: dict[str, Any]) -> None:
    name = next(iter(setting)).replace("_", "-")
    with pytest.raises(InputError, match=f"--{name} must be"):
        PretrainConfig(source="scans", **setting)
