"""The site: it builds without a warning, its reference has every public name, its commands and code run."""

from __future__ import annotations

import pickle
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import icone
from icone.cli import main
from icone.run import Run

ROOT = Path(__file__).parents[1]
PACKAGES = [
    "icone", "icone.nn", "icone.losses", "icone.diversity", "icone.methods", "icone.encoders", "icone.views",
    "icone.data", "icone.training", "icone.report", "icone.paper",
]  # fmt: skip
"""What docs/versions.md calls public: the names in `__all__` of these."""


@pytest.fixture(scope="module")
def documented(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """The Python names of the site. It is built from a copy, because sphinx-gallery writes beside the pages."""
    root = tmp_path_factory.mktemp("site")
    for path in ROOT.iterdir():
        if path.name != "docs":
            (root / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", root / "docs", ignore=shutil.ignore_patterns("gallery", "notebooks"))
    # The builder `dummy` reads all pages and resolves all links, and writes nothing.
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-b", "dummy", "-d", "trees", "-D", "plot_gallery=0"]
    built = subprocess.run([sys.executable, *command, "docs", "out"], cwd=root, capture_output=True, text=True)
    assert (built.returncode, built.stderr) == (0, "")
    with (root / "trees" / "environment.pickle").open("rb") as file:
        names: Mapping[str, Any] = pickle.load(file).domaindata["py"]["objects"]
    return names


def test_every_public_name_is_in_the_reference(documented: Mapping[str, Any]) -> None:
    public = {
        f"{import_module(package).__name__}.{name}" for package in PACKAGES for name in import_module(package).__all__
    }
    assert len(public) > 150
    assert not sorted(public - documented.keys())
    assert {"icone.recipe.parameter_groups", "icone.evaluation.metrics.METRICS", "icone.config.DataConfig.window"} <= (
        documented.keys()
    )


def blocks(page: str, language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.M | re.S)
    assert found
    return found


def test_the_first_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All commands and the Python of docs/start.md, with fewer images and epochs."""
    monkeypatch.chdir(tmp_path)
    commands = "".join(blocks("start.md", "sh")).replace("x150", "x20").replace("--epochs 10", "--epochs 1")
    for command in commands.splitlines():
        words = shlex.split(command)
        if words[:2] == ["pip", "install"]:
            continue
        quick = {"evaluate": ["--geometry-instances", "8"], "report": ["--projections", "pca"]}
        assert words[0] == "icone"
        assert main([*words[1:], *quick.get(words[1], [])]) == 0, command
    assert (tmp_path / "report.html").stat().st_size > 1_000_000
    assert (tmp_path / "features.csv").read_text(encoding="utf-8").startswith("id,path,label,split,f0")
    names: dict[str, Any] = {}
    exec(blocks("start.md", "python")[0].replace("x150", "x12"), names)
    assert len(names["table"]) == 12


def test_a_loop_of_your_own() -> None:
    """The Python of docs/own-loop.md: a step with one sample reaches every anchor, and AdamW is that of the recipe."""
    shortest, recipe = blocks("own-loop.md", "python")
    names: dict[str, Any] = {}
    exec(shortest, names)
    assert names["loss"].anchors.weight.grad.abs().sum(dim=1).min() > 0
    exec(recipe, names)
    groups = names["optimizer"].param_groups
    assert [group["initial_lr"] for group in groups] == [1e-4 / 4, 1e-4 / 4]  # by the root of 1/16
    assert [group["lr"] for group in groups] == [0, 0]
    share = names["schedule"].lr_lambdas[0]
    assert [share(step) for step in (50, 1000, 2000)] == pytest.approx([0.5, 0.5, 0], abs=0.002)


def test_an_augmentation_of_your_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The Python of docs/training.md, with one epoch."""
    monkeypatch.chdir(tmp_path)
    quick: dict[str, Any] = {"cache": "off", "probe_every": 0, "encoder": "test_vit", "size": 16}
    monkeypatch.setattr(icone, "pretrain", partial(icone.pretrain, **quick))
    names: dict[str, Any] = {"images": np.random.default_rng(0).random((6, 3, 16, 16))}
    exec(blocks("training.md", "python")[0].replace("epochs=10", "epochs=1"), names)
    assert names["run"].record["views"]["applied"] == {"custom": {"callable": "my_transform"}}


QUICK: dict[str, Any] = {"size": 16, "epochs": 1, "batch_size": 8, "cache": "off", "probe_every": 0}


@pytest.fixture(scope="module")
def scans(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two folders of small volumes, a table of labels, and a run with its classifier."""
    folder = tmp_path_factory.mktemp("scans")
    rng = np.random.default_rng(0)
    names = [f"{i:02d}.npy" for i in range(16)]
    for part in ("scans", "other_scans"):
        (folder / part).mkdir()
        for i, name in enumerate(names):
            np.save(folder / part / name, rng.integers(0, 120, (16, 16, 16)).astype(np.uint8) + np.uint8(100 * (i % 2)))
    for table in ("labels.csv", "other.csv"):
        (folder / table).write_text("id,label\n" + "".join(f"{name},{i % 2}\n" for i, name in enumerate(names)))
    run = icone.pretrain(folder / "scans", encoder="resnet10_3d", width=0.25, out=folder / "runs" / "scans", **QUICK)
    icone.finetune(run, labels=folder / "other.csv", epochs=1, scratch=False, out=folder / "runs" / "scans-grade")
    return folder


GUIDES = ("labels.md", "fine-tuning.md", "weights-and-export.md", "memory.md", "experiments.md")


@pytest.mark.parametrize("page", GUIDES)
def test_the_python_of_the_guides(page: str, scans: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands, on small volumes, with one epoch and on the CPU. A study is made, and `test_own_grid` runs one."""
    monkeypatch.chdir(scans)
    ids = Run("runs/scans").instances["ids"]
    numbers = np.arange(16)
    names: dict[str, Any] = {
        "__name__": "guide",
        "icone": icone,
        "monai": import_module("monai"),
        "run": Run("runs/scans"),
        "series": pd.Series((numbers % 2).astype(str), index=ids),
        "frame": pd.DataFrame({"id": ids, "age": 20.5 + numbers, "patient": numbers // 2}),
        "array_of_0_and_1": np.stack([numbers % 2, numbers // 2 % 2], axis=1),
        "patients": [f"p{i // 4}" for i in numbers],
        "sample": icone.data.read_sample(scans / "scans" / ids[0]),
    }
    monkeypatch.setattr(icone, "evaluate", partial(icone.evaluate, geometry_instances=8))
    monkeypatch.setattr(icone, "finetune", partial(icone.finetune, scratch=False, out=Path("runs/tuned")))
    code = "\n".join(blocks(page, "python"))
    if page == "weights-and-export.md":  # the run must have the encoder of that network
        icone.pretrain(scans / "scans", encoder="monai:SegResNet", out=tmp_path / "runs" / "scans", **QUICK)
        monkeypatch.chdir(tmp_path)
    exec(code.replace("epochs=30", "epochs=1").replace('device="cuda"', 'device="cpu"'), names)
    if page == "labels.md":  # cross-validation, of volumes that are bright or dark
        assert (names["said"] == names["table"]["label"]).mean() > 0.8
    if page == "fine-tuning.md":
        assert len(names["table"]) == 16
        assert names["probabilities"].shape == (1, 2)
    elif page == "experiments.md":
        assert len(names["study"].grid.vary) == 2
