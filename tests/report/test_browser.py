"""The page in a real browser: few and many points, hostile names, two runs, keyboard, both themes."""

from __future__ import annotations

import base64
import csv
import itertools
import re
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from selenium import webdriver
from selenium.webdriver import Keys
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select, WebDriverWait

from icone.files import write_json
from icone.report.write import report
from icone.run import Run

Array = npt.NDArray[np.float32]
MANY = 20_000
HOSTILE = [
    '<img src=x onerror="window.hacked=1">', "</script><script>window.hacked=2</script>", "<!--<script>", "{{script}}",
    "%{x} $y$ &lt;", "javascript:window.hacked=3", "line\u2028end", "=cmd|'/c calc'!A1", '"quoted", and comma',
]  # fmt: skip


def blobs(count: int, classes: int) -> tuple[Array, list[str]]:
    """Well separated Gaussian clusters, and the class of every row."""
    rng = np.random.default_rng(0)
    codes = np.arange(count) % classes
    centres = 8 * rng.normal(size=(classes, 8))
    return (centres[codes] + rng.normal(size=(count, 8))).astype(np.float32), [f"class {c}" for c in codes]


@pytest.fixture(scope="module")
def few(make_run: Callable[..., Run]) -> Run:
    return make_run(*blobs(30, 3))


@pytest.fixture(scope="module")
def few_page(few: Run, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("page")
    table = folder / "table.csv"
    rows = [f"{i},{'left' if i < 10 else 'right'},{i / 7}" for i in range(30)]
    table.write_text("\n".join(["id,side,weight", *rows]))
    return report([few], out=folder / "report.html", projections=("pca", "tsne"), table=table)


@pytest.fixture(scope="module")
def many_page(make_run: Callable[..., Run], tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = make_run(*blobs(MANY, 12), size=8)
    return report([run], out=tmp_path_factory.mktemp("page") / "report.html", projections=("pca",))


def console(browser: Any) -> list[dict[str, Any]]:
    """What the page has written to its console since the last call."""
    entries: list[dict[str, Any]] = browser.get_log("browser")
    return entries


def open_page(browser: webdriver.Chrome, page: Path, *, fresh: bool = True) -> None:
    """Load a page and see that it has nothing to complain about; one that is open already may be kept."""
    if not fresh and browser.current_url == page.as_uri():
        browser.execute_script("document.querySelector('#clear').click()")
        mouse(browser, "mouseMoved", 2, 2)
        return
    console(browser)  # of the page before
    browser.get(page.as_uri())
    WebDriverWait(browser, 60).until(lambda b: b.execute_script("return document.body.dataset.ready") == "true")
    assert [entry for entry in console(browser) if entry["level"] in ("SEVERE", "WARNING")] == []


PIXELS = """
const plot = document.querySelectorAll(".map-plot")[arguments[0]];
const { xaxis, yaxis } = plot._fullLayout, box = plot.getBoundingClientRect(), out = {};
for (const trace of plot.data) (trace.customdata ?? []).forEach((point, k) => {
  out[point] = [box.left + xaxis._offset + xaxis.d2p(trace.x[k]), box.top + yaxis._offset + yaxis.d2p(trace.y[k])];
});
return out;
"""


def pixels(browser: webdriver.Chrome, panel: int = 0) -> dict[int, tuple[float, float]]:
    """Where every point is in the window, after scrolling to the map."""
    plot = browser.find_elements(By.CSS_SELECTOR, ".map-plot")[panel]
    browser.execute_script("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", plot)
    time.sleep(0.3)
    found: dict[str, list[float]] = browser.execute_script(PIXELS, panel)
    return {int(point): (x, y) for point, (x, y) in found.items()}


def mouse(browser: webdriver.Chrome, kind: str, x: float, y: float, **more: Any) -> None:
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **more})


def hover(browser: webdriver.Chrome, x: float, y: float) -> None:
    for step in (-3, -1, 0):
        mouse(browser, "mouseMoved", x + step, y)
        time.sleep(0.1)


def drag(browser: webdriver.Chrome, path: list[tuple[float, float]], steps: int = 8) -> None:
    mouse(browser, "mousePressed", *path[0], button="left", clickCount=1)
    for (x0, y0), (x1, y1) in itertools.pairwise(path):
        for share in np.linspace(0, 1, steps):
            mouse(browser, "mouseMoved", x0 + share * (x1 - x0), y0 + share * (y1 - y0), button="left", buttons=1)
    mouse(browser, "mouseReleased", *path[-1], button="left", clickCount=1)


def text_of(browser: webdriver.Chrome, selector: str) -> str:
    return str(browser.execute_script(f"return document.querySelector({selector!r}).textContent"))


def loneliest(points: dict[int, tuple[float, float]]) -> int:
    """The point farthest from any other: the one a mouse hits for sure."""
    xy = np.array(list(points.values()))
    distance = np.linalg.norm(xy[:, None] - xy[None, :], axis=-1) + 1e9 * np.eye(len(xy))
    return list(points)[int(distance.min(axis=1).argmax())]


def saved(folder: Path) -> list[list[str]]:
    file = folder / "selected.csv"
    end = time.monotonic() + 20
    while not (file.is_file() and file.stat().st_size) and time.monotonic() < end:
        time.sleep(0.1)
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.reader(lines))


def ids_of(run: Run) -> list[str]:
    with np.load(run.features_file) as file:
        return [str(name) for name in file["ids"]]


def test_hovering_shows_the_thumbnail_of_that_sample(browser: webdriver.Chrome, few_page: Path, few: Run) -> None:
    open_page(browser, few_page)
    points = pixels(browser)
    point = loneliest(points)
    hover(browser, *points[point])
    WebDriverWait(browser, 10).until(lambda b: b.find_element(By.ID, "tooltip").is_displayed())
    assert text_of(browser, "#tooltip div") == ids_of(few)[point]
    thumb = browser.find_element(By.CSS_SELECTOR, "#tooltip .thumb")
    assert "blob:" in thumb.value_of_css_property("background-image")
    x, y = (-96 * (point % 16), -96 * (point // 16))
    assert thumb.value_of_css_property("background-position") == f"{x}px {y}px".replace("-0px", "0px")
    mouse(browser, "mouseMoved", 2, 2)
    WebDriverWait(browser, 10).until(lambda b: not b.find_element(By.ID, "tooltip").is_displayed())


def test_a_lasso_lists_and_saves_the_ids_inside(
    browser: webdriver.Chrome, few_page: Path, few: Run, downloads: Path
) -> None:
    open_page(browser, few_page, fresh=False)
    points = pixels(browser)
    xs = sorted(x for x, _ in points.values())
    gap = int(np.argmax(np.diff(xs)))
    cut = (xs[gap] + xs[gap + 1]) / 2
    left, top = min(xs) - 15, min(y for _, y in points.values()) - 15
    bottom = max(y for _, y in points.values()) + 15
    drag(browser, [(left, top), (cut, top), (cut, bottom), (left, bottom), (left, top)])
    with np.load(few.features_file) as file:
        inside = {str(file["ids"][i]): str(file["labels"][i]) for i, (x, _) in points.items() if x < cut}
    assert 0 < len(inside) < 30
    WebDriverWait(browser, 10).until(lambda b: text_of(b, "#selected-count") == str(len(inside)))
    listed = {item.text for item in browser.find_elements(By.CSS_SELECTOR, "#selected-ids li")}
    assert listed == set(inside)
    browser.find_element(By.ID, "export").click()
    header, *rows = saved(downloads)
    assert header == ["id", "label"]
    assert dict(rows) == inside
    browser.find_element(By.ID, "clear").click()
    assert text_of(browser, "#selected-count") == "0"


def test_a_click_shows_the_nearest_neighbours(browser: webdriver.Chrome, few_page: Path, few: Run) -> None:
    open_page(browser, few_page, fresh=False)
    points = pixels(browser)
    point = loneliest(points)
    hover(browser, *points[point])
    for kind in ("mousePressed", "mouseReleased"):
        mouse(browser, kind, *points[point], button="left", clickCount=1)
    with np.load(few.features_file) as file:
        x, ids = file["features"].astype(np.float64), file["ids"]
    x = (x - x.mean(0)) / x.std(0)
    order = np.argsort(np.linalg.norm(x - x[point], axis=1), kind="stable")
    wanted = [str(ids[i]) for i in order if i != point][:8]
    selector = ".detail .tile"
    WebDriverWait(browser, 10).until(lambda b: b.find_elements(By.CSS_SELECTOR, selector))
    assert [t.get_attribute("title") for t in browser.find_elements(By.CSS_SELECTOR, selector)] == wanted


def colour_by(browser: webdriver.Chrome, name: str) -> list[str]:
    """Choose a column; the names in the legend."""
    Select(browser.find_element(By.CSS_SELECTOR, 'select[aria-label="colour by"]')).select_by_visible_text(name)
    return [entry.text for entry in browser.find_elements(By.CSS_SELECTOR, ".legend .name")]


def test_colour_by_label_cluster_density_and_table_columns(browser: webdriver.Chrome, few_page: Path) -> None:
    open_page(browser, few_page, fresh=False)
    assert sorted(colour_by(browser, "label")) == ["class 0", "class 1", "class 2"]
    assert sorted(colour_by(browser, "cluster")) == ["cluster 1", "cluster 2", "cluster 3"]
    assert sorted(colour_by(browser, "side")) == ["left", "right"]
    colours = browser.execute_script("return document.querySelector('.map-plot').data[0].marker.color")
    assert sorted(Counter(colours).values()) == [10, 20]  # left and right
    for number in ("density", "weight"):
        assert colour_by(browser, number) == []
        values = browser.execute_script("return document.querySelector('.map-plot').data[0].marker.color")
        assert len(set(values)) > 20
    Select(browser.find_element(By.CSS_SELECTOR, 'select[aria-label="map"]')).select_by_visible_text("t-SNE")
    assert console(browser) == []


def test_no_group_of_points_covers_the_others(browser: webdriver.Chrome, few_page: Path) -> None:
    """Points are drawn in a mixed order, whatever their order in the data; a group can be hidden."""
    open_page(browser, few_page, fresh=False)
    colour_by(browser, "side")  # the first 10 of 30 are on the left
    first = "return document.querySelector('.map-plot').data[0].customdata"
    drawn = browser.execute_script(first)
    assert sorted(drawn) == list(range(30))
    assert {point < 10 for point in drawn[:10]} == {point < 10 for point in drawn[-10:]} == {True, False}
    left = browser.find_element(By.CSS_SELECTOR, ".legend button")
    left.send_keys(Keys.ENTER)
    assert sorted(browser.execute_script(first)) == list(range(10, 30))
    again = browser.switch_to.active_element  # the keyboard stays where it was
    assert ("left" in again.text, again.get_attribute("aria-pressed")) == (True, "false")
    again.send_keys(Keys.ENTER)
    assert len(browser.execute_script(first)) == 30


def test_axes_of_charts_in_a_row_stand_in_line(browser: webdriver.Chrome, few_page: Path) -> None:
    open_page(browser, few_page, fresh=False)
    script = """return [...document.querySelectorAll("#training .chart")].map(c => {
        const box = c.getBoundingClientRect();
        return [box.top, c.querySelector(".plot").getBoundingClientRect().bottom, c.querySelector("h3").clientHeight];
    })"""
    rows: dict[float, list[tuple[float, float]]] = {}
    for top, bottom, title in browser.execute_script(script):
        rows.setdefault(top, []).append((bottom, title))
    assert any(len({title for _, title in row}) > 1 for row in rows.values())  # some titles take two lines
    assert all(len({bottom for bottom, _ in row}) == 1 for row in rows.values())


def test_texts_do_not_wait_for_the_plotting_library(browser: webdriver.Chrome, few_page: Path, tmp_path: Path) -> None:
    """A page whose library never runs has its texts, tables and pictures; printing draws what is not drawn yet."""
    page = few_page.read_text()
    assert page.index('<script id="plotly"') > page.index("showVerdicts();")
    cut = page.replace('addEventListener("DOMContentLoaded", showCharts);', "")
    assert cut != page
    policy = re.compile(r'<meta http-equiv="Content-Security-Policy"[^>]*>')
    (tmp_path / "cut.html").write_text(policy.sub("", cut))
    browser.get((tmp_path / "cut.html").as_uri())
    for section in ("verdict .card", "read figure", "gallery .row", "probes table", "provenance pre"):
        assert browser.find_elements(By.CSS_SELECTOR, f"#{section}"), section
    assert browser.execute_script("return window.Plotly") is None
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    plots = "return [...document.querySelectorAll('.plot, .map-plot')].map(p => Boolean(p.data))"
    found = browser.execute_script(plots)
    assert len(found) > 5
    assert all(found)


STATES: dict[str, dict[str, str]] = {
    "learned": {"light": "rgba(0, 115, 79, 1)", "dark": "rgba(63, 214, 162, 1)"},
    "no better than untrained": {"light": "rgba(138, 90, 0, 1)", "dark": "rgba(240, 180, 41, 1)"},
    "worse than untrained": {"light": "rgba(179, 38, 30, 1)", "dark": "rgba(255, 138, 128, 1)"},
    "collapsed": {"light": "rgba(179, 38, 30, 1)", "dark": "rgba(255, 138, 128, 1)"},
    "unclear": {"light": "rgba(87, 96, 106, 1)", "dark": "rgba(162, 171, 181, 1)"},
}


def test_only_what_has_learned_is_green(
    browser: webdriver.Chrome, make_run: Callable[..., Run], tmp_path: Path
) -> None:
    runs = [make_run(*blobs(6, 2)) for _ in STATES]
    for run, state in zip(runs, STATES, strict=True):
        verdict = {"state": state, "headline": f"{state}!", "evidence": ["<b>one</b>", "two"], "advice": "Rest."}
        write_json(run.result_file, (run.result or {}) | {"verdict": verdict})
    page = report(runs, out=tmp_path / "states.html", projections=("pca",), thumbnails=False)
    for theme in ("light", "dark"):
        wish = [{"name": "prefers-color-scheme", "value": theme}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wish})
        open_page(browser, page)
        cards = browser.find_elements(By.CSS_SELECTOR, "#verdict .cards .card")
        for card, state in zip(cards, STATES, strict=True):
            badge = card.find_element(By.CSS_SELECTOR, ".badge")
            assert badge.text.lower() == state
            assert badge.value_of_css_property("color") == STATES[state][theme]
            assert card.value_of_css_property("border-left-color").replace("rgb(", "rgba(").rstrip(")") in (
                STATES[state][theme].removesuffix(", 1)"), STATES[state][theme].rstrip(")"),
            )  # fmt: skip
            grounds = card.find_element(By.CSS_SELECTOR, "details.why")  # of five runs they are folded up
            assert grounds.get_attribute("open") is None
            grounds.find_element(By.TAG_NAME, "summary").send_keys(Keys.ENTER)
            assert [item.text for item in card.find_elements(By.TAG_NAME, "li")] == ["<b>one</b>.", "Two."]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    assert "a few samples" in text_of(browser, "#training .help")  # these histories do not say how many


def tab_to(browser: webdriver.Chrome, selector: str, *, most: int = 60) -> None:
    """Press Tab until the focus is on such an element, and see that the focus shows."""
    for _ in range(most):
        webdriver.ActionChains(browser).send_keys(Keys.TAB).perform()
        focused = browser.switch_to.active_element
        if browser.execute_script("return arguments[0].matches(arguments[1])", focused, selector):
            assert focused.value_of_css_property("outline-style") == "solid"
            return
    raise AssertionError(f"{most} times Tab do not reach {selector}")


def press(browser: webdriver.Chrome, *keys: str) -> None:
    webdriver.ActionChains(browser).send_keys(*keys).perform()


def test_the_keyboard_alone_reaches_everything(
    browser: webdriver.Chrome, few_page: Path, few: Run, downloads: Path
) -> None:
    """From the top of the page, in its order: theme, colouring, legend, map, neighbours, the selection and its file."""
    open_page(browser, few_page)
    before = browser.execute_script("return document.documentElement.dataset.theme")
    tab_to(browser, "#theme")
    press(browser, Keys.ENTER)
    assert browser.execute_script("return document.documentElement.dataset.theme") != before
    tab_to(browser, 'select[aria-label="colour by"]')
    press(browser, "s")  # side, the first option that begins so
    assert {entry.text for entry in browser.find_elements(By.CSS_SELECTOR, ".legend .name")} == {"left", "right"}
    tab_to(browser, ".legend button")
    press(browser, Keys.ENTER)  # hides the first, of ten
    assert browser.switch_to.active_element.get_attribute("aria-pressed") == "false"
    tab_to(browser, ".map-plot")
    press(browser, Keys.ARROW_RIGHT, Keys.ARROW_RIGHT, Keys.ARROW_LEFT)
    assert text_of(browser, ".detail div") == ids_of(few)[0]
    press(browser, Keys.ENTER)
    name = browser.switch_to.active_element.get_attribute("title")
    press(browser, Keys.ENTER)  # walks on to that neighbour
    assert text_of(browser, ".detail div") == name
    assert "tile" in (browser.switch_to.active_element.get_attribute("class") or "").split()
    browser.execute_script("document.querySelector('h1').scrollIntoView(); document.activeElement.blur()")
    tab_to(browser, ".controls button")  # select all that is shown
    press(browser, Keys.ENTER)
    assert text_of(browser, "#selected-count") == "20"
    tab_to(browser, "#export")
    press(browser, Keys.ENTER)
    assert len(saved(downloads)) == 21
    tab_to(browser, "#clear")
    press(browser, Keys.ENTER)
    assert text_of(browser, "#selected-count") == "0"
    tab_to(browser, "#gallery .tile")
    wanted = browser.switch_to.active_element.get_attribute("title")
    press(browser, Keys.ENTER)
    assert text_of(browser, ".detail div") == wanted


WIDER = """
return [...document.querySelectorAll(".plot .main-svg, .map-plot .main-svg, .scroll > *")]
  .filter((node) => node.getBoundingClientRect().right > document.body.clientWidth / 2 + 352)
  .map((node) => node.className.baseVal ?? node.className);
"""


def test_on_paper_everything_fits_and_is_light(browser: webdriver.Chrome, few_page: Path) -> None:
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    open_page(browser, few_page)
    width = "return document.querySelector('.plot .main-svg').getBoundingClientRect().width"
    on_screen = browser.execute_script(width)
    assert on_screen <= browser.execute_script("return document.querySelector('.plot').clientWidth")
    printed = base64.b64decode(
        browser.execute_cdp_cmd("Page.printToPDF", {"paperWidth": 8.27, "paperHeight": 11.69})["data"]
    )
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 9
    browser.execute_script("dispatchEvent(new Event('beforeprint'))")
    assert browser.execute_script("return document.querySelector('main').clientWidth") == 700
    assert browser.execute_script(WIDER) == []
    assert browser.execute_script("return document.querySelector('.plot')._fullLayout.font.color") == "#1b1f24"
    assert not browser.find_element(By.CSS_SELECTOR, ".controls").is_displayed()
    assert browser.find_element(By.CSS_SELECTOR, ".caption").is_displayed()
    browser.execute_script("dispatchEvent(new Event('afterprint'))")
    WebDriverWait(browser, 10).until(lambda b: b.execute_script(width) == on_screen)
    assert browser.execute_script("return document.documentElement.dataset.theme") == "dark"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_both_themes_follow_the_system_and_the_button(browser: webdriver.Chrome, few_page: Path) -> None:
    papers = {}
    for wish in ("light", "dark"):
        features = [{"name": "prefers-color-scheme", "value": wish}]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        open_page(browser, few_page)
        papers[wish] = browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color")
    assert papers["light"] == "rgba(255, 255, 255, 1)"
    assert papers["dark"] == "rgba(20, 23, 27, 1)"
    ink = "return document.querySelector('.plot')._fullLayout.font.color"
    dark = browser.execute_script(ink)
    browser.find_element(By.ID, "theme").click()
    assert browser.find_element(By.TAG_NAME, "body").value_of_css_property("background-color") == papers["light"]
    assert browser.execute_script(ink) != dark
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.slow
def test_twenty_thousand_points_are_drawn_quickly_and_can_be_hovered(
    browser: webdriver.Chrome, many_page: Path, downloads: Path
) -> None:
    assert many_page.stat().st_size < 40e6
    open_page(browser, many_page)
    plot = "document.querySelector('.map-plot')"
    kinds = browser.execute_script(f"return {plot}.data.slice(0, -1).map(t => [t.type, t.x.length])")
    assert {kind for kind, _ in kinds} == {"scattergl"}
    assert sum(count for _, count in kinds) == MANY
    points = pixels(browser)
    x, y = points[0]
    hover(browser, x, y)
    WebDriverWait(browser, 10).until(lambda b: b.find_element(By.ID, "tooltip").is_displayed())
    assert browser.find_elements(By.CSS_SELECTOR, "#tooltip .thumb")
    began = time.monotonic()
    colour_by(browser, "density")
    assert time.monotonic() - began < 10
    xs, ys = zip(*pixels(browser).values(), strict=True)  # the legend is gone, and all has moved
    corners = [
        (min(xs) - 4, min(ys) - 4),
        (max(xs) + 4, min(ys) - 4),
        (max(xs) + 4, max(ys) + 4),
        (min(xs) - 4, max(ys) + 4),
    ]
    drag(browser, [*corners, corners[0]], steps=3)
    WebDriverWait(browser, 30).until(lambda b: text_of(b, "#selected-count") == str(MANY))
    browser.find_element(By.ID, "export").click()
    assert len(saved(downloads)) == MANY + 1
    assert [e for e in console(browser) if e["level"] == "SEVERE"] == []


def test_hostile_names_stay_text(
    browser: webdriver.Chrome, make_run: Callable[..., Run], tmp_path: Path, downloads: Path
) -> None:
    features, _ = blobs(27, 9)
    ids = [f"{HOSTILE[i % 9]}{i // 9}.png" for i in range(27)]
    run = make_run(features, [HOSTILE[i % 9] for i in range(27)], ids)
    table = tmp_path / "table.csv"
    with table.open("w", newline="", encoding="utf-8") as file:
        rows = [[name, HOSTILE[(i + 1) % 9]] for i, name in enumerate(ids)]
        csv.writer(file).writerows([["file", HOSTILE[0]], *rows])
    page = report([run], out=tmp_path / "report.html", projections=("pca",), table=table)
    open_page(browser, page)
    assert set(colour_by(browser, "label")) == {" ".join(name.split()) for name in HOSTILE}
    colour_by(browser, HOSTILE[0])
    browser.find_element(By.CSS_SELECTOR, ".map-plot").send_keys(Keys.ARROW_RIGHT)
    assert ids[0] in text_of(browser, ".detail")
    points = pixels(browser)
    hover(browser, *points[loneliest(points)])
    assert browser.execute_script("return window.hacked") is None
    assert browser.execute_script("return document.querySelectorAll('script').length") == 3
    assert browser.execute_script("return document.querySelectorAll('img, iframe, object, main a').length") == 0
    shown = next(b for b in browser.find_elements(By.CSS_SELECTOR, ".controls button") if b.text == "Select all shown")
    shown.send_keys(Keys.ENTER)
    browser.find_element(By.ID, "export").send_keys(Keys.ENTER)
    assert {tuple(row) for row in saved(downloads)[1:]} == {(ids[i], HOSTILE[i % 9]) for i in range(27)}
    loaded = browser.execute_script("return performance.getEntriesByType('resource').map(e => e.name)")
    assert all(name.startswith(("blob:", "data:")) for name in loaded)


def test_two_runs_stand_side_by_side_and_share_the_selection(
    browser: webdriver.Chrome, few: Run, make_run: Callable[..., Run], tmp_path: Path
) -> None:
    other = make_run(blobs(30, 2)[0], [""] * 30)
    page = report([few, other], out=tmp_path / "report.html", projections=("pca",))
    open_page(browser, page)
    assert len(browser.find_elements(By.CSS_SELECTOR, ".map-plot")) == 2
    assert len(browser.find_elements(By.CSS_SELECTOR, ".cards .card")) == 2
    shown = next(b for b in browser.find_elements(By.CSS_SELECTOR, ".controls button") if b.text == "Select all shown")
    legend = browser.find_element(By.CSS_SELECTOR, ".legend button")
    legend.send_keys(Keys.ENTER)
    shown.send_keys(Keys.ENTER)
    chosen = "return document.querySelectorAll('.map-plot')[1].data.flatMap(t => t.selectedpoints ?? []).length"
    assert browser.execute_script(chosen) == 20
    assert console(browser) == []


def test_a_page_of_several_runs_says_whether_they_differ(
    browser: webdriver.Chrome, make_run: Callable[..., Run], tmp_path: Path
) -> None:
    """A clear difference, one that is none, and a run without labels; runs of the same start share a column."""
    features, labels = blobs(60, 3)
    noise = np.random.default_rng(1).normal(size=features.shape).astype(np.float32)
    runs = [make_run(features, labels), make_run(noise, labels), make_run(features, labels), make_run(noise, [""] * 60)]
    for run in runs[1:]:
        result = run.read_json("result.json")
        write_json(run.result_file, {**result, "untrained": runs[0].read_json("result.json")["untrained"]})
    open_page(browser, report(runs, out=tmp_path / "report.html", projections=("pca",), thumbnails=False))
    said = [item.text for item in browser.find_elements(By.CSS_SELECTOR, ".compared li")]
    names = [run.folder.name for run in runs]
    assert f"do not tell {names[0]} and {names[2]} apart: the difference is 0.0 points" in said[0]
    assert said[1].startswith(f"{names[0]} is ahead of {names[1]} by ")
    assert "apart" not in said[1]
    assert said[2] == f"{names[3]} is not compared: made up."
    heads = "return [...document.querySelectorAll('.compare thead tr:first-child :is(th, td)')].map(c => c.textContent)"
    assert browser.execute_script(heads) == ["", "all runs", *names]
