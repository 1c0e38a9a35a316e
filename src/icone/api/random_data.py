"""Random samples in the place of a data set, of the same shapes: for steps that are only measured or compiled."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch

from icone.data import Data, Dataset, Preparation, Summary


class DataShape(NamedTuple):
    """What a step depends on of the data that it is trained on."""

    preparation: Preparation
    samples: int
    classes: int = 0
    """Classes of the labels; 0 where a sample has none."""

    @classmethod
    def of(cls, train: Dataset) -> DataShape:
        return cls(train.preparation, len(train), len(train.class_names) if (train.labels >= 0).all() else 0)

    @classmethod
    def expected(cls, summary: Summary, preparation: Preparation) -> DataShape:
        """That of data that was looked at only."""
        classes = summary.classes if summary.task == "classification" else {}
        labelled = sum(classes.values()) == summary.samples
        return cls(preparation, summary.splits["train"], len(classes) if labelled else 0)

    def to_json(self) -> dict[str, Any]:
        """A plain dictionary that JSON can hold; `from_json` is its inverse."""
        return {**self._asdict(), "preparation": self.preparation.to_json()}

    @classmethod
    def from_json(cls, plain: dict[str, Any]) -> DataShape:
        return cls(**{**plain, "preparation": Preparation.from_json(plain["preparation"])})

    @property
    def nbytes(self) -> int:
        """Memory that all prepared samples take."""
        return self.samples * self.preparation.nbytes

    def random(self, device: torch.device) -> Data:
        """Data of this shape; on this device all samples are one, which takes no memory to speak of."""
        samples = cast(Dataset, _RandomSamples(self, device))
        nothing: Any = None
        return Data(
            source=nothing,
            preparation=self.preparation,
            train=samples,
            test=None,
            skipped=[],
            notes=[],
            summary=nothing,
        )


class _RandomSamples:
    """Stands in for a `Dataset`."""

    def __init__(self, shape: DataShape, device: torch.device) -> None:
        self.preparation = shape.preparation
        one = torch.rand(1, shape.preparation.channels, *shape.preparation.size)
        one = (one * 255).to(torch.uint8) if shape.preparation.dtype == "uint8" else one
        self.images = one.to(device).expand(shape.samples, *one.shape[1:])
        labels = torch.arange(shape.samples)
        self.labels = labels % shape.classes if shape.classes else torch.full_like(labels, -1)
        self.class_names = tuple(map(str, range(shape.classes)))

    def __len__(self) -> int:
        return len(self.labels)
