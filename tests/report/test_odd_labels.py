"""Labels that are missing, all the same, very many, or several per sample: what the page makes of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from icone.files import write_json
from icone.report.samples import Samples, read_samples
from icone.report.write import _title, report
from icone.run import Run

ShowPage = Callable[[Path], webdriver.Chrome]
MakeRun = Callable[..., Run]
RNG = np.random.default_rng(0)


def page_of(run: Run, folder: Path) -> Path:
    return report([run], out=folder / "report.html", projections=("pca",))


def test_a_neighbour_without_a_label_is_neither_right_nor_wrong(
    make_run: MakeRun, show_page: ShowPage, tmp_path: Path
) -> None:
    labels = [["a", "b", ""][i % 3] for i in range(30)]
    browser = show_page(page_of(make_run(RNG.normal(size=(30, 8)).astype(np.float32), labels), tmp_path))
    of = dict(zip((f"{i:06d}" for i in range(30)), labels, strict=True))
    seen = set()
    for row in browser.find_elements(By.CSS_SELECTOR, "#gallery .row"):
        query, *near = [(str(t.get_attribute("title")), t) for t in row.find_elements(By.CSS_SELECTOR, ".tile")]
        for name, tile in near:
            known = of[query[0]] and of[name]
            wanted = "" if not known else "same" if of[query[0]] == of[name] else "other"
            assert (tile.get_attribute("class") or "").split()[1:] == [wanted] * bool(wanted)
            seen.add(wanted)
    assert seen == {"", "same", "other"}


def test_one_class_marks_nothing(make_run: MakeRun, show_page: ShowPage, tmp_path: Path) -> None:
    browser = show_page(page_of(make_run(RNG.normal(size=(12, 8)).astype(np.float32), ["benign"] * 12), tmp_path))
    assert not browser.find_elements(By.CSS_SELECTOR, ".tile.same, .tile.other")
    assert "✓" not in browser.find_element(By.CSS_SELECTOR, "#gallery").text


def test_of_very_many_classes_the_frequent_mistakes_are_listed(
    make_run: MakeRun, show_page: ShowPage, tmp_path: Path
) -> None:
    labels = [f"strain {i % 50}" for i in range(150)]
    run = make_run(RNG.normal(size=(150, 8)).astype(np.float32), labels)
    result = dict(run.result or {})
    probe = result["trained"]["linear_probe"]
    first, second = probe["classes"][:2]
    probe["confusion"] = [[3 * (i == k) for k in range(50)] for i in range(50)]
    probe["confusion"][0][:2] = [1, 2]
    write_json(run.result_file, result)
    browser = show_page(page_of(run, tmp_path))
    assert not browser.find_elements(By.CSS_SELECTOR, ".confusion")
    rows = browser.execute_script(
        "return [...document.querySelectorAll('[aria-label=\"Most frequent mistakes\"] tbody tr')]"
        ".map(r => [...r.cells].map(c => c.textContent))"
    )
    assert rows == [[first, second, "2", "66.7"]]


def test_several_labels_are_listed_as_a_reader_writes_them() -> None:
    labels = ["b|a", "|", "", "a"]
    samples = Samples(np.zeros((4, 2), np.float32), list("wxyz"), list("wxyz"), ["train"] * 4, labels, [])
    assert samples.label_texts() == ["b|a", "|", None, "a"]  # classes are called so
    several = Samples(**{**vars(samples), "task": "multilabel"})
    assert several.label_texts() == ["a, b", "no label", None, "a"]
    assert several.label_column().categories == ["a", "a, b", "no label"]


def test_the_title_names_what_is_compared() -> None:
    runs = [{"name": f"m/seed-{i}"} for i in range(6)]
    assert _title(runs[:1], []) == "m/seed-0"
    assert _title(runs, [{"name": "icone"}, {"name": "simclr"}]) == "icone and simclr"
    assert _title(runs, [{"name": name} for name in "abc"]) == "3 groups of seeds, 6 runs"
    assert _title(runs[:5], runs[:5]) == "5 runs"


def test_a_page_of_some_samples_says_so_where_it_looks_for_duplicates(
    make_run: MakeRun, show_page: ShowPage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(RNG.normal(size=(30, 8)).astype(np.float32), ["a", "b"] * 15)
    monkeypatch.setattr("icone.report.content.read_samples", partial(read_samples, most=20))
    browser = show_page(page_of(run, tmp_path))
    said = browser.find_element(By.CSS_SELECTOR, "#duplicates .help").text
    assert said.startswith("A random 20 of 30 samples are shown. No two samples")
