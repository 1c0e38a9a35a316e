"""Tables hold the right means beside the paper's numbers; every figure comes out; undefined is never zero."""

from __future__ import annotations

import dataclasses
import io
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

import icone.paper
from icone.paper.accuracy_figures import sensitivity
from icone.paper.experiments import EXPERIMENTS
from icone.paper.experiments.base import Scene
from icone.paper.frames import Results, collect, mean_over_seeds
from icone.paper.listing import experiment_lines, text_of_all
from icone.paper.listing_table import STORED, listing_table, stored_listing
from icone.paper.measure import circle_metrics, class_alignment
from icone.paper.options import Options
from icone.paper.overview import missing_line
from icone.paper.show import setting_line, show
from icone.paper.store import Store
from icone.paper.tables import reasons


def test_everything_is_shown(told: Store, tmp_path: Path) -> None:
    """One experiment for every way of presenting: the others draw the same with other runs."""
    shown = {experiment.present: experiment for experiment in EXPERIMENTS.values()}.values()
    console = Console(file=io.StringIO(), width=200)
    names = [experiment.name for experiment in shown]
    written = show(names, Options(), told, tmp_path / "out", console)
    for experiment in shown:
        files = {path.suffix for path in written if path.parent.name == experiment.name}
        assert {".csv", ".parquet"} <= files, experiment.name
        if any(label.startswith("fig:") for label in experiment.labels):
            assert {".png", ".pdf"} <= files, experiment.name
    assert all(path.stat().st_size > 100 for path in written)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "as a picture only" in text
    assert 'not the paper\'s setting: recipe icone (the default; recipe="paper" is the printed one), smoke True' in text
    assert "undefined" in text


@pytest.mark.parametrize(
    ("name", "options", "line"),
    [
        ("batch-size-3d", Options(), "not the paper's setting: recipe icone (the default;"),
        ("batch-size-3d", Options(recipe="paper"), "the paper's setting, as far"),
        ("batch-size-3d", Options(recipe="paper", data_root=Path("/data")), "the paper's setting, as far"),
        ("batch-size-3d", Options(recipe="paper", seeds=5, epochs=100, lr=1e-4), "the paper's setting, as far"),
        ("batch-size-3d", Options(recipe="paper", seeds=2, epochs=3), "not the paper's setting: seeds 2, epochs 3"),
        ("batch-size-3d", Options(recipe="paper", datasets=("organmnist3d",)), "setting: datasets organmnist3d"),
        ("supervised", Options(recipe="paper", batch_sizes=(1, 4)), "setting: batch_sizes 1 4"),
        ("synthetic", Options(), "the paper's setting, as far"),  # it always runs as printed
        ("synthetic", Options(epochs=100), "not the paper's setting: epochs 100"),
        ("synthetic", Options(epochs=300, seeds=20), "the paper's setting, as far"),
    ],
)
def test_what_is_the_papers_setting_is_said(name: str, options: Options, line: str) -> None:
    assert line in setting_line(EXPERIMENTS[name], options)
    assert setting_line(EXPERIMENTS[name], options).startswith(("not ", "the ")[line.startswith("the ")])


@pytest.mark.parametrize(
    ("recipe", "differences"),
    [
        ("icone", {"learning rate", "schedule", "embedding dimension", "anchor initialisation"}),
        ("paper", set()),
    ],
)
def test_the_tables_of_settings_hide_no_difference(
    told: Store, recipe: Literal["icone", "paper"], differences: set[str]
) -> None:
    """The printed dimension is that of the anchors too; ours have another. The baselines of A.4 are as printed."""
    scene = Scene("hyperparameters", collect([], told.results()), told, Options(recipe=recipe))
    settings, baselines = EXPERIMENTS["hyperparameters"].present(scene).tables
    values = settings.values
    assert set(values[values["difference"] == "differs"]["row"]) == differences
    assert len(baselines.values) == 19
    assert set(baselines.values["difference"]) == {""}


def test_marks_and_contradictions_of_the_printed_tables_are_kept(told: Store) -> None:
    runs = collect(EXPERIMENTS["synthetic"].grid(Options(smoke=True)), told.results())
    values = EXPERIMENTS["synthetic"].present(Scene("synthetic", runs, told)).tables[0]
    marks = values.values.set_index(["row", "metric"])["mark"]
    assert marks["No L_vi", "uniformity"] == "†"
    assert marks["Full IConE", "knn_5"] == "bold"
    assert marks["Full IConE", "class_alignment"] == "underline"
    console = Console(file=io.StringIO(), width=200)
    console.print(values.rendered())
    assert "-0.00†" in console.file.getvalue()  # type: ignore[attr-defined]
    for name in ("regulariser", "views", "init-scale"):
        runs = collect(EXPERIMENTS[name].grid(Options(smoke=True)), told.results())
        table = EXPERIMENTS[name].present(Scene(name, runs, told)).tables[0]
        assert any("59.6" in note and "73.4" in note and "74.3" in note for note in table.notes), name


def test_accuracies_are_those_of_the_captions(told: Store) -> None:
    runs = collect(EXPERIMENTS["regulariser"].grid(Options(smoke=True)), told.results())
    runs.runs["linear_accuracy"], runs.runs["linear_probe"] = 0.75, 0.5
    top1, balanced = EXPERIMENTS["regulariser"].present(Scene("regulariser", runs, told)).tables
    assert set(top1.values["ours"].dropna()) == {75.0}
    assert top1.values["paper"].notna().sum() == 36
    assert set(balanced.values["ours"].dropna()) == {50.0}


def test_the_minority_has_a_point_without_thinning(told: Store) -> None:
    runs = collect(EXPERIMENTS["imbalance"].grid(Options(smoke=True)), told.results())
    runs.runs["minority"], runs.runs["minority_unthinned"] = 0.25, 0.75
    minority = EXPERIMENTS["imbalance"].present(Scene("imbalance", runs, told)).tables[1].values
    assert {k: set(part["ours"].dropna()) for k, part in minority.groupby("k")} == {1: {75.0}, 3: {25.0}}


def test_the_supervised_table_has_paper_ours_and_difference(
    told: Store, fabricated: Callable[[str, int, int], float]
) -> None:
    results = collect(EXPERIMENTS["supervised"].grid(Options(smoke=True)), told.results())
    tables = EXPERIMENTS["supervised"].present(Scene("supervised", results, told)).tables
    values = tables[0].values
    cell = values.query("row == 'IConE-Class' and dims == 3 and batch_size == 8").iloc[0]
    ours = 100 * fabricated("icone_class", 8, 0)
    assert cell["ours"] == pytest.approx(ours)
    assert cell["difference"] == pytest.approx(ours - 72.13)
    undefined = values.query("row == 'SupCon' and dims == 2 and batch_size == 1").iloc[0]
    assert undefined["status"] == "undefined"
    assert math.isnan(undefined["ours"])
    assert undefined["paper"] == 72.20
    assert any("supcon cannot" in note for note in tables[0].notes)
    assert tables[1].values["row"].unique().tolist() == ["untrained encoder"]


def test_means_are_over_data_sets_first_and_spread_over_seeds() -> None:
    runs = pd.DataFrame(
        [
            {"method": "a", "dataset": d, "seed": s, "status": "done", "x": v}
            for d, s, v in [("p", 0, 0.0), ("q", 0, 1.0), ("p", 1, 0.2), ("q", 1, 1.2)]
        ]
        + [{"method": "b", "dataset": "p", "seed": 0, "status": "undefined", "x": math.nan}]
    )
    means = mean_over_seeds(runs, ["method"], "x").set_index("method")
    assert means.loc["a", "mean"] == pytest.approx(0.6)
    assert means.loc["a", "sd"] == pytest.approx(0.2 / math.sqrt(2))  # of 0.5 and 0.7, one per seed
    assert means.loc["b", "status"] == "undefined"
    assert means["mean"].isna().tolist() == [False, True]


def test_tables_say_why_figures_are_missing_and_which_sets_are_small() -> None:
    runs = pd.DataFrame(
        {
            "dataset": ["Breast", "Breast", "Blood"],
            "status": ["undefined", "done", "done"],
            "reason": ["too small", None, None],
            "notes": [None, "asked for 5000 samples, 546 are available and used; other", None],
        }
    )
    assert reasons(runs) == [
        "undefined (1 run): too small",
        "Breast: asked for 5000 samples, 546 are available and used",
    ]


def test_sensitivity_is_a_drop_and_a_correlation() -> None:
    accuracy = {1: 0.5, 2: 0.55, 4: 0.6}
    runs = pd.DataFrame(
        [
            {"dims": 3, "method": "m", "batch_size": b, "seed": 0, "status": "done", "linear_probe": a}
            for b, a in accuracy.items()
        ]
        + [{"dims": 3, "method": "n", "batch_size": 1, "seed": 0, "status": "undefined", "linear_probe": math.nan}]
        + [{"dims": 3, "method": "n", "batch_size": 4, "seed": 0, "status": "done", "linear_probe": 0.7}]
    ).assign(dataset="one")
    table = sensitivity(runs).set_index("method")
    assert table.loc["m", "drop"] == pytest.approx(10)
    assert table.loc["m", "pearson"] == pytest.approx(np.corrcoef([1, 2, 4], [50, 55, 60])[0, 1])
    assert table.loc["m", "pearson_log2"] == pytest.approx(1)
    assert table.loc["n", "smallest"] == 4


def test_memory_tells_what_does_not_fit_and_where_it_was_measured(told: Store) -> None:
    results = collect(EXPERIMENTS["memory"].grid(Options(smoke=True)), told.results())
    table, times = EXPERIMENTS["memory"].present(Scene("memory", results, told)).tables
    ours = table.values[table.values["ours"].notna()]
    assert ours.query("row == 'IConE' and n == 5000 and batch_size == 4")["ours"].item() == pytest.approx(0.5)
    assert ours.query("row == 'IConE' and n == 5000 and batch_size == 4")["difference"].item() == pytest.approx(-1.7)
    literal = table.values.query("row == 'IConE, literal N × N'").set_index(["n", "batch_size"])
    assert literal.loc[(5000, 4), "status"] == "out of memory"
    large = table.values.query("n >= 50000")
    assert table.values.query("row == 'IConE' and n == 100000 and batch_size == 4")["paper"].item() == 637.2
    assert set(large["status"]) == {"needs a GPU"}
    assert any("needs a GPU: IConE at N = 50000, 100000, B = 4, 16, 64; IConE-VCReg" in note for note in table.notes)
    assert any("a CPU has no counter" in note for note in table.notes)
    assert times.values.query("row == 'IConE' and n == 10000")["ours"].item() == pytest.approx(10_000)
    console = Console(file=io.StringIO(), width=200)
    console.print(table.rendered())
    assert "out of memory" in console.file.getvalue()  # type: ignore[attr-defined]


def test_what_has_not_run_is_missing_by_name(told: Store) -> None:
    none = told.results().iloc[:0]
    cells = EXPERIMENTS["views"].grid(Options(smoke=True))
    (table,) = EXPERIMENTS["views"].present(Scene("views", collect(cells, none), told)).tables
    assert missing_line(table).startswith("missing: 2 at batch size 1; 2 at batch size 2;")
    assert missing_line(table).endswith(f"and {4 * 7 - 6} more")


def test_a_method_with_one_batch_size_says_why_it_has_no_drop(told: Store) -> None:
    cells = EXPERIMENTS["batch-sensitivity"].grid(Options(smoke=True))
    scene = Scene("batch-sensitivity", collect(cells, told.results()), told)
    values = EXPERIMENTS["batch-sensitivity"].present(scene).tables[0].values
    status = {(row["row"], row["metric"]): row["status"] for row in values[values["dims"] == 2].to_dict("records")}
    assert status["SimCLR", "drop"] == "one B"
    assert [status["IConE", "drop"], status["SimCLR", "accuracy"]] == ["done", "done"]


def test_an_unfinished_grid_makes_no_drop(told: Store) -> None:
    """An easy set and a hard one, on neither of which the batch size matters; the hard one lacks a run."""
    cells = EXPERIMENTS["batch-sensitivity"].grid(Options(smoke=True))
    scene = Scene("batch-sensitivity", collect(cells, told.results()), told)
    runs = scene.runs[scene.runs["method"].isin(["IConE", "SimCLR"]) & (scene.runs["dims"] == 2)].copy()
    hard = runs["dataset"] == runs["dataset"].iloc[-1]
    assert 0 < hard.sum() < len(runs)
    runs["linear_probe"] = np.where(hard, 0.5, 0.9)
    runs.loc[runs["status"] == "undefined", "linear_probe"] = np.nan
    gone = hard & (runs["method"] == "IConE") & (runs["batch_size"] == runs["batch_size"].max())
    gone &= runs["seed"] == 0
    runs.loc[gone, "linear_probe"], runs.loc[gone, "status"] = np.nan, "missing"

    def drop() -> dict[Any, Any]:
        results = Results(runs, scene.results.trace)
        [table] = EXPERIMENTS["batch-sensitivity"].present(dataclasses.replace(scene, results=results)).tables
        row: dict[Any, Any] = table.values.query("row == 'IConE' and metric == 'drop'").to_dict("records")[0]
        assert any(note.startswith("* not all") for note in table.notes) is (0 < row["runs"] < row["wanted"])
        return row

    every = int((runs["method"] == "IConE").sum())
    assert (drop()["ours"], drop()["runs"], drop()["wanted"]) == (pytest.approx(0), every - 2, every)
    runs.loc[runs["batch_size"] == runs["batch_size"].max(), "linear_probe"] = np.nan
    assert (drop()["status"], drop()["runs"]) == ("missing", 0)


def test_the_list_counts_what_is_done(told: Store) -> None:
    listing = experiment_lines(Options(smoke=True), told)
    lines = {line.name: line for line in listing.lines}
    assert (lines["batch-size-3d"].wanted, lines["batch-size-3d"].undefined) == (64, 16)
    assert lines["batch-size-3d"].done == 48
    assert lines["batch-size-3d"].left.seconds == 0
    more = experiment_lines(Options(smoke=True, seeds=4), told)
    assert {line.name: line for line in more.lines}["batch-size-3d"].wanted == 128
    assert {line.name: line for line in more.lines}["batch-size-3d"].left.runs == 48  # 64 new ones, 16 undefined
    shared = {cell.spec.key for e in EXPERIMENTS.values() for cell in e.grid(Options(smoke=True, seeds=4))}
    assert more.total.wanted == len(shared) < sum(line.wanted for line in more.lines)
    assert more.total.left.seconds < sum(line.left.seconds for line in more.lines)
    Console(file=io.StringIO(), width=150).print(listing_table(listing))


def test_the_list_that_is_stored_is_the_list_without_a_store(tmp_path: Path) -> None:
    stored = Path(icone.paper.__file__).with_name(STORED).read_text(encoding="utf-8")
    assert stored == text_of_all(), "write it anew: python -m icone.paper.listing"
    lines = [line["name"] for line in json.loads(stored)["lines"]]
    assert lines == list(EXPERIMENTS)
    assert stored_listing(Options(), tmp_path / "outcomes") is None  # a program that has imported the experiments


def test_circle_metrics_are_what_their_names_say() -> None:
    rng = np.random.default_rng(0)
    labels = np.arange(60) % 3
    angle = 2 * np.pi * labels / 3 + 0.05 * rng.standard_normal(60)
    z = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    pairs = [
        ((z[i] - z[j]) ** 2).sum() for i in range(60) for j in range(60) if i != j and labels[i] == labels[j]
    ]  # by a loop
    assert class_alignment(z, labels) == pytest.approx(np.mean(pairs))
    figures = circle_metrics(z, labels, np.arange(0, 60, 2), np.arange(1, 60, 2))
    assert figures["knn_5"] == figures["linear_probe"] == 1.0
    assert figures["silhouette"] > 0.9
