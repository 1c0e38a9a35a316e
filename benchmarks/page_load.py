"""How long a browser takes to show report pages: until texts and tables are on the screen, and until all is drawn.

    icone pretrain synthetic:cells@32x20000 --epochs 1 --batch-size 64 --encoder resnet10t --out runs/many
    icone evaluate runs/many && icone report runs/many
    python benchmarks/page_load.py runs/many/report.html [OTHER.html …]

Pages take turns, each in a fresh headless Chromium, whose driver must be installed. Times are in milliseconds since the
page was asked for, beside the load average of the machine (os.getloadavg).
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.support.ui import WebDriverWait

FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-dev-shm-usage",
    "--use-angle=swiftshader",
    "--window-size=1400,900",
)
WATCH = """
window.times = { texts: 0, drawn: 0, longest: 0 };
new PerformanceObserver((found) => {
  for (const task of found.getEntries()) times.longest = Math.max(times.longest, Math.round(task.duration));
}).observe({ entryTypes: ["longtask"] });
(function look() {
  if (!times.texts && document.querySelector("#verdict .card")) times.texts = Math.round(performance.now());
  if (document.body?.dataset.ready) times.drawn = Math.round(performance.now());
  else requestAnimationFrame(look);
})();
"""
"""Runs in the page before its own scripts."""
SETTLED = 1.5
"""Seconds after which the longest task is known."""


def load(page: Path) -> dict[str, Any]:
    """The times of one load in a browser that has seen nothing before."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    with tempfile.TemporaryDirectory() as profile:
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        try:
            browser.execute_cdp_cmd("Page.addScriptToEvaluateOnNewDocument", {"source": WATCH})
            browser.get(page.absolute().as_uri())
            WebDriverWait(browser, 120).until(lambda b: b.execute_script("return times.drawn"))
            time.sleep(SETTLED)
            found: dict[str, Any] = browser.execute_script("return times")
        finally:
            browser.quit()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    print(f"{'page':<40} {'load':>6} {'texts':>7} {'drawn':>7} {'longest task':>13}")
    for _ in range(given.rounds):
        for page in given.pages:
            busy, found = os.getloadavg()[0], load(page)
            row = f"{busy:>6.1f} {found['texts']:>7} {found['drawn']:>7} {found['longest']:>13}"
            print(f"{str(page)[-40:]:<40} {row}", flush=True)


if __name__ == "__main__":
    main()
