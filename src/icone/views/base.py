"""What every pipeline of random views is, and the words in which it tells what it does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn

Part = tuple[int, int, int]
"""The samples of a batch that are this process's own: the first, the one after the last, and how many there are."""


class Views(nn.Module, ABC):
    """Turns stored samples into what the encoder sees: random views in training, a plain one in evaluation.

    Samples come as they are stored, uint8, int16 or float in [0, 1] (points: any float); views are float32.
    All randomness comes from the default generator of the samples' device, all parameters of a batch are
    drawn as tensors and nothing is read back, so that a step with views can be captured as a CUDA graph.
    """

    draws_first: ClassVar[bool] = False
    """Whether the pipeline has `draw` and `transform`, so that the views of a part of a batch can be made alone."""

    example_step: ClassVar[str] = ""
    """A flag that makes views differ."""

    def __init__(self) -> None:
        super().__init__()
        self._applied: dict[str, object] = {}
        self._left_out: dict[str, str] = {}

    def forward(self, images: Tensor, num_views: int, part: Part | None = None) -> Tensor:
        """Random views of every sample: (B, C, *size) -> (B, num_views, C, *size).

        With a `part` of a batch the result is the views of its samples, as they are among those of the whole batch.
        The images are then those of its samples where the pipeline `draws_first`, else of the whole batch.
        """
        images = images.repeat_interleave(num_views, dim=0)
        if part is not None and self.draws_first:
            views = self._augment_part(images, num_views, part)
            return views.reshape(-1, num_views, *views.shape[1:])
        views = self.augment(images)
        views = views.reshape(-1, num_views, *views.shape[1:])
        return views if part is None else views[part[0] : part[1]]

    def _augment_part(self, images: Tensor, num_views: int, part: Part) -> Tensor:
        """Draw the random parameters of the whole batch, and use those of the part."""
        pipeline: Any = self
        start, stop, count = (number * num_views for number in part)
        drawn = pipeline.draw(count, images.device)
        views: Tensor = pipeline.transform(images, type(drawn)(*(None if t is None else t[start:stop] for t in drawn)))
        return views

    def in_parts(self, images: Tensor, num_views: int, samples: int | None) -> Tensor:
        """The views of `forward`, made of so many samples at a time where a pipeline needs much memory beside them."""
        return cast(Tensor, self(images, num_views))

    @abstractmethod
    def augment(self, images: Tensor) -> Tensor:
        """One random view of every sample, (N, C, *size) -> (N, C, *size), each drawn on its own."""

    @abstractmethod
    def plain(self, images: Tensor) -> Tensor:
        """The deterministic view of evaluation: intensities as in training, nothing random."""

    @property
    def why_identical(self) -> str | None:
        """Why all views of a sample are the same, and what to change; None where they differ.

        A pipeline that tells no steps is taken for random.
        """
        if any(step != "normalise" for step in self._applied) or not self._left_out:
            return None
        return f"every random step of the views is switched off; turn one on again, for example {self.example_step}"

    @property
    def why_other_range(self) -> str | None:
        """Why views have other values in evaluation than in training; None where they have the same."""
        return None

    def describe(self) -> dict[str, object]:
        """The steps in the order of application with their parameters, and the others with the reason.

        {"applied": {step: {parameter: value}}, "left_out": {step: reason}}, ready for JSON.
        """
        return {"applied": dict(self._applied), "left_out": dict(self._left_out)}

    def _include(self, step: str, parameters: Mapping[str, object], obstacle: str | None = None) -> bool:
        """Note a step as applied, or as left out where there is an obstacle; says which of the two."""
        if obstacle is not None:
            self._left_out[step] = obstacle
        else:
            self._applied[step] = {
                name: list(value) if isinstance(value, tuple) else value for name, value in parameters.items()
            }
        return obstacle is None

    def _constant(self, name: str, value: Tensor) -> None:
        """Keep a tensor that moves with the module but is no state: it follows from the configuration."""
        self.register_buffer(name, value, persistent=False)


def unit_range(images: Tensor) -> Tensor:
    """Stored samples as float32: uint8 divided by 255, int16 from its lowest to its highest, floats as they are.

    >>> unit_range(torch.tensor([0, 51, 255], dtype=torch.uint8))
    tensor([0.0000, 0.2000, 1.0000])
    >>> unit_range(torch.tensor([-32768, 32767], dtype=torch.int16))
    tensor([0., 1.])
    """
    if images.dtype == torch.uint8:
        return images.float() / 255
    if images.dtype == torch.int16:
        return (images.float() + 32768) / 65535
    assert images.is_floating_point(), f"samples are stored as uint8, int16 or float, not {images.dtype}"
    return images.float()


def draw_uniform(columns: Mapping[str, int], count: int, device: torch.device) -> dict[str, Tensor]:
    """Numbers uniform in [0, 1), (count, columns) under each name, from one call of the generator.

    Steps that are left out get theirs too: a call is dearer than a number, and so the other steps of
    a pipeline draw the same numbers with and without it.
    """
    numbers = torch.rand(count, sum(columns.values()), device=device)
    return dict(zip(columns, torch.split(numbers, list(columns.values()), dim=1), strict=True))


def within(uniform: Tensor, low: float | Tensor, high: float | Tensor) -> Tensor:
    """Stretch numbers that are uniform in [0, 1) to [low, high)."""
    return low + uniform * (high - low)


def switched_off(value: float, neutral: float = 0.0) -> str | None:
    """The obstacle of a step whose probability or strength has the value that does nothing."""
    return f"set to {neutral:g}" if value == neutral else None
