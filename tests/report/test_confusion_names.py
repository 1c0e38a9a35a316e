"""Names of classes around a confusion matrix stay whole, and numbers of the page have one minus sign."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from icone.files import write_json
from icone.report.write import report
from icone.run import Run

CELLS = ("Basophil", "Eosinophil", "Lymphocyte", "Monocyte", "Neutrophil")
BROKEN = """
const broken = [];
for (const cell of document.querySelectorAll(".confusion th")) {
  const walker = document.createTreeWalker(cell, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) for (const found of walker.currentNode.data.matchAll(/\\S+/g)) {
    const range = document.createRange();
    range.setStart(walker.currentNode, found.index);
    range.setEnd(walker.currentNode, found.index + found[0].length);
    if (range.getClientRects().length > 1) broken.push(found[0]);
  }
}
return [document.querySelectorAll(".confusion th").length, broken];
"""
WIDER = "return [...document.querySelectorAll('.matrix')].filter(b => b.scrollWidth > b.clientWidth + 1).length"
HYPHENS = r"""
const walker = document.createTreeWalker(document.querySelector("main"), NodeFilter.SHOW_TEXT), found = [];
while (walker.nextNode()) if (!walker.currentNode.parentElement.closest("pre, .flag, script") &&
  /(?<![\w.\/-])-\d/.test(walker.currentNode.data)) found.push(walker.currentNode.data);
return found;
"""


@pytest.fixture(scope="module")
def page(make_run: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    codes = np.arange(60) % len(CELLS)
    run = make_run((rng.normal(size=(60, 8)) + codes[:, None]).astype(np.float32), [CELLS[code] for code in codes])
    result = json.loads(run.result_file.read_text())
    result["untrained"]["linear_probe"] = result["trained"]["linear_probe"]  # a second matrix beside the first
    result["verdict"]["evidence"] = [
        "Linear probe: -0.012 (-8.5 points, 95 % interval -9 to +1); give --window -160 240"
    ]
    write_json(run.result_file, result)
    return report([Run(run.folder)], out=tmp_path_factory.mktemp("page") / "report.html", projections=("pca",))


@pytest.fixture(scope="module")
def opened(page: Path, show_page: Callable[[Path], webdriver.Chrome]) -> webdriver.Chrome:
    return show_page(page)


@pytest.mark.parametrize("width", [1400, 1000, 390])
def test_names_of_classes_are_not_broken_inside_words(opened: webdriver.Chrome, width: int) -> None:
    size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        WebDriverWait(opened, 10).until(lambda b: b.execute_script("return innerWidth") == width)
        assert opened.execute_script(BROKEN) == [2 * 2 * len(CELLS), []]
        assert opened.execute_script(WIDER) == 0
    finally:
        opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_numbers_have_one_minus_sign_and_flags_stay_as_they_are_typed(opened: webdriver.Chrome) -> None:
    said = opened.execute_script("return document.querySelector('#verdict .evidence li').textContent")
    assert said == "Linear probe: −0.012 (−8.5 points, 95\u00a0% interval −9 to +1); give --window -160 240."
    assert opened.execute_script(HYPHENS) == []
    shown = opened.execute_script("return document.querySelector('#verdict').textContent")
    assert "−" in shown.replace(said, "")  # the uniformity of the table
    assert "kNN-5" in shown


def test_neighbours_vote(opened: webdriver.Chrome) -> None:
    script = "return [...document.querySelectorAll('details.words dd')].map(node => node.textContent)"
    said = [text for text in opened.execute_script(script) if "nearest training" in text]
    assert said == [
        "How often the nearest training sample of a test sample has its class, as the mean over classes.",
        "How often a vote of the five nearest training samples of a test sample names its class, as the mean over "
        "classes.",
        "How often a vote of the twenty nearest training samples of a test sample names its class, as the mean over "
        "classes.",
    ]
