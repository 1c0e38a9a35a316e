"""A real browser for the tests of the page."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

from icone.api.evaluated import saved_predictions
from icone.config import PretrainConfig
from icone.data import Data, load_data
from icone.evaluation.assessment import Partition, assess, run_probes
from icone.evaluation.metrics import Embedding
from icone.evaluation.verdict import judge
from icone.files import write_json
from icone.run import Run

Array = npt.NDArray[np.float32]

MEASURED = 500
"""Samples that figures are measured on: probes of 20,000 would take most of the time of the tests."""
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--window-size=1360,1000",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader",  # WebGL without a graphics card
)  # fmt: skip


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Headless Chromium with WebGL in software."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        pytest.skip("no chromium and chromedriver here (Debian: apt-get install chromium chromium-driver)")
    folder = tmp_path_factory.mktemp("browser")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in (*FLAGS, f"--user-data-dir={folder / 'profile'}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    chrome = webdriver.Chrome(options=options, service=Service(driver))
    yield chrome
    chrome.quit()


@pytest.fixture
def downloads(browser: webdriver.Chrome, tmp_path: Path) -> Path:
    """The folder where the browser saves files during this test."""
    browser.execute_cdp_cmd("Page.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(tmp_path)})
    return tmp_path


ShowPage = Callable[[Path], webdriver.Chrome]


@pytest.fixture(scope="session")
def show_page(browser: webdriver.Chrome) -> ShowPage:
    """Load a page in the browser and see that it has nothing to complain about."""

    def show(page: Path) -> webdriver.Chrome:
        browser.get_log("browser")  # of the page before
        browser.get(page.as_uri())
        WebDriverWait(browser, 60).until(lambda b: b.execute_script("return document.body.dataset.ready") == "true")
        logged: list[dict[str, Any]] = browser.get_log("browser")
        assert [entry for entry in logged if entry["level"] in ("SEVERE", "WARNING")] == []
        return browser

    return show


MakeRun = Callable[..., Run]


@pytest.fixture(scope="session")
def make_run(tmp_path_factory: pytest.TempPathFactory) -> MakeRun:
    """Write the folder of an evaluated run of small random pictures, as pretraining and evaluation would leave it."""

    def make(features: Array, labels: list[str], ids: list[str] | None = None, *, size: int = 16, dims: int = 2) -> Run:
        folder = tmp_path_factory.mktemp("run")
        count = len(features)
        pictures = np.random.default_rng(0).integers(0, 255, (count, *(size,) * dims, 1)[: dims + 1], dtype=np.uint8)
        if ids is None:
            source = folder / "pictures.npy"
            np.save(source, pictures)
        else:
            source = folder / "pictures"
            for name, pixels in zip(ids, pictures, strict=True):
                (source / name).parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(pixels).save(source / name, "PNG")
        config = PretrainConfig(source=str(source), size=size, epochs=6)
        data = load_data(config)
        run = Run(folder)
        ids_of_run = {"ids": list(data.train.ids), "test_ids": [], "labels": [], "minority": []}
        run.describe(config, _facts(data), ids_of_run)
        geometry = {"rankme": 5.0, "rank_limit": 8.0, "mean_cosine": 0.1, "first_component": 0.4}
        more = {"alignment": 0.5, "uniformity": -2.0}
        run.write_history(
            [
                {"epoch": e, "loss": 1 / (e + 1), "seconds": 1.0, "lr": 1e-4, "geometry": geometry | more}
                for e in range(6)
            ]
        )
        names = list(data.train.ids) if ids is None else ids
        finite = features[np.isfinite(features).all(axis=1)][:MEASURED]
        measured, predicted = _measured(finite, labels[:MEASURED])
        saved: dict[str, Any] = {"ids": names, "labels": labels, "splits": ["train"] * count, "features": features}
        np.savez(run.features_file, **saved, **predicted)
        verdict = judge(measured["trained"], measured["untrained"]).to_json()
        about = {"note": "made up", "samples": count, "view_samples": min(count, 50)}
        write_json(run.result_file, {"data": about, "verdict": verdict, "comparison": {}, **measured})
        return run

    return make


def _facts(data: Data) -> dict[str, Any]:
    return {
        "created": "today",
        "versions": {"python": "3"},
        "device": "cpu",
        "data": {
            "fingerprint": "f00d", "instances": len(data.train), "held_out": 0, "skipped": [], "notes": [],
            "preparation": data.preparation.to_json(),
        },
        "encoder": {"parameters": 1, "num_features": 8},
        "method": {"name": "icone", "options": {}},
    }  # fmt: skip


def _measured(features: Array, labels: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Metrics of an evaluation, and what the main probe says.

    There are probes with two classes or more; they are tested on what they were trained on.
    """
    rows = np.arange(len(features))
    partition = Partition(rows, rows, np.array(labels)) if len(set(labels)) > 1 and all(labels) else None
    views = np.stack([features[:50], features[:50] + 0.1], axis=1)
    probes = run_probes(features, partition)
    untrained = Embedding(features[::-1] ** 2, views)
    trained = assess(Embedding(features, views), probes, untrained.recognised)
    measured = {"trained": trained, "untrained": assess(untrained)}
    return measured, saved_predictions(probes, partition)
