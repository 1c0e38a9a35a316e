"""Time and memory of a step as runs of a sweep: what is counted, and what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from icone.config import PretrainConfig
from icone.nn.diversity import orthogonality
from icone.paper.cost import literal_orthogonality, measure_cost
from icone.paper.execute import ExecutionSettings, execute_one
from icone.paper.experiments import EXPERIMENTS
from icone.paper.options import Options
from icone.paper.spec import MADE_UP, RunSpec

CPU = torch.device("cpu")


def cost(kind: str, n: int, batch_size: int = 2, **settings: object) -> RunSpec:
    config = PretrainConfig(
        source=f"{MADE_UP}samples", subset=n, batch_size=batch_size, encoder="test_vit", size=32, recipe="paper",
        **settings,  # type: ignore[arg-type]
    )  # fmt: skip
    return RunSpec(config=config, cost=kind)


def test_the_literal_form_is_the_same_loss() -> None:
    table = torch.randn(37, 8, dtype=torch.float64)
    assert torch.allclose(literal_orthogonality(table), orthogonality(table))


def test_the_literal_matrix_grows_with_the_square_of_n_and_ours_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icone.paper.cost.ROUND_STEPS", (1, 1))
    literal, ours = (
        [measure_cost(cost(kind, n), CPU).metrics["tensor_gb"] for n in (256, 1024)] for kind in ("cpu literal", "cpu")
    )
    extra = literal[1] - ours[1]
    assert extra > 1024**2 * 4 / 1e9  # at least one matrix of float32
    assert literal[0] - ours[0] < extra / 10
    per_anchor = (ours[1] - ours[0]) / (1024 - 256)
    width = 64  # of timm's test_vit: the anchors are as wide as the features, as printed
    assert 4 * 4 * width < 1e9 * per_anchor < 12 * 4 * width  # weight, gradient, two moments, and what the loss keeps


def test_what_does_not_fit_is_a_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 37 GiB")

    monkeypatch.setattr("icone.paper.cost._build", full)
    outcome = execute_one(cost("cpu", 64), tmp_path / "run", ExecutionSettings(device="cpu"))
    assert (outcome.status, outcome.metrics, outcome.out_of_memory) == ("done", {"out_of_memory": 1.0}, False)


def test_a_gpu_is_measured_on_a_gpu(tmp_path: Path) -> None:
    outcome = execute_one(cost("captured", 64), tmp_path / "run", ExecutionSettings(device="cpu"))
    assert outcome.status == "undefined"
    assert "on a GPU only" in str(outcome.reason)


def test_the_grid_has_the_cells_of_the_table_and_the_papers_width() -> None:
    cells = EXPERIMENTS["memory"].grid(Options(recipe="paper"))
    eager = [c for c in cells if c.spec.cost == "eager" and c.labels["method"] == "IConE"]
    assert {(n, b) for n in (5000, 10_000, 50_000, 100_000) for b in (4, 16, 64)} <= {
        (c.labels["n"], c.labels["batch_size"]) for c in eager
    }
    assert {c.spec.identity()["options"]["out"] for c in eager} == {0}  # anchors as wide as the features: 384
    kinds = {c.spec.cost for c in cells}
    assert {"eager", "captured", "eager literal", "captured literal"} <= kinds
    on_gpu = [c for c in cells if not c.spec.cost.startswith("cpu")]
    assert len(on_gpu) <= 200
    assert len({c.spec.key for c in cells}) == len(cells)
