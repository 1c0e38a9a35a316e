"""What every export has: the trained network, what goes into it, and a description from which it is read back."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from icone.api.build import WITH_PLAIN
from icone.config import is_object
from icone.data import Preparation
from icone.encoders import adopt_encoder, build_encoder
from icone.errors import InputError
from icone.evaluation.features import FrozenEncoder
from icone.run import Run
from icone.validation import check_folder
from icone.views import CropViews, PlainViews, Views

DESCRIPTION_VERSION = 1
NORMALISED = "float32 samples in [0, 1], prepared as `preparation` says, then (x - mean) / std for every channel"
UNIT = "float32 samples in [0, 1], prepared as `preparation` says"


class NormalisedViews(PlainViews):
    """The deterministic view of a run without its random ones: (x − mean) / std for every channel."""

    mean: Tensor
    std: Tensor

    def __init__(self, mean: list[float], std: list[float], dims: int) -> None:
        super().__init__()
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).reshape(-1, *[1] * dims))

    def plain(self, images: Tensor) -> Tensor:
        """The samples, normalised."""
        return (super().plain(images) - self.mean) / self.std


class WithNormalisation(nn.Module):
    """Normalisation and network in one, for formats that hold a whole computation: [0, 1] in, features out."""

    def __init__(self, network: nn.Module, views: Views) -> None:
        super().__init__()
        self.network, self.views = network, views

    def forward(self, samples: Tensor) -> Tensor:
        return self.network(self.views.plain(samples))  # type: ignore[no-any-return]


@dataclass(frozen=True, kw_only=True)
class Export:
    """A trained encoder on its way out of a run."""

    run: Run
    network: nn.Module
    preparation: Preparation
    views: Views
    """Its `plain` is what the network was trained to see."""
    licence: str

    @property
    def name(self) -> str:
        """The name of the encoder, as `build_encoder` knows it."""
        return self.run.config.encoder

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels and size of one sample."""
        return (self.preparation.channels, *self.preparation.size)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `build_encoder`."""
        config = self.run.config
        return {
            "name": config.encoder,
            "in_channels": self.preparation.channels,
            "spatial_dims": self.preparation.spatial_dims,
            "size": list(self.preparation.size),
            "norm": config.norm,
            "width": config.width,
            "features": config.features,
        }

    def normalisation(self) -> dict[str, list[float]]:
        """`mean` and `std` of every channel; nothing where samples stay in [0, 1]."""
        if not isinstance(self.views, NormalisedViews):
            return {}
        return {name: getattr(self.views, name).flatten().tolist() for name in ("mean", "std")}

    def description(self, kind: str, *, takes_unit: bool = False) -> dict[str, Any]:
        """What `from_export` needs, as JSON; `takes_unit` where the normalisation is part of what is written."""
        return {
            "kind": kind,
            "version": DESCRIPTION_VERSION,
            "encoder": self.arguments,
            "num_features": int(self.run.record["encoder"]["num_features"]),
            "input": UNIT if takes_unit or not self.normalisation() else NORMALISED,
            "normalisation": {} if takes_unit else self.normalisation(),
            "preparation": self.preparation.to_json(),
        }

    def example(self, batch: int) -> Tensor:
        """Random samples as the network's first layer takes them, before normalisation."""
        return torch.rand(batch, *self.shape, generator=torch.Generator().manual_seed(0))


def begin_export(run: Run, frozen: FrozenEncoder, licence: str) -> Export:
    """The parts of an export; views that are Python code have no place in any format."""
    if run.config.pipeline.endswith(WITH_PLAIN) and is_object(run.config.pipeline):
        raise InputError(f"the views of {run.folder} have a function `plain` of their own, which no format can hold")
    views: Views = PlainViews()
    own = frozen.views.pipeline if isinstance(frozen.views, CropViews) else frozen.views
    mean, std = (getattr(own, name, None) for name in ("mean", "std"))
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        views = NormalisedViews(mean.flatten().tolist(), std.flatten().tolist(), len(frozen.preparation.size))
    return Export(run=run, network=frozen.encoder, preparation=frozen.preparation, views=views, licence=licence)


def read_back(
    description: dict[str, Any], network: nn.Module | None = None, *, given: nn.Module | None = None
) -> FrozenEncoder:
    """A frozen encoder from a description: with this network, a copy of a user's, or the one that it names, new."""
    try:
        if description["version"] != DESCRIPTION_VERSION:
            raise InputError(f"it is of version {description['version']}, and this is {DESCRIPTION_VERSION}")
        preparation = Preparation.from_json(description["preparation"])
        arguments = {**description["encoder"], "size": tuple(description["encoder"]["size"])}
        normalisation = description["normalisation"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the description of the export cannot be used: {error}") from error
    if network is None and given is not None:
        network = adopt_encoder(given, in_channels=preparation.channels, size=preparation.size)
    if network is None:
        if is_object(arguments["name"]):
            raise InputError(f"the encoder was a Python object ({arguments['name']}): give it again, encoder=…")
        network = build_encoder(**arguments)
    views = NormalisedViews(**normalisation, dims=len(preparation.size)) if normalisation else PlainViews()
    return FrozenEncoder(network, preparation, views)


@contextmanager
def new_folder(target: Path) -> Iterator[Path]:
    """A folder that appears under its name when it is complete."""
    check_folder(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise InputError(f"{target} is there already: choose another --out")
    temporary = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    temporary.mkdir(parents=True)
    try:
        yield temporary
        if target.is_dir():
            target.rmdir()
        temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def description_file(path: Path) -> Path:
    """Where the description of a file lies."""
    return path.with_name(path.name + ".json")
