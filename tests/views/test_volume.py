"""The volume pipeline against plain torch operations, sample by sample, on the same drawn parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from icone.config import VolumeViews
from icone.views.volume import VolumeParameters, VolumePipeline, quarter_turns

OFF = VolumeViews(crop_scale=(1, 1), flip=0, rotate=0, shift=0, contrast=(1, 1), noise=0, blur=0)
Size = tuple[int, int, int]


def stored_volumes(count: int, channels: int, size: Size) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, channels, *size), generator=generator, dtype=torch.uint8)


def reference(volume: Tensor, drawn: VolumeParameters, n: int, plane: tuple[int, int], k: int) -> Tensor:
    """One view in float64: crop, resize, flip, turn, shift, contrast, noise and blur one after the other."""
    size = volume.shape[1:]
    start, stop = drawn.start[n].long(), (drawn.start[n] + drawn.extent[n]).long()
    box = tuple(slice(int(a), int(b)) for a, b in zip(start, stop, strict=True))
    crop = (volume.double() / 255)[(slice(None), *box)]
    view = F.interpolate(crop[None], tuple(size), mode="trilinear", align_corners=False)
    view = view.flip([2 + axis for axis in range(3) if drawn.flipped[n, axis]])
    view = torch.rot90(view, k, (2 + plane[0], 2 + plane[1]))
    shift, contrast = (one.reshape(-1, 1, 1, 1) for one in (drawn.shift[n], drawn.contrast[n]))
    view = (view + shift) * contrast
    if drawn.noise is not None:
        view = view + drawn.noise_sigma[n] * drawn.noise[n]
    if drawn.blurred[n]:
        view = F.avg_pool3d(view, 3, stride=1, padding=1, count_include_pad=False)
    return view[0]


def worst_difference(config: VolumeViews, volumes: Tensor) -> float:
    torch.manual_seed(1)
    size = (volumes.shape[2], volumes.shape[3], volumes.shape[4])
    pipeline = VolumePipeline(config, channels=volumes.shape[1], size=size)
    drawn = pipeline.draw(len(volumes), volumes.device)
    views = pipeline.transform(volumes, drawn)
    turns = [pipeline.turns[position] for position in drawn.turn.tolist()]
    expected = [reference(volume, drawn, n, turns[n].plane, turns[n].k) for n, volume in enumerate(volumes)]
    assert views.dtype == torch.float32
    assert views.shape == volumes.shape
    return (views - torch.stack(expected)).abs().max().item()


@pytest.mark.parametrize(
    ("channels", "size"),
    [(1, (16, 16, 16)), (2, (12, 12, 12)), (1, (9, 14, 14)), (1, (14, 9, 14)), (1, (7, 9, 11))],
)
def test_whole_pipeline_equals_the_steps_one_by_one(channels: int, size: Size) -> None:
    assert worst_difference(VolumeViews(), stored_volumes(96, channels, size)) < 5e-6


def test_whole_pipeline_at_the_size_of_the_paper() -> None:
    assert worst_difference(VolumeViews(), stored_volumes(4, 1, (64, 64, 64))) < 1e-5


@pytest.mark.parametrize(
    "step",
    [
        {"crop_scale": (0.05, 1.0)},
        {"flip": 0.5},
        {"rotate": 1.0},
        {"flip": 0.5, "rotate": 1.0},
        {"shift": 0.3},
        {"contrast": (0.2, 3.0)},
        {"noise": 0.5},
        {"blur": 0.5},
    ],
    ids=str,
)
def test_single_steps(step: dict[str, Any]) -> None:
    config = dataclasses.replace(OFF, **step)
    assert worst_difference(config, stored_volumes(48, 1, (10, 10, 10))) < 5e-6


def test_turns_cover_the_planes_with_equal_edges() -> None:
    def planes(size: Size) -> set[tuple[tuple[int, int], int]]:
        return {(turn.plane, turn.k) for turn in quarter_turns(size)[1:]}

    assert planes((5, 5, 5)) == {(plane, k) for plane in [(0, 1), (0, 2), (1, 2)] for k in (1, 2, 3)}
    assert planes((4, 6, 4)) == {((0, 2), k) for k in (1, 2, 3)}
    assert planes((4, 5, 6)) == set()


def test_unequal_edges_leave_the_rotation_out_and_say_so() -> None:
    described = VolumePipeline(VolumeViews(), channels=1, size=(4, 5, 6)).describe()
    assert described["left_out"] == {"rotate": "no two edges have the same length"}


def test_plain_view_is_the_volume_itself() -> None:
    volumes = stored_volumes(3, 1, (6, 6, 6))
    expected = volumes.float() / 255
    torch.testing.assert_close(VolumePipeline(VolumeViews(), channels=1, size=(6, 6, 6)).plain(volumes), expected)
    off = VolumePipeline(OFF, channels=1, size=(6, 6, 6))
    torch.testing.assert_close(off(volumes, 1)[:, 0], expected, rtol=0, atol=0)


def test_stored_floats_are_not_changed() -> None:
    volumes = torch.rand(4, 1, 8, 8, 8)
    before = volumes.clone()
    for config in (VolumeViews(), dataclasses.replace(OFF, shift=0.1, noise=1.0)):
        VolumePipeline(config, channels=1, size=(8, 8, 8))(volumes, 2)
    torch.testing.assert_close(volumes, before, rtol=0, atol=0)
