"""Bringing every sample to one size, one number of channels and intensities in [0, 1]."""

from __future__ import annotations

import dataclasses
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from icone.config import DataConfig
from icone.data.inspection import Facts
from icone.data.sources.base import Array, Sample
from icone.errors import InputError
from icone.terminal import counted

DEFAULT_SIZE = {2: 224, 3: 64}
PERCENTILES = (0.5, 99.5)
MIN_CONTRAST = 0.1
"""Below this the samples share no unit, like MRI scans of many sites, and each is scaled by itself."""
LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in gray (ITU-R BT.601)."""
FAR_ABOVE = 16
"""Where the values of the training reach beyond this, values up to 1 are of another unit."""
VALUES_AT_ONCE = 2**24
"""Pixels or voxels of all channels that pass through an encoder at a time without gradients: 64 volumes of 64³, one of
256³."""


Spacing = Sequence[float] | Sequence[Sequence[float] | None] | Array
"""Millimetres per voxel along each spatial axis: one row for all samples, or one per sample."""


@dataclass(frozen=True, kw_only=True)
class Preparation:
    """How samples become tensors: inferred from the training data, kept with the run, applied at inference.

    x_c ↦ clip((x_c − low_c) / (high_c − low_c), 0, 1) for every channel c, then resized, then padded with 0 (the low
    value); `dtype` uint8 stores the result times 255, rounded. Where `low` and `high` are None, they are the 0.5 and
    99.5 percentiles of each sample. A channel that is constant (low_c = high_c) becomes 0. Points (`spatial_dims` 0)
    stay as they are.
    """

    spatial_dims: int
    channels: int
    size: tuple[int, ...]
    fit: Literal["stretch", "pad"]
    spacing: float | None
    low: tuple[float, ...] | None
    """The value of each channel that becomes 0."""
    high: tuple[float, ...] | None
    """The value of each channel that becomes 1."""
    dtype: Literal["uint8", "float32"]
    colour: Literal["auto", "gray", "rgb"] = "auto"
    """Conversion that every sample goes through; auto takes samples with `channels` channels only."""
    shares_range: bool = False
    """Whether the channels of a sample share one intensity range, as red, green and blue do."""
    is_rgb: bool = True
    """Whether views take three channels for red, green and blue."""
    needs_spacing: bool = False
    """Whether the spacing of a training sample decided how it was resized, so that `batch` must know it too."""
    crops: bool = False
    """Whether samples keep their resolution: prepared ones are (C, *their own shape), and `size` is that of crops."""

    def samples_at_once(self, views: int = 1, most: int = 16) -> int:
        """Samples that pass through an encoder at a time without gradients, with so many views of each: one at least.

        They hold at most `VALUES_AT_ONCE` where there are several, so that looking at large samples does not take the
        memory of many.

        >>> volumes = Preparation(spatial_dims=3, channels=1, size=(128,) * 3, fit="stretch", spacing=None, low=(0.0,),
        ...                       high=(1.0,), dtype="uint8")
        >>> volumes.samples_at_once(), volumes.samples_at_once(views=10)
        (8, 1)
        """
        return max(1, min(most, VALUES_AT_ONCE // (views * self.channels * math.prod(self.size))))

    def __call__(self, sample: Sample) -> Tensor:
        """One sample as (C, *size) in the stored dtype; voxels without a spacing are taken for cubes."""
        return self.alike([sample])[0]

    def alike(self, samples: Sequence[Sample]) -> Tensor:
        """Samples of one shape, type and spacing that lack the same channels, as (B, C, *size) in the stored dtype."""
        first = samples[0]
        if first.array.ndim != self.spatial_dims + 1:
            raise InputError(f"expected {_KINDS[self.spatial_dims]}, got the shape {first.array.shape}")
        arrays = np.stack([sample.array for sample in samples]) if len(samples) > 1 else first.array[None]
        prepared = self._prepare(_as_floats(arrays), first.spacing)
        if first.missing:
            prepared[:, list(first.missing)] = 0
        return prepared

    def batch(self, samples: Tensor | Array, spacing: Spacing | None = None) -> Tensor:
        """Raw samples (B, C, *spatial) of any size as (B, channels, *size) in the stored dtype.

        `spacing` is one tuple of millimetres per voxel for all samples, or one per sample, in the order of the axes.
        """
        x = _as_floats(samples)
        if x.ndim != self.spatial_dims + 2:
            way_out = "; one sample becomes such a batch by sample[None]"
            if self.channels == 1:
                way_out = "; gray samples without an axis of channels become such a batch by samples[:, None]"
            raise InputError(
                f"expected a batch (B, …) of {_KINDS[self.spatial_dims]}, got the shape {tuple(x.shape)}"
                f"{way_out if x.ndim == self.spatial_dims + 1 else ''}"
            )
        if len(x) == 0:
            raise InputError("expected a batch of at least one sample, got none")
        if not x.isfinite().all():
            bad = [row for row, one in enumerate(x) if not one.isfinite().all()]
            raise InputError(
                f"{len(bad)} of {len(x)} samples hold NaN or infinite values, the first is number {bad[0]}: replace "
                "them, for example by numpy.nan_to_num, or leave these samples out"
            )
        rows = self._spacings(spacing, len(x))
        self._warn_of_unit(x)
        if len(set(rows)) == 1:
            return self._prepare(x, rows[0])
        return torch.cat([self._prepare(one[None], row) for one, row in zip(x, rows, strict=True)])

    def _warn_of_unit(self, x: Tensor) -> None:
        """Warn of samples in [0, 1] where those of the training reached far beyond: they would all become black."""
        if self.high is None or self.low is None or self.spatial_dims == 0:
            return
        largest = float(x.max())
        if 0 < largest <= 1 and min(self.low) >= 0 and min(self.high) > FAR_ABOVE:
            warnings.warn(
                f"the samples reach {largest:g}, and those of the training {max(self.high):g}: give raw values, as the "
                "files hold them, not values in [0, 1]",
                stacklevel=3,
            )

    def _prepare(self, x: Tensor, spacing: tuple[float, ...] | None) -> Tensor:
        """Samples (B, C, *spatial) of one size and one spacing, prepared."""
        x = self._convert_channels(x)
        if self.spatial_dims == 0:
            return x
        x = self._scale(x)
        x = resize(x, self.resized(tuple(x.shape[2:]), spacing))
        if not self.crops:
            x = centre(x, self.size)
        return (x * 255).round().to(torch.uint8) if self.dtype == "uint8" else x.clamp(0, 1)

    @property
    def nbytes(self) -> int:
        """Memory that one prepared sample takes, or one crop of it."""
        return self.channels * math.prod(self.size) * (1 if self.dtype == "uint8" else 4)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary that JSON can hold; `from_json` is its inverse."""
        return {name: list(value) if isinstance(value, tuple) else value for name, value in vars(self).items()}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> Preparation:
        """Rebuild what `to_json` wrote, in version 0.1 too: one range for all channels, and nothing about spacings."""
        volumes_padded = plain["spatial_dims"] == 3 and plain["fit"] == "pad"
        former = {"shares_range": True, "needs_spacing": plain["spacing"] is not None or volumes_padded}
        ends = {name: _per_channel(plain[name], plain["channels"]) for name in ("low", "high")}
        return cls(**{**former, **plain, **ends, "size": tuple(plain["size"])})

    @classmethod
    def infer(cls, facts: Sequence[Facts], config: DataConfig, size: int | None = None) -> Preparation:
        """Choose the preparation from what inspection found; `size` where the source has its own."""
        dims = len(facts[0].shape) - 1
        if config.spacing is not None and (dims != 3 or config.spacing <= 0):
            raise InputError(f"--spacing is a positive number for volumes, got {config.spacing} for {_KINDS[dims]}")
        if config.window is not None and dims == 0:
            raise InputError("--window is for images and volumes, but these are points: leave it out")
        channels = {"auto": facts[0].shape[0], "gray": 1, "rgb": 3}[config.channels]
        shares_range = config.channels != "auto" or all(fact.is_colour for fact in facts)
        is_rgb = config.channels != "auto" or channels != 3 or any(fact.is_colour is not False for fact in facts)
        if config.colour != "auto":
            if channels != 3:
                raise InputError(f"--colour is for three channels, but the samples have {channels}: leave it out")
            shares_range = is_rgb = config.colour == "yes"
        low, high, dtype = (0.0, 1.0, "float32") if dims == 0 else _intensity(facts, config, shares_range)
        edge = config.size or size or DEFAULT_SIZE.get(dims, 0)
        edges = (edge,) * dims if config.crop is None else _crop_edges(config.crop, dims)
        stretch = config.crop is None and (config.fit == "stretch" or (config.fit == "auto" and dims == 2))
        inferred = cls(
            spatial_dims=dims,
            channels=channels,
            size=edges,
            fit="stretch" if stretch else "pad",
            spacing=config.spacing,
            low=_per_channel(low, channels),
            high=_per_channel(high, channels),
            dtype="uint8" if dtype == "uint8" else "float32",
            colour=config.channels if dims else "auto",
            shares_range=shares_range,
            crops=config.crop is not None,
            is_rgb=is_rgb,
        )
        needs_spacing = config.spacing is not None or any(
            inferred.resized(shape, spacing) != inferred.resized(shape, None)
            for shape, spacing in {(fact.shape[1:], fact.spacing) for fact in facts if fact.spacing}
        )
        return dataclasses.replace(inferred, needs_spacing=needs_spacing)

    @property
    def scale(self) -> dict[str, Any]:
        """What becomes of values, apart from sizes: the range and its type, and what three channels are."""
        return {name: getattr(self, name) for name in ("low", "high", "dtype", "shares_range", "is_rgb")}

    def with_scale_of(self, other: Preparation) -> Preparation:
        """This preparation with the `scale` of another one for as many axes and channels; else itself."""
        if (self.spatial_dims, self.channels) != (other.spatial_dims, other.channels):
            return self
        return dataclasses.replace(self, **other.scale)

    def with_range_of(self, array: Array) -> Preparation:
        """This preparation with the percentiles of one sample (C, *spatial) as its range, so that parts of the sample
        can be prepared one after another; itself where it has a range already."""
        if self.low is not None:
            return self
        ends = []
        for values in array.reshape(1, -1) if self.shares_range else array.reshape(len(array), -1):
            ranks = [round(percent / 100 * (values.size - 1)) for percent in PERCENTILES]
            low, high = np.partition(values, ranks)[ranks].tolist()
            ends.append((low, high) if low < high else (float(values.min()), float(values.max())))
        low, high = (_per_channel(end, self.channels) for end in zip(*ends, strict=True))
        return dataclasses.replace(self, low=low, high=high)

    def _scale(self, x: Tensor) -> Tensor:
        if self.low is not None and self.high is not None:
            low = x.new_tensor(self.low)[:, None]
            spread = x.new_tensor([end - start for start, end in zip(self.low, self.high, strict=True)])[:, None]
            return _to_unit(x.flatten(2), low, spread).reshape(x.shape)
        flat = x.flatten(1 if self.shares_range else 2)
        ranks = [1 + round(percent / 100 * (flat.shape[-1] - 1)) for percent in PERCENTILES]
        low, high = (flat.kthvalue(rank, dim=-1, keepdim=True).values for rank in ranks)
        low, high = (
            torch.where(low < high, low, flat.amin(-1, True)),
            torch.where(low < high, high, flat.amax(-1, True)),
        )
        return _to_unit(flat, low, high - low).reshape(x.shape)

    def _convert_channels(self, x: Tensor) -> Tensor:
        found = x.shape[1]
        if found == self.channels:
            return x
        if self.colour == "gray" and found == 3:
            weights = torch.tensor(LUMA, device=x.device).view(1, 3, *[1] * self.spatial_dims)
            return (x * weights).sum(dim=1, keepdim=True)
        if self.colour == "rgb" and found == 1:
            return x.expand(-1, 3, *x.shape[2:])
        raise self._wrong_channels(tuple(x.shape))

    def _wrong_channels(self, shape: tuple[int, ...]) -> InputError:
        """The sentence about a batch whose axis 1 has another length than the encoder has channels."""
        wanted = ", ".join(["B", str(self.channels), *"DHW"[3 - self.spatial_dims :]])
        told = f"expected {counted(self.channels, 'channel')} along axis 1, ({wanted}), got the shape {shape}"
        if self.spatial_dims and shape[-1] in ({self.channels} if self.colour == "auto" else {1, 3}):
            return InputError(
                f"{told}: where the channels are last, numpy.moveaxis(samples, -1, 1), of a tensor "
                "samples.movedim(-1, 1), puts them there"
            )
        between = self.colour == "auto" and {shape[1], self.channels} == {1, 3}
        return InputError(f"{told}{' (--channels=gray or rgb converts between 1 and 3)' if between else ''}")

    def resized(self, shape: tuple[int, ...], spacing: tuple[float, ...] | None) -> tuple[int, ...]:
        """The size to resample to before `centre` crops and pads."""
        if self.spacing is not None:
            if spacing is None:
                raise InputError("samples are resampled to a spacing here, but this one does not say its own")
            return tuple(max(1, round(n * s / self.spacing)) for n, s in zip(shape, spacing, strict=True))
        if self.crops:
            return shape
        if self.fit == "stretch":
            return self.size
        extents = [n * s for n, s in zip(shape, spacing or (1.0,) * len(shape), strict=True)]
        scale = min(target / extent for target, extent in zip(self.size, extents, strict=True))
        return tuple(max(1, round(extent * scale)) for extent in extents)

    def _spacings(self, spacing: Spacing | None, count: int) -> list[tuple[float, ...] | None]:
        """A row per sample from what a caller gave; None where nothing is known and nothing needs to be."""
        dims = self.spatial_dims
        if spacing is None or (isinstance(spacing, Sequence) and all(one is None for one in spacing)):
            if self.needs_spacing:
                raise InputError(
                    "the training samples were resized by their voxel spacing, so say that of these samples: "
                    f"spacing=({', '.join(['…'] * dims)}), millimetres along the array's axes, or one such tuple per "
                    f"sample{'' if self.spacing else ' (equal numbers: cubes)'}; icone.data.read_sample(path) gives a "
                    "file's array and spacing"
                )
            return [None] * count
        try:
            table = np.asarray(spacing, dtype=np.float64)
        except (TypeError, ValueError):
            table = np.zeros(0)
        if table.shape not in ((dims,), (count, dims)) or not (np.isfinite(table) & (table > 0)).all():
            raise InputError(
                f"spacing must be {dims} positive numbers, or {dims} for each of the {count} samples, got {spacing}"
            )
        return [tuple(row) for row in np.broadcast_to(table, (count, dims)).tolist()]


_KINDS = {0: "points (C,)", 2: "2D images (C, H, W)", 3: "volumes (C, D, H, W)"}


def _crop_edges(crop: int | tuple[int, ...], dims: int) -> tuple[int, ...]:
    """An edge for every axis, from one for all or one for each."""
    if dims == 0:
        raise InputError("--crop is for images and volumes, but these are points: leave it out")
    edges = (crop,) * dims if isinstance(crop, int) else crop if len(crop) > 1 else crop * dims
    if len(edges) != dims:
        raise InputError(f"--crop has {len(edges)} edges, but these are {_KINDS[dims]}: give 1 or {dims}")
    return edges


def _as_floats(samples: Tensor | Array) -> Tensor:
    """Any numbers as float32; black and white as 0 and 255, as readers give them."""
    if not isinstance(samples, (Tensor, np.ndarray)):
        raise InputError(
            f"expected an array or a tensor (B, C, *size), got the type {type(samples).__name__}: icone.embed and "
            "icone.predict take paths, lists and data sets"
        )
    if not isinstance(samples, Tensor):
        kind = np.bool_ if samples.dtype == np.bool_ else np.float32
        samples = torch.from_numpy(np.ascontiguousarray(samples, dtype=kind))
    return samples.float() * 255 if samples.dtype == torch.bool else samples.float()


def _per_channel(value: float | Sequence[float] | None, channels: int) -> tuple[float, ...] | None:
    """One value for each channel from one for all or one for each."""
    return None if value is None else tuple(np.broadcast_to(value, channels).tolist())


def _to_unit(x: Tensor, low: Tensor, spread: Tensor) -> Tensor:
    """[low, low + spread] as [0, 1]; what is constant becomes 0."""
    return ((x - low) / spread.clamp(min=torch.finfo(x.dtype).tiny)).clamp(0, 1)


Ends = float | Sequence[float] | None


def _intensity(facts: Sequence[Facts], config: DataConfig, shares_range: bool) -> tuple[Ends, Ends, str]:
    """The values that become 0 and 1, one for all channels or one for each, and the dtype to store."""
    mode = config.intensity
    if config.window is not None:
        return *config.window, "float32"
    if mode == "sample":
        return None, None, "float32"
    dtypes = sorted({fact.dtype for fact in facts})
    if mode == "range" or (mode == "auto" and dtypes == ["uint8"]):
        if len(dtypes) > 1 or np.dtype(dtypes[0]).kind not in "iu":
            raise InputError(f"--intensity=range needs one integer type, got {', '.join(dtypes)}; use percentile")
        limits = np.iinfo(dtypes[0])
        return float(limits.min), float(limits.max), dtypes[0]
    values = np.concatenate([f.values.reshape(1 if shares_range else len(f.values), -1) for f in facts], axis=1)
    lows = np.array([[min(f.low)] if shares_range else f.low for f in facts])
    highs = np.array([[max(f.high)] if shares_range else f.high for f in facts])
    some_missing = bool(np.isnan(lows).any())
    low, high = (np.nanpercentile if some_missing else np.percentile)(values, PERCENTILES, axis=1)
    sparse = low >= high  # almost all voxels are background: take the whole range instead
    low, high = np.where(sparse, np.nanmin(lows, axis=0), low), np.where(sparse, np.nanmax(highs, axis=0), high)
    if mode == "auto" and _typical_contrast(lows, highs, low, high) < MIN_CONTRAST:
        return None, None, "float32"
    return low.tolist(), high.tolist(), "float32"


def _typical_contrast(lows: Array, highs: Array, low: Array, high: Array) -> float:
    """The share of the range from low to high (C,) that the median sample spans, in the median channel.

    `lows` and `highs` (N, C) are the ends of every sample; channels that are constant tell nothing.
    """
    spans = np.nanmedian(np.clip(highs, low, high) - np.clip(lows, low, high), axis=0)
    alive = high > low
    return float(np.median(spans[alive] / (high - low)[alive])) if alive.any() else 1.0


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
