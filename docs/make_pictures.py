"""Makes the pictures of the report page in docs/pictures.

    python docs/make_readme.py --keep FOLDER
    python docs/make_pictures.py FOLDER/report.html [--runs RUNS]

The first page is that of README.md's example. For the page of several seeds three are trained on generated cells (a few
minutes on two cores); they stay in the folder that `--runs` names, and are not trained again. A headless Chromium with
its driver takes the pictures.
"""

from __future__ import annotations

import argparse
import base64
import io
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

import icone
from icone.config import PretrainConfig

PICTURES = Path(__file__).parent / "pictures"
SEEDS = 3
MOST_BYTES = 150_000
SETTINGS = {
    "source": "synthetic:cells@48x240", "encoder": "resnet10t", "epochs": 10, "batch_size": 8, "lr": 3e-4,
    "test_fraction": 0.4, "probe_every": 2, "device": "cpu",
}  # fmt: skip
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--use-angle=swiftshader")
CLICK = """
const field = document.querySelector("input[type=search]");
field.value = document.querySelector("#gallery .tile").title;
field.dispatchEvent(new Event("input"));
"""


def make_page(runs: Path) -> Path:
    """Train what is not there yet; the page of all seeds."""
    folders = [runs / "cells" / f"seed-{seed}" for seed in range(SEEDS)]
    if not all(icone.Run(folder).exists() for folder in folders):
        icone.pretrain_many([PretrainConfig(**SETTINGS, seed=seed) for seed in range(SEEDS)], folders)
    for folder in folders:
        if icone.Run(folder).result is None:
            icone.evaluate(folder, label_fractions=(0.05, 0.2, 0.5))
    return icone.report([runs / "cells"], out=runs / "seeds.html", projections=("pca",))


class Camera:
    """A headless browser that takes pictures of a page."""

    def __init__(self, profile: Path) -> None:
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or ""
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        self.browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))

    def open(self, page: Path, width: int, theme: str, *, phone: bool = False) -> None:
        """Load a page at a width of the window, in the light or the dark theme."""
        size = {"width": width, "height": 844 if phone else 900, "deviceScaleFactor": 1, "mobile": phone}
        self.browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        wish = [{"name": "prefers-color-scheme", "value": theme}]
        self.browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": wish})
        self.browser.get(page.absolute().as_uri())
        ready = "return document.body.dataset.ready"
        WebDriverWait(self.browser, 60).until(lambda b: b.execute_script(ready) == "true")

    def take(self, name: str, selector: str, height: int) -> None:
        """Save the page from the top of an element down, with few colours, so that the file is small."""
        where = "return [document.querySelector(arguments[0]).getBoundingClientRect().top + scrollY, innerWidth]"
        top, width = self.browser.execute_script(where, selector)
        clip = {"x": 0, "y": top, "width": width, "height": height, "scale": 1}
        settings = {"format": "png", "captureBeyondViewport": True, "clip": clip}
        shot = self.browser.execute_cdp_cmd("Page.captureScreenshot", settings)
        image = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
        target = PICTURES / f"{name}.png"
        image.quantize(96, dither=Image.Dither.NONE).save(target, optimize=True)
        size = target.stat().st_size
        print(f"wrote {target} ({size / 1000:.0f} kB)")
        assert size < MOST_BYTES, f"{target} is larger than {MOST_BYTES} bytes: show less of the page"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("page", type=Path, help="the page of one run")
    parser.add_argument("--runs", type=Path, help="keep the runs here, or take those that are here")
    given = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        one, seeds = given.page, make_page(given.runs or Path(temporary))
        camera = Camera(Path(temporary) / "profile")
        camera.open(one, 1280, "light")
        camera.take("report", "body", 1010)
        camera.take("report-probes", "#probes", 900)
        camera.browser.execute_script(CLICK)
        camera.take("report-map", "#map", 860)
        camera.open(seeds, 1280, "light")
        camera.take("report-seeds", "#verdict", 780)
        camera.open(one, 390, "dark", phone=True)
        camera.take("report-phone", "body", 844)
        camera.browser.quit()


if __name__ == "__main__":
    main()
