"""What a verb writes without --out lies with the run that it is about, and no run's output takes another's place."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from icone.api.evaluate import evaluate
from icone.api.pretrain import pretrain
from icone.cli import main
from icone.outputs import is_output, output_of_run, output_of_runs
from icone.run import OWN_FILES, Run
from icone.terminal import Terminal

Out = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small evaluated run of images."""
    folder = tmp_path_factory.mktemp("template")
    np.save(folder / "images.npy", np.random.default_rng(0).random((12, 16, 16), np.float32))
    settings: dict[str, Any] = {
        "encoder": "test_resnet", "size": 16, "epochs": 1, "device": "cpu", "cache": "off", "probe_every": 0,
    }  # fmt: skip
    quiet = Terminal(file=io.StringIO())
    run = pretrain(folder / "images.npy", **settings, out=folder / "run", console=quiet)
    evaluate(run, geometry_instances=4, device="cpu", console=quiet)
    return run.folder


@pytest.fixture
def runs(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A current folder with two runs, and two seeds of a third."""
    for name in ("runs/a", "runs/b", "runs/c/seed-0", "runs/c/seed-1"):
        shutil.copytree(template, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("given", "page"),
    [
        (["runs/a"], "runs/a/report.html"),
        (["runs/c"], "runs/c/report.html"),
        (["runs/c/seed-1"], "runs/c/seed-1/report.html"),
        (["runs/a", "runs/b"], "report-a-b.html"),
        (["runs/a", "runs/c"], "report-a-c.html"),
    ],
)
def test_a_page_lies_with_what_it_is_about(runs: Path, given: list[str], page: str, capsys: Out) -> None:
    command = ["report", *given, "--projections", "pca", "--no-thumbnails"]
    before = {path for path in runs.rglob("*") if path.is_file()}
    assert main(command) == 0
    assert {path for path in runs.rglob("*") if path.is_file()} - before == {runs / page}
    assert f"wrote {page} (" in capsys.readouterr().out
    assert main(command) == 0
    assert "in place of the one that was there" in capsys.readouterr().out


def test_embeddings_of_two_runs_and_of_other_data_are_four_files(runs: Path, template: Path, capsys: Out) -> None:
    np.save("new.npy", np.ones((1, 16, 16), np.float32) * np.linspace(0, 1, 16, dtype=np.float32))
    for name in ("a", "b"):
        assert main(["embed", f"runs/{name}", "--device", "cpu"]) == 0
        assert f"wrote 12 embeddings of 96 features to runs/{name}/embeddings.parquet" in capsys.readouterr().out
        assert main(["embed", f"runs/{name}", "new.npy", "--device", "cpu"]) == 0
        assert f"wrote 1 embedding of 96 features to runs/{name}/embeddings-new.parquet" in capsys.readouterr().out
        assert len(pd.read_parquet(f"runs/{name}/embeddings.parquet")) == 12
    assert main(["embed", "runs/a", "--dense", "--device", "cpu"]) == 0
    assert "wrote feature maps of 12 samples to runs/a/feature-maps.npz" in capsys.readouterr().out
    with np.load("runs/a/feature-maps.npz") as maps:
        assert len(maps["features"]) == 12


def test_figures_and_exports_lie_in_the_run(runs: Path) -> None:
    assert main(["figures", "runs/a", "--names", "spectrum"]) == 0
    assert Path("runs/a/figures/spectrum.png").is_file()
    assert main(["figures", "runs/a", "runs/b", "--names", "spectrum"]) == 0
    assert Path("figures-a-b/spectrum.png").is_file()
    assert main(["export", "runs/a", "--format", "timm"]) == 0
    assert Path("runs/a/encoder-timm/config.json").is_file()
    written = {path.name for path in Path("runs/a").iterdir() if path.name not in OWN_FILES}
    assert written == {"figures", "encoder-timm"}
    assert all(map(is_output, map(Path, written)))
    assert not any(map(is_output, map(Path, OWN_FILES)))


def test_names_of_files_about_many_runs(tmp_path: Path) -> None:
    assert output_of_run(Path("tuned"), "predictions.csv", "medmnist:breastmnist@64").name == (
        "predictions-breastmnist@64.csv"
    )
    many = [Run(tmp_path / name) for name in "abcdef"]
    assert output_of_runs(many, "report.html") == Path("report-a-and-5-more.html")
    same = [Run("x/a"), Run("y/a")]
    assert output_of_runs(same, "report.html") == Path("report-x-a-y-a.html")
    for seed in range(3):
        (tmp_path / "s" / f"seed-{seed}").mkdir(parents=True)
    some = [Run(tmp_path / "s" / f"seed-{seed}") for seed in (0, 2)]
    assert output_of_runs(some, "figures") == Path("figures-s-seed-0-seed-2")
