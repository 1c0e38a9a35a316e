"""Fine-tuning against loops written out, another library, and its own promises: splits, resume, the best epoch."""

from __future__ import annotations

import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from rich.console import Console
from safetensors.torch import load_file
from sklearn.metrics import balanced_accuracy_score, r2_score
from torch import nn

import icone
from icone.api.summaries import finetune_table
from icone.cli import main
from icone.data import Loader
from icone.errors import InputError
from icone.evaluation.assessment import Partition
from icone.finetuning.classifier import Classifier
from icone.finetuning.fit import Progress
from icone.finetuning.holdout import hold_out
from icone.finetuning.label_code import LabelCode
from icone.recipe import adamw_settings
from icone.run import Run

QUICK: dict[str, Any] = {"epochs": 3, "scratch": False}


def quiet() -> Console:
    return Console(file=io.StringIO())


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    out = tmp_path_factory.mktemp("runs") / "points"
    return icone.pretrain("synthetic:gaussians@x60", features=8, epochs=2, probe_every=0, out=out, console=quiet())


def finetune(run: Run, out: Path, **settings: Any) -> Any:
    return icone.finetune(run, out=out, device="cpu", console=quiet(), **(QUICK | settings))


@pytest.mark.parametrize("balanced", [True, False])
def test_a_frozen_encoder_is_a_logistic_regression_by_adamw(run: Run, tmp_path: Path, balanced: bool) -> None:
    """The same linear layer, on standardised features of `icone.embed`, trained in a loop of its own."""
    settings: dict[str, Any] = {"augment": "none", "val_fraction": 0.0, "epochs": 4, "weight_decay": 0.1}
    found = finetune(run, tmp_path / "out", freeze=1.0, balance_classes=balanced, **settings)
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    table = icone.embed(run, device="cpu", console=quiet()).set_index("id").loc[record["parts"]["train"]]
    x = torch.tensor(table.filter(regex=r"^f\d+$").to_numpy(np.float32))
    names = sorted(set(table["label"]), key=int)
    y = torch.tensor([names.index(label) for label in table["label"]])
    shares = y.bincount() / len(y)
    assert len(set(shares.tolist())) > 1
    std = x.std(dim=0, correction=0)
    x = (x - x.mean(dim=0)) / std.clamp(min=0.1 * float(std.square().mean().sqrt()))
    layer = torch.nn.Linear(x.shape[1], len(names))
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.zeros_(layer.bias)
    adamw = adamw_settings(1e-3, 16)
    groups = [{"params": [layer.weight], "weight_decay": 0.1}, {"params": [layer.bias], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=adamw.lr, betas=adamw.betas, eps=adamw.eps)
    steps = [rows for epoch in range(4) for rows in _order(len(x), epoch).split(16)]
    for number, rows in enumerate(steps):
        part = number / len(steps)
        for group in optimizer.param_groups:
            group["lr"] = adamw.lr * 0.5 * (1 + np.cos(np.pi * part)) * min(part / 0.05, 1)
        optimizer.zero_grad()
        F.cross_entropy(layer(x[rows]) + shares.log() * balanced, y[rows]).backward()
        optimizer.step()
    weights = load_file(tmp_path / "out" / "classifier.safetensors")
    assert layer.weight.abs().max() > 1e-3
    assert torch.allclose(weights["head.weight"], layer.weight, atol=1e-6)
    assert torch.allclose(weights["head.bias"], layer.bias, atol=1e-6)
    before = icone.load_encoder(run).encoder.state_dict()
    assert all(torch.equal(weights[f"encoder.{name}"], tensor) for name, tensor in before.items())
    assert found.result["training"]["fine_tuned"] == {"epochs": 4, "best_epoch": 4}


def _order(samples: int, epoch: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng([0, epoch]).permutation(samples))


def test_the_scores_are_those_of_the_predictions(run: Run, tmp_path: Path) -> None:
    found = finetune(run, tmp_path / "out", epochs=8, scratch=True, val_fraction=0.2)
    assert found.result.keys() >= {"fine_tuned", "probe", "from_scratch", "comparison", "data"}
    assert {row["network"] for row in found.history} == {"fine_tuned", "from_scratch"}
    record = json.loads((tmp_path / "out" / "config.json").read_text())
    labels = icone.embed(run, device="cpu", console=quiet()).set_index("id")["label"]
    assert main(["predict", str(tmp_path / "out"), "--out", str(tmp_path / "p.csv"), "--device", "cpu"]) == 0
    said = pd.read_csv(tmp_path / "p.csv", dtype={"id": str, "prediction": str}).set_index("id")
    assert np.allclose(said.filter(like="p_").sum(axis=1), 1)
    test = record["parts"]["test"]
    score = balanced_accuracy_score(labels[test], said["prediction"][test])
    assert found.result["fine_tuned"]["balanced_accuracy"] == pytest.approx(score)
    probe = icone.evaluate(run, device="cpu", geometry_instances=0, untrained=False, console=quiet())
    assert found.result["probe"] == probe["trained"]["linear_probe"]
    assert sorted(test) == sorted(set(said.index) - set(record["parts"]["train"]) - set(record["parts"]["val"]))


@pytest.mark.parametrize("state", ["saved when it is interrupted", "saved after every epoch", "never saved"])
def test_it_goes_on_where_it_was_killed(state: str, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if state != "saved when it is interrupted":  # nothing is written by a process that is killed at once
        monkeypatch.setattr("icone.finetuning.fit._StateKeeper.__exit__", lambda *_: None)
        monkeypatch.setattr("icone.finetuning.fit.SAVE_SECONDS", 0.0 if "every" in state else float("inf"))
    settings: dict[str, Any] = {"epochs": 5, "patience": 5, "scratch": True, "val_fraction": 0.2}
    whole = finetune(run, tmp_path / "whole", **settings)
    count, begin = 0, Loader.begin

    def killed(self: Loader, epoch: int, start: int = 0) -> None:
        nonlocal count
        count += 1
        if count in (3, 8):  # in the first network, and after a resume in the second
            raise KeyboardInterrupt
        begin(self, epoch, start)

    monkeypatch.setattr(Loader, "begin", killed)
    for resume in (False, True):
        with pytest.raises(KeyboardInterrupt):
            finetune(run, tmp_path / "cut", **settings, resume=resume)
    again = finetune(run, tmp_path / "cut", **settings, resume=True)
    assert again.result == whole.result
    ours, theirs = (load_file(tmp_path / name / "classifier.safetensors") for name in ("whole", "cut"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert not list((tmp_path / "cut" / "state").glob("*.safetensors"))
    with pytest.raises(InputError, match="lr="):
        finetune(run, tmp_path / "cut", **settings, lr=0.1, resume=True)
    with pytest.raises(InputError, match="resume=True"):
        finetune(run, tmp_path / "cut", **settings)


def test_what_goes_on_has_the_same_labels_and_encoder(tmp_path: Path) -> None:
    """The parts and the classes stay the same when labels are corrected, or when the run is trained anew."""
    settings: dict[str, Any] = {"features": 8, "probe_every": 0, "test_fraction": 0.25, "console": quiet()}
    run = icone.pretrain("synthetic:gaussians@x40", epochs=1, out=tmp_path / "run", **settings)
    table = icone.embed(run, device="cpu", console=quiet())
    labels = dict(zip(table["id"], table["label"], strict=True))
    finetune(run, tmp_path / "out", labels=labels)
    test = table["id"][table["split"] == "test"].tolist()
    corrected = labels | dict(zip(test, [*(labels[name] for name in test[1:]), labels[test[0]]], strict=True))
    with pytest.raises(InputError, match="other samples or labels"):
        finetune(run, tmp_path / "out", labels=corrected, resume=True)
    assert finetune(run, tmp_path / "out", labels=labels, resume=True).result
    shutil.rmtree(tmp_path / "run")
    anew = icone.pretrain("synthetic:gaussians@x40", epochs=2, out=tmp_path / "run", **settings)
    with pytest.raises(InputError, match="begun with another encoder"):
        finetune(anew, tmp_path / "out", labels=labels, resume=True)


def test_the_best_epoch_is_kept_and_patience_ends() -> None:
    progress = Progress()
    scores = [(0.5, 1.0), (0.8, 0.9), (0.8, 0.7), (0.7, 0.1), (0.8, 0.8)]
    for epoch, (accuracy, loss) in enumerate(scores):
        assert not progress.is_over(20, patience=2)
        row = {"epoch": epoch, "val_balanced_accuracy": accuracy, "val_loss": loss}
        progress.note(row, {"w": torch.full((1,), float(epoch))})
    assert progress.is_over(20, patience=2)
    assert progress.is_over(5, patience=9)
    assert progress.best_epoch == 2  # the highest accuracy, and of these the lowest loss
    assert progress.best["w"].item() == 2


@pytest.mark.parametrize("fraction", [1.0, 0.3])
def test_no_group_is_on_two_sides(run: Run, tmp_path: Path, fraction: float) -> None:
    ids = list(icone.embed(run, device="cpu", console=quiet())["id"])
    groups = {name: f"patient {i // 3}" for i, name in enumerate(ids)}
    finetune(run, tmp_path / "out", groups=groups, fraction=fraction, val_fraction=0.2)
    parts = json.loads((tmp_path / "out" / "config.json").read_text())["parts"]
    sides = [{groups[name] for name in parts[part]} for part in ("train", "val", "test")]
    assert all(sides)
    assert not sides[0] & sides[1]
    assert not sides[0] & sides[2]
    assert not sides[1] & sides[2]


def test_groups_that_pretraining_did_not_know_can_leave_nothing_to_test(tmp_path: Path) -> None:
    source = "synthetic:gaussians@x40"
    run = icone.pretrain(
        source, features=8, epochs=1, probe_every=0, test_fraction=0.25, out=tmp_path / "run", console=quiet()
    )
    groups = dict.fromkeys(icone.embed(run, device="cpu", console=quiet())["id"], "one patient")
    with pytest.raises(InputError, match=r"all 10 are of groups .* such as one patient\. Give group_column= at pre"):
        finetune(run, tmp_path / "out", groups=groups)


def test_the_validation_part_has_every_class_that_can_spare_a_sample() -> None:
    labels = np.array(list("aaaaaaaabbbbc"))
    partition = Partition(np.arange(13), np.array([], dtype=np.int64), labels)
    train, val, _ = hold_out(partition, 0.25, seed=0)
    assert set(labels[val]) == {"a", "b"}
    assert set(labels[train]) == {"a", "b", "c"}
    assert sorted([*train, *val]) == list(range(13))
    assigned = ["train"] * 10 + ["val"] * 3
    kept = Partition(np.arange(10), np.array([], dtype=np.int64), labels)
    assert hold_out(kept, 0.25, 0, assigned)[1].tolist() == [10, 11]  # nobody could learn c
    inside = hold_out(partition, 0.25, 0, assigned)  # rows of val that would train
    assert [part.tolist() for part in inside[:2]] == [[*range(10), 12], [10, 11]]
    assert len(hold_out(partition, 0.0, 0)[1]) == 0
    _, val, note = hold_out(Partition(np.array([12]), np.array([], dtype=np.int64), labels), 0.5, seed=0)
    assert len(val) == 0
    assert note == "no part can be held out to decide when to stop: all labels train, for all epochs"


def _parted(folder: Path) -> pd.DataFrame:
    """120 small images of two classes, of which the table assigns two of five to val and test."""
    rows = []
    for i in range(120):
        path, label = folder / f"{i}.npy", i % 2
        np.save(path, (np.random.default_rng(i).integers(0, 100, (8, 8)) + 100 * label).astype(np.uint8))
        rows.append({"path": path, "label": "ab"[label], "patient": i // 2})
    return pd.DataFrame(rows).assign(split=[("train", "train", "train", "val", "test")[i // 2 % 5] for i in range(120)])


@pytest.mark.parametrize(
    ("settings", "sizes"),
    [
        ({}, (72, 24, 24)),
        ({"fraction": 0.5, "val_fraction": 0.2}, (36, 12, 24)),  # as many labels choose the epoch as a half has
        ({"fraction": 0.5}, (36, 0, 24)),  # twelve are too few to choose an epoch
        ({"test": "external"}, (96, 24, 60)),
    ],
)
def test_the_part_val_of_the_data_validates(settings: dict[str, Any], sizes: tuple[int, ...], tmp_path: Path) -> None:
    table = _parted(tmp_path)
    run = icone.pretrain(
        table, encoder=nn.Sequential(nn.Flatten(), nn.Linear(64, 8)), size=8, epochs=1, probe_every=0, console=quiet(),
        out=tmp_path / "run",
    )  # fmt: skip
    if "test" in settings:
        settings = settings | {"test": table.drop(columns=["split", "patient"])[::2].assign(id=range(60))}
    found = finetune(run, tmp_path / "out", **settings)
    parts = json.loads((tmp_path / "out" / "config.json").read_text())["parts"]
    assert tuple(len(parts[name]) for name in ("train", "val", "test")) == sizes
    assert set(parts["val"]) <= {str(path) for path in table["path"][table["split"] == "val"]}
    assert ("val_loss" in found.history[0]) == (sizes[1] > 0)


def test_regression_and_several_labels(run: Run, tmp_path: Path) -> None:
    table = icone.embed(run, device="cpu", console=quiet())
    f0 = table["f0"].to_numpy()
    numbers = dict(zip(table["id"], (10 + 5 * f0).astype(float), strict=True))
    found = finetune(run, tmp_path / "age", labels=numbers, task="regression", epochs=30, lr=1e-2)
    record = json.loads((tmp_path / "age" / "config.json").read_text())
    said = found.predict(console=quiet()).set_index("id")["prediction"]
    test = record["parts"]["test"]
    score = r2_score([numbers[name] for name in test], said[test])
    assert found.result["fine_tuned"]["r2"] == pytest.approx(score, abs=1e-4)
    assert score > 0.5
    two = np.stack([f0 > np.median(f0), table["f1"] > table["f1"].median()], axis=1).astype(int)
    found = finetune(run, tmp_path / "two", labels=two, epochs=30, lr=1e-2)
    assert found.code.task == "multilabel"
    assert found.result["fine_tuned"]["auroc"] > 0.8
    assert found.predict(console=quiet()).filter(like="p_").shape == (60, 2)


def test_few_predictions_are_printed_too(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Id, prediction and highest probability; of numbers there is no probability; of many samples only the file."""
    found = finetune(run, tmp_path / "out")
    points = np.random.default_rng(0).normal(size=(11, 2)).astype(np.float32)
    np.save(tmp_path / "few.npy", points[:10])
    np.save(tmp_path / "many.npy", points)
    words = ["predict", str(tmp_path / "out"), "--device", "cpu"]
    assert main([*words, str(tmp_path / "few.npy")]) == 0
    said = capsys.readouterr().out
    table = found.predict(points[:10], console=quiet())
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in said.splitlines() if line.startswith("│")]
    likeliest = table.filter(like="p_").max(axis=1)
    assert [row[1:] for row in cells] == [
        [name, f"{value:.3f}"] for name, value in zip(table["prediction"], likeliest, strict=True)
    ]
    assert all(cells[row][0] for row in range(10))
    assert "highest probability" in said
    assert "wrote 10 predictions to" in said
    assert main([*words, str(tmp_path / "many.npy")]) == 0
    said = capsys.readouterr().out
    assert "│" not in said
    assert "wrote 11 predictions to" in said
    numbers = {name: float(i) for i, name in enumerate(icone.embed(run, device="cpu", console=quiet())["id"])}
    finetune(run, tmp_path / "age", labels=numbers, task="regression")
    assert main(["predict", str(tmp_path / "age"), str(tmp_path / "few.npy"), "--device", "cpu"]) == 0
    said = capsys.readouterr().out
    assert sum(line.startswith("│") for line in said.splitlines()) == 10
    assert "probability" not in said


def test_freezing_keeps_the_first_layers(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"encoder": "resnet10t", "size": 32, "epochs": 1, "probe_every": 0, "batch_size": 4}
    out = tmp_path / "cells"
    run = icone.pretrain("synthetic:cells@32x24", **settings, out=out, device="cpu", console=quiet())
    finetune(run, tmp_path / "out", freeze=0.5, epochs=1, val_fraction=0.0, warmup=0.0, batch_size=4)
    before = icone.load_encoder(run).encoder.state_dict()
    after = load_file(tmp_path / "out" / "classifier.safetensors")
    same = {name: torch.equal(after[f"encoder.{name}"], before[name]) for name in before}
    assert same["conv1.0.weight"]
    assert same["bn1.running_mean"]
    assert same["layer1.0.conv1.weight"]
    assert not same["layer4.0.conv1.weight"]
    assert not same["layer4.0.bn1.running_mean"]
    classifier = icone.load_classifier(tmp_path / "out")
    assert classifier(np.zeros((2, 3, 32, 32), np.uint8)).shape == (2, len(classifier.code.names))


def test_frozen_layers_stay_in_evaluation_mode() -> None:
    encoder = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5))
    encoder.num_features = 4  # type: ignore[assignment]
    classifier = Classifier(encoder, 2)
    classifier.freeze(1.0)
    classifier.train()
    assert classifier.head.training
    assert not encoder[1].training
    assert [name for name, p in classifier.named_parameters() if p.requires_grad] == ["head.weight", "head.bias"]


def test_frozen_blocks_have_no_dropout_and_keep_all_statistics() -> None:
    """Dropout and a BatchNorm without scales have no parameters by which they could be found."""

    class Network(nn.Module):
        num_features = 4

        def __init__(self) -> None:
            super().__init__()
            first = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4, affine=False), nn.Dropout(0.5))
            self.stages = nn.ModuleList([first, nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for stage in self.stages:
                x = stage(x)
            return x

    classifier = Classifier(Network(), 2)
    classifier.freeze(0.5)
    classifier.train()
    stages: Any = classifier.encoder.stages
    assert not any(module.training for module in stages[0].modules())
    assert all(module.training for module in stages[1].modules())


def test_the_pretrained_run_is_left_alone(run: Run, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in run.folder.rglob("*") if path.is_file() and path.name != ".lock"}
    with pytest.raises(InputError, match="stays as it is"):
        finetune(run, run.folder)
    finetune(run, tmp_path / "out")
    assert all(path.read_bytes() == content for path, content in before.items())
    with pytest.raises(InputError, match="icone predict"):
        icone.load_encoder(tmp_path / "out")
    with pytest.raises(InputError, match="was not fine-tuned: train it with labels first"):
        icone.load_classifier(run.folder)


def test_losses_are_those_of_the_tasks() -> None:
    numbers = LabelCode.of("regression", ["1", "3"])
    assert numbers.decode(torch.tensor([[1.0]])) == [3.0]  # mean 2, standard deviation 1
    assert float(numbers.loss(torch.tensor([[0.0], [0.0]]), numbers.encode(["1", "5"]))) == pytest.approx((1 + 9) / 2)
    classes = LabelCode.of("classification", ["10", "9", "9"])
    assert classes.names == ("9", "10")
    assert classes.encode(["10", "?"]).tolist() == [1, -1]
    outputs = torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 2.0]])
    assert classes.quality(outputs, torch.tensor([0, 0, 1]))["val_balanced_accuracy"] == 0.75


def test_the_command_line_says_what_is_better(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["finetune", str(run.folder), "--out", str(tmp_path / "out"), "--epochs", "2", "--device", "cpu"]
    assert main([*words, "--fraction", "0.5"]) == 0
    printed = capsys.readouterr().out
    assert "from scratch" in printed
    assert "linear probe" in printed
    assert "icone predict" in printed
    assert re.search(r"of training, (\d+) epochs? \(fine-tuned\), \1 epochs? \(from scratch\)", printed)
    assert main([*words, "--freeze", "2"]) == 2
    assert "--freeze" in capsys.readouterr().err
    assert finetune_table(json.loads((tmp_path / "out" / "result.json").read_text())).row_count == 3


@pytest.mark.parametrize("below", [True, False])
def test_the_default_folder_is_relative_below_the_working_directory(
    below: bool, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "runs" / "points"
    shutil.copytree(run.folder, own)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path if below else tmp_path / "elsewhere")
    words = ["--epochs", "1", "--no-scratch", "--device", "cpu"]
    assert main(["finetune", str(own), *words]) == 0
    told = "runs/points-finetuned" if below else str(tmp_path / "runs" / "points-finetuned")
    said = capsys.readouterr().out.splitlines()
    assert f"done: {told}" in said
    assert any(line.endswith(f"icone report {told}") for line in said)
    assert (tmp_path / "runs" / "points-finetuned" / "result.json").is_file()


def test_a_result_says_scores_and_what_comes_next(run: Run, tmp_path: Path) -> None:
    found = finetune(run, tmp_path / "<b>", scratch=True)
    said, html = str(found), found._repr_html_()
    score = f"{100 * found.result['fine_tuned']['balanced_accuracy']:.1f}"
    for text in ("from scratch", "linear probe", "balanced accuracy (%)", score, "test samples", ".predict("):
        assert text in said
        assert text in html
    assert str(tmp_path / "<b>") in said
    assert "Linear(" not in said  # not the layers
    assert len(said.splitlines()) < 18
    assert "&lt;b&gt;" in html
    (tmp_path / "<b>" / "result.json").unlink()
    assert "finish it with resume=True" in repr(found)
    assert "Linear(" in str(found.classifier)


@pytest.mark.parametrize("freeze", [0.0, 0.5])
def test_features_are_standardised_as_training_reads_them(freeze: float, tmp_path: Path) -> None:
    """Four steps leave BatchNorm with running statistics that no batch has."""
    rng = np.random.default_rng(0)
    labels = rng.random(64)
    coarse = rng.integers(0, 120, (64, 3, 4, 4)).repeat(8, 2).repeat(8, 3)
    images = (coarse + (100 * labels)[:, None, None, None]).astype("uint8")
    run = icone.pretrain(
        images, labels=labels, encoder="test_resnet", epochs=1, batch_size=16, probe_every=0, device="cpu",
        out=tmp_path / "run", console=quiet(),
    )  # fmt: skip
    found = icone.finetune(
        run, data=images, labels=labels, lr=1e-8, epochs=1, val_fraction=0.0, augment="none", scratch=False,
        freeze=freeze, device="cpu", out=tmp_path / "out", console=quiet(),
    )  # fmt: skip
    classifier, views = found.classifier, found.views
    classifier.freeze(freeze)
    classifier.train()
    with torch.no_grad():
        read = [classifier.encoder(views.plain(x)) for x in found.preparation.batch(images).split(16)]
    spread = ((torch.cat(read) - classifier.mean) / classifier.std).square().mean().sqrt()
    assert 0.5 < float(spread) < 2


def test_classes_called_minus_one_are_written_as_they_are(run: Run, tmp_path: Path) -> None:
    """The guard against formulas wrote '-1, which agrees with no label."""
    ids = list(icone.embed(run, device="cpu", console=quiet())["id"])
    finetune(run, tmp_path / "out", labels={name: (-1, 1)[i % 2] for i, name in enumerate(ids)}, epochs=1)
    icone.predict(tmp_path / "out", out=tmp_path / "p.csv", device="cpu", console=quiet())
    said = pd.read_csv(tmp_path / "p.csv", dtype={"prediction": str})["prediction"]
    assert set(said) <= {"-1", "1"}
    assert "-1" in set(said)
