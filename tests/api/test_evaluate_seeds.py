"""A folder of seeds is evaluated run by run, and its table holds mean ± standard deviation."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from icone import evaluate_seeds
from icone.cli import main
from icone.errors import InputError
from icone.run import Run
from icone.seeds import expand_seeds, group_seeds, seed_folders


def test_a_folder_of_seeds_is_evaluated_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "points"
    words = ["synthetic:gaussians@x60", "--features", "8", "--epochs", "1", "--probe-every", "0", "--seeds", "2"]
    assert main(["pretrain", *words, "--out", str(out), "--device", "cpu"]) == 0
    assert f"icone evaluate {out}\n" in capsys.readouterr().out
    assert main(["evaluate", str(out), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert "mean ± standard deviation of 2 seeds" in " ".join(said.split())
    results = [Run(out / f"seed-{seed}").result or {} for seed in range(2)]
    for which in ("untrained", "trained"):
        scores = [100 * result[which]["linear_probe"]["balanced_accuracy"] for result in results]
        assert f"{statistics.mean(scores):.1f} ± {statistics.stdev(scores):.1f}" in said
    for seed, result in enumerate(results):
        assert f"seed-{seed}: {result['verdict']['headline']}" in said


def test_folders_of_seeds_are_found_by_number(tmp_path: Path) -> None:
    for name in ("seed-10", "seed-2", "seed-x", "other"):
        (tmp_path / "group" / name).mkdir(parents=True)
    (tmp_path / "group" / "seed-3").touch()
    assert [path.name for path in seed_folders(tmp_path / "group")] == ["seed-2", "seed-10"]
    assert seed_folders(tmp_path / "nothing") == []
    runs = expand_seeds([tmp_path / "one", tmp_path / "group"])
    assert [run.folder.name for run in runs] == ["one", "seed-2", "seed-10"]
    assert [(group.name, len(group.runs)) for group in group_seeds(runs)] == [("one", 1), ("group", 2)]
    (tmp_path / "group" / "config.json").touch()  # a run that keeps folders of its own in its folder
    assert seed_folders(tmp_path / "group") == []
    with pytest.raises(InputError, match="there is no run"):
        Run.open(tmp_path / "other")
    with pytest.raises(InputError, match="holds no folders seed-0"):
        evaluate_seeds(tmp_path / "group")
