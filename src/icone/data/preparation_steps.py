"""The preparation of samples in words, for programs that have to do it without this package."""

from __future__ import annotations

from icone.data.prepare import LUMA, PERCENTILES, Preparation


def preparation_steps(preparation: Preparation) -> list[str]:
    """What `Preparation.batch` does with raw samples (B, C, *spatial), step by step; nothing for points.

    >>> volumes = Preparation(spatial_dims=3, channels=1, size=(64, 64, 64), fit="pad", spacing=None, low=(0.0,),
    ...                       high=(900.0,), dtype="float32")
    >>> for step in preparation_steps(volumes): print(step.split(", ")[0])
    low
    x = clip((x - low) / (high - low)
    resample until the sample in millimetres fits into 64 x 64 x 64
    resampling is separable and linear
    pad with 0 to 64 x 64 x 64
    """
    if preparation.spatial_dims == 0:
        return []
    return [
        *_channels(preparation),
        *_intensities(preparation),
        *_resampling(preparation),
        *(["round to multiples of 1/255"] if preparation.dtype == "uint8" else []),
    ]


def _channels(preparation: Preparation) -> list[str]:
    if preparation.colour == "gray":
        weights = " + ".join(f"{weight:g} {channel}" for weight, channel in zip(LUMA, "RGB", strict=True))
        return [f"where there are three channels, make one of them: {weights}"]
    if preparation.colour == "rgb":
        return ["where there is one channel, make three equal ones"]
    return []


def _intensities(preparation: Preparation) -> list[str]:
    if preparation.low is None or preparation.high is None:
        low, high = PERCENTILES
        part = "all channels" if preparation.shares_range else "each channel"
        where = f"the {low:g} and {high:g} percentiles of {part} of the sample"
        ends = f"low, high = {where}; its smallest and largest where they are equal"
    else:
        ends = f"low, high = {list(preparation.low)}, {list(preparation.high)}, for each channel"
    return [ends, "x = clip((x - low) / (high - low), 0, 1)"]


def _resampling(preparation: Preparation) -> list[str]:
    edges = " x ".join(map(str, preparation.size))
    how = (
        "resampling is separable and linear, with half-pixel centres; along an axis that shrinks by f, weights fall "
        "linearly to 0 at f pixels from the centre and add up to 1 (torch: interpolate with antialias=True)"
    )
    rounded = "edges rounded to the nearest whole number, halves to even, and 1 at least"
    if preparation.crops:
        windows = f"take windows of {edges} that cover the sample, and the mean of their outputs"
        if preparation.spacing is None:
            return [windows]
        return [f"resample to voxels of {preparation.spacing:g} mm, {rounded}", how, windows]
    if preparation.spacing is not None:
        centred = "centred; of an odd number of pixels one more is padded after, or cut before"
        return [
            f"resample to voxels of {preparation.spacing:g} mm, {rounded}",
            how,
            f"cut or pad with 0 to {edges}, {centred}",
        ]
    if preparation.fit == "stretch":
        return [f"resample to {edges}", how]
    return [
        f"resample until the sample in millimetres fits into {edges}, {rounded}",
        how,
        f"pad with 0 to {edges}, centred; of an odd number of pixels one more is padded after",
    ]
