"""What the paper ran: functions from options to runs, one per experiment."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

from icone.config import PretrainConfig
from icone.methods import METHODS, method_class, option_texts
from icone.paper.datasets import SMOKE, Dataset, datasets, find_dataset
from icone.paper.natural import natural_subset
from icone.paper.options import Options
from icone.paper.spec import RunSpec

Number = TypeVar("Number", int, float)
BATCH_SIZES = (1, 2, 4, 8, 16, 32, 64)
REGULARISERS = {
    "IConE (default)": None,
    "IConE-VCReg": "diversity=variance_covariance",
    "IConE-SIGReg": "diversity=sigreg",
}
PRINTED_VARIANTS = {
    "as printed": (),
    "per anchor": ("normalisation=anchor",),
    "VCReg": ("diversity=variance_covariance",),
    "SIGReg": ("diversity=sigreg",),
    "no diversity": ("diversity_weight=0",),
    "frozen anchors": ("freeze_anchors=true",),
}
"""What could keep the printed objective from collapsing at small batches."""
IMBALANCE = (1, 2, 5, 10, 20, 50)
"""Ratios k; the paper's are readable in a picture only."""
SIZES = (500, 1000, 2000, 5000)
VIEWS = (2, 4, 8, 12)
INIT_SCALES = (0.02, 0.05, 0.10, 0.20, 0.50)
VARIANTS = {
    "Full IConE": (),
    "No L_div": ("diversity_weight=0",),
    "No L_vi": ("anchor_weight=0",),
    "No L_vv": ("view_weight=0",),
}

SMOKE_ENCODER: dict[int, dict[str, Any]] = {
    2: {"encoder": "test_vit"},
    3: {"encoder": "resnet10_3d", "norm": "group", "width": 0.125, "features": 32},
}


@dataclass(frozen=True)
class Cell:
    """A run and its place in the tables and figures of an experiment."""

    spec: RunSpec
    labels: dict[str, Any]


def stability_2d(options: Options) -> list[Cell]:
    return list(_whole_grid(options, 2, tuple(datasets(options, 2))))


def stability_3d(options: Options) -> list[Cell]:
    return list(_whole_grid(options, 3, tuple(datasets(options, 3))))


def stability(options: Options) -> list[Cell]:
    return [*stability_2d(options), *stability_3d(options)]


def knn_3d(options: Options) -> list[Cell]:
    return list(_stability(options, 3, (4, 16, 64)))


def umap_3d(options: Options) -> list[Cell]:
    """One seed on one set: the first of those asked for, OrganMNIST3D in the paper."""
    if not options.datasets and not options.smoke:
        options = dataclasses.replace(options, datasets=("organmnist3d",))
    options = dataclasses.replace(options, seeds=1)
    return list(_stability(options, 3, sets=datasets(options, 3)[:1]))


def imbalance(options: Options) -> list[Cell]:
    """All 2D and 3D sets at the largest batch, half of the classes thinned by k."""
    largest = max(_batch_sizes(options, BATCH_SIZES))
    ratios = (1, 3) if options.smoke else IMBALANCE
    return [
        _cell(options, data, method, largest, seed, {"k": k}, imbalance=None if k == 1 else float(k))
        for dims in (2, 3)
        for data in _few(options, dims)
        for method in _methods(options)
        for k in ratios
        for seed in _seeds(options)
    ]


def supervised(options: Options) -> list[Cell]:
    """Four methods; the untrained encoder is measured beside cross-entropy at the largest batch."""
    sizes = _batch_sizes(options, (1, 4, 8, 16, 32, 64))
    cells = [
        _cell(options, data, method, size, seed)
        for dims in (2, 3)
        for data in _few(options, dims)
        for method in _methods(options, supervised=True)
        for size in sizes
        for seed in _seeds(options)
    ]
    return [
        _with_untrained(c) if c.labels["method"] == "Cross-Entropy" and c.labels["batch_size"] == max(sizes) else c
        for c in cells
    ]


def regularisers(options: Options) -> list[Cell]:
    """IConE with each diversity term, and as printed where the recipe is another."""
    variants: dict[str, dict[str, Any]] = {
        title: {"extra": () if extra is None else (extra,)} for title, extra in REGULARISERS.items()
    }
    if options.recipe != "paper":
        variants["IConE as printed"] = {"recipe": "paper"}
    return [
        _cell(options, data, "icone", size, seed, {"variant": title}, **changes)
        for dims in (2, 3)
        for data in _few(options, dims)
        for title, changes in variants.items()
        for size in _batch_sizes(options, BATCH_SIZES[:-1])
        for seed in _seeds(options)
    ]


def collapse(options: Options) -> list[Cell]:
    """The printed objective with other ways to keep anchors apart or none, and the default recipe; 3D alone."""
    if not options.datasets and not options.smoke:
        options = dataclasses.replace(options, datasets=("adrenalmnist3d",))
    variants: dict[str, dict[str, Any]] = {
        title: {"extra": extra, "recipe": "paper"} for title, extra in PRINTED_VARIANTS.items()
    }
    variants["default recipe"] = {"recipe": "icone"}
    return [
        _cell(options, data, "icone", size, seed, {"variant": title}, **changes)
        for data in _few(options, 3)
        for title, changes in variants.items()
        for size in _batch_sizes(options, (1, 4, 16, 64))
        for seed in _seeds(options)
    ]


def dataset_sizes(options: Options) -> list[Cell]:
    numbers = (30, 60) if options.smoke else SIZES
    each = [dataclasses.replace(options, subset=n) for n in numbers]
    return [cell for o in each for cell in _stability(o, 2, sets=_few(o, 2), more={"n": o.subset})]


def views(options: Options) -> list[Cell]:
    numbers = VIEWS[:2] if options.smoke else VIEWS
    return _icone_2d(options, [({"variant": v}, {"views": v}) for v in numbers])


def init_scales(options: Options) -> list[Cell]:
    scales = INIT_SCALES[:2] if options.smoke else INIT_SCALES
    return _icone_2d(options, [({"variant": s}, {"extra": (f"init_std={s}",)}) for s in scales])


def natural_images(options: Options) -> list[Cell]:
    """20 classes of the first folder given, up to 250 images each; without a folder there is nothing to run."""
    if options.smoke and not options.datasets:
        return list(_stability(options, 2, sets=[find_dataset(SMOKE[2][0], options)]))
    sets = [natural_subset(folder, options) for folder in options.datasets[:1]]
    return list(_stability(options, 2, sets=sets))


def synthetic_study(options: Options) -> list[Cell]:
    """Appendix F: Adam (AdamW without decay), 1e-3, batch 128, 4 views; anchors start normalised; as printed."""
    epochs = _given(options.epochs, 12 if options.smoke else 300)
    trace = tuple(sorted({0, 5, 25, *range(0, epochs, 20), epochs - 1} & set(range(epochs))))
    source = "synthetic:gaussians@x200" if options.smoke else "synthetic:gaussians"
    shared: dict[str, Any] = {
        "source": source, "encoder": "mlp", "features": 2, "views": 4, "batch_size": 128, "epochs": epochs,
        "lr": _given(options.lr, 1e-3), "weight_decay": 0.0, "recipe": "paper",
    }  # fmt: skip
    return [
        Cell(
            RunSpec(
                config=PretrainConfig(**shared, options=("init_unit=true", *extra), seed=seed),
                test_fraction=0.3,
                geometry_instances=0,
                trace=trace,
            ),
            {"variant": title, "seed": seed, "dataset": "gaussians", "dims": 0},
        )
        for title, extra in VARIANTS.items()
        for seed in range(_given(options.seeds, 2 if options.smoke else 20))
    ]


def nothing(options: Options) -> list[Cell]:
    """For tables that need no runs."""
    return []


def _stability(
    options: Options,
    dims: int,
    batch_sizes: tuple[int, ...] = BATCH_SIZES,
    sets: Iterable[Dataset] | None = None,
    more: dict[str, Any] | None = None,
) -> Iterator[Cell]:
    """Every method at every batch size: the grid behind most of the paper."""
    for data in datasets(options, dims) if sets is None else sets:
        for method in _methods(options):
            for size in _batch_sizes(options, batch_sizes):
                for seed in _seeds(options):
                    yield _cell(options, data, method, size, seed, more)


@functools.lru_cache(4)
def _whole_grid(options: Options, dims: int, sets: tuple[Dataset, ...]) -> tuple[Cell, ...]:
    """Several experiments share this grid; a set whose contents have changed is another set."""
    return tuple(_stability(options, dims, sets=sets))


def _few(options: Options, dims: int) -> list[Dataset]:
    """The data sets; of the miniature's only the first, which is enough to see that an experiment works."""
    return datasets(options, dims)[: 1 if options.smoke else None]


def _icone_2d(options: Options, variants: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[Cell]:
    return [
        _cell(options, data, "icone", size, seed, labels, **changes)
        for data in _few(options, 2)
        for labels, changes in variants
        for size in _batch_sizes(options, BATCH_SIZES[:-1])
        for seed in _seeds(options)
    ]


def _cell(
    options: Options,
    data: Dataset,
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
        "epochs": _given(options.epochs, 1 if options.smoke else 100),
        "lr": _given(options.lr, 1e-4),
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


def _with_untrained(cell: Cell) -> Cell:
    return dataclasses.replace(cell, spec=dataclasses.replace(cell.spec, untrained=True))


def _methods(options: Options, *, supervised: bool = False) -> list[str]:
    """The methods with or without labels: those asked for where there are any, else the paper's."""
    for name in options.methods:
        method_class(name)  # an unknown name is an error
    known = [method for method in METHODS.values() if method.needs_labels is supervised]
    chosen = [method.name for method in known if method.name in options.methods]
    return chosen or [method.name for method in known if method.in_paper]


def _batch_sizes(options: Options, usual: tuple[int, ...]) -> tuple[int, ...]:
    return options.batch_sizes or ((1, 8) if options.smoke else usual)


def _seeds(options: Options) -> range:
    return range(_given(options.seeds, 2 if options.smoke else 5))


def _given(value: Number | None, usual: Number) -> Number:
    """What the user chose, a zero too: that is refused, and not taken for no choice."""
    return usual if value is None else value
