"""The page of a fine-tuning: its numbers are those of result.json, and a browser draws them."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console
from selenium import webdriver
from selenium.webdriver.common.by import By

import icone
from icone.errors import InputError
from icone.report.finetuned_content import finetuned_content
from icone.report.write import report
from icone.run import Run


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "points"
    return icone.pretrain("synthetic:gaussians@x60", features=8, epochs=1, probe_every=0, out=out, console=quiet())


def tuned(run: Run, name: str, **settings: Any) -> Run:
    out = run.folder.with_name(name)
    icone.finetune(run, out=out, epochs=2, val_fraction=0.2, device="cpu", console=quiet(), **settings)
    return Run(out)


TASKS = ("classes", "numbers", "several")


@pytest.fixture(scope="module")
def folders(run: Run) -> dict[str, Run]:
    x = np.linspace(0, 1, 60)
    two = np.stack([x > 0.5, np.arange(60) % 3 == 0], axis=1).astype(int)
    labels = {"classes": None, "numbers": (x + 0.01 * np.arange(60) % 7).tolist(), "several": two}
    return {name: tuned(run, name, labels=given, scratch=name == "classes") for name, given in labels.items()}


def test_the_numbers_are_those_of_the_result(run: Run, folders: dict[str, Run], tmp_path: Path) -> None:
    content = finetuned_content(folders["classes"], name="one")
    result = icone.load_classifier(folders["classes"].folder).result
    assert content["networks"] == ["fine-tuned", "linear probe", "from scratch"]
    scores = content["metrics"][0]["values"]
    low, high = (100 * bound for bound in result["fine_tuned"]["interval"])
    assert scores[0] == f"{100 * result['fine_tuned']['balanced_accuracy']:.1f} ({low:.1f} – {high:.1f})"
    assert content["metrics"][-1]["values"][1] == "–"  # the probe has no epochs
    difference = result["comparison"]["probe"]
    bounds = " to ".join(f"{100 * difference[name]:+.1f}" for name in ("low", "high"))
    value = f"{100 * difference['difference']:+.1f}".replace("+0.0", "0.0")
    assert content["sentences"][0].endswith(f"differs by {value} points, 95 % interval {bounds}.")
    loss = content["curves"][0]["networks"]
    assert [network["name"] for network in loss] == ["fine-tuned", "from scratch"]
    assert [epoch for epoch, _ in loss[0]["points"]] == [1, 2]
    assert "--epochs 2" in content["provenance"]["command"]
    assert "--no-scratch" in finetuned_content(folders["numbers"], name="two")["provenance"]["command"]
    classifier = icone.load_classifier(folders["classes"].folder)
    assert "fine-tuned" in report(classifier, out=tmp_path / "report.html").read_text()
    with pytest.raises(InputError, match="its own page"):
        report([run, folders["classes"]], out=tmp_path / "report.html")
    (unfinished := tmp_path / "unfinished").mkdir()
    (unfinished / "config.json").write_text((folders["classes"].folder / "config.json").read_text())
    with pytest.raises(InputError, match="resume=True"):
        report([unfinished], out=tmp_path / "report.html")


@pytest.mark.parametrize("task", TASKS)
def test_a_browser_shows_it(
    show_page: Callable[[Path], webdriver.Chrome], folders: dict[str, Run], tmp_path: Path, task: str
) -> None:
    browser = show_page(report([folders[task].folder], out=tmp_path / "report.html"))
    assert len(browser.find_elements(By.CSS_SELECTOR, "#training .chart table")) >= 2  # two epochs are no chart
    assert not browser.find_elements(By.CSS_SELECTOR, "#training .plot")
    assert not browser.find_elements(By.CSS_SELECTOR, "#map")
    said = browser.find_element(By.CSS_SELECTOR, "main").text
    assert "fine-tuned" in said
    assert "icone finetune" in said
    if task == "classes":
        assert "Confusion matrix of the fine-tuned network" in said
