"""The command line as people use it: what comes out, and sentences with exit code 2 for what cannot work."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

import icone
from icone.cli import main
from icone.run import Run
from icone.seeds import seed_folders

POINTS = ["synthetic:gaussians", "--subset", "60", "--features", "8", "--epochs", "2"]


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten gray images of two kinds, with their labels in a CSV beside the folder."""
    root = tmp_path_factory.mktemp("data")
    (root / "images").mkdir()
    rng = np.random.default_rng(0)
    rows = []
    for i in range(10):
        pixels = rng.integers(0, 60, (24, 24), dtype=np.uint8)
        pixels[:, :: 1 + i % 2] += 150
        Image.fromarray(pixels).save(root / "images" / f"{i}.png")
        rows.append({"file": f"{i}.png", "label": ["plain", "striped"][i % 2]})
    pd.DataFrame(rows).to_csv(root / "labels.csv", index=False)
    return root


@pytest.fixture(scope="module")
def run(images: Path) -> Path:
    folder = images / "run"
    words = ["pretrain", str(images / "images"), "--size", "32", "--encoder", "resnet10t", "--epochs", "2"]
    assert main([*words, "--batch-size", "2", "--out", str(folder)]) == 0
    return folder


def test_pretrain_leaves_a_complete_run(run: Path) -> None:
    record = json.loads((run / "config.json").read_text())
    assert record["config"]["batch_size"] == 2
    preparation = record["data"]["preparation"]
    assert preparation | {"low": [0.0], "high": [255.0], "size": [32, 32]} == preparation
    assert "hue" in str(record["views"]["left_out"])  # the images are gray
    assert record["method"]["options"]["normalisation"] == "anchor"
    assert [row["epoch"] for row in Run(run).history] == [0, 1]
    assert {"loss", "view_consistency", "anchor_alignment", "diversity", "anchor_cosine"} <= Run(run).history[0].keys()
    assert "2/2 epochs, finished" in repr(Run(run))


def test_inspect_sums_up_a_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run)]) == 0
    said = capsys.readouterr().out
    assert f"Run {run}: icone on" in said.replace("\n", "")
    assert "2/2 epochs, finished" in said
    assert "icone evaluate" in said


def test_inspect_says_what_was_measured(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run, tmp_path / "run")
    tuned, labels = tmp_path / "tuned", ["--labels", str(images / "labels.csv"), "--data", str(images / "images")]
    assert main(["evaluate", str(tmp_path / "run"), *labels]) == 0
    assert main(["finetune", str(tmp_path / "run"), *labels, "--epochs", "1", "--no-scratch", "--out", str(tuned)]) == 0
    assert json.loads((tuned / "config.json").read_text())["given"] == labels
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "run")]) == 0
    assert "Linear probe: " in capsys.readouterr().out
    assert main(["inspect", str(tuned)]) == 0
    assert "Fine-tuned is " in capsys.readouterr().out
    assert main(["inspect", str(tuned), "--json"]) == 2


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".npz"])
def test_embed_writes_ids_paths_and_features(run: Path, images: Path, tmp_path: Path, suffix: str) -> None:
    target = tmp_path / f"embeddings{suffix}"
    assert main(["embed", str(run), str(images / "images"), "--out", str(target)]) == 0
    if suffix == ".npz":
        with np.load(target) as content:
            ids, paths, features = content["id"], content["path"], content["features"]
    else:
        table = pd.read_parquet(target) if suffix == ".parquet" else pd.read_csv(target)
        ids, paths, features = table["id"], table["path"], table.filter(regex="^f").to_numpy()
    assert list(ids) == [f"{i}.png" for i in range(10)]
    assert Path(paths[3]) == images / "images" / "3.png"
    assert features.shape == (10, 512)
    # The exported encoder alone, fed with the raw pixels of one file, gives the same features.
    encoder = icone.load_encoder(run)
    pixels = torch.from_numpy(np.array(Image.open(images / "images" / "3.png")))[None, None]
    with torch.no_grad():
        torch.testing.assert_close(encoder(pixels)[0].numpy(), features[3].astype(np.float32), rtol=1e-4, atol=1e-5)
    assert not encoder.training


def test_files_that_are_left_out_are_listed(
    run: Path, images: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mixed").mkdir()
    for number in range(25):
        (tmp_path / "mixed" / f"bad{number}.png").write_bytes(b"no image")
    (tmp_path / "mixed" / "good.png").write_bytes((images / "images" / "3.png").read_bytes())
    words = ["embed", str(run), str(tmp_path / "mixed"), "--skip-unreadable", "--out", str(tmp_path / "some.csv")]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert "note: 25 samples are left out:" in said
    assert "mixed/bad0.png" in said
    assert "and 5 more" in said
    assert list(pd.read_csv(tmp_path / "some.csv")["id"]) == ["good.png"]


def test_evaluate_with_labels_and_without(run: Path, images: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run)]) == 0
    assert "geometry only" in " ".join(capsys.readouterr().out.split())
    words = ["evaluate", str(run), "--labels", str(images / "labels.csv"), "--untrained", "--test-fraction", "0.4"]
    assert main(words) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("linear probe", "kNN-5", "RankMe", "LiDAR", "untrained", "trained"))
    result = json.loads((run / "result.json").read_text())
    assert result["data"]["train"] == 6
    assert result["data"]["test"] == 4
    assert set(result["trained"]["linear_probe"]["per_class"]) == {"plain", "striped"}
    assert "knn_20" not in result["trained"]  # six training samples
    with np.load(run / "features.npz") as saved:
        assert saved["features"].shape == (10, 512)
        assert list(saved["labels"][:2]) == ["plain", "striped"]


def test_evaluation_uses_what_the_run_held_out(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert main(["pretrain", *POINTS, "--test-fraction", "0.25", "--out", str(folder)]) == 0
    assert main(["evaluate", str(folder), "--geometry-instances", "0"]) == 0
    run = Run(folder)
    assert run.result is not None
    assert (run.result["data"]["train"], run.result["data"]["test"]) == (45, 15)
    assert not set(run.instances["ids"]) & set(run.instances["test_ids"])
    assert "never saw" in run.result["data"]["note"]
    assert "lidar" not in run.result["trained"]


def test_cache_is_shown_checked_and_cleared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = tmp_path / "cache"
    assert main(["cache", str(cache)]) == 0
    assert "keeps nothing" in capsys.readouterr().out
    words = ["pretrain", *POINTS, "--epochs", "1", "--cache", str(cache), "--out", str(tmp_path / "run")]
    assert main(words) == 0
    assert main(["cache", str(cache), "--check"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("gaussians", "facts", "samples", "GB"))
    assert "damaged" not in shown
    largest = max(cache.glob("*.npy"), key=lambda path: path.stat().st_size)
    largest.write_bytes(largest.read_bytes()[:-4] + b"oops")
    assert main(["cache", str(cache), "--check"]) == 0
    assert f"{largest.stem} was damaged and is deleted" in capsys.readouterr().out
    assert len(list(cache.iterdir())) == 3
    assert main(["cache", str(cache), "--clear"]) == 0
    assert [path.name for path in cache.iterdir()] == ["CACHEDIR.TAG"]
    assert main(["cache", "off"]) == 2


BAD = {
    "no folder": (["pretrain", "no/such/folder"], "no/such/folder"),
    "empty folder": (["pretrain", "{empty}"], "empty"),
    "one image": (["pretrain", "{single}"], "at least 2"),
    "text as png": (["pretrain", "{text}"], "b.png"),
    "batch above N": (["pretrain", *POINTS, "--batch-size", "61"], "60"),
    "one view": (["pretrain", *POINTS, "--views", "1"], "--views must be at least 2"),
    "unknown method": (["pretrain", *POINTS, "--method", "simcrl"], "did you mean simclr"),
    "undefined batch": (["pretrain", *POINTS, "--method", "simclr"], "exactly zero"),
    "supervised without labels": (["pretrain", "{images}", "--method", "supcon", "--batch-size", "2"], "needs a label"),
    "unknown option": (["pretrain", *POINTS, "--options", "diversitty=sigreg"], "did you mean diversity"),
    "unknown encoder": (["pretrain", "{images}", "--encoder", "vit_small"], "did you mean vit_small_patch16,"),
    "unknown volume encoder": (["inspect", "synthetic:shapes@32x4", "--encoder", "resnet18-3d"], "mean resnet18_3d,"),
    "encoder of volumes": (["pretrain", "{images}", "--encoder", "resnet18-3d"], "resnet18_3d is for volumes"),
    "unknown command": (["pretrian", "{images}"], "did you mean pretrain? Known: "),
    "unknown command of the paper": (["paper", "shwo"], "did you mean show?"),
    "misspelled folder": (["inspect", "{images}s"], "did you mean {images}?"),
    "misspelled place": (["inspect", "singel/inner"], "there is no singel/inner; did you mean single?"),
    "misspelled labels": (["pretrain", "{images}", "--labels", "wrnog.csv"], "did you mean wrong.csv?"),
    "misspelled run": (["evaluate", "{run}x"], "did you mean {run}?"),
    "own files in the way": (["pretrain", *POINTS, "--out", "text"], "such as --out text-run"),
    "small volume": (["pretrain", "synthetic:shapes@12x20"], "does not survive"),
    "degenerate norm": (
        ["pretrain", "synthetic:shapes@32x20", "--encoder", "resnet10_3d", "--recipe", "paper"],
        "BatchNorm",
    ),
    "unknown device": (["pretrain", *POINTS, "--device", "abacus"], "unknown device"),
    "labels for others": (["pretrain", "{images}", "--labels", "{wrong}"], "other.png"),
    "unknown dataset": (["pretrain", "medmnist:adrenalmnist"], "adrenalmnist3d"),
    "not a run": (["embed", "{images}"], "not a run folder"),
    "unknown ending": (["embed", "{run}", "--out", "x.xlsx"], ".parquet"),
    "labels of other files": (["evaluate", "{run}", "--labels", "{wrong}"], "other.png"),
    "embed other dimension": (["embed", "{run}", "synthetic:shapes@32x20", "--out", "x.csv"], "trained on 2"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_sentence_with_exit_code_2(
    case: str,
    images: Path,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    empty, single, text = (tmp_path / name for name in ("empty", "single", "text"))
    for folder in (empty, single, text):
        folder.mkdir()
    Image.new("L", (16, 16)).save(single / "a.png")
    (text / "a.png").write_bytes((images / "images" / "0.png").read_bytes())
    (text / "b.png").write_text("I am not an image")
    wrong = tmp_path / "wrong.csv"
    wrong.write_text("file,label\nother.png,a\n")
    places = {"empty": empty, "single": single, "text": text, "wrong": wrong, "images": images / "images", "run": run}
    words, expected = BAD[case]
    before = sorted(tmp_path.rglob("*"))
    assert main([word.format(**places) for word in words]) == 2
    message = capsys.readouterr().err
    assert expected.format(**places) in message
    assert "Traceback" not in message
    assert sorted(tmp_path.rglob("*")) == before  # nothing half-written


def test_seeds_train_runs_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", *POINTS, "--seeds", "2", "--seed", "3", "--out", str(tmp_path / "runs")]
    assert main(words) == 0
    runs = [Run.open(tmp_path / "runs" / f"seed-{seed}") for seed in (3, 4)]
    assert [run.config.seed for run in runs] == [3, 4]
    assert all(run.finished for run in runs)
    said = capsys.readouterr().out
    assert "seed-3: epoch 1/" in said
    (repeat,) = [line for line in said.splitlines() if line.startswith("repeat")]  # of both seeds together
    assert main(shlex.split(repeat)[2:]) == 0
    again = [Run.open(folder) for folder in seed_folders(tmp_path / "runs-2")]
    assert [run.history[-1]["loss"] for run in again] == [run.history[-1]["loss"] for run in runs]
    capsys.readouterr()
    assert main([*words, "--resume"]) == 0  # both are finished: nothing is left to do
    assert "repeat" not in capsys.readouterr().out
    assert main([*words, "--extend"]) == 2
    assert main([*words[:-4], "--seeds", "0"]) == 2


def test_debug_shows_the_traceback() -> None:
    with pytest.raises(icone.InputError):
        main(["pretrain", "no/such/folder", "--debug"])


def test_no_write_permission_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("")
    assert main(["pretrain", *POINTS, "--out", str(tmp_path / "file" / "run")]) == 2
    assert "is a file" in capsys.readouterr().err


def test_methods_lists_all_and_the_options_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["methods"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in icone.METHODS)
    assert main(["methods", "simclr"]) == 0
    assert "temperature" in capsys.readouterr().out


def test_python_interface(tmp_path: Path) -> None:
    run = icone.pretrain("synthetic:gaussians", subset=40, epochs=1, features=4, out=tmp_path / "run")
    assert list(icone.embed(run).columns) == ["id", "path", "label", "split", "f0", "f1", "f2", "f3"]
    with pytest.raises(icone.InputError, match="unknown settings: bach_size"):
        icone.pretrain("synthetic:gaussians", bach_size=1)
    assert set(icone.__all__) <= set(dir(icone))
    assert icone.nn.diversity.orthogonality(torch.eye(3)) == 0
    assert icone.__version__


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (torch.OutOfMemoryError, "ried to allocate 20 GiB"),
        (getattr(torch, "AcceleratorError", RuntimeError), "CUDA error: out of memory"),  # not its own allocator
        (RuntimeError, "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    ],
)
def test_too_little_memory_is_said_with_what_helps(
    kind: type[Exception],
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def exhausted(*_: object, **__: object) -> None:
        raise kind(reason if "CUDA" in reason else f"CUDA out of memory. T{reason}")

    monkeypatch.setattr("icone.api.pretrain.fit", exhausted)
    assert main(["pretrain", *POINTS, "--batch-size", "4", "--out", str(tmp_path / "run")]) == 2
    message = capsys.readouterr().err
    assert reason in message
    assert "--micro-batch 2 (now 4 samples" in message
