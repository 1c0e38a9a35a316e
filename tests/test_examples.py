"""Every example runs, at toy size, and does what it says."""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import pytest
import torch
import torch.nn.functional as F

from icone.data.formats.registry import FORMATS
from icone.errors import InputError
from icone.methods import METHODS

FOLDER = Path(__file__).parent.parent / "examples"


def load(name: str) -> ModuleType:
    specification = importlib.util.spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


def test_a_loop_of_your_own_learns() -> None:
    losses = load("own_loop").main(epochs=6, count=16)
    assert len(losses) == 6
    assert losses[-1] < 0.9 * losses[0]


def test_a_numpy_array_becomes_features() -> None:
    accuracy = load("numpy_array").main(epochs=1, count=40)
    assert 0.5 <= accuracy <= 1.0


def test_an_encoder_of_your_own() -> None:
    assert load("own_encoder").main(epochs=1, count=8).shape == (3, 32)


def run_notebook(name: str, toy: dict[str, Any]) -> dict[str, Any]:
    """The names that its cells leave, one cell after the other, with smaller numbers in the one that is tagged so."""
    cells = json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    for cell in (cell for cell in cells if cell["cell_type"] == "code"):
        exec("".join(cell["source"]), names)
        if "parameters" in cell["metadata"].get("tags", []):
            assert toy.keys() <= names.keys()
            names |= toy
    return names


@pytest.fixture(autouse=True)
def no_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Figures are drawn into memory."""
    monkeypatch.setenv("MPLBACKEND", "agg")


def test_the_notebook_from_a_folder_to_a_classifier(tmp_path: Path) -> None:
    names = run_notebook("fine_tuning", {"FOLDER": tmp_path / "data", "IMAGES": 24, "EPOCHS": 1, "TUNING_EPOCHS": 1})
    result = names["classifier"].result
    assert (result["data"]["train"] + result["data"]["val"], result["data"]["test"]) == (13, 3)
    assert len(names["predictions"]) == 24
    assert "linear probe" in names["classifier"]._repr_html_()
    assert names["page"].is_file()


def test_the_notebook_about_your_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = run_notebook("your_data", {"FOLDER": tmp_path / "data", "IMAGES": 12})
    assert "_mask.png has 1 and " in capsys.readouterr().out  # the refusal that the text announces
    assert names["array"].shape == (12, 48, 48, 3)
    assert names["found"]["samples"] == 12
    assert len(names["table"].groupby("group")) == 3
    assert names["pipeline_views"].shape == (2, 5, 3, 48, 48)


def test_the_notebook_about_training(tmp_path: Path) -> None:
    names = run_notebook("training", {"FOLDER": tmp_path / "data", "IMAGES": 40, "EPOCHS": 1})
    assert names["result"]["data"]["samples"] == 120  # those of the test too
    assert names["page"].stat().st_size > 1_000_000
    assert len(names["features"]) == 40


def test_the_notebook_of_a_loop_of_your_own() -> None:
    names = run_notebook("own_loop", {"DIGITS": 60, "EPOCHS": 3})
    assert names["means"][2] < 0.95 * names["means"][0]
    assert names["nearest"].shape == (4, 7)


def test_the_notebook_about_the_report(tmp_path: Path) -> None:
    names = run_notebook("reading_the_report", {"FOLDER": tmp_path / "data", "IMAGES": 40, "EPOCHS": 1})
    assert list(names["table"].columns) == ["untrained", "good", "bad"]
    assert names["page"].stat().st_size > 1_000_000


def test_the_notebook_about_settings(tmp_path: Path) -> None:
    names = run_notebook("choosing_settings", {"FOLDER": tmp_path / "data", "IMAGES": 40, "EPOCHS": 1, "SEEDS": 1})
    assert list(names["table"].index) == ["untrained", *names["settings"]]
    assert names["counts"].sum() == 120


def test_the_notebook_about_large_volumes(tmp_path: Path) -> None:
    """In one process: `tests/training/test_distributed.py` has several."""
    toy = {"FOLDER": tmp_path / "data", "VOLUMES": 6, "EPOCHS": 1, "PROCESSES": 1}
    names = run_notebook("large_volumes", toy)
    assert names["losses"]["micro"] == pytest.approx(names["losses"]["plain"], abs=1e-4)
    assert len(names["features"]) == 6
    assert names["found"]["samples"] > 6  # tiles
    compile(names["script"].read_text(), "script.py", "exec")


def test_the_notebook_about_adding_a_method(capsys: pytest.CaptureFixture[str]) -> None:
    try:
        names = run_notebook("add_method", {"SOURCE": "synthetic:cells@32x20", "EPOCHS": 1})
    finally:
        METHODS.pop("align_uniform_example", None)
    assert names["error"] < 1e-12
    assert "needs a batch size of 2 or more" in capsys.readouterr().out
    assert list(names["table"].index) == ["align_uniform_example", "icone"]


def test_a_dataset_of_your_own() -> None:
    result = load("own_dataset").main(epochs=1, count=12)
    assert result["data"]["samples"] == 12
    assert "linear_probe" in result["trained"]


def test_a_script_for_several_gpus_works_alone_too(tmp_path: Path) -> None:
    assert len(load("several_gpus").main(epochs=1, count=8, out=str(tmp_path / "run")).history) == 1


def test_a_network_of_monai() -> None:
    pytest.importorskip("monai")
    assert load("monai_network").main(epochs=1, count=6) == (6, 32)


def test_an_encoder_in_a_segmentation_network() -> None:
    pytest.importorskip("monai")
    found = load("segmentation").main(count=6, labelled=2, epochs=1, steps=15)
    assert found.keys() == {"scratch", "pretrained"}
    assert all(0 < dice <= 1 for dice in found.values())
    assert found["scratch"] != found["pretrained"]


def test_a_method_of_your_own() -> None:
    example = load("add_method")
    z = torch.randn(5, 2, 8, generator=torch.Generator().manual_seed(0))
    unit = F.normalize(z, dim=-1)
    expected = torch.stack([(unit[i, 0] - unit[i, 1]).norm() ** 2 for i in range(5)]).mean()
    for v in range(2):
        pairs = [torch.exp(-2 * (unit[i, v] - unit[j, v]).norm() ** 2) for i in range(5) for j in range(5) if i != j]
        expected += torch.stack(pairs).mean().log() / 2
    assert example.align_and_spread(z).item() == pytest.approx(expected.item(), rel=1e-5)
    try:
        found = example.main(epochs=1, source="synthetic:cells@32x20")
        assert found.keys() == {"align_uniform", "icone"}
        assert all(math.isfinite(value) for value in found.values())
    finally:
        METHODS.pop("align_uniform", None)


def test_a_file_format_of_your_own(tmp_path: Path) -> None:
    example = load("add_format")
    with patch.dict(FORMATS):
        assert example.main(epochs=1, count=4) == (4, 64)
    short = tmp_path / "short.det"
    short.write_bytes(b"DETECTOR 32 40\n" + bytes(100))
    with pytest.raises(InputError, match="more than the file can hold"):
        example.read_header(short)
