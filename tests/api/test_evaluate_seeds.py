"""A folder of seeds is evaluated run by run, and its table holds mean ± standard deviation."""

from __future__ import annotations

import dataclasses
import statistics
from pathlib import Path

import numpy as np
import pytest

import icone
from icone import evaluate_seeds
from icone.cli import main
from icone.config import PretrainConfig
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


SEEDS = ["synthetic:gaussians@x40", "--features", "8", "--batch-size", "8", "--probe-every", "0", "--device", "cpu"]


@pytest.mark.parametrize("epochs", ["1", "3"], ids=["on-top", "in-all"])
def test_a_seed_that_was_extended_alone_is_not_mixed_with_the_others(
    epochs: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All of them were called finished, and their mean was of trainings of different lengths."""
    out = tmp_path / "points"
    assert main(["pretrain", *SEEDS, "--epochs", "1", "--seeds", "2", "--out", str(out)]) == 0
    alone = ["--epochs", epochs, "--seed", "1", "--out", str(out / "seed-1"), "--extend"]
    assert main(["pretrain", *SEEDS, *alone]) == 0
    length = len(Run(out / "seed-1").history)
    capsys.readouterr()
    assert main(["pretrain", *SEEDS, "--epochs", "1", "--seeds", "3", "--out", str(out), "--resume"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert f"seed-1 was extended alone to {length} epochs, and the others are to have 1" in said
    assert "Extend each of the others by itself (`icone pretrain --extend` with its --seed and --out)" in said
    configs = [dataclasses.replace(Run(out / "seed-0").config, seed=seed) for seed in range(2)]
    with pytest.raises(InputError) as refused:
        icone.pretrain_many(configs, [out / "seed-0", out / "seed-1"], resume=True)
    assert "by itself (`icone.pretrain(…, extend=True)` with its seed= and out=)" in str(refused.value)
    assert "--" not in str(refused.value)
    assert not (out / "seed-2").exists()
    assert main(["evaluate", str(out), "--device", "cpu"]) == 0
    both = f"(seed-0: 1 epoch of 40 samples; seed-1: {length} epochs of 40 samples)"
    assert both in " ".join(capsys.readouterr().out.split())
    assert main(["report", str(out), "--projections", "pca", "--no-thumbnails"]) == 0
    assert both in " ".join(capsys.readouterr().out.split())
    assert both in (out / "report.html").read_text(encoding="utf-8")


def test_the_settings_of_one_seed_repeat_it_alone(tmp_path: Path) -> None:
    out, again = tmp_path / "points", tmp_path / "again"
    assert main(["pretrain", *SEEDS, "--epochs", "1", "--seeds", "3", "--seed", "4", "--out", str(out)]) == 0
    assert main(["pretrain", "--config", str(out / "seed-5" / "config.toml"), "--out", str(again)]) == 0
    assert Run(again).config == Run(out / "seed-5").config
    weights = {path: (path / "encoder.safetensors").read_bytes() for path in (again, *seed_folders(out))}
    assert [path.name for path in weights if weights[path] == weights[again]] == ["again", "seed-5"]
    assert "--seeds" not in (out / "seed-5" / "config.toml").read_text()


def test_several_runs_in_python_are_called_by_their_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PretrainConfig(source="synthetic:gaussians@x40")
    for configs, outs in (([], []), ([config, config], ["a"])):
        with pytest.raises(InputError, match=rf"got {len(configs)} configs and {len(outs)} outs"):
            icone.pretrain_many(configs, outs)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(InputError, match="several processes share one run, and 2 runs were given: train each by"):
        icone.pretrain_many([config, config], ["a", "b"])


def test_finished_seeds_of_other_settings_or_samples_are_not_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "points.npy"
    points = np.random.default_rng(0).normal(size=(24, 2)).astype(np.float32)
    np.save(data, points[:20])
    words = ["pretrain", str(data), *SEEDS[1:], "--out", str(tmp_path / "run"), "--cache", "off"]
    assert main([*words, "--epochs", "1", "--seeds", "2"]) == 0
    assert main([*words, "--epochs", "2", "--seeds", "2", "--resume"]) == 2
    assert "seed-0 is there already with other settings (epochs: 1 -> 2)" in " ".join(capsys.readouterr().err.split())
    assert main([*words, "--epochs", "1", "--seeds", "2", "--resume"]) == 0
    np.save(data, points)
    assert main([*words, "--epochs", "1", "--seeds", "3", "--resume"]) == 2
    assert "seed-0 is finished, and the data has changed since" in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "run" / "seed-2").exists()
