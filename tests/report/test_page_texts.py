"""What the page says around its numbers: volumes, live metrics, near-duplicates, dates, flags, edges of tables."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.common.by import By

from icone.report.write import report
from icone.run import Run

ShowPage = Callable[[Path], webdriver.Chrome]
RNG = np.random.default_rng(0)
PAIRS, COUNT = 9, 40


@pytest.fixture(scope="module")
def volumes(make_run: Callable[..., Run]) -> Run:
    """Volumes of which nine are there twice, without labels, with a note that names a flag."""
    x = RNG.normal(size=(COUNT, 8)).astype(np.float32)
    x[PAIRS : 2 * PAIRS] = x[:PAIRS]
    run = make_run(x, [""] * COUNT, size=8, dims=3)
    pixels = np.load(run.config.source)
    pixels[PAIRS : 2 * PAIRS] = pixels[:PAIRS]
    np.save(run.config.source, pixels)
    file = run.folder / "config.json"
    record = json.loads(file.read_text())
    record["data"]["notes"] = ["the labels are whole numbers; if they are quantities, give --task regression"]
    file.write_text(json.dumps(record))
    return Run(run.folder)


@pytest.fixture(scope="module")
def page(volumes: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return report([volumes], out=tmp_path_factory.mktemp("page") / "report.html", projections=("pca",))


@pytest.fixture(scope="module")
def opened(page: Path, show_page: ShowPage) -> webdriver.Chrome:
    return show_page(page)


def texts(browser: webdriver.Chrome, selector: str) -> list[str]:
    script = "return [...document.querySelectorAll(arguments[0])].map(node => node.textContent)"
    found: list[str] = browser.execute_script(script, selector)
    return found


def test_a_strip_of_slices_is_explained_once_where_it_first_appears(opened: webdriver.Chrome) -> None:
    (said,) = [text for text in texts(opened, "#read .help") if "strip" in text]
    assert "A volume is shown as a strip of its three middle slices, one across each axis." in said
    assert texts(opened, "main")[0].count("three middle slices") == 1


def test_live_metrics_have_names_of_their_own_and_an_explanation(opened: webdriver.Chrome) -> None:
    titles, rows = texts(opened, "#training .chart h3"), texts(opened, "#verdict th:first-child")
    assert "Live RankMe" in titles
    assert "RankMe" in rows
    assert not {title.lower() for title in titles} & {row.lower() for row in rows}
    (said,) = texts(opened, "#training > .help")
    assert "compare a live value with other live values only" in said


def test_few_near_duplicates_are_shown_until_all_are_asked_for(opened: webdriver.Chrome) -> None:
    sections = [node.get_attribute("id") for node in opened.find_elements(By.CSS_SELECTOR, "main > section")]
    assert sections.index("probes") < sections.index("duplicates") < sections.index("provenance")
    links = texts(opened, "nav a")
    assert links.index("Probes") < links.index("Duplicates")
    assert texts(opened, "#duplicates .help")[0].startswith(f"{PAIRS} pairs of samples with nearly the same")
    first = "#duplicates .help + .first-of"
    assert len(opened.find_elements(By.CSS_SELECTOR, f"{first} .pair")) == 6
    button = opened.find_element(By.CSS_SELECTOR, f"{first} > button")
    assert button.text == f"Show all {PAIRS}"
    opened.execute_script("arguments[0].click()", button)
    shown = opened.find_elements(By.CSS_SELECTOR, f"{first} .pair")
    assert len(shown) == PAIRS
    assert not opened.find_elements(By.CSS_SELECTOR, f"{first} > button")
    assert opened.execute_script("return document.activeElement.closest('.pair')") == shown[6]


def test_the_page_has_a_date_and_the_run_another(opened: webdriver.Chrome) -> None:
    assert texts(opened, "#provenance > .note")[0].startswith("This page was written on 20")
    rows = dict(zip(texts(opened, "#provenance th"), texts(opened, "#provenance th + td"), strict=True))
    assert rows["started"] == "today"
    assert "written" not in rows


def test_a_note_is_a_sentence_whose_flags_stay_whole(opened: webdriver.Chrome) -> None:
    (note,) = [text for text in texts(opened, "#read .note") if "whole numbers" in text]
    assert note == "The labels are whole numbers; if they are quantities, give --task regression."
    assert "--task" in texts(opened, "#read .note .flag")
    flag = opened.find_element(By.CSS_SELECTOR, "#read .note .flag")
    assert flag.value_of_css_property("white-space") == "nowrap"


def test_without_labels_the_probes_say_why_once(opened: webdriver.Chrome) -> None:
    assert texts(opened, "#probes .note") == ["No probes: made up."]


def test_images_are_no_strips(show_page: ShowPage, make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(RNG.normal(size=(6, 8)).astype(np.float32), [""] * 6)
    opened = show_page(report([run], out=tmp_path / "page.html", projections=("pca",)))
    assert not [text for text in texts(opened, "main p") if "slices" in text]
