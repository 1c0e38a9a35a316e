"""What the grids of several experiments share: from options to runs."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from icone.config import PretrainConfig
from icone.errors import InputError, unknown_name
from icone.methods import METHODS, method_class, method_options, option_texts
from icone.paper.datasets import PaperDataset, datasets, find_dataset
from icone.paper.options import Options
from icone.paper.spec import Cell, RunSpec
from icone.recipe import WARMUP

Number = TypeVar("Number", int, float)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
AS_PRINTED_INSTANCES = 1024
"""LiDAR of n samples is at most n − 1."""
SMOKE_ENCODER: dict[int, dict[str, Any]] = {
    2: {"encoder": "test_vit"},
    3: {"encoder": "resnet10_3d", "norm": "group", "width": 0.125, "features": 32},
}


def whole_grid(options: Options, *dimensions: int) -> list[Cell]:
    """Every method at every batch size on all sets of these dimensions: the grid that several experiments share."""
    return [cell for dims in dimensions for cell in _cached_grid(options, dims, tuple(datasets(options, dims)))]


@functools.lru_cache(4)
def _cached_grid(options: Options, dims: int, sets: tuple[PaperDataset, ...]) -> tuple[Cell, ...]:
    """The grid, described once; a set whose contents have changed is another set."""
    return tuple(method_grid(options, dims, sets=sets))


def method_grid(
    options: Options,
    dims: int,
    sizes: tuple[int, ...] = BATCH_SIZES,
    sets: Iterable[PaperDataset] | None = None,
    more: dict[str, Any] | None = None,
) -> Iterator[Cell]:
    """Every method at every batch size, on the sets of this dimension or on those given."""
    for data in datasets(options, dims) if sets is None else sets:
        for method in chosen_methods(options):
            for size in batch_sizes(options, sizes):
                for seed in seeds(options):
                    yield make_cell(options, data, method, size, seed, more)


def few_datasets(options: Options, dims: int) -> list[PaperDataset]:
    """The data sets; of the miniature's only the first, which is enough to see that an experiment works."""
    return datasets(options, dims)[: 1 if options.smoke else None]


def variant_grid(
    options: Options,
    sets: Iterable[PaperDataset],
    variants: Iterable[tuple[object, dict[str, Any]]],
    sizes: tuple[int, ...] = BATCH_SIZES[:-1],
) -> list[Cell]:
    """IConE in several variants, (title, changes of its configuration) each, at every batch size, in miniature too."""
    variants, options = list(variants), with_few_seeds(options)
    return [
        make_cell(options, data, "icone", size, seed, {"variant": title}, **changes)
        for data in sets
        for title, changes in variants
        for size in options.batch_sizes or sizes
        for seed in seeds(options)
    ]


def make_cell(
    options: Options,
    data: PaperDataset,
    method: str,
    batch_size: int,
    seed: int,
    more: dict[str, Any] | None = None,
    *,
    extra: tuple[str, ...] = (),
    **changes: Any,
) -> Cell:
    labels = {
        "dataset": data.title, "dims": data.dims, "method": method_class(method).title, "batch_size": batch_size,
        "seed": seed, "samples": data.samples,
    }  # fmt: skip
    network = SMOKE_ENCODER[data.dims] if options.smoke else {}
    settings: dict[str, Any] = {
        "source": data.source,
        "subset": data.subset,
        "test_fraction": 0.0 if options.official_test else 0.2,
        "labels": None if options.labels is None else options.labels.resolve(),
        "size": options.size,
        "encoder": options.encoder,
        "width": options.width if data.dims == 3 else 1.0,
        "features": options.features,
        "epochs": given(options.epochs, 1 if options.smoke else 100),
        "lr": given(options.lr, 1e-4),
        "recipe": options.recipe,
        "warmup": None if options.recipe == "paper" else WARMUP,
        "views": given(options.views, 2),
        "precision": options.precision,
        "channels": options.channels if data.dims == 2 else "auto",
        "norm": options.norm if data.dims == 3 else "batch",
        "split_seed": options.split_seed,
        "skip_unreadable": options.skip_unreadable,
        **network,
        **changes,
    }
    config = PretrainConfig(
        **settings,
        method=method,
        options=_method_options(method, options, extra),
        batch_size=batch_size,
        seed=seed,
        data_root=options.data_root,
    )
    spec = RunSpec(config=config, geometry_instances=_geometry_instances(options), contents=data.contents,
                   official_test=options.official_test)  # fmt: skip
    return Cell(spec, {**labels, **(more or {})})


def _geometry_instances(options: Options) -> int:
    """Samples that LiDAR and alignment look at; as printed, more than there are dimensions (384 and 512)."""
    usual = 12 if options.smoke else AS_PRINTED_INSTANCES if options.recipe == "paper" else 256
    return given(options.geometry_instances, usual)


def _method_options(method: str, options: Options, extra: tuple[str, ...]) -> tuple[str, ...]:
    small = option_texts(method_class(method).small_options) if options.smoke else ()
    return (*small, *chosen_settings(method, options.options), *extra)


def chosen_settings(method: str, options: Iterable[str]) -> tuple[str, ...]:
    """Of `METHOD.name=value` and `name=value`, what is for this method: without METHOD, where it knows the name.

    >>> chosen_settings("simclr", ["simclr.temperature=0.2", "moco.momentum=0.9", "hidden=64"])
    ('temperature=0.2', 'hidden=64')
    """
    chosen = []
    for text in options:
        name = text.partition("=")[0]
        owner, dot, _ = name.partition(".")
        if dot:
            method_class(owner)  # an unknown name is an error
            chosen += [text.partition(".")[2]] if owner == method else []
        elif not any(name in method_options(known) for known in METHODS):
            raise unknown_name("option", name, {key for known in METHODS for key in method_options(known)})
        elif name in method_options(method):
            chosen.append(text)
    return tuple(chosen)


def chosen_methods(options: Options, *, supervised: bool = False) -> list[str]:
    """The methods with or without labels: those asked for where there are any, else the paper's."""
    for name in options.methods:
        method_class(name)  # an unknown name is an error
    known = [method for method in METHODS.values() if method.needs_labels is supervised]
    chosen = [method.name for method in known if method.name in options.methods]
    return chosen or [method.name for method in known if method.in_paper]


def batch_sizes(options: Options, usual: tuple[int, ...]) -> tuple[int, ...]:
    """Batch sizes of a grid without printed numbers: in miniature two are enough."""
    return options.batch_sizes or ((1, 8) if options.smoke else usual)


def seeds(options: Options) -> range:
    return range(given(options.seeds, 2 if options.smoke else 5))


def with_few_seeds(options: Options) -> Options:
    """In miniature one seed, for grids that have many cells to fill."""
    return dataclasses.replace(options, seeds=given(options.seeds, 1)) if options.smoke else options


def given(value: Number | None, usual: Number) -> Number:
    """What the user chose, a zero too: that is refused, and not taken for no choice."""
    return usual if value is None else value


_OWN_ARGUMENTS = {
    "batch_size": "batch_sizes=(1, 4) of the Grid", "method": "methods=(…) of the Grid", "seed": "seeds=3 of the Grid",
    "source": "datasets=(…) of the Grid", "options": "each option by its own name",
    "data_root": "data_root=… of the Options",
}  # fmt: skip
"""What a grid gives every run by itself, and how it is chosen."""


@dataclass(frozen=True, kw_only=True)
class Grid:
    """Runs as data: every combination of data sets, methods, batch sizes, variants and seeds.

    It is the `grid` of an `Experiment`. What the options of a sweep name (`--datasets`, `--methods`, …) takes the
    place of what stands here.

    >>> grid = Grid(datasets=("synthetic:cells@32x60",), batch_sizes=(1, 4), vary={"lr": (1e-4, 1e-3)}, seeds=2)
    >>> cells = grid(Options())
    >>> len(cells), cells[0].labels["variant"], cells[-1].spec.config.lr
    (8, 'lr 0.0001', 0.001)
    """

    datasets: tuple[str, ...]
    methods: tuple[str, ...] = ("icone",)
    batch_sizes: tuple[int, ...] = (1,)
    seeds: int = 1
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Settings of `icone.pretrain` that hold for all runs."""
    vary: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    """Settings of `icone.pretrain`, or options of the method, and the values that are compared."""

    def __post_init__(self) -> None:
        for given, names in (("settings", self.settings), ("vary", self.vary)):
            for name in names:
                if name in _OWN_ARGUMENTS:
                    raise InputError(f"{given} of a Grid names {name}: give {_OWN_ARGUMENTS[name]} instead")

    def __call__(self, options: Options) -> list[Cell]:
        """The runs of the grid."""
        options = dataclasses.replace(
            options, datasets=options.datasets or self.datasets, methods=options.methods or self.methods,
            batch_sizes=options.batch_sizes or self.batch_sizes, seeds=given(options.seeds, self.seeds),
        )  # fmt: skip
        task = self.settings.get("task", "auto")
        return [
            make_cell(options, data, method, size, seed, {"variant": title}, **{**self.settings, **_changes(chosen)})
            for data in (find_dataset(name, options, task) for name in options.datasets)
            for method in options.methods
            for size in options.batch_sizes
            for title, chosen in self._variants()
            for seed in seeds(options)
        ]  # fmt: skip

    def _variants(self) -> list[tuple[str, dict[str, Any]]]:
        each = [dict(zip(self.vary, values, strict=True)) for values in itertools.product(*self.vary.values())]
        return [(", ".join(f"{name} {value}" for name, value in chosen.items()), chosen) for chosen in each]


def _changes(chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of the configuration by name; what it does not know is an option of the method."""
    known = {f.name for f in dataclasses.fields(PretrainConfig)}
    extra = option_texts({name: value for name, value in chosen.items() if name not in known})
    return {**{name: value for name, value in chosen.items() if name in known}, "extra": extra}
