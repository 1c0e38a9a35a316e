"""Small runs on points, and a store of made-up outcomes for everything that only reads."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from icone.config import PretrainConfig
from icone.paper.experiments import EXPERIMENTS
from icone.paper.measure import FEATURES
from icone.paper.options import Options
from icone.paper.outcome import Outcome, Point
from icone.paper.spec import Cell, RunSpec
from icone.paper.store import Store

METRICS = (
    "linear_probe", "knn_1", "knn_5", "knn_20", "minority", "rankme", "effective_rank", "lidar", "alignment",
    "uniformity", "untrained_linear_probe",
)  # fmt: skip
MakeSpec = Callable[..., RunSpec]


@pytest.fixture
def spec() -> MakeSpec:
    """A run of about a second: an MLP on 60 points."""

    def make(seed: int = 0, **changes: Any) -> RunSpec:
        settings: dict[str, Any] = {
            "source": "synthetic:gaussians@x60", "encoder": "mlp", "features": 4, "epochs": 2, "batch_size": 8,
            "test_fraction": 0.2, "seed": seed, **changes,
        }  # fmt: skip
        return RunSpec(config=PretrainConfig(**settings), geometry_instances=8)

    return make


@pytest.fixture(scope="session")
def told(tmp_path_factory: pytest.TempPathFactory) -> Store:
    """A store in which the whole miniature is done, with figures that depend on method, batch size and seed alone."""
    store = Store(tmp_path_factory.mktemp("told")).create()
    options = Options(smoke=True)
    for experiment in EXPERIMENTS.values():
        store.remember(experiment.name, options.to_json())
        for cell in experiment.grid(options):
            if store.last_record(cell.spec.key) is None:
                tell(store, cell)
    return store


def tell(store: Store, cell: Cell) -> None:
    c = cell.spec.config
    if c.batch_size == 1 and c.method in ("simclr", "swav", "byol", "vicreg", "supcon"):
        store.record(cell.spec, Outcome(status="undefined", reason=f"{c.method} cannot"))
        return
    if cell.spec.cost:
        n, literal = cell.labels["n"], cell.spec.cost.endswith("literal")
        fits: dict[str, float] = {"seconds_per_step": 0.001 * n, "tensor_gb": 1e-4 * n * (n if literal else 1)}
        metrics = {"out_of_memory": 1.0} if literal and n > 1000 else fits
        store.record(cell.spec, Outcome(status="done", metrics=metrics, device="cpu"))
        return
    folder = store.run_folder(cell.spec.key)
    folder.mkdir(parents=True)
    rng = np.random.default_rng(len(c.method) + c.batch_size + c.seed)
    if cell.spec.trace:
        names = ("knn_5", "linear_probe", "class_alignment", "uniformity", "silhouette")
        trace = [Point(epoch, name, float(rng.random())) for epoch in cell.spec.trace for name in names]
        angles = rng.uniform(0, 6, (2, 40))
        circle = np.stack([np.cos(angles[0]), np.sin(angles[0])], axis=1)
        panels: dict[str, Any] = {f"epoch_{epoch}": circle for epoch in (0, cell.spec.trace[-1])}
        np.savez(folder / FEATURES, points=angles.T, labels=np.arange(40) % 5, **panels)
        store.record(cell.spec, Outcome(status="done", metrics={p.metric: p.value for p in trace[-5:]}, trace=trace))
        return
    np.savez(folder / FEATURES, features=rng.standard_normal((12, 4)), labels=np.array(list("ab" * 6)))
    np.savez(folder / "map.npz", xy=rng.standard_normal((12, 2)), labels=np.array(list("ab" * 6)))  # UMAP takes long
    value = accuracy(c.method, c.batch_size, c.seed)
    metrics = {name: value if name in ("linear_probe", "minority") else float(rng.random()) for name in METRICS}
    store.record(cell.spec, Outcome(status="done", metrics=metrics, seconds=1.0))


@pytest.fixture
def fabricated() -> Callable[[str, int, int], float]:
    """The accuracy that `told` gives a run."""
    return accuracy


def accuracy(method: str, batch_size: int, seed: int) -> float:
    return 0.5 + 0.001 * len(method) + 0.01 * batch_size + 0.002 * seed


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store").create()
