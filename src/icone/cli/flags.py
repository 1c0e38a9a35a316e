"""Flags that several verbs have, and how they become keyword arguments."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class Verb:
    """What every verb has."""

    debug: bool = False
    """Show the traceback of an error."""

    def __post_init__(self) -> None:
        """Nothing is checked while flags are parsed: what a verb calls does it, and its errors look like all others."""


@dataclass(frozen=True, kw_only=True)
class ConfigFlags(Verb):
    """Settings from a file, for verbs that take those of `icone pretrain`."""

    config: Path | None = None
    """A TOML file with settings, such as config.toml of a run; flags of the command line win."""


@dataclass(frozen=True, kw_only=True)
class FilesFlags(Verb):
    """Where files of data sets with a name are."""

    data_root: Path | None = None
    """Folder that holds the MedMNIST files."""


@dataclass(frozen=True, kw_only=True)
class RunDataFlags(FilesFlags):
    """Where the data of a run is."""

    data: str | None = None
    """Where the data of the run lies now, if it was moved."""


@dataclass(frozen=True, kw_only=True)
class ComputeFlags(Verb):
    """Where features are computed, and what keeps prepared samples."""

    device: str = "auto"
    """`cpu`, `cuda`, `cuda:1`, …; auto: CUDA where there is one."""
    cache: str | None = None
    """Folder that keeps prepared samples, or `off` (default: the user's own, or off if the run was trained so)."""


@dataclass(frozen=True, kw_only=True)
class InferenceFlags(FilesFlags, ComputeFlags):
    """How samples pass through a trained network."""

    skip_unreadable: bool = False
    """Leave out files that cannot be read, and list them."""
    batch_size: int | None = None
    """Samples that pass through the network at a time (default: 16, fewer where samples are large)."""


@dataclass(frozen=True, kw_only=True)
class LabelFlags(RunDataFlags, ComputeFlags):
    """Labels, test samples and data of a run that is evaluated or fine-tuned."""

    labels: Path | None = None
    """CSV with a column of file names or ids and a column `label` (default: those of the run or its source); samples
    without a row take no part."""
    label_column: tuple[str, ...] = ()
    """Column of the labels; several hold 0 or 1 each (multi-label)."""
    group_column: str | None = None
    """Column with the group of every sample (patient, well, embryo), which no split parts and intervals draw whole."""
    task: Literal["auto", "classification", "regression", "multilabel"] = "auto"
    """What the labels are; auto: by their values, which is said."""
    test: str | None = None
    """An external test set, a folder or file like SOURCE of `icone pretrain`: what is trained on the run's data is
    tested on it."""
    test_labels: Path | None = None
    """CSV with the labels of the external test set (default: those it brings)."""
    official_test: bool = False
    """Test on the source's official test split."""
    test_fraction: float = 0.2
    """Share of the labelled samples that tests where the run held out nothing."""


def settings_of(command: Any, *left_out: str) -> dict[str, Any]:
    """The fields of a verb as keyword arguments, without `debug` and those named."""
    names = [field.name for field in dataclasses.fields(command)]
    return {name: getattr(command, name) for name in names if name not in ("debug", *left_out)}
