"""Makes the pictures of the report page in docs/pictures.

    python docs/make_pictures.py [PAGE] [--runs RUNS]         # about ten minutes on two cores

PAGE is that of README.md's example: `python docs/make_readme.py --keep FOLDER` leaves it in FOLDER/report.html. Without
PAGE that command is run first, and writes its output into README.md. For the page of several seeds three are trained on
generated cells, and each is fine-tuned with all labels and with a tenth of them; they stay in the folder that `--runs`
names, and are not trained again. A headless Chromium with its driver takes the pictures.
"""

from __future__ import annotations

import argparse
import base64
import io
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

import icone
from icone.config import PretrainConfig

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
SEEDS = 3
MOST_BYTES = 150_000
SETTINGS = {
    "source": "synthetic:cells@48x240", "encoder": "resnet10t", "epochs": 10, "batch_size": 8, "lr": 3e-4,
    "test_fraction": 0.4, "probe_every": 2, "device": "cpu",
}  # fmt: skip
FRACTIONS = {"all-labels": 1.0, "a-tenth": 0.1}
"""Fine-tunings of every seed, by the share of the labels that they get."""
FLAGS = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars", "--use-angle=swiftshader")
CLICK = """
const field = document.querySelector("input[type=search]");
field.value = document.querySelector("#gallery .tile").title;
field.dispatchEvent(new Event("input"));
"""


def make_example(folder: Path) -> Path:
    """The page of README.md's example."""
    subprocess.run([sys.executable, str(HERE / "make_readme.py"), "--keep", str(folder)], check=True)
    return folder / "report.html"


def train_seeds(runs: Path) -> list[Path]:
    """The folders of the seeds; those that are not there yet are trained."""
    folders = [runs / "cells" / f"seed-{seed}" for seed in range(SEEDS)]
    if not all(icone.Run(folder).exists() for folder in folders):
        icone.pretrain_many([PretrainConfig(**SETTINGS, seed=seed) for seed in range(SEEDS)], folders)
    for folder in folders:
        if icone.Run(folder).result is None:
            icone.evaluate(folder, label_fractions=(0.05, 0.2, 0.5))
    return folders


def finetune_seeds(runs: Path, seeds: list[Path]) -> list[Path]:
    """A folder for every share of the labels, with a fine-tuning of each seed; those that are there are read."""
    for name, fraction in FRACTIONS.items():
        for seed in seeds:
            settings = {"fraction": fraction, "epochs": 6, "seed": icone.Run(seed).config.seed, "device": "cpu"}
            icone.finetune(seed, out=runs / name / seed.name, resume=True, **settings)
    return [runs / name for name in FRACTIONS]


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
    parser.add_argument("page", type=Path, nargs="?", help="the page of README.md's example")
    parser.add_argument("--runs", type=Path, help="keep the runs here, or take those that are here")
    given = parser.parse_args()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (example := folder / "example").mkdir()
        runs = given.runs or folder / "runs"
        one = given.page or make_example(example)
        trained = train_seeds(runs)
        seeds = icone.report([runs / "cells"], out=folder / "seeds.html", projections=("pca",))
        tuned = icone.report(finetune_seeds(runs, trained), out=folder / "fine-tunings.html")
        camera = Camera(folder / "profile")
        camera.open(one, 1280, "light")
        camera.take("report", "body", 1010)
        camera.take("report-probes", "#probes", 900)
        camera.browser.execute_script(CLICK)
        camera.take("report-map", "#map", 860)
        camera.open(seeds, 1280, "light")
        camera.take("report-seeds", "#verdict", 780)
        camera.open(tuned, 1280, "light")
        camera.take("report-fine-tunings", "#verdict", 780)
        camera.open(one, 390, "dark", phone=True)
        camera.take("report-phone", "body", 844)
        camera.browser.quit()


if __name__ == "__main__":
    main()
