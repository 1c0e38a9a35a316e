"""docs/results.md is made from the stored runs, and nobody has typed a number of its tables."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from icone.cli import main
from icone.errors import InputError
from icone.paper.results_page import fill, write_page

DOCS = Path(__file__).parents[2] / "docs"
MANY_NUMBERS = 4


def test_the_page_of_results_is_what_the_command_makes(tmp_path: Path) -> None:
    assert main(["paper", "report", "--runs", str(DOCS / "results"), "--out", str(tmp_path / "results.md")]) == 0
    command = "icone paper report --runs docs/results --out docs/results.md"
    assert (tmp_path / "results.md").read_text() == (DOCS / "results.md").read_text(), f"run it again: {command}"


def test_no_paragraph_is_a_wall_of_numbers() -> None:
    """Batch sizes, ratios, names and quotations do not count."""
    text = re.sub(r"```.*?```|`[^`]*`|\(\S*\)", "", (DOCS / "results.md").read_text(), flags=re.DOTALL)
    for paragraph in text.split("\n\n"):
        if not paragraph.startswith("|"):
            plain = re.sub(r"[Bk] (=|≤) \d+( (and|to) \d+)?|\w+-\d+|[A-Za-z]\w*\d\w*", "", paragraph)
            assert len(re.findall(r"\d+(?:\.\d+)?", plain)) <= MANY_NUMBERS, paragraph


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three seeds of a method, two of another, which is undefined at batch 1 and was not measured at 2."""
    rng = np.random.default_rng(0)
    rows = [
        {"method": method, "batch_size": b, "seed": seed, "status": "done", "linear_probe": rng.random()}
        for method, b, seeds in (("IConE", 1, 3), ("IConE", 2, 3), ("IConE", 16, 3), ("SimCLR", 16, 2))
        for seed in range(seeds)
    ]
    rows += [{"method": "SimCLR", "batch_size": 1, "seed": s, "status": "undefined"} for s in range(3)]
    pd.DataFrame(rows).to_csv(tmp_path / "runs.csv", index=False)
    return tmp_path


def test_cells_are_means_and_spreads_of_the_runs(folder: Path) -> None:
    runs = pd.read_csv(folder / "runs.csv")
    values = 100 * runs[(runs["method"] == "IConE") & (runs["batch_size"] == 2)]["linear_probe"]
    expected = f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
    assert fill("{{ runs.csv linear_probe method=IConE batch_size=2 }} %", folder) == f"{expected} %"
    table = fill("<!-- table runs.csv rows=method columns=batch_size metric=linear_probe -->", folder).splitlines()
    assert table[0] == "| method | B = 1 | B = 2 | B = 16 |"
    assert table[2].split(" | ")[2] == expected
    assert table[3].startswith("| SimCLR | undefined | – | ")
    assert table[-1] == "Seeds: 3; 2: SimCLR."
    summary = fill('<!-- summary metric=linear_probe at=16 "A set=runs.csv" -->', folder).splitlines()
    assert summary[0] == "| method | A set: smallest B | B = 16 |"
    assert summary[3].startswith("| SimCLR | – (B = 2) | ")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{{ runs.csv linear_probe method=BYOL }}", "no run of runs.csv"),
        ("{{ other.csv linear_probe }}", "other.csv"),
        ("{{ runs.csv linear_probe method=IConE }}", "several runs of one seed"),
        ("<!-- table runs.csv rows=methods columns=batch_size metric=linear_probe -->", "methods"),
    ],
)
def test_what_cannot_be_filled_is_named(folder: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        fill(text, folder)


def test_standings_compare_one_setting_with_all_others_of_several_sets(tmp_path: Path) -> None:
    """Half of four test samples right, or all of them; times are multiples of the reference's."""
    about = {"seed": 0, "status": "done", "dims": 2, "test_labels": "0 0 1 1", "network": "ours"}
    rows = [
        {**about, "method": "MAE", "batch_size": 16, "linear_probe": 0.5, "right_linear_probe": "0011"},
        {**about, "method": "IConE", "batch_size": 1, "linear_probe": 1.0, "right_linear_probe": "1111"},
        {**about, "method": "MAE", "batch_size": 1, "linear_probe": 1.0, "right_linear_probe": "1111"},
        {**about, "method": "MAE", "batch_size": 1, "linear_probe": 0.0, "network": "other"},
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "runs.csv", index=False)
    times = [("icone", 1, 2.0), ("mae", 1, 3.0)]
    of_network = {"network": "vit_small_patch16, 112²"}
    timed = [{"method": m, "batch_size": b, "sample_ms": ms, **of_network} for m, b, ms in times]
    (tmp_path / "times.json").write_text(json.dumps({"rows": [*timed, {"method": "simclr", "batch_size": 1}]}))
    words = "to=IConE,1 metrics=linear_probe"
    text = f"<!-- standings {words} times=times.json 'A set=runs.csv network=ours' -->"
    table = [line.strip("| ").split(" | ") for line in fill(text, tmp_path).splitlines()]
    assert table[0] == ["set", "method", "B", "linear probe, balanced accuracy", "difference", "GPU time", "seeds"]
    assert table[2] == ["A set", "**IConE**", "1", "100.0", "–", "1.00", "1"]
    assert table[3][:4] + table[3][5:] == ["A set", "MAE", "1", "100.0", "1.50", "1"]
    assert table[3][4] == "+0.0 (+0.0 to +0.0)"
    assert table[4][4].strip("*").startswith("+50.0 (")
    assert table[4][5] == "–"  # its time was not measured
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs.csv").rename(tmp_path / "runs" / "runs.csv")
    (tmp_path / "runs" / "page.md").write_text(f"<!-- figure it.png {words} 'A set=runs.csv network=ours' -->\n")
    write_page(tmp_path / "runs", tmp_path / "page.md")
    assert "IConE at B = 1 to all others" in (tmp_path / "page.md").read_text()
    assert (tmp_path / "runs" / "it.png").stat().st_size > 5000
