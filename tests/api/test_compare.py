"""Runs compared in a sentence: identical, clearly better, of other test samples or labels, of earlier versions."""

from __future__ import annotations

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

import icone
from icone.api.evaluated import read_predictions
from icone.cli import main
from icone.errors import InputError
from icone.files import write_json
from icone.run import Run

QUIET: dict[str, Any] = {"device": "cpu", "geometry_instances": 0, "untrained": False}


def quiet() -> Console:
    return Console(file=io.StringIO())


def evaluate(run: Run, **settings: Any) -> dict[str, Any]:
    return icone.evaluate(run, console=quiet(), **QUIET | settings)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """An evaluated run of points."""
    out = tmp_path_factory.mktemp("runs") / "points"
    settings: dict[str, Any] = {"features": 8, "epochs": 1, "probe_every": 0}
    run = icone.pretrain("synthetic:gaussians@x240", out=out, console=quiet(), **settings)
    evaluate(run)
    return run


@pytest.fixture
def copy(made: Run, tmp_path: Path) -> Callable[[str], Run]:
    return lambda name: Run(shutil.copytree(made.folder, tmp_path / name))


def change(run: Run, **arrays: Any) -> None:
    """Other arrays in features.npz; None leaves one out."""
    with np.load(run.features_file) as saved:
        content = {**saved, **arrays}
    np.savez(run.features_file, **{name: value for name, value in content.items() if value is not None})


def answers(run: Run, share: float) -> None:
    """Make the probe of a run right about this share of every class of test samples."""
    with np.load(run.features_file) as saved:
        truth = saved["labels"][saved["test_rows"]]
    nth = np.array([np.sum(truth[:i] == name) / np.sum(truth == name) for i, name in enumerate(truth)])
    change(run, predicted=np.where(nth < share, truth, "wrong"))


def test_what_is_kept_gives_the_score_of_the_probe(made: Run, tmp_path: Path) -> None:
    """Predictions of classes, numbers and several labels, as they are read again."""
    tested = read_predictions(made, "classification")
    assert tested is not None
    assert tested.parts()[0] == pytest.approx((made.result or {})["trained"]["linear_probe"]["balanced_accuracy"])
    ids = np.array(made.instances["ids"])
    run = Run(shutil.copytree(made.folder, tmp_path / "numbers"))
    found = evaluate(run, labels={name: float(i % 37) + 0.5 for i, name in enumerate(ids)})
    tested = read_predictions(run, "regression")
    assert tested is not None
    assert tested.parts()[0] == pytest.approx(found["trained"]["ridge_probe"]["r2"])
    found = evaluate(run, labels={name: ["a|b", "b", "a"][i % 3] for i, name in enumerate(ids)})
    tested = read_predictions(run, "multilabel")
    assert tested is not None
    assert tested.parts()[0] == pytest.approx(found["trained"]["multilabel_probe"]["auroc"])


def test_runs_that_say_the_same_are_not_told_apart(copy: Callable[[str], Run]) -> None:
    found = icone.compare([copy("a"), copy("b")])
    [pair] = found["pairs"]
    assert (pair["difference"], pair["ahead"]) == (0, False)
    apart = f"These {pair['samples']} test samples do not tell a and b apart"
    difference = "the difference is 0.0 points of the linear probe (95 % interval −"
    assert pair["sentence"].startswith(f"{apart}: {difference}")
    assert "ahead" not in pair["sentence"]
    assert pair["sentence"] in " ".join(repr(found).split())


def test_a_better_run_is_ahead(copy: Callable[[str], Run]) -> None:
    worse, better = copy("a"), copy("b")
    answers(worse, 0.3)
    answers(better, 0.9)
    [pair] = icone.compare([worse, better])["pairs"]
    assert pair["ahead"]
    assert pair["low"] > 0.3
    points = f"{100 * pair['difference']:.1f}"
    assert pair["sentence"].startswith(f"b is ahead of a by {points} points of the linear probe (95 % interval ")
    assert pair["sentence"].endswith(f"over the same {pair['samples']} test samples).")


def test_samples_are_matched_by_their_names(copy: Callable[[str], Run]) -> None:
    """A table in another order holds the same test samples."""
    one, other = copy("a"), copy("b")
    with np.load(other.features_file) as saved:
        order = np.random.default_rng(0).permutation(len(saved["test_rows"]))
        change(other, test_rows=saved["test_rows"][order], predicted=saved["predicted"][order])
    assert icone.compare([one, other])["pairs"][0]["difference"] == 0


def test_runs_of_other_test_samples_are_not_compared(copy: Callable[[str], Run]) -> None:
    one, other = copy("a"), copy("b")
    evaluate(other, test_fraction=0.4)
    found = icone.compare([one, other])
    assert found["pairs"] == []
    assert found["metric"] is None
    [why] = found["left_out"]
    assert why.startswith("b is not compared with a: they were tested on different samples (")


def test_runs_with_other_labels_are_not_compared(copy: Callable[[str], Run]) -> None:
    one, other = copy("a"), copy("b")
    with np.load(other.features_file) as saved:
        labels, row = saved["labels"].astype("U20"), saved["test_rows"][3]
    labels[row] = "something else"
    change(other, labels=labels)
    [why] = icone.compare([one, other])["left_out"]
    assert "1 test sample has another label (" in why
    assert "something else" in why


def test_an_older_result_says_that_it_must_be_evaluated_again(copy: Callable[[str], Run]) -> None:
    one, other, third = copy("a"), copy("b"), copy("c")
    change(other, predicted=None, test_rows=None)
    found = icone.compare([one, other, third])
    assert [(pair["first"], pair["second"]) for pair in found["pairs"]] == [("a", "c")]
    [why] = found["left_out"]
    assert why.startswith("b is not compared: ")
    assert "evaluate again to compare" in why
    change(one, test_rows=np.array([10**6]))
    with pytest.raises(InputError, match="damaged"):
        icone.compare([one, third])


def test_runs_without_probes_or_results_say_so(copy: Callable[[str], Run]) -> None:
    one, other, third = copy("a"), copy("b"), copy("c")
    for run in (other, third):
        evaluate(run, labels={run.instances["ids"][0]: "the only label"})
    [why] = icone.compare([one, other, third])["left_out"]
    assert why == "b and c are not compared: there are fewer than two classes in the labels that were given."
    other.result_file.unlink()
    with pytest.raises(InputError, match="has not been evaluated yet"):
        icone.compare([one, other])
    with pytest.raises(InputError, match="needs two runs"):
        icone.compare([one])


def test_folders_of_seeds_are_compared_as_a_whole(made: Run, tmp_path: Path) -> None:
    for name, shares in (("old", (0.3, 0.35, 0.4)), ("new", (0.85, 0.9, 0.95))):
        for seed, share in enumerate(shares):
            run = Run(shutil.copytree(made.folder, tmp_path / name / f"seed-{seed}"))
            record = run.read_json("config.json")
            record["config"]["seed"] = seed
            write_json(run.folder / "config.json", record)
            answers(run, share)
    found = icone.compare([tmp_path / "old", tmp_path / "new"])
    [pair] = found["pairs"]
    assert pair["ahead"]
    assert pair["runs"] == [3, 3]
    assert "test samples and 3 seeds)" in pair["sentence"]
    assert found["notes"] == []
    uneven = icone.compare([tmp_path / "old", tmp_path / "new" / "seed-1"])
    assert uneven["pairs"][0]["runs"] == [1, 3]
    assert "1 and 3 seeds" in uneven["pairs"][0]["sentence"]
    assert "another seed may give another order" in uneven["notes"][0]
    assert "(seed-0, seed-1, …)" in uneven["notes"][0]
    assert "--" not in repr(uneven)  # no function has an argument for --seeds


def test_a_report_of_two_runs_says_whether_they_differ(
    copy: Callable[[str], Run], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = [copy("a"), copy("b")]
    answers(runs[0], 0.4)
    words = [str(run.folder) for run in runs]
    assert main(["report", *words, "--out", str(tmp_path / "page.html"), "--projections", "pca"]) == 0
    said = icone.compare(runs)["pairs"][0]["sentence"]
    assert said in capsys.readouterr().out
    assert said.encode("ascii", "backslashreplace").decode() in (tmp_path / "page.html").read_text()


def test_methods_are_named_where_names_of_runs_do_not_tell(copy: Callable[[str], Run]) -> None:
    one, other = copy("a"), copy("simclr-long")
    record = other.read_json("config.json")
    record["config"]["method"] = "simclr"
    write_json(other.folder / "config.json", record)
    [pair] = icone.compare([one, other])["pairs"]
    assert {pair["first"], pair["second"]} == {"a (icone)", "simclr-long"}


def test_numbers_that_no_probe_reads_are_told(copy: Callable[[str], Run]) -> None:
    runs = [copy("a"), copy("b")]
    for run in runs:
        found = evaluate(run, labels={name: float(i % 37) + 0.5 for i, name in enumerate(run.instances["ids"])})
        change(run, predicted=np.random.default_rng(0).normal(scale=90, size=found["data"]["test"]))
    [pair] = icone.compare(runs)["pairs"]
    assert pair["sentence"].startswith("Neither ")


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_fine_tunings_are_compared_by_what_the_network_says(made: Run, tmp_path: Path, task: Any) -> None:
    ids = made.instances["ids"]
    labels: dict[str, list[Any]] = {
        "regression": [float(i % 37) + 0.5 for i in range(240)],
        "multilabel": [["a|b", "b", "a"][i % 3] for i in range(240)],
    }
    given = dict(zip(ids, labels[task], strict=True)) if task in labels else None
    out = tmp_path / "one"
    settings: dict[str, Any] = {"labels": given, "epochs": 1, "scratch": False, "device": "cpu", "console": quiet()}
    tuned = icone.finetune(made, out=out, **settings)
    tested = read_predictions(Run(out), task)
    assert tested is not None
    score = {"classification": "balanced_accuracy", "regression": "r2", "multilabel": "auroc"}[task]
    assert tested.parts()[0] == pytest.approx(tuned.result["fine_tuned"][score])
    other = Run(shutil.copytree(out, tmp_path / "other"))
    [pair] = icone.compare([tuned, other])["pairs"]
    assert pair["difference"] == 0
    what = {"classification": "balanced accuracy", "regression": "R²", "multilabel": "the mean AUROC"}[task]
    assert f" of {what} (95 % interval" in pair["sentence"] or pair["sentence"].startswith("Neither")
    with pytest.raises(InputError, match="compare each kind by itself"):
        icone.compare([made, other])
    (other.folder / "tested.npz").unlink()
    [why] = icone.compare([tuned, other])["left_out"]
    assert why.startswith("other is not compared: its folder, of an earlier version, does not hold")
