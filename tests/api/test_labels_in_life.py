"""Partial labels, numbers, several labels, groups, test sets and duplicates, through the functions of `icone`."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

import icone
from icone.api.evaluate import score_sentences
from icone.cli import main
from icone.errors import InputError
from icone.report.samples import read_samples
from icone.report.thumbnails import picture_of
from icone.run import Run
from icone.terminal import Terminal

COUNT = 60


def quiet() -> Terminal:
    return Terminal(file=io.StringIO())


def points(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Vectors whose first number is what labels are made from."""
    x = np.random.default_rng(seed).normal(size=(count, 6)).astype(np.float32)
    return x, x[:, 0]


X, NUMBERS = points(COUNT, 0)
IDS = [f"{i:06d}" for i in range(COUNT)]
GROUPS = [f"g{i // 4}" for i in range(COUNT)]
CLASSES = np.where(NUMBERS > 0, "high", "low")


def pretrain(data: Any, out: Path, **settings: Any) -> Run:
    usual: dict[str, Any] = {"features": 8, "epochs": 1, "probe_every": 0, "batch_size": 8, "device": "cpu"}
    return icone.pretrain(data, out=out, console=quiet(), **(usual | settings))


def evaluate(run: Run, **settings: Any) -> dict[str, Any]:
    return icone.evaluate(run, geometry_instances=0, device="cpu", console=quiet(), **settings)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("points")
    np.save(folder / "points.npy", X)
    return pretrain(folder / "points.npy", folder / "run")


def test_some_labels_are_enough(run: Run) -> None:
    labels = {name: str(label) for name, label in zip(IDS[:30], CLASSES, strict=False)} | {IDS[40]: "once"}
    data = evaluate(run, labels=labels)
    assert (data["data"]["train"], data["data"]["test"], data["data"]["labelled"]) == (24, 6, 31)
    assert "31 of 60 samples are labelled" in data["data"]["notes"][0]
    assert data["data"]["notes"][1].endswith("only one sample is labelled so: once")
    counts = data["trained"]["linear_probe"]["samples_per_class"]
    assert sum(count["test"] for count in counts.values()) == 6
    low, high = data["trained"]["linear_probe"]["interval"]
    assert low <= data["trained"]["linear_probe"]["balanced_accuracy"] <= high


def test_numbers_are_a_regression(run: Run) -> None:
    result = evaluate(run, labels=pd.Series(NUMBERS), groups=GROUPS)
    assert result["data"]["task"] == "regression"
    assert result["comparison"].keys() == {"ridge_probe", "knn_regressor"}
    assert result["trained"]["ridge_probe"]["r2"] > 0.5
    assert any("taken for a quantity" in note for note in result["data"]["notes"])
    with np.load(run.features_file) as saved:
        assert saved["groups"].tolist() == GROUPS
    assert result["data"]["groups"] == 15
    classes = evaluate(run, labels=(NUMBERS > 0).astype(int), task="classification")
    assert "auroc" in classes["trained"]["linear_probe"]


def test_several_labels_from_the_command_line(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"id": IDS, "big": NUMBERS > 0.5, "small": NUMBERS < 0, "well": GROUPS}).astype({"big": int})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    words = ["evaluate", str(run.folder), "--labels", str(tmp_path / "labels.csv"), "--geometry-instances", "0"]
    assert main([*words, "--label-column", "big", "small", "--group-column", "well"]) == 0
    said = capsys.readouterr().out
    assert "AUROC by label: big" in said
    assert "groups kept together" in said
    assert main([*words, "--label-column", "nothing"]) == 2
    assert "has no column nothing (--label-column)" in capsys.readouterr().err


def test_no_group_is_on_both_sides_of_a_held_out_part(tmp_path: Path) -> None:
    held_out = pretrain(X, tmp_path / "a", labels=CLASSES, groups=GROUPS, test_fraction=0.2)
    group = dict(zip(IDS, GROUPS, strict=True))
    sides = [{group[name] for name in held_out.instances[part]} for part in ("ids", "test_ids")]
    assert sides[0]
    assert sides[1]
    assert not sides[0] & sides[1]
    grouped = evaluate(held_out, data=X, labels=CLASSES, groups=GROUPS)
    drawn = f"{len(sides[1])} groups of {len(held_out.instances['test_ids'])} test samples"
    assert f"(bootstrap over {drawn})." in score_sentences(grouped)[0]
    assert {probe["groups"] for name, probe in grouped["trained"].items() if "knn" in name} == {len(sides[1])}
    assert grouped["comparison"]["linear_probe"]["groups"] == len(sides[1])
    mixed = pretrain(X, tmp_path / "b", labels=CLASSES, test_fraction=0.2)  # held out without groups
    result = evaluate(mixed, data=X, labels=CLASSES, groups=GROUPS)
    train = {group[name] for name in mixed.instances["ids"]}
    left = [name for name in mixed.instances["test_ids"] if group[name] not in train]
    assert result["data"].get("test", 0) == len(left)
    said = " ".join(result["data"]["notes"])
    assert f"{len(mixed.instances['test_ids']) - len(left)} test samples are left out" in said


def test_ids_that_suggest_groups_are_said(tmp_path: Path) -> None:
    for name in (f"p{i // 4:02d}_slice{i % 4}" for i in range(12)):
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(0).integers(0, 255, (16, 16), dtype=np.uint8))
    run = pretrain(tmp_path, tmp_path.parent / "sliced", encoder="test_vit", size=32, features=None)
    result = evaluate(run, labels=["a", "b"] * 6, untrained=False)
    assert any("suggest 3 groups" in note for note in result["data"]["notes"])
    silent = evaluate(run, labels=["a", "b"] * 6, groups=["x", "y", "z"] * 4, untrained=False)
    assert not any("suggest" in note for note in silent["data"]["notes"])


def test_an_external_test_set(run: Run, tmp_path: Path) -> None:
    other, numbers = points(20, 1)
    other[:2] = X[:2]
    np.save(tmp_path / "other.npy", other)
    pd.DataFrame({"id": [f"{i:06d}" for i in range(20)], "label": np.where(numbers > 0, "high", "low")}).to_csv(
        tmp_path / "other.csv", index=False
    )
    with pytest.raises(InputError, match="has no labels: give them with test_labels="):
        evaluate(run, labels=CLASSES, test=tmp_path / "other.npy")
    with pytest.raises(InputError, match="give it with test="):
        evaluate(run, labels=CLASSES, test_labels=tmp_path / "other.csv")
    alone = evaluate(run, labels=CLASSES)
    result = evaluate(run, labels=CLASSES, test=tmp_path / "other.npy", test_labels=tmp_path / "other.csv")
    assert (result["data"]["train"], result["data"]["test"]) == (COUNT, 20)
    assert result["trained"]["rankme"] == alone["trained"]["rankme"]  # geometry is about the data of the run
    assert "2 test samples have the content of samples that the run was trained on" in " ".join(result["data"]["notes"])
    with np.load(run.features_file) as saved:
        assert saved["splits"].tolist() == ["train"] * COUNT + ["external"] * 20
        features = saved["features"]
    embedded = icone.embed(run, other, device="cpu", console=quiet()).filter(regex=r"^f\d").to_numpy()
    np.testing.assert_allclose(features[COUNT:], embedded, rtol=1e-5)


def test_patterns_choose_among_the_files_of_the_run_alone(tmp_path: Path) -> None:
    for folder, names in (("own", ["a_x", "b_x", "left_out"]), ("other", ["a_y", "b_y"])):
        for i in range(24):
            path = tmp_path / folder / "ab"[i % 2] / f"{names[i % len(names)]}{i}.npy"
            path.parent.mkdir(parents=True, exist_ok=True)
            np.save(path, np.random.default_rng(i).integers(0, 255, (16, 16), dtype=np.uint8))
    out = tmp_path / "run"
    run = pretrain(tmp_path / "own", out, encoder="test_vit", size=32, features=None, include="*_x*", exclude="left*")
    result = evaluate(run, test=tmp_path / "other", untrained=False)
    assert (result["data"]["train"], result["data"]["test"]) == (16, 24)
    samples = read_samples(run)
    assert len(picture_of(run, samples, range(40), edge=8)) == 40
    np.save(tmp_path / "test.npy", np.random.default_rng(0).integers(0, 255, (4, 16, 16), dtype=np.uint8))
    flat = evaluate(run, test=tmp_path / "test.npy", test_labels=["a", "b"] * 2, untrained=False)
    assert flat["data"]["test"] == 4
    assert len(picture_of(run, read_samples(run), range(20), edge=8)) == 20


def test_a_run_with_rare_classes_is_measured_with_other_labels(tmp_path: Path) -> None:
    names = np.array(["one", "two", "three", "four"])[np.arange(COUNT) % 4]
    run = pretrain(X, tmp_path / "run", labels=names, imbalance=3)
    rare, other = run.instances["minority"]
    assert evaluate(run, untrained=False)["trained"]["linear_probe"]["minority_accuracy"] is not None
    probe = evaluate(run, labels=CLASSES, untrained=False)["trained"]["linear_probe"]
    assert set(probe["classes"]) == {"high", "low"}
    renamed = np.where(names == other, "renamed", names)
    probe = evaluate(run, labels=renamed, untrained=False)["trained"]["linear_probe"]
    assert probe["minority_accuracy"] == probe["per_class"][rare]
    tuned: dict[str, Any] = {"epochs": 1, "scratch": False, "device": "cpu", "console": quiet()}
    icone.finetune(run, labels=CLASSES, out=tmp_path / "tuned", **tuned)


def test_an_external_test_set_needs_no_groups(tmp_path: Path) -> None:
    table = pd.DataFrame({"id": IDS, "label": CLASSES, "embryo": GROUPS})
    table.to_csv(tmp_path / "labels.csv", index=False)
    run = pretrain(X, tmp_path / "run", labels=tmp_path / "labels.csv", group_column="embryo")
    other, numbers = points(20, 1)
    labels = pd.DataFrame({"id": IDS[:20], "label": np.where(numbers > 0, "high", "low"), "patient": GROUPS[:20]})
    result = evaluate(run, data=X, test=other, test_labels=labels)  # patients of these names are other groups
    assert result["data"]["test"] == 20
    assert any("has no column embryo" in note for note in result["data"]["notes"])
    result = evaluate(run, data=X, test=other, test_labels=labels.assign(embryo=["new"] * 12 + ["g0"] * 8))
    assert result["data"]["test"] == 12
    with pytest.raises(InputError, match=r"no test sample is left: all 20 .* such as g0"):
        evaluate(run, data=X, test=other, test_labels=labels.assign(embryo=GROUPS[:20]))


def test_a_test_set_of_other_classes_is_refused(run: Run) -> None:
    with pytest.raises(InputError, match=r"has the classes cat, dog, and the run high, low: none is in both"):
        evaluate(
            run, labels=CLASSES, test=X[:20], test_labels=pd.DataFrame({"id": IDS[:20], "label": ["cat", "dog"] * 10})
        )


def test_a_table_without_groups_keeps_those_of_the_run(tmp_path: Path) -> None:
    pd.DataFrame({"id": IDS, "label": CLASSES, "embryo": GROUPS}).to_csv(tmp_path / "all.csv", index=False)
    pd.DataFrame({"id": IDS[:40], "label": CLASSES[:40]}).to_csv(tmp_path / "some.csv", index=False)
    np.save(tmp_path / "points.npy", X)
    run = pretrain(tmp_path / "points.npy", tmp_path / "run", labels=tmp_path / "all.csv", group_column="embryo")
    result = evaluate(run, labels=tmp_path / "some.csv")
    assert (result["data"]["labelled"], result["data"]["groups"]) == (40, len(set(GROUPS)))
    assert "groups kept together" in result["data"]["note"]
    table = icone.embed(run, labels=tmp_path / "some.csv", device="cpu", console=quiet())
    assert (table["label"] != "").sum() == 40


@pytest.mark.parametrize("as_table", [True, False])
def test_a_column_of_groups_that_was_found_is_kept_too(tmp_path: Path, as_table: bool) -> None:
    frame = pd.DataFrame({"id": IDS, "label": CLASSES, "patient": GROUPS})
    others = pd.DataFrame({"id": IDS, "label": CLASSES[::-1]})
    frame.to_csv(tmp_path / "all.csv", index=False)
    others.to_csv(tmp_path / "other.csv", index=False)
    np.save(tmp_path / "points.npy", X)
    labels = tmp_path / "all.csv" if as_table else frame
    run = pretrain(tmp_path / "points.npy", tmp_path / "run", labels=labels)
    group = dict(zip(IDS, GROUPS, strict=True))
    for given in (tmp_path / "other.csv", others, CLASSES[::-1]):
        assert evaluate(run, labels=given, untrained=False)["data"]["groups"] == len(set(GROUPS))
        with np.load(run.features_file) as saved:
            assert dict(zip(saved["ids"].tolist(), saved["groups"].tolist(), strict=True)) == group
    tuned: dict[str, Any] = {"epochs": 1, "scratch": False, "device": "cpu", "console": quiet()}
    icone.finetune(run, out=tmp_path / "tuned", labels=others, **tuned)
    parts = json.loads((tmp_path / "tuned" / "config.json").read_text())["parts"]
    assert parts["test"]
    assert not {group[name] for name in parts["train"]} & {group[name] for name in parts["test"]}
    own = evaluate(run, labels=others.assign(group=[f"s{i // 10}" for i in range(COUNT)]), untrained=False)
    assert own["data"]["groups"] == COUNT // 10  # labels with groups of their own
    (tmp_path / "all.csv").unlink()
    result = evaluate(run, labels=others, untrained=False)["data"]
    gone = any("no longer at" in note and "all.csv" in note for note in result["notes"])
    assert (result["groups"], gone) == ((0, True) if as_table else (len(set(GROUPS)), False))


def test_columns_of_labels_that_were_an_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    frame = pd.DataFrame({"id": IDS, "age": NUMBERS, "well": GROUPS})
    x = X.copy()
    x[5] *= 50
    np.save(tmp_path / "points.npy", x)
    words: dict[str, Any] = {"labels": frame, "label_column": "age", "group_column": "well"}
    run = pretrain(tmp_path / "points.npy", tmp_path / "run", **words)
    found = icone.find_duplicates(run, device="cpu", console=quiet())
    assert [float(one["label"]) for one in found["outliers"] if one["id"] == IDS[5]] == [pytest.approx(NUMBERS[5])]
    assert icone.embed(run, device="cpu", console=quiet())["group"].tolist() == GROUPS
    assert evaluate(run, labels=CLASSES, untrained=False)["data"]["groups"] == len(set(GROUPS))
    run.remember({})  # as in another process
    assert icone.find_duplicates(run, device="cpu", console=quiet())["samples"] == COUNT
    assert icone.find_duplicates(run, data=x, device="cpu", console=quiet())["samples"] == COUNT
    assert "label" not in icone.embed(run, device="cpu")
    assert "were a Python object" in " ".join(capsys.readouterr().out.split())
    with pytest.raises(
        InputError, match=r"groups of .*run \(group_column=.well.\) came with labels that were a Python obj"
    ):
        evaluate(run, labels=CLASSES)
    assert evaluate(run, labels=CLASSES, groups=GROUPS, untrained=False)["data"]["groups"] == len(set(GROUPS))
    assert evaluate(run, untrained=False, **words)["data"]["groups"] == len(set(GROUPS))


def test_parts_that_the_data_assigns_are_used(tmp_path: Path) -> None:
    paths = []
    for i in range(30):
        paths.append(tmp_path / f"{i}.npy")
        np.save(paths[-1], np.random.default_rng(i).integers(0, 255, (16, 16), dtype=np.uint8))
    frame = pd.DataFrame({"path": paths, "label": ["a", "b"] * 15, "well": ["u", "v", "w"] * 10})
    run = pretrain(frame, tmp_path / "run", encoder="test_vit", size=32, features=None)
    parted = frame.assign(split=["train"] * 20 + ["val"] * 4 + ["test"] * 6)
    result = evaluate(run, data=parted, untrained=False)
    assert (result["data"]["train"], result["data"]["test"]) == (20, 6)
    table = icone.embed(run, parted, group_column="well", device="cpu", console=quiet())
    assert table["split"].tolist() == parted["split"].tolist()
    assert table["group"].tolist() == frame["well"].tolist()
    assert table["label"].tolist() == frame["label"].tolist()


@pytest.mark.parametrize("suffix", [".parquet", ".npz", ".csv", ".h5ad"])
def test_embeddings_carry_labels_groups_and_splits(run: Run, tmp_path: Path, suffix: str) -> None:
    frame = pd.DataFrame({"id": IDS[:50], "age": NUMBERS[:50], "patient": GROUPS[:50]})
    frame.to_csv(tmp_path / "labels.csv", index=False)
    target = tmp_path / f"features{suffix}"
    settings: dict[str, Any] = {"labels": tmp_path / "labels.csv", "label_column": ("age",), "projections": ("pca",)}
    table = icone.embed(run, out=target, device="cpu", console=quiet(), **settings)
    if suffix == ".h5ad":
        anndata = pytest.importorskip("anndata", reason="needs the extra icone[anndata]")
        saved = anndata.read_h5ad(target)
        assert saved.obs_names.tolist() == IDS
        np.testing.assert_array_equal(saved.X, table.filter(regex=r"^f\d").to_numpy())
        np.testing.assert_array_equal(saved.obsm["X_pca"], table[["pca0", "pca1"]].to_numpy())
        found: Any = {name: saved.obs[name] for name in ("label", "group", "split")}
        assert found["group"].isna().sum() == 10
        found["group"] = found["group"].astype(str).replace("nan", "")
    elif suffix == ".npz":
        found = {name: pd.Series(values) for name, values in np.load(target).items() if values.ndim == 1}
        assert np.load(target)["pca"].shape == (COUNT, 2)
    else:
        found = pd.read_parquet(target) if suffix == ".parquet" else pd.read_csv(target, keep_default_na=False)
    numbers = pd.to_numeric(found["label"], errors="coerce")
    np.testing.assert_allclose(numbers, [*NUMBERS[:50], *[np.nan] * 10], rtol=1e-5)
    assert found["group"].tolist() == GROUPS[:50] + [""] * 10
    assert set(found["split"]) == {"train"}


def test_near_duplicates_and_outliers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    folder = tmp_path / "pictures"
    folder.mkdir()
    for i in range(24):  # smooth pictures: a few waves each
        angles = rng.normal(size=(3, 2, 1)) * np.arange(32) / 3
        waves = np.einsum("ki,kj->ij", np.sin(angles[:, 0] + i), np.cos(angles[:, 1]))
        picture = Image.fromarray((100 + 30 * waves).clip(0, 255).astype(np.uint8))
        picture.save(folder / f"{i:02d}.png")
        if i == 7:
            picture.save(folder / "copy.jpg", quality=85)
    Image.fromarray(255 * (np.indices((32, 32)).sum(0) % 2).astype(np.uint8)).save(folder / "checkers.png")
    run = pretrain(folder, tmp_path / "run", encoder="test_vit", size=32, features=None, test_fraction=0.2)
    found = icone.find_duplicates(run, device="cpu", console=quiet())
    pairs = [{sample["id"] for sample in pair["samples"]} for pair in found["duplicates"]]
    assert {"07.png", "copy.jpg"} in pairs
    assert len(pairs) <= 2
    assert found["outliers"][0]["id"] == "checkers.png"
    splits = {sample["id"]: sample["split"] for pair in found["duplicates"] for sample in pair["samples"]}
    assert splits["copy.jpg"] == ("test" if "copy.jpg" in run.instances["test_ids"] else "train")
    assert main(["inspect", str(run.folder), "--duplicates", "--device", "cpu"]) == 0
    assert "copy.jpg" in capsys.readouterr().out
    assert main(["inspect", str(run.folder), "--duplicates", "--device", "cpu", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == found
    assert main(["inspect", str(run.folder), "--duplicates", "--size", "64"]) == 2
    assert "leave out --size" in capsys.readouterr().err


def test_a_result_with_labels_does_not_go_without_a_word(run: Run) -> None:
    evaluate(run, labels=CLASSES)
    told = Terminal(file=io.StringIO())
    icone.evaluate(run, geometry_instances=0, device="cpu", console=told)
    assert isinstance(told.file, io.StringIO)
    assert "takes the place of a result with 60 labels" in told.file.getvalue().replace("\n", " ")
