"""What a person can choose about an experiment; left open, all but the recipe is as in the paper."""

from __future__ import annotations

import dataclasses
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from icone.validation import check_settings


@dataclass(frozen=True, kw_only=True)
class Options:
    """Restrict or change the grid of an experiment.

    By default data sets, methods, batch sizes, seeds, epochs and networks are the paper's, and the recipe is not: that
    needs `--recipe paper`.
    """

    datasets: tuple[str, ...] = ()
    """MedMNIST names (`adrenalmnist3d`, or with a size `breastmnist@28`), folders, array files or `synthetic:NAME`."""
    methods: tuple[str, ...] = ()
    """Names from `icone methods`."""
    batch_sizes: tuple[int, ...] = ()
    seeds: int | None = None
    """Number of training seeds (the paper's 5; 20 for the synthetic study)."""
    epochs: int | None = None
    """Epochs (the paper's 100; 300 for the synthetic study)."""
    subset: int | None = None
    """Samples drawn from every 2D set (default: 5000, the largest of the paper's four sizes; it does not say which its
    2D figures show)."""
    encoder: str = "auto"
    """Another encoder than the paper's, for quick trials."""
    width: float = 1.0
    """Multiplies the channels of the 3D networks."""
    features: int | None = None
    size: int | None = None
    """Edge length in pixels or voxels."""
    lr: float | None = None
    """Learning rate (the paper's 1e-4; 1e-3 for the synthetic study)."""
    recipe: Literal["icone", "paper"] = "icone"
    """icone: optimizer and objective of this package, which the paper did not run; paper: as it prints them. The
    synthetic study always runs as printed."""
    data_root: Path | None = None
    """Folder that holds the MedMNIST files."""
    natural_images: Path | None = None
    """Folder of 20 classes or more for the experiment `natural-images` (default: the first folder of --datasets)."""
    labels: Path | None = None
    """CSV with labels, for folders whose subfolders are not classes."""
    smoke: bool = False
    """The experiment in miniature on generated data: minutes on a CPU, and numbers that mean nothing."""

    def __post_init__(self) -> None:
        check_settings(self)

    def to_json(self) -> dict[str, Any]:
        return {
            name: str(value) if isinstance(value, Path) else value for name, value in dataclasses.asdict(self).items()
        }

    def changed(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        default = Options()
        names = (f.name for f in dataclasses.fields(Options))
        return {name: getattr(self, name) for name in names if getattr(self, name) != getattr(default, name)}

    def words(self) -> list[str]:
        """The words of the command line that give these options.

        >>> Options(datasets=("a", "b"), seeds=2, smoke=True).words()
        ['--datasets', 'a', 'b', '--seeds', '2', '--smoke']
        """
        words: list[str] = []
        for name, value in self.changed().items():
            flag = f"--{name.replace('_', '-')}"
            values = () if value is True else value if isinstance(value, tuple) else (value,)
            words += [flag, *map(str, values)]
        return words


def options_from_json(plain: dict[str, Any]) -> Options:
    """The inverse of `Options.to_json`; options that this version does not know are left out."""
    hints = typing.get_type_hints(Options)
    values = {name: value for name, value in plain.items() if name in hints}
    for name in ("datasets", "methods", "batch_sizes"):
        values[name] = tuple(values.get(name, ()))
    for name in ("data_root", "labels", "natural_images"):
        values[name] = Path(values[name]) if values.get(name) else None
    return Options(**values)
