"""The page for everybody: contrast, headings of tables, names of pictures, keyboard, no motion where none is wanted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium import webdriver
from selenium.webdriver.support.ui import WebDriverWait

from icone.report.write import report
from icone.run import Run

ShowPage = Callable[[Path], webdriver.Chrome]
RNG = np.random.default_rng(0)
CONTRAST = 4.5
"""Of text with what is behind it, the least that WCAG 2.1 allows (level AA)."""
DIM = """
const linear = (x) => (x / 255 <= 0.03928 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4);
const light = ([r, g, b]) => 0.2126 * linear(r) + 0.7152 * linear(g) + 0.0722 * linear(b);
const rgba = (text) => { const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number); return [r, g, b, a]; };
const over = (top, below) => below.map((v, i) => v * (1 - top[3]) + top[i] * top[3]);
function behind(node) {
  const layers = [];
  for (let e = node; e && layers.at(-1)?.[3] !== 1; e = e.parentElement) {
    layers.push(rgba(getComputedStyle(e).backgroundColor));
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
}
function isText(node) {
  const says = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  return says && node.getClientRects().length && node.ariaHidden !== "true" && !node.closest("script, style, option");
}
return [...document.querySelectorAll("body *")].filter(isText).flatMap((node) => {
  const colour = getComputedStyle(node)[node instanceof SVGElement ? "fill" : "color"], paper = behind(node);
  const [more, less] = [light(over(rgba(colour), paper)), light(paper)].sort((a, b) => b - a);
  const found = (more + 0.05) / (less + 0.05);
  return found < arguments[0] ? [`${node.tagName} ${node.textContent.slice(0, 30)}: ${found.toFixed(2)}`] : [];
});
"""
UNREACHED = """
const scrolls = (way) => ["auto", "scroll"].includes(way);
return [...document.querySelectorAll("main *")].filter((node) => {
  const style = getComputedStyle(node);
  const isWider = scrolls(style.overflowX) && node.scrollWidth > node.clientWidth + 1;
  const isHigher = scrolls(style.overflowY) && node.scrollHeight > node.clientHeight + 1;
  const isReached = node.tabIndex >= 0 || node.querySelector("button, a, input, [tabindex]");
  return (isWider || isHigher) && !isReached && !node.closest("details:not([open])");
}).map((node) => node.className);
"""


@pytest.fixture(scope="module")
def opened(
    make_run: Callable[..., Run], show_page: ShowPage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[webdriver.Chrome]:
    """A page with labels, some of them very long, and probes."""
    names = [f"class {i % 3}, a name as long as those that microscopes write" for i in range(36)]
    run = make_run(RNG.normal(size=(36, 8)).astype(np.float32), names, dims=3, size=8)
    browser = show_page(report([run], out=tmp_path_factory.mktemp("page") / "report.html", projections=("pca",)))
    yield browser
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def in_page(browser: webdriver.Chrome, script: str, *given: Any) -> Any:
    return browser.execute_script(script, *given)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_all_text_stands_out(opened: webdriver.Chrome, theme: str) -> None:
    wish = [{"name": "prefers-color-scheme", "value": theme}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wish})
    WebDriverWait(opened, 10).until(lambda b: in_page(b, "return document.documentElement.dataset.theme") == theme)
    in_page(opened, "document.querySelector('.legend button').click()")  # what is switched off can be read too
    assert in_page(opened, DIM, CONTRAST) == []
    assert in_page(opened, DIM, 21.1)  # it does look


def test_rows_and_columns_have_headings_and_pictures_names(opened: webdriver.Chrome) -> None:
    bare = "return [...document.querySelectorAll('table')].filter(t => ![...t.rows].some(r => r.querySelector('th')))"
    assert in_page(opened, bare + ".length") == 0
    assert in_page(opened, "return document.querySelectorAll('th:not([scope]), th:empty').length") == 0
    rows = "return [...document.querySelectorAll('tbody tr')].filter(r => r.cells[0].tagName !== 'TH').length"
    assert in_page(opened, rows) == 0
    unnamed = "return document.querySelectorAll('[role=img]:not([aria-label]), [role=region]:not([aria-label])').length"
    assert in_page(opened, unnamed) == 0
    said = in_page(opened, "return document.querySelector('#training .plot').ariaLabel")
    assert said == "Loss and its terms. loss: 1 at epoch 1, 0.1667 at epoch 6"
    assert in_page(opened, "const ids = [...document.querySelectorAll('[id]')].map(n => n.id); return ids.length") == (
        in_page(opened, "return new Set([...document.querySelectorAll('[id]')].map(n => n.id)).size")
    )


def test_the_keyboard_scrolls_whatever_is_larger_than_its_box(opened: webdriver.Chrome) -> None:
    for width in (1300, 390):
        size = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width < 500}
        opened.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        in_page(opened, "for (const box of document.querySelectorAll('details')) box.open = true")
        WebDriverWait(opened, 10).until(lambda b: in_page(b, UNREACHED) == [])
    assert in_page(opened, "return document.querySelectorAll('#read .tiles[tabindex]').length") == 6  # views of volumes
    needed = "return document.documentElement.scrollWidth"
    WebDriverWait(opened, 10).until(lambda b: in_page(b, needed) == 390)  # charts follow a little later


def test_nothing_moves_where_that_is_not_wanted(opened: webdriver.Chrome) -> None:
    moving = (
        "return [...document.querySelectorAll('*')].map(n => getComputedStyle(n)).filter(s => "
        "s.animationName !== 'none' || s.scrollBehavior === 'smooth' || parseFloat(s.transitionDuration) > 0).length"
    )
    wish = [{"name": "prefers-reduced-motion", "value": "reduce"}]
    opened.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wish})
    assert in_page(opened, moving) == 0
