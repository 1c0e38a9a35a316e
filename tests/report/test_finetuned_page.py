"""The page of a fine-tuning: its numbers are those of result.json, and a browser draws them."""

from __future__ import annotations

import io
import shutil
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
from icone.files import write_json
from icone.outputs import output_of_runs
from icone.report.finetuned_content import finetuned_content
from icone.report.finetuned_table import side_by_side, unequal_finetuning
from icone.report.write import report
from icone.run import Run
from icone.seeds import group_seeds


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
    assert content["networks"] == ["from scratch", "linear probe", "fine-tuned"]
    scores = content["metrics"][0]["values"]
    low, high = (100 * bound for bound in result["fine_tuned"]["interval"])
    assert scores[2] == [f"{100 * result['fine_tuned']['balanced_accuracy']:.1f}", f"{low:.1f} – {high:.1f}"]
    assert content["metrics"][-1]["values"][1] == ["–"]  # the probe has no epochs
    difference = result["comparison"]["probe"]
    bounds = " to ".join(f"{100 * difference[name]:+.1f}" for name in ("low", "high"))
    value = f"{100 * difference['difference']:+.1f}".replace("+0.0", "0.0")
    assert content["sentences"][0].endswith(f"differs by {value} points, 95 % interval {bounds}.")
    loss = content["curves"][0]["networks"]
    assert [network["name"] for network in loss] == ["from scratch", "fine-tuned"]
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


def copied(run: Run, folder: Path, accuracy: float, **settings: Any) -> Run:
    """The same fine-tuning with another score and other settings."""
    found = Run(shutil.copytree(run.folder, folder))
    result, record = found.read_json("result.json"), found.read_json("config.json")
    result["fine_tuned"]["balanced_accuracy"] = accuracy
    write_json(found.result_file, result)
    write_json(folder / "config.json", {**record, "settings": {**record["settings"], **settings}})
    return found


def test_seeds_have_a_mean_and_a_note_where_they_differ_in_more(folders: dict[str, Run], tmp_path: Path) -> None:
    base = tmp_path / "runs"
    seeds = [copied(folders["classes"], base / "a" / f"seed-{i}-grade", 0.5 + 0.1 * i, seed=i) for i in range(3)]
    other = copied(folders["numbers"], base / "b", 0.5)
    [group, alone] = group_seeds([*seeds, other])
    assert (group.name, len(group.runs), alone.name) == ("a-grade", 3, "b")
    classes, numbers = side_by_side([group, alone])
    names = ["a-grade: mean ± sd of 3 seeds", *(f"a/seed-{i}-grade" for i in range(3))]
    assert [row["name"] for row in classes["rows"]] == names
    assert [row["kind"] for row in classes["rows"]] == ["mean", *["seed"] * 3]
    assert classes["networks"] == ["from scratch", "linear probe", "fine-tuned"]
    assert classes["rows"][0]["values"][0][2] == ["60.0", "± 10.0"]
    assert classes["rows"][2]["values"][0][2][0] == "60.0"
    result = other.read_json("result.json")
    assert numbers["networks"] == ["linear probe", "fine-tuned"]  # nothing was trained from scratch
    [row] = numbers["rows"]
    assert row["values"][0][1][0] == f"{result['fine_tuned']['r2']:.3f}"
    assert row["samples"] == {part: str(result["data"][part]) for part in ("train", "val", "test")}
    assert unequal_finetuning(group.runs) == ""
    longer = copied(folders["classes"], base / "a" / "seed-3-grade", 0.5, seed=3, epochs=7)
    assert "(epochs)" in unequal_finetuning([*group.runs, longer])
    assert output_of_runs(seeds, "report.html").parent == Path()  # that of the pretrained seeds is in their folder


def test_a_page_of_several_begins_with_one_table(
    show_page: Callable[[Path], webdriver.Chrome], folders: dict[str, Run], tmp_path: Path
) -> None:
    one = folders["classes"]
    runs = [copied(one, tmp_path / "a" / f"seed-{i}", 0.5 + 0.1 * i, seed=i) for i in range(2)]
    runs.append(copied(one, tmp_path / "b", 0.75))
    said = io.StringIO()
    page = report([tmp_path / "a", tmp_path / "b"], out=tmp_path / "page.html", console=Console(file=said, width=300))
    browser = show_page(page)
    rows = "return [...document.querySelectorAll('.side-by-side tr')].map(r => [...r.cells].map(c => c.innerText))"
    first, second, *found = browser.execute_script(rows)
    assert first == ["", "balanced accuracy (%)", "AUROC", "samples"]
    assert second[1:4] == ["from scratch", "linear probe", "fine-tuned"]
    assert [row[0] for row in found] == ["a: mean ± sd of 2 seeds", "b", "a/seed-0", "a/seed-1"]
    assert [row[3].split()[0] for row in found] == ["55.0", "75.0", "50.0", "60.0"]
    assert found[0][3].split() == ["55.0", "±", "7.1"]
    sentence = icone.compare([tmp_path / "a", tmp_path / "b"])["pairs"][0]["sentence"]
    assert sentence in said.getvalue()
    assert sentence in browser.find_element(By.CSS_SELECTOR, ".compared").text
    cards = browser.find_elements(By.CSS_SELECTOR, "#verdict .cards .card")
    assert cards[0].text.startswith("a\n2 of 2 seeds: fine-tuned is ")
    assert len(cards) == 2
    browser = show_page(report([tmp_path / "b"], out=tmp_path / "page.html"))
    assert not browser.find_elements(By.CSS_SELECTOR, ".side-by-side, .compared")


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
