"""Configurations survive JSON and refuse numbers that no run can use."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
import tyro

from icone.config import ImageViews, PretrainConfig
from icone.config_text import differences, from_json, to_command, to_json
from icone.errors import InputError
from icone.recipe import WARMUP


def test_json_round_trip_keeps_every_type() -> None:
    config = PretrainConfig(
        source="scans",
        data_root=Path("some/where"),
        options=("diversity=sigreg",),
        image_views=ImageViews(crop_scale=(0.3, 0.9), blur=0.0),
        subset=12,
        window=(-160.0, 240.0),
    )
    assert from_json(json.loads(json.dumps(to_json(config)))) == config


def test_a_window_replaces_another_scaling() -> None:
    with pytest.raises(InputError, match=r"window= replaces intensity=.percentile"):
        PretrainConfig(source="scans", window=(0, 1), intensity="percentile")


def test_a_window_may_be_negative_on_the_command_line() -> None:
    words = to_command(PretrainConfig(source="scans", warmup=WARMUP, window=(-160, 240)))
    assert words == ["icone", "pretrain", "scans", "--batch-size", "1", "--window", "-160.0", "240.0"]
    assert tyro.cli(PretrainConfig, args=words[2:]).window == (-160, 240)


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
        {"window": (240, -160)}, {"window": (1, 1)}, {"window": (0, float("inf"))}, {"window": (float("nan"), 1)},
        {"window": (1, 2, 3)}, {"window": 5},
    ],
)  # fmt: skip
def test_impossible_numbers_are_refused_by_name(setting: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=f"{next(iter(setting))} must be"):
        PretrainConfig(source="scans", **setting)
