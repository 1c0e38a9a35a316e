"""What a person can choose about an experiment; left open, all but the recipe is as in the paper."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from icone.config_text import setting_words
from icone.errors import InputError
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
    """Samples per step."""
    per: tuple[str, ...] = ()
    """Seeds and epochs of single experiments, before --seeds and --epochs: `synthetic.seeds=3 views.epochs=50`."""
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
    """Size of the representation where the network leaves it open."""
    size: int | None = None
    """Edge length in pixels or voxels."""
    lr: float | None = None
    """Learning rate (the paper's 1e-4; 1e-3 for the synthetic study)."""
    options: tuple[str, ...] = ()
    """Settings of methods as METHOD.name=value, for example `simclr.temperature=0.2`; without METHOD, of all methods
    that know the name."""
    views: int | None = None
    """Views per sample (the paper's 2; the experiment `views` has its own)."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the encoder; auto: bf16 on a GPU."""
    channels: Literal["auto", "gray", "rgb"] = "auto"
    """rgb: gray sets as three channels, so that one encoder and one colour jitter serve all sets."""
    norm: Literal["batch", "group", "instance"] = "batch"
    """Normalisation layer of the 3D networks."""
    split_seed: int = 0
    """Seed of subset, partition and imbalance."""
    official_test: bool = False
    """Train on the official training split, all of it, and test the probes on the official test split."""
    ratios: tuple[float, ...] = ()
    """Imbalance ratios k (default: 1, 2, 5, 10, 20 and 50; the paper's are in a picture only)."""
    geometry_instances: int | None = None
    """Samples that LiDAR and alignment look at (default: 256; with --recipe paper 1024, more than dimensions)."""
    skip_unreadable: bool = False
    """Leave out files that cannot be read, hold NaN or are constant."""
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
        return {name: str(v) if isinstance(v, Path) else v for name, v in dataclasses.asdict(self).items()}

    def of(self, experiment: str) -> Options:
        """The options of one experiment: what `per` says about it, instead of what is said about all.

        >>> Options(seeds=5, per=("views.seeds=2",)).of("views").seeds
        2
        """
        changes: dict[str, Any] = {}
        for text in self.per:
            match = re.fullmatch(r"([^.=]+)\.(seeds|epochs)=(\d+)", text)
            if match is None:
                raise InputError(f"--per must be EXPERIMENT.seeds=N or EXPERIMENT.epochs=N, got {text}")
            if match[1] == experiment:
                changes[match[2]] = int(match[3])
        return dataclasses.replace(self, **changes) if changes else self

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
        return setting_words(self, Options())


def options_from_json(plain: dict[str, Any]) -> Options:
    """The inverse of `Options.to_json`; options that this version does not know are left out."""
    known = {f.name for f in dataclasses.fields(Options)}
    return Options(**{name: value for name, value in plain.items() if name in known})
