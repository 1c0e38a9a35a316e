"""The page of a folder of seeds: means, what was read, tables in place of short charts, search, a phone."""

from __future__ import annotations

import shutil
import statistics
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from icone.report.figures import plot_geometry
from icone.report.probe_content import class_intervals
from icone.report.write import report, share_sheets
from icone.run import Run

RNG = np.random.default_rng(0)


@pytest.fixture(scope="module")
def seeds(make_run: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> list[Run]:
    """Two runs of one folder of seeds with two epochs each."""
    folder = tmp_path_factory.mktemp("runs") / "cells"
    labels = [f"class {i % 2}" for i in range(24)]
    runs = []
    for seed in range(2):
        made = make_run(RNG.normal(size=(24, 8)).astype(np.float32), labels)
        run = Run(shutil.copytree(made.folder, folder / f"seed-{seed}"))
        run.write_history([{"epoch": e, "loss": 2.0 - e + seed, "geometry": {"rankme": 3.0 + seed}} for e in range(2)])
        with np.load(run.features_file) as saved:
            np.savez(run.features_file, **saved, untrained=saved["features"][::-1])
        runs.append(run)
    return runs


@pytest.fixture(scope="module")
def opened(
    seeds: list[Run], show_page: Callable[[Path], webdriver.Chrome], tmp_path_factory: pytest.TempPathFactory
) -> webdriver.Chrome:
    out = tmp_path_factory.mktemp("page") / "report.html"
    return show_page(report([seeds[0].folder.parent], out=out, projections=("pca",)))


def table(browser: webdriver.Chrome, selector: str) -> list[list[str]]:
    script = (
        "return [...document.querySelectorAll(arguments[0] + ' tr')].map(r => [...r.cells].map(c => c.textContent))"
    )
    found: list[list[str]] = browser.execute_script(script, selector)
    return found


def test_seeds_stand_side_by_side_after_their_mean(opened: webdriver.Chrome, seeds: list[Run]) -> None:
    first, _, *rows = table(opened, ".compare")
    assert first == ["", "cells: mean ± sd of 2 seeds", "cells/seed-0", "cells/seed-1"]
    values = {row[0]: row[1:] for row in rows}
    results = [run.result or {} for run in seeds]
    for title, key, scale in (("RankMe", "rankme", 1), ("variance in the first component (%)", "first_component", 100)):
        for column, which in enumerate(("untrained", "trained")):
            found = [scale * result[which][key] for result in results]
            assert values[title][column] == f"{statistics.mean(found):.1f} ± {statistics.stdev(found):.1f}"
            assert values[title][2 + column :: 2] == [f"{value:.1f}" for value in found]
    assert "effective rank" not in values  # of standardised features it is RankMe
    [*_, heading] = [row for row in table(opened, "#training") if row[0] == ""]
    assert heading == ["", "epoch 1", "epoch 2"]
    assert ["Loss", "2.500 ± 0.7071", "1.500 ± 0.7071"] in table(opened, "#training")
    assert not opened.find_elements(By.CSS_SELECTOR, "#training .plot")


def test_what_was_read_is_shown_with_its_views(opened: webdriver.Chrome) -> None:
    assert ["class 0", "12"] in table(opened, "#read")
    figures = opened.find_elements(By.CSS_SELECTOR, "#read figure")
    assert len(figures) == 6
    assert {len(figure.find_elements(By.CSS_SELECTOR, ".thumb")) for figure in figures} == {5}
    rows = opened.find_elements(By.CSS_SELECTOR, "#gallery details[open] .row .which")
    assert [row.text for row in rows[:2]] == ["trained", "untrained"]
    names = opened.execute_script(
        "return [...document.querySelector('select[aria-label=map]').options].map(o => o.text)"
    )
    assert names == ["PCA", "PCA before training"]


def test_the_search_finds_all_matches_while_typing(opened: webdriver.Chrome) -> None:
    field = opened.find_element(By.CSS_SELECTOR, "input[type=search]")
    field.send_keys("1")
    wanted = [f"{i:06d}" for i in range(24) if "1" in f"{i:06d}"]
    tiles = opened.find_elements(By.CSS_SELECTOR, ".detail .matches .tile")
    assert [tile.get_attribute("title") for tile in tiles] == wanted
    ringed = "return document.querySelector('.map-plot').data.at(-1).x.length"
    assert opened.execute_script(ringed) == len(wanted)
    opened.execute_script("document.querySelector('.detail button').click()")
    assert opened.find_element(By.ID, "selected-count").text == str(len(wanted))
    field.send_keys("9")
    assert opened.find_element(By.CSS_SELECTOR, ".detail div").text == "000019"  # the only one: with its neighbours


def test_a_phone_keeps_its_screen(opened: webdriver.Chrome) -> None:
    metrics = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    opened.execute_script("scrollTo({top: 1500, behavior: 'instant'})")
    box = opened.execute_script(
        "const b = document.querySelector('nav').getBoundingClientRect(); return [b.top, b.height]"
    )
    assert box[0] == 0  # it stays at the top
    assert box[1] < 60
    assert opened.execute_script("return document.querySelector('h1').getBoundingClientRect().bottom") < 0
    width = "return document.documentElement.scrollWidth"
    WebDriverWait(opened, 10).until(lambda b: b.execute_script(width) == 390)  # charts follow a little later
    means = "return [...document.querySelectorAll('.compare td.mean')].map(c => c.getBoundingClientRect().right)"
    assert max(opened.execute_script(means)) < 390  # untrained and trained, without scrolling
    opened.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_figures_draw_seeds_with_a_band(seeds: list[Run]) -> None:
    axis = plot_geometry(*seeds).axes[0]
    [line], [band] = axis.get_lines(), axis.collections
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), 3.5)
    heights = np.asarray(band.get_paths()[0].vertices)[:, 1]
    np.testing.assert_allclose([heights.min(), heights.max()], [3.5 - 0.5**0.5, 3.5 + 0.5**0.5])


def test_intervals_of_classes_are_wilsons() -> None:
    z, n, p = norm.ppf(0.975), 17, 11 / 17
    middle, half = p + z**2 / (2 * n), z * (p * (1 - p) / n + z**2 / (4 * n**2)) ** 0.5
    found = class_intervals({"classes": ["a", "b"], "confusion": [[11, 6], [0, 0]]})
    np.testing.assert_allclose(found["a"], [(middle - half) / (1 + z**2 / n), (middle + half) / (1 + z**2 / n)])
    assert "b" not in found  # no test sample


def test_runs_of_the_same_samples_share_their_pictures() -> None:
    one, other = {"sheets": ["a"]}, {"sheets": ["b"]}
    content = share_sheets({"runs": [{"map": {"thumbnails": sheets}} for sheets in (one, other, dict(one), None)]})
    assert content["sheets"] == [one, other]
    assert [run["map"]["thumbnails"] for run in content["runs"]] == [0, 1, 0, None]
