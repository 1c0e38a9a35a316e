"""What README.md shows can be run: its five-minute example, its Python, its links; and it stays short."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import icone
from icone.cli import main

ROOT = Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text()
_spec = importlib.util.spec_from_file_location("make_readme", ROOT / "docs" / "make_readme.py")
assert _spec is not None
assert _spec.loader is not None
make_readme = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(make_readme)


def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """With one epoch, fewer digits, and no UMAP, whose compiler takes longest."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    shorter = {
        "--epochs 10": "--epochs 1",
        "[500:]": "[60:140]",
        "500": "60",
        "--out report.html": "--out report.html --projections pca",
    }
    for command in make_readme.commands(README):
        for long, short in shorter.items():
            command = command.replace(long, short)
        verb, *words = shlex.split(command)
        if verb == "python":
            subprocess.run([sys.executable, *words], check=True)
        else:
            assert main(words) == 0
    assert (tmp_path / "report.html").stat().st_size > 100_000
    assert "linear probe" in capsys.readouterr().out.lower()


def test_the_output_is_of_this_example() -> None:
    """The output names the commands of the example, and a verdict."""
    found = make_readme.EXAMPLE.search(README)
    assert found is not None
    verbs = [line.split()[2] for line in found["output"].splitlines() if line.startswith("$ icone")]
    assert verbs == ["pretrain", "evaluate", "report"]
    assert "Linear probe" in found["output"]


def test_the_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With small images, a tiny encoder and one epoch where none is given."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    labels = [str(i % 2) for i in range(24)]
    images = rng.integers(0, 120, (24, 1, 16, 16)).astype(np.uint8) + 100 * (np.arange(24) % 2)[:, None, None, None]
    quick: dict[str, Any] = {"encoder": "test_vit", "size": 16, "epochs": 1, "cache": "off"}

    def pretrain(*data: Any, **settings: Any) -> icone.Run:
        return icone_pretrain(*data, **quick | settings | {"epochs": 1})

    icone_pretrain = icone.pretrain
    monkeypatch.setattr(icone, "pretrain", pretrain)
    monkeypatch.setattr(icone, "finetune", partial(icone.finetune, epochs=1, scratch=False))
    monkeypatch.setattr(icone, "Embedder", partial(icone.Embedder, encoder="test_vit", settings={"size": 16}))
    code = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(code) == 1
    seen: set[tuple[int, ...]] = set()

    def my_transform(sample: Tensor) -> Tensor:
        seen.add(tuple(sample.shape))
        return sample

    names: dict[str, Any] = {
        "images": images,
        "labels": labels,
        "my_network": nn.Sequential(nn.Flatten(), nn.LazyLinear(8)),
        "my_transform": my_transform,
    }
    exec(code[0].replace("epochs=20", "epochs=1"), names)
    assert len(names["features"]) == 24
    assert "my_transform takes one sample (C, H, W)" in README
    assert seen == {(1, 16, 16)}


def test_volumes_can_be_tried_on_a_cpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (flags,) = re.findall(r"`(--encoder nf_resnet10_3d [^`]*)`", README)
    words = ["pretrain", "synthetic:shapes@32x6", *flags.split(), "--epochs", "1", "--probe-every", "0", "--out", "run"]
    assert main([*words, "--cache", "off"]) == 0
    assert icone.Run("run").preparation.size == (32, 32, 32)


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_links_lead_somewhere(page: str) -> None:
    links = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text())
    missing = [link for link in links if not link.startswith("https://") and not (ROOT / link).exists()]
    assert links
    assert not missing


def test_readme_is_short() -> None:
    assert len(README.splitlines()) <= 150
