"""`icone.evaluate`: the untrained encoder beside the trained one, honest partitions, refusals where there is none."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from rich.console import Console

import icone
from icone.api.build import make_encoder
from icone.api.embed import untrained_encoder
from icone.api.evaluate import _taught_classes
from icone.cli import main
from icone.config import PretrainConfig
from icone.data import Dataset, Preparation, load_for_inference, open_source
from icone.errors import InputError
from icone.evaluation.recognition import GAIN_ERROR
from icone.evaluation.verdict import TAUGHT
from icone.run import Run

POINTS: dict[str, Any] = {"source": "synthetic:gaussians@x60", "features": 8, "epochs": 2, "probe_every": 0}


def pretrain(out: Path, **settings: Any) -> Run:
    return icone.pretrain(**(POINTS | settings), out=out, console=Console(file=io.StringIO()))


def evaluate(run: Run, **settings: Any) -> dict[str, Any]:
    return icone.evaluate(run, device="cpu", console=Console(file=io.StringIO()), **settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pretrain(tmp_path_factory.mktemp("runs") / "points")


def test_the_untrained_encoder_is_measured_and_compared_by_default(run: Run) -> None:
    result = evaluate(run)
    assert run.result == result
    assert result["verdict"].keys() == {"state", "headline", "evidence", "advice"}
    assert result["trained"].keys() == result["untrained"].keys() | {GAIN_ERROR}
    assert result["comparison"].keys() == {"linear_probe", "knn_5"}
    for name, found in result["comparison"].items():
        before, after = (result[which][name]["balanced_accuracy"] for which in ("untrained", "trained"))
        assert (found["before"], found["after"], found["samples"]) == (before, after, result["data"]["test"])
        assert found["low"] < after - before < found["high"]
    assert result["data"]["view_samples"] == 60
    assert "saw those samples too, without labels" in result["data"]["note"]


def test_without_the_untrained_encoder_only_a_collapse_could_be_told(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(run.folder), "--no-untrained", "--geometry-instances", "0"]) == 0
    assert "It is unclear whether training helped: the untrained encoder was not measured." in capsys.readouterr().out
    assert run.result is not None
    assert run.result["verdict"]["state"] == "unclear"
    assert "untrained" not in run.result
    assert run.result["comparison"] == {}


def test_the_note_counts_what_pretraining_saw(tmp_path: Path) -> None:
    note = evaluate(pretrain(tmp_path / "run", subset=10), geometry_instances=0)["data"]["note"]
    assert "saw 10 of those 12 samples too, without labels" in note


@pytest.mark.parametrize("batch_size", [1, 4])
def test_batch_norm_of_the_untrained_encoder_is_calibrated(batch_size: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"source": "synthetic:cells@32x24", "encoder": "resnet10t", "features": None, "size": 32}
    run = pretrain(tmp_path / "run", **settings, epochs=1, batch_size=batch_size, test_fraction=0.25)
    preparation = Preparation.from_json(run.record["data"]["preparation"])
    dataset = load_for_inference(run.config.source, preparation, run.config)
    state = torch.get_rng_state()
    encoder, again = (untrained_encoder(run, dataset) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), state)
    assert not encoder.training
    torch.manual_seed(0)
    assert set(run.instances["ids"]) < set(dataset.ids)  # held-out samples are there, and take no part
    seen = torch.tensor([dataset.ids.index(name) for name in run.instances["ids"]])
    reference = make_encoder(run.config, preparation).train()
    for module in reference.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None
    with torch.no_grad():
        for _ in range(20):
            reference(encoder.views(dataset.images_at(seen), 2).flatten(0, 1))
    deviations = []
    for (name, ours), (_, theirs) in zip(
        encoder.encoder.state_dict().items(), reference.state_dict().items(), strict=True
    ):
        assert torch.equal(ours, again.encoder.state_dict()[name])
        if name.endswith("running_var"):
            deviations.append(float((ours / theirs).log().abs().mean()))
        elif not name.endswith(("running_mean", "num_batches_tracked")):
            assert torch.equal(ours, theirs)  # the weights are those of the seed
    assert max(deviations) < 0.4
    assert np.mean(deviations) < 0.15


def test_an_encoder_without_batch_norm_is_that_of_the_seed(run: Run) -> None:
    preparation = Preparation.from_json(run.record["data"]["preparation"])
    dataset = load_for_inference(run.config.source, preparation, run.config)
    ours = untrained_encoder(run, dataset).encoder.state_dict()
    for name, theirs in make_encoder(run.config, preparation).state_dict().items():
        assert torch.equal(ours[name], theirs)


def test_taught_classes_are_those_of_the_run_whatever_labels_are_measured(tmp_path: Path) -> None:
    run = pretrain(tmp_path / "run", **TAUGHT_RUN, test_fraction=0.25)
    dataset = load_for_inference(run.config.source, run.preparation, run.config)
    own = dict(zip(dataset.ids, (dataset.class_names[code] for code in dataset.labels.tolist()), strict=True))
    usual = evaluate(run, untrained=False)["trained"]["recognition"]

    def grouped(labels: Any) -> list[set[str]]:
        source = open_source(run.config.source, PretrainConfig(source=run.config.source), labels)
        found = _taught_classes(run, Dataset(source, range(len(source)), run.preparation, resident=False))
        return [{dataset.ids[row] for row in np.flatnonzero(found == code)} for code in np.unique(found)]

    def classes(ids: Iterable[str]) -> list[set[str]]:
        return [{name for name in ids if own[name] == one} for one in dataset.class_names]

    def same(one: list[set[str]], other: list[set[str]]) -> bool:
        return sorted(map(sorted, one)) == sorted(map(sorted, other))

    held_out, every = run.instances["test_ids"], list(own)
    assert same(grouped(None), classes(every))
    assert same(grouped({name: own[name] for name in every[:20]}), [
        *classes({*run.instances["ids"], *every[:20]}), *({name} for name in held_out if name not in every[:20])
    ])  # fmt: skip
    mixed = {name: f"other {row % 2}" for row, name in enumerate(every)}
    assert same(grouped(mixed), [*classes(run.instances["ids"]), *({name} for name in held_out)])
    assert evaluate(run, labels={name: f"{own[name]}!" for name in every[:2]})["trained"]["recognition"] is not None
    assert evaluate(run, untrained=False)["trained"]["recognition"] == usual


TAUGHT_RUN: dict[str, Any] = {"method": "cross_entropy", "batch_size": 4}


def test_a_supervised_run_is_not_tested_on_the_labels_it_was_taught(tmp_path: Path) -> None:
    run = pretrain(tmp_path / "run", **TAUGHT_RUN)
    result = evaluate(run)
    assert not {"linear_probe", "knn_1", "knn_5", "knn_20"} & result["trained"].keys()
    assert result["comparison"] == {}
    assert "taught the labels of all samples" in result["data"]["note"]
    assert "without labels" not in str(result)
    assert "test_fraction=0.2" in result["data"]["note"]
    assert result["verdict"]["state"] == "unclear"
    assert TAUGHT in result["verdict"]["headline"]
    tested = evaluate(run, official_test=True)
    assert "official test split" in tested["data"]["note"]
    assert (tested["data"]["train"], tested["data"]["test"]) == (60, 60)
    assert "linear_probe" in tested["trained"]
    marks = tested["tested"]["right"]["linear_probe"]
    assert marks.count("1") / len(marks) == pytest.approx(tested["trained"]["linear_probe"]["accuracy"])
    assert len(marks) == len(tested["tested"]["labels"].split()) == 60
    assert TAUGHT not in tested["verdict"]["headline"]


def test_a_supervised_run_that_held_samples_out_is_tested_on_them(tmp_path: Path) -> None:
    result = evaluate(pretrain(tmp_path / "run", **TAUGHT_RUN, test_fraction=0.25))
    assert result["data"]["test"] == 15
    assert "linear_probe" in result["trained"]


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same ten pictures as a folder of classes, as arrays, and as arrays with official splits."""
    root = tmp_path_factory.mktemp("sources")
    pixels = np.random.default_rng(0).integers(0, 255, (10, 16, 16), dtype=np.uint8)
    labels = np.arange(10) % 2
    for i, picture in enumerate(pixels):
        folder = root / "folder" / str(labels[i])
        folder.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture).save(folder / f"{i}.png")
    points = pixels.reshape(10, -1)[:, :6].astype(np.float32)
    np.save(root / "plain.npy", points)
    np.savez(root / "labelled.npz", images=points, labels=labels)
    np.savez(root / "splits.npz", train_images=points, test_images=points + 1, train_labels=labels, test_labels=labels)
    (root / "labels.csv").write_text("\n".join(["id,label", *(f"{i:06d},{'ab'[i % 2]}" for i in range(10))]))
    (root / "one class.csv").write_text("\n".join(["id,label", *(f"{i:06d},a" for i in range(10))]))
    return root


WITHOUT_SPLITS = ("folder", "plain.npy", "labelled.npz")


@pytest.mark.parametrize("name", WITHOUT_SPLITS)
def test_official_splits_of_sources_that_have_none_are_refused(name: str, sources: Path, tmp_path: Path) -> None:
    """On noise, probes that are tested on their own training samples are right about all of them."""
    source = str(sources / name)
    settings: dict[str, Any] = {"size": 32, "encoder": "resnet10t", "features": None} if name == "folder" else {}
    for split in ("val", "test"):
        with pytest.raises(InputError, match=rf"{name} has no official splits, so split=.{split}.*test_fraction="):
            pretrain(tmp_path / split, source=source, split=split, **settings)
        assert not (tmp_path / split).exists()
    run = pretrain(tmp_path / "run", source=source, epochs=1, **settings)
    with pytest.raises(InputError, match=rf"{name} has no official splits, so official_test=True.*test_fraction="):
        evaluate(run, official_test=True)
    assert run.result is None


def test_official_splits_are_used_where_there_are_some(sources: Path, tmp_path: Path) -> None:
    run = pretrain(tmp_path / "run", source=str(sources / "splits.npz"))
    result = evaluate(run, official_test=True)
    assert (result["data"]["train"], result["data"]["test"]) == (10, 10)
    with np.load(run.features_file) as saved:
        assert saved["splits"].tolist() == ["train"] * 10 + ["test"] * 10
    with pytest.raises(InputError, match="ids that both official splits have"):
        evaluate(run, official_test=True, labels=sources / "labels.csv")


def test_the_split_that_was_trained_on_is_no_test(sources: Path, tmp_path: Path) -> None:
    run = pretrain(tmp_path / "run", source=str(sources / "splits.npz"), split="test")
    with pytest.raises(InputError, match="pretrained on the official test split"):
        evaluate(run, official_test=True)


def test_labels_that_were_given_are_not_asked_for(sources: Path, tmp_path: Path) -> None:
    run = pretrain(tmp_path / "run", source=str(sources / "plain.npy"))
    assert "give labels=" in evaluate(run)["data"]["note"]
    result = evaluate(run, labels=sources / "one class.csv")
    assert "fewer than two classes in" in result["data"]["note"]
    assert "labels=" not in result["data"]["note"]
    with_probes = evaluate(run, labels=sources / "labels.csv")
    assert "labels=" not in str(with_probes["verdict"]) + with_probes["data"]["note"]


def test_hints_can_be_pasted_into_a_shell(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my runs [1]" / "a b"
    words = ["pretrain", POINTS["source"], "--features", "8", "--epochs", "1", "--out", str(folder)]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert f"done: {folder}\ntime " in said
    assert "\nloss " in said
    assert re.search(r"\nRankMe +[\d.]+ of at most \d+, [\d.]+ before training\n", said)
    assert all(f"icone {verb} '{folder}'\n" in said for verb in ("evaluate", "embed", "report"))
    pytest.importorskip("matplotlib", reason="needs the extra icone[report]")
    assert main(["figures", str(folder), "--names", "spectrum", "--out", str(tmp_path)]) == 2
    assert f"icone evaluate '{folder}'" in capsys.readouterr().err


def test_samples_that_came_or_went_since_training_are_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "vectors"
    folder.mkdir()
    for i in range(6):
        np.save(folder / f"{i}.npy", rng.integers(0, 255, (16, 16)).astype(np.uint8))
    run = icone.pretrain(folder, encoder="test_vit", size=32, epochs=1, batch_size=2, probe_every=0, out=tmp_path / "r")
    (folder / "3.npy").unlink()
    np.save(folder / "new.npy", rng.integers(0, 255, (16, 16)).astype(np.uint8))
    icone.evaluate(run, untrained=False)
    said = " ".join(capsys.readouterr().out.split())
    assert "1 sample of the run is no longer there, such as 3.npy" in said
    assert "1 sample here took no part in the run" in said
