"""What every export has: the trained network, what goes into it, and a description from which it is read back."""

from __future__ import annotations

import copy
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
from icone.api.predict import FineTuned
from icone.config import PretrainConfig, is_object
from icone.data import Preparation
from icone.data.preparation_steps import preparation_steps
from icone.encoders import adopt_encoder, build_encoder
from icone.errors import InputError, one_line
from icone.evaluation.features import FrozenEncoder
from icone.finetuning.classifier import Classifier
from icone.finetuning.label_code import LabelCode
from icone.run import Run
from icone.validation import check_folder
from icone.views import CropViews, PlainViews, Views

DESCRIPTION_VERSION = 2
READABLE_VERSIONS = (1, 2)
"""Version 1 had the number of outputs under `num_features`, and no names of axes."""
NORMALISED = "in [0, 1], prepared as `preparation_steps` says, then (x - mean) / std for every channel"
UNIT = "in [0, 1], prepared as `preparation_steps` says"
AXES = {
    2: {
        "H": "rows of an image, from top to bottom; X of a NIfTI image of two axes",
        "W": "columns of an image, from left to right; Y of a NIfTI image of two axes",
    },
    3: {
        "D": "first axis of a volume: slices of DICOM; Z of TIFF, OME-Zarr, HDF5 and arrays; X, towards the right of "
        "the patient, of NIfTI, NRRD, MHA and MHD",
        "H": "second axis of a volume: rows of DICOM; Y of TIFF, OME-Zarr, HDF5 and arrays; Y, towards anterior, of "
        "NIfTI, NRRD, MHA and MHD",
        "W": "third axis of a volume: columns of DICOM; X of TIFF, OME-Zarr, HDF5 and arrays; Z, towards superior, of "
        "NIfTI, NRRD, MHA and MHD",
    },
}
"""What the spatial axes of the input are in the files that were trained on: those of `icone.data.read_sample`."""


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


class Answering(nn.Module):
    """A fine-tuned network whose outputs are what `icone predict` says: (B, names) probabilities, or (B, 1) numbers."""

    def __init__(self, classifier: Classifier, code: LabelCode) -> None:
        super().__init__()
        self.classifier, self.code = classifier, code

    def forward(self, samples: Tensor) -> Tensor:
        return self.code.answers(self.classifier(samples))


@dataclass(frozen=True, kw_only=True)
class Export:
    """A trained network on its way out of a run."""

    run: Run
    config: PretrainConfig
    """Of the pretraining."""
    network: nn.Module
    outputs: int
    """Numbers that the network gives for a sample: features, or the answers of a fine-tuned network."""
    preparation: Preparation
    views: Views
    """Its `plain` is what the network was trained to see."""
    licence: str
    answers: dict[str, Any] | None = None
    """What the outputs of a fine-tuned network mean: `task`, and the `names` of classes or labels in their order."""

    @property
    def name(self) -> str:
        """The name of the encoder, as `build_encoder` knows it."""
        return self.config.encoder

    @property
    def output_name(self) -> str:
        """What the outputs are."""
        if self.answers is None:
            return "features"
        return "numbers" if self.answers["task"] == "regression" else "probabilities"

    @property
    def shape(self) -> tuple[int, ...]:
        """Channels and size of one sample."""
        return (self.preparation.channels, *self.preparation.size)

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of `build_encoder`."""
        config = self.config
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
            "input": self._input(UNIT if takes_unit or not self.normalisation() else NORMALISED),
            "output": {
                "kind": self.output_name,
                "axes": f"N, {self.output_name}",
                "shape": ["N", self.outputs],
                **(self.answers or {}),
            },
            "normalisation": {} if takes_unit else self.normalisation(),
            "preparation": self.preparation_json(),
            "preparation_steps": preparation_steps(self.preparation),
        }

    def _input(self, values: str) -> dict[str, Any]:
        """What the network takes: type, values, and every axis in words."""
        spatial = AXES[self.preparation.spatial_dims]
        channels = self.preparation.channels
        meaning = "the only channel" if channels == 1 else f"{channels} channels, in the order of the training data"
        if channels == 3 and self.preparation.is_rgb:
            meaning = "red, green, blue"
        return {
            "type": "float32",
            "values": values,
            "axes": ", ".join(["N", "C", *spatial]),
            "shape": ["N", *self.shape],
            "meaning": {"N": "samples, any number of them", "C": meaning, **spatial},
        }

    def preparation_json(self) -> dict[str, Any]:
        """The preparation without what only random views read."""
        return {name: value for name, value in self.preparation.to_json().items() if name != "is_rgb"}

    def example(self, batch: int) -> Tensor:
        """Random samples as the network's first layer takes them, before normalisation."""
        return torch.rand(batch, *self.shape, generator=torch.Generator().manual_seed(0))


def begin_export(run: Run, frozen: FrozenEncoder, licence: str) -> Export:
    """The parts of an export of features."""
    return Export(
        run=run,
        config=run.config,
        network=frozen.encoder,
        outputs=int(run.record["encoder"]["num_features"]),
        preparation=frozen.preparation,
        views=_plain_part(frozen.views, run.config, run.folder, len(frozen.preparation.size)),
        licence=licence,
    )


def begin_classifier_export(tuned: FineTuned, licence: str) -> Export:
    """The parts of an export of answers: probabilities, or numbers in the units of the labels."""
    if tuned.preparation.crops:
        raise InputError(
            f"{tuned.folder} answers by the mean over windows of a sample (--crop), which no program of one window can "
            "hold: use icone predict"
        )
    return Export(
        run=Run(tuned.folder),
        config=tuned.config,
        network=Answering(copy.deepcopy(tuned.classifier).cpu(), tuned.code),
        outputs=tuned.code.outputs,
        preparation=tuned.preparation,
        views=_plain_part(tuned.views, tuned.config, tuned.folder, len(tuned.preparation.size)),
        licence=licence,
        answers={"task": tuned.code.task, "names": list(tuned.code.names)},
    )


def _plain_part(views: Views, config: PretrainConfig, folder: Path, dims: int) -> Views:
    """The deterministic part of a run's views; those that are Python code have no place in any format."""
    if config.pipeline.endswith(WITH_PLAIN) and is_object(config.pipeline):
        raise InputError(f"the views of {folder} have a function `plain` of their own, which no format can hold")
    own = views.pipeline if isinstance(views, CropViews) else views
    mean, std = (getattr(own, name, None) for name in ("mean", "std"))
    if isinstance(mean, Tensor) and isinstance(std, Tensor):
        return NormalisedViews(mean.flatten().tolist(), std.flatten().tolist(), dims)
    return PlainViews()


def read_back(
    description: dict[str, Any], network: nn.Module | None = None, *, given: nn.Module | None = None
) -> FrozenEncoder:
    """A frozen encoder from a description: with this network, a copy of a user's, or the one that it names, new."""
    try:
        preparation = Preparation.from_json(description["preparation"])
        arguments = {**description["encoder"], "size": tuple(description["encoder"]["size"])}
        normalisation = description["normalisation"]
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the description of the export cannot be used: {one_line(error)}") from error
    if network is None and given is not None:
        network = adopt_encoder(given, in_channels=preparation.channels, size=preparation.size)
    if network is None:
        if is_object(arguments["name"]):
            raise InputError(f"the encoder was a Python object ({arguments['name']}): give it again, encoder=…")
        network = build_encoder(**arguments)
    views = NormalisedViews(**normalisation, dims=len(preparation.size)) if normalisation else PlainViews()
    return FrozenEncoder(network, preparation, views)


def num_outputs(description: dict[str, Any]) -> int:
    """Numbers that the network of a description gives for a sample."""
    try:
        return int(description["num_features"] if description["version"] == 1 else description["output"]["shape"][1])
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InputError(f"the description of the export cannot be used: {one_line(error)}") from error


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
