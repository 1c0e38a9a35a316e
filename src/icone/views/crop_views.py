"""Views of crops that were read from the disk, one for each view."""

from __future__ import annotations

from typing import cast

from torch import Tensor

from icone.views.base import Part, Views


class CropViews(Views):
    """Random views of crops: (B, V, C, *size) -> (B, V, C, *size), each crop by a pipeline that changes no places.

    The pipeline flips, turns and changes intensities as it does for whole samples, with the same random numbers.
    """

    def __init__(self, pipeline: Views, overlap: float) -> None:
        super().__init__()
        self.pipeline, self.overlap = pipeline, overlap
        self.draws_first = pipeline.draws_first  # type: ignore[misc]

    def forward(self, images: Tensor, num_views: int, part: Part | None = None) -> Tensor:
        """One view of every crop; with a `part` those of its samples, as in `Views.forward`."""
        own = None if part is None else (part[0] * num_views, part[1] * num_views, part[2] * num_views)
        return self._each(self.pipeline(self._flat(images, num_views), 1, own), num_views)

    def in_parts(self, images: Tensor, num_views: int, samples: int | None) -> Tensor:
        """The same views, made of so many samples at a time."""
        at_once = None if samples is None else samples * num_views
        return self._each(self.pipeline.in_parts(self._flat(images, num_views), 1, at_once), num_views)

    def augment(self, images: Tensor) -> Tensor:
        """One random view of every crop (N, C, *size)."""
        return self.pipeline.augment(images)

    def plain(self, images: Tensor) -> Tensor:
        """Crops (N, C, *size) as evaluation sees them."""
        return self.pipeline.plain(images)

    def describe(self) -> dict[str, object]:
        """The steps of the pipeline, after the crop from the disk."""
        steps = self.pipeline.describe()
        applied = cast(dict[str, object], steps["applied"])
        return {**steps, "applied": {"read_crop": {"overlap": self.overlap}, **applied}}

    @property
    def why_identical(self) -> str | None:
        """None: the crops of a sample are drawn at random."""
        return None

    @property
    def why_other_range(self) -> str | None:
        """What the pipeline says."""
        return self.pipeline.why_other_range

    def _flat(self, images: Tensor, num_views: int) -> Tensor:
        assert images.shape[1] == num_views, f"{images.shape[1]} crops of a sample are no {num_views} views"
        return images.flatten(0, 1)

    def _each(self, views: Tensor, num_views: int) -> Tensor:
        return views.reshape(-1, num_views, *views.shape[2:])
