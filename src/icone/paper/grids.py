"""What the grids of several experiments share: from options to runs."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from icone.config import PretrainConfig
from icone.methods import METHODS, method_class, option_texts
from icone.paper.datasets import PaperDataset, datasets
from icone.paper.options import Options
from icone.paper.spec import Cell, RunSpec

Number = TypeVar("Number", int, float)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
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
    usual_sizes: tuple[int, ...] = BATCH_SIZES[:-1],
) -> list[Cell]:
    """IConE in several variants, (title, changes of its configuration) each, at every batch size."""
    variants = list(variants)
    return [
        make_cell(options, data, "icone", size, seed, {"variant": title}, **changes)
        for data in sets
        for title, changes in variants
        for size in batch_sizes(options, usual_sizes)
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
        "test_fraction": 0.2,
        "labels": None if options.labels is None else options.labels.resolve(),
        "size": options.size,
        "encoder": options.encoder,
        "width": options.width if data.dims == 3 else 1.0,
        "features": options.features,
        "epochs": given(options.epochs, 1 if options.smoke else 100),
        "lr": given(options.lr, 1e-4),
        "recipe": options.recipe,
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
    spec = RunSpec(config=config, geometry_instances=12 if options.smoke else 256, contents=data.contents)
    return Cell(spec, {**labels, **(more or {})})


def _method_options(method: str, options: Options, extra: tuple[str, ...]) -> tuple[str, ...]:
    small = option_texts(method_class(method).small_options) if options.smoke else ()
    return (*small, *extra)


def chosen_methods(options: Options, *, supervised: bool = False) -> list[str]:
    """The methods with or without labels: those asked for where there are any, else the paper's."""
    for name in options.methods:
        method_class(name)  # an unknown name is an error
    known = [method for method in METHODS.values() if method.needs_labels is supervised]
    chosen = [method.name for method in known if method.name in options.methods]
    return chosen or [method.name for method in known if method.in_paper]


def batch_sizes(options: Options, usual: tuple[int, ...]) -> tuple[int, ...]:
    return options.batch_sizes or ((1, 8) if options.smoke else usual)


def seeds(options: Options) -> range:
    return range(given(options.seeds, 2 if options.smoke else 5))


def given(value: Number | None, usual: Number) -> Number:
    """What the user chose, a zero too: that is refused, and not taken for no choice."""
    return usual if value is None else value
