"""Random views, batched, on the device that trains; `build_views` picks the pipeline."""

from __future__ import annotations

from typing import cast

from icone.config import ViewsConfig
from icone.views.base import Views
from icone.views.crop_views import CropViews
from icone.views.custom import CustomViews, PlainViews
from icone.views.image import ImagePipeline
from icone.views.point import PointPipeline
from icone.views.volume import VolumePipeline

__all__ = [
    "CropViews",
    "CustomViews",
    "ImagePipeline",
    "PlainViews",
    "PointPipeline",
    "Views",
    "VolumePipeline",
    "build_views",
]


def build_views(
    config: ViewsConfig, *, spatial_dims: int, channels: int, size: tuple[int, ...], is_rgb: bool = True
) -> Views:
    """The pipeline for points (0 spatial dimensions), images (2) or volumes (3) of one size.

    `is_rgb` says whether three channels of an image are red, green and blue.

    >>> import torch
    >>> views = build_views(ViewsConfig(), spatial_dims=2, channels=1, size=(32, 32))
    >>> views(torch.zeros(4, 1, 32, 32, dtype=torch.uint8), 2).shape
    torch.Size([4, 2, 1, 32, 32])
    >>> views.describe()["left_out"]["hue"]
    'needs RGB, and the number of channels is 1'
    """
    assert len(size) == spatial_dims, f"{spatial_dims} spatial dimensions cannot have the size {size}"
    if spatial_dims == 0:
        return PointPipeline(config.point_views)
    if spatial_dims == 2:
        edges = cast(tuple[int, int], size)
        return ImagePipeline(config.image_views, channels=channels, size=edges, is_rgb=is_rgb)
    assert spatial_dims == 3, f"views exist for 0, 2 and 3 spatial dimensions, not {spatial_dims}"
    return VolumePipeline(config.volume_views, channels=channels, size=cast(tuple[int, int, int], size))
