"""Bringing every sample to one size, one number of channels and one intensity range."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.config import DataConfig
from icone.data.inspection import Facts
from icone.data.source import Sample
from icone.errors import InputError

DEFAULT_SIZE = {2: 224, 3: 64}
PERCENTILES = (0.5, 99.5)
MIN_CONTRAST = 0.1
"""Below this the samples share no unit, like MRI scans of many sites, and each is scaled by itself."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in gray (ITU-R BT.601)."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How samples become tensors: inferred from the training data, kept with the run, applied at inference.

    x ↦ clip((x − low) / (high − low), 0, 1), then resized, then padded with 0 (the low value); `dtype` uint8
    stores the result times 255, rounded. Where `low` and `high` are None, they are the 0.5 and 99.5
    percentiles of each sample. Points (`spatial_dims` 0) stay as they are.
    """

    spatial_dims: int
    channels: int
    size: tuple[int, ...]
    fit: Literal["stretch", "pad"]
    spacing: float | None
    low: float | None
    high: float | None
    dtype: Literal["uint8", "float32"]
    colour: Literal["auto", "gray", "rgb"] = "auto"
    """Conversion that every sample goes through; auto takes samples with `channels` channels only."""

    def __call__(self, sample: Sample) -> Tensor:
        """One sample as (C, *size) in the stored dtype."""
        array = torch.from_numpy(np.ascontiguousarray(sample.array, dtype=np.float32))
        return self.batch(array[None], sample.spacing)[0]

    def batch(self, x: Tensor, spacing: tuple[float, ...] | None = None) -> Tensor:
        """Raw samples (B, C, *spatial) of any size and one spacing as (B, channels, *size), stored dtype."""
        if x.ndim != self.spatial_dims + 2:
            raise InputError(f"expected {_KINDS[self.spatial_dims]}, got the shape {tuple(x.shape[1:])}")
        x = self._convert_channels(x.float())
        if self.spatial_dims == 0:
            return x
        x = self._scale(x)
        x = centre(resize(x, self._resized(tuple(x.shape[2:]), spacing)), self.size)
        return (x * 255).round().to(torch.uint8) if self.dtype == "uint8" else x.clamp(0, 1)

    @property
    def nbytes(self) -> int:
        """Memory that one prepared sample takes."""
        return self.channels * math.prod(self.size) * (1 if self.dtype == "uint8" else 4)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary that JSON can hold; `from_json` is its inverse."""
        return {**dataclasses.asdict(self), "size": list(self.size)}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Preparation:
        """Rebuild what `to_json` wrote."""
        return cls(**{**plain, "size": tuple(plain["size"])})

    @classmethod
    def infer(cls, facts: Sequence[Facts], config: DataConfig, size: int | None = None) -> Preparation:
        """Choose the preparation from what inspection found; `size` where the source has its own."""
        dims = len(facts[0].shape) - 1
        if config.spacing is not None and (dims != 3 or config.spacing <= 0):
            raise InputError(f"--spacing is a positive number for volumes, got {config.spacing} for {_KINDS[dims]}")
        channels = {"auto": facts[0].shape[0], "gray": 1, "rgb": 3}[config.channels]
        low, high, dtype = (0.0, 1.0, "float32") if dims == 0 else _intensity(facts, config.intensity)
        edge = config.size or size or DEFAULT_SIZE.get(dims, 0)
        stretch = config.fit == "stretch" or (config.fit == "auto" and dims == 2)
        return cls(
            spatial_dims=dims,
            channels=channels,
            size=(edge,) * dims,
            fit="stretch" if stretch else "pad",
            spacing=config.spacing,
            low=low,
            high=high,
            dtype="uint8" if dtype == "uint8" else "float32",
            colour=config.channels if dims else "auto",
        )

    def _scale(self, x: Tensor) -> Tensor:
        if self.low is not None and self.high is not None:
            return ((x - self.low) / (self.high - self.low)).clamp(0, 1)
        flat = x.flatten(1)
        ranks = [1 + round(percent / 100 * (flat.shape[1] - 1)) for percent in PERCENTILES]
        low, high = (flat.kthvalue(rank, dim=1, keepdim=True).values for rank in ranks)
        low, high = (
            torch.where(low < high, low, flat.amin(1, True)),
            torch.where(low < high, high, flat.amax(1, True)),
        )
        spread = (high - low).clamp(min=torch.finfo(flat.dtype).tiny)
        return ((flat - low) / spread).clamp(0, 1).reshape(x.shape)

    def _convert_channels(self, x: Tensor) -> Tensor:
        found = x.shape[1]
        if found == self.channels:
            return x
        if self.colour == "gray" and found == 3:
            weights = torch.tensor(LUMA, device=x.device).view(1, 3, *[1] * self.spatial_dims)
            return (x * weights).sum(dim=1, keepdim=True)
        if self.colour == "rgb" and found == 1:
            return x.expand(-1, 3, *x.shape[2:])
        way_out = " (--channels gray or rgb converts between 1 and 3)" if self.colour == "auto" else ""
        raise InputError(f"expected {self.channels} channels, got {found}{way_out}")

    def _resized(self, shape: tuple[int, ...], spacing: tuple[float, ...] | None) -> tuple[int, ...]:
        """The size to resample to before `centre` crops and pads."""
        if self.spacing is not None:
            if spacing is None:
                raise InputError("samples are resampled to a spacing here, but this one does not say its own")
            return tuple(max(1, round(n * s / self.spacing)) for n, s in zip(shape, spacing, strict=True))
        if self.fit == "stretch":
            return self.size
        extents = [n * s for n, s in zip(shape, spacing or (1.0,) * len(shape), strict=True)]
        scale = min(target / extent for target, extent in zip(self.size, extents, strict=True))
        return tuple(max(1, round(extent * scale)) for extent in extents)


_KINDS = {0: "points (C,)", 2: "2D images (C, H, W)", 3: "volumes (C, D, H, W)"}


def _intensity(facts: Sequence[Facts], mode: str) -> tuple[float | None, float | None, str]:
    """The values that become 0 and 1, and the dtype to store."""
    if mode == "sample":
        return None, None, "float32"
    dtypes = sorted({fact.dtype for fact in facts})
    if mode == "range" or (mode == "auto" and dtypes == ["uint8"]):
        if len(dtypes) > 1 or np.dtype(dtypes[0]).kind not in "iu":
            raise InputError(f"--intensity range needs one integer type, got {', '.join(dtypes)}; use percentile")
        limits = np.iinfo(dtypes[0])
        return float(limits.min), float(limits.max), dtypes[0]
    low, high = np.percentile(np.concatenate([fact.values for fact in facts]), PERCENTILES)
    if not low < high:  # almost all voxels are background: take the whole range instead
        low, high = min(fact.low for fact in facts), max(fact.high for fact in facts)
    if mode == "auto" and _typical_contrast(facts, low, high) < MIN_CONTRAST:
        return None, None, "float32"
    return float(low), float(high), "float32"


def _typical_contrast(facts: Sequence[Facts], low: float, high: float) -> float:
    """The share of the range from low to high that the median sample spans."""
    spans = [np.ptp(np.clip([fact.low, fact.high], low, high)) for fact in facts]
    return float(np.median(spans)) / (high - low)


def resize(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """Resample (B, C, *spatial) linearly to a spatial size, with a low-pass filter along axes that shrink.

    torch's antialiased bilinear filter is separable, so a volume is resampled as its slices and then
    along its depth. Where no axis shrinks this is trilinear interpolation.
    """
    if tuple(x.shape[2:]) == size:
        return x
    if len(size) == 2:
        return F.interpolate(x, size=size, mode="bilinear", antialias=True)
    batch, channels, depth, *_ = x.shape
    slices = F.interpolate(x.flatten(1, 2), size=size[1:], mode="bilinear", antialias=True)
    columns = slices.reshape(batch, channels, depth, size[1] * size[2])
    columns = F.interpolate(columns, size=(size[0], columns.shape[3]), mode="bilinear", antialias=True)
    return columns.reshape(batch, channels, *size)


def centre(x: Tensor, size: tuple[int, ...]) -> Tensor:
    """Crop or pad with zeros, evenly on both sides, to a spatial size.

    >>> centre(torch.ones(1, 1, 2, 4), (4, 2))[0, 0].tolist()
    [[0.0, 0.0], [1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
    """
    margins: list[int] = []
    for have, want in zip(reversed(x.shape[2:]), reversed(size), strict=True):
        before = (want - have) // 2
        margins += [before, want - have - before]
    return F.pad(x, margins)
