"""The extensions of CONTRIBUTING.md, as they stand there, in a module of somebody else: each works end to end."""

from __future__ import annotations

import importlib
import io
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console

import icone
from icone.api.evaluate import result_table
from icone.cli import main
from icone.data.formats.registry import FORMATS
from icone.encoders import ENCODERS, build_encoder, register_encoder
from icone.errors import InputError
from icone.evaluation.metrics import METRICS, Metric, register_metric
from icone.methods import METHODS, Method, method_options, parse_options, register
from icone.nn.diversity import DIVERSITY, register_diversity
from icone.paper.experiments import EXPERIMENTS, register_experiment
from icone.paper.grids import chosen_methods
from icone.paper.options import Options
from icone.report.content import run_content
from icone.run import Run

GUIDE = Path(__file__).parents[1] / "CONTRIBUTING.md"
QUIET: dict[str, Any] = {"device": "cpu", "cache": "off", "console": Console(file=io.StringIO())}
Out = pytest.CaptureFixture[str]


@pytest.fixture(scope="module", autouse=True)
def extensions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """All Python of the guide in one module; afterwards the registries are as they were."""
    folder = tmp_path_factory.mktemp("extensions")
    blocks = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    (folder / "my_extensions.py").write_text("\n".join(blocks), encoding="utf-8")
    with ExitStack() as stack:
        for registry in (METHODS, METRICS, DIVERSITY, *ENCODERS.values(), EXPERIMENTS, FORMATS):
            stack.enter_context(patch.dict(registry))
        stack.enter_context(patch.object(sys, "path", [str(folder), *sys.path]))
        yield importlib.import_module("my_extensions")


@pytest.fixture(scope="module")
def run(extensions: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The method trained on points, and evaluated."""
    folder = tmp_path_factory.mktemp("runs") / "points"
    run = icone.pretrain(
        "synthetic:gaussians@x60", method="my_method", options=("temperature=0.2",), batch_size=6, epochs=20, lr=0.01,
        probe_every=10, features=4, test_fraction=0.3, out=folder, **QUIET,
    )  # fmt: skip
    icone.evaluate(run, geometry_instances=8, **QUIET)
    return run


def test_a_method_trains_and_is_listed(run: Run, capsys: Out) -> None:
    losses = [row["contrast"] for row in run.history]
    assert 0 < np.mean(losses[-5:]) < 0.9 * losses[0]
    assert run.record["method"]["options"] == {"temperature": 0.2}
    assert main(["methods"]) == 0
    assert "my_method" in capsys.readouterr().out
    assert main(["methods", "my_method"]) == 0
    assert "temperature" in capsys.readouterr().out
    assert method_options("my_method") == {"temperature": 0.1}
    with pytest.raises(InputError, match=r"temperature=0\.0 of my_method must be a finite number above 0"):
        parse_options("my_method", ["temperature=0"])
    with pytest.raises(InputError, match="a batch of one instance has no negatives"):
        icone.pretrain("synthetic:gaussians@x60", method="my_method", out=run.folder.parent / "one", **QUIET)


def test_the_papers_experiments_run_a_method_where_it_is_asked_for() -> None:
    assert chosen_methods(Options(methods=("my_method", "byol"))) == ["byol", "my_method"]
    assert "my_method" not in chosen_methods(Options())


def test_a_metric_is_measured_written_and_drawn(run: Run) -> None:
    result = run.result
    assert result is not None
    with np.load(run.features_file) as file:
        expected = np.sqrt((file["features"].astype(np.float64) ** 2).sum(axis=1)).std()
    assert result["trained"]["length_spread"] == pytest.approx(expected, rel=1e-5)
    console = Console(file=io.StringIO(), width=120)
    console.print(result_table(result))
    (row,) = [line for line in console.file.getvalue().splitlines() if "features' lengths" in line]  # type: ignore[attr-defined]
    assert f"{expected:.3f}" in row
    content = run_content(run, name="run", projections=("pca",), thumbnails=False)
    (told,) = [row for row in content["metrics"] if row["title"] == "spread of the features' lengths"]
    assert told["trained"] == f"{expected:.3f}"
    assert [epoch for epoch, _ in content["history"]["geometry"]["length_spread"]] == [0, 1, 11, 20]
    (chart,) = [chart for chart in content["charts"] if chart["name"] == "length_spread"]
    assert chart["title"] == "Live spread of the features' lengths"
    assert not chart["from_zero"]


def test_a_diversity_term_trains(tmp_path: Path) -> None:
    run = icone.pretrain(
        "synthetic:gaussians@x30", options=("diversity=squared_cosines", "out=4"), batch_size=5, epochs=3, lr=0.01,
        out=tmp_path / "run", **QUIET,
    )  # fmt: skip
    values = [row["diversity"] for row in run.history]
    assert 0 < values[2] < values[0] < 1
    loss = icone.IConELoss(3, 2, diversity="squared_cosines", view_weight=0.0, anchor_weight=0.0)
    torch.nn.init.eye_(loss.anchors.weight)
    loss.anchors.weight.data[2] = torch.tensor([3.0, 3.0])  # at 45° to the others
    unit = F.normalize(loss.anchors.weight.detach(), dim=1)
    pairs = [float(unit[i] @ unit[j]) ** 2 for i in range(3) for j in range(3) if i != j]
    assert float(loss(torch.randn(1, 2, 2), torch.tensor([0])).detach()) == pytest.approx(sum(pairs) / 6)


def test_an_encoder_trains(tmp_path: Path) -> None:
    run = icone.pretrain(
        "synthetic:cells@32x12", encoder="my_network", features=8, batch_size=4, epochs=1, out=tmp_path / "run", **QUIET
    )
    assert run.record["encoder"]["num_features"] == 8
    assert sum(name.startswith("f") for name in icone.embed(run, **QUIET).columns) == 8
    with pytest.raises(InputError, match="unknown encoder for volumes"):
        build_encoder("my_network", in_channels=1, spatial_dims=3, size=32)


def test_import_makes_an_extension_known_to_the_command_line(tmp_path: Path, capsys: Out) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from icone.encoders import build_encoder, register_encoder\n"
        "def small(in_channels, size):\n"
        "    return build_encoder('test_resnet', in_channels=in_channels, spatial_dims=2, size=size)\n"
        "register_encoder('small', small, spatial_dims=2)\n"
    )
    words = ["pretrain", "synthetic:cells@32x6", "--encoder", "small", "--epochs", "1", "--size", "32"]
    words += ["--probe-every", "0", "--cache", "off", "--device", "cpu", "--out"]
    assert main([*words, str(tmp_path / "unknown")]) == 2
    assert (
        "One of your own is known once it is registered (on the command line: `--import FILE.py`)"
        in capsys.readouterr().err
    )
    assert main([*words, str(tmp_path / "run"), "--import", str(file)]) == 0
    assert f"--import {file}" in capsys.readouterr().out
    assert "mine.py" not in (tmp_path / "run" / "config.json").read_text(encoding="utf-8")
    assert main([*words, str(tmp_path / "none"), f"--import={tmp_path}/none.py"]) == 2
    assert "there is no such file" in capsys.readouterr().err


def test_an_experiment_is_listed_runs_and_is_shown(tmp_path: Path, capsys: Out) -> None:
    store = ["--smoke", "--seeds", "1", "--batch-sizes", "8", "--store", str(tmp_path)]
    assert main(["paper", "list", *store]) == 0
    assert re.search(r"anchor-weight .* 2 +0 +0 +0", capsys.readouterr().out)
    assert main(["paper", "run", "anchor-weight", "--device", "cpu", *store]) == 0
    assert "2 runs executed; in all 2 done" in " ".join(capsys.readouterr().out.split())
    assert main(["paper", "show", "anchor-weight", *store]) == 0
    rows = (tmp_path / "figures" / "anchor-weight" / "anchor-weight.csv").read_text().splitlines()
    assert [row.split(",")[:2] for row in rows[1:]] == [["0.5", "8"], ["1.0", "8"]]
    ours = rows[0].split(",").index("ours")
    assert all(0 <= float(row.split(",")[ours]) <= 100 for row in rows[1:])


def test_names_that_are_taken_are_refused(extensions: ModuleType) -> None:
    with pytest.raises(InputError, match="a method icone already"):
        register(type("Other", (extensions.MyMethod,), {"name": "icone"}))
    with pytest.raises(InputError, match="Bare must set name, title, prevents_collapse"):
        register(type("Bare", (Method,), {}))
    with pytest.raises(InputError, match="a metric rankme already"):
        register_metric(Metric(name="rankme", title="mine"))
    with pytest.raises(InputError, match="a diversity term sigreg already"):
        register_diversity("sigreg", extensions.squared_cosines)
    with pytest.raises(InputError, match="an encoder mlp for points already"):
        register_encoder("mlp", extensions.MyNetwork, 0)
    with pytest.raises(InputError, match="an experiment umap already"):
        register_experiment(EXPERIMENTS["umap"])


def test_an_encoder_says_how_many_features_it_has() -> None:
    with patch.dict(ENCODERS[0]):
        register_encoder("silent", lambda in_channels: torch.nn.Linear(in_channels, 2), 0)
        with pytest.raises(InputError, match="set its attribute num_features"):
            build_encoder("silent", in_channels=2, spatial_dims=0)


def test_a_file_format_is_read(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 60_000, (6, 32, 32), dtype=np.uint16)
    for number, image in enumerate(images):
        image.tofile(tmp_path / f"{number}.camera")
    sample = icone.data.read_sample(tmp_path / "3.camera")
    np.testing.assert_array_equal(sample.array, images[3:4])
    run = icone.pretrain(tmp_path, encoder="test_vit", size=32, epochs=1, out=tmp_path / "../camera", **QUIET)
    assert run.instances["ids"] == [f"{number}.camera" for number in range(6)]
