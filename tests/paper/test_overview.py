"""One page for the whole paper: every label, paper beside ours, missing cells by name, nothing from outside."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from icone.cli import main
from icone.paper.experiments import EXPERIMENTS
from icone.paper.store import Store

NAMES = ["supervised", "hyperparameters", "memory", "natural-images"]


@pytest.fixture(scope="module")
def page(told: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("page") / "paper.html"
    assert main(["paper", "report", *NAMES, "--out", str(out), "--store", str(told.folder)]) == 0
    return out


def test_the_page_has_tables_figures_and_what_is_missing(page: Path) -> None:
    text = page.read_text()
    for name in NAMES:
        assert f'id="{name}"' in text
        assert all(label in text for label in EXPERIMENTS[name].labels)
    assert ">76.2<" in text  # the paper's
    assert "undefined" in text
    assert "needs a GPU: IConE at N = 50000, 100000, B = 4, 16, 64;" in text
    assert "out of memory" in text
    assert text.count("data:image/png;base64,") >= 3
    assert not re.search(r"<script|https?://|src=\"(?!data:)", text)


def test_the_same_as_markdown(told: Store, tmp_path: Path) -> None:
    out = tmp_path / "paper.md"
    assert main(["paper", "report", "supervised", "--out", str(out), "--store", str(told.folder)]) == 0
    text = out.read_text()
    assert "| IConE-Class | paper | **78.7** |" in text
    assert "### linear probe" in text


def test_a_browser_shows_it(page: Path, tmp_path: Path) -> None:
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium and chromedriver here (Debian: apt-get install chromium chromium-driver)")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common.by import By

    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (
        "--headless=new",
        "--no-sandbox",
        "--disable-dev-shm-usage",
        f"--user-data-dir={tmp_path / 'profile'}",
    ):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(driver))
    try:
        browser.get(page.as_uri())
        assert len(browser.find_elements(By.TAG_NAME, "section")) == len(NAMES)
        pictures = browser.find_elements(By.TAG_NAME, "img")
        assert pictures
        assert all(int(picture.get_property("naturalWidth")) > 100 for picture in pictures)  # type: ignore[arg-type]
        assert "76.2" in browser.find_element(By.ID, "supervised").text
        assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
    finally:
        browser.quit()
