"""File names that are not UTF-8, or that hold control characters and formulas, from training to the tables."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from icone.api.embedding_table import write_embeddings
from icone.cli import main
from icone.data import read_labels
from icone.run import Run

NAMES = {
    b"caf\xe9.png": r"caf\xe9.png",
    b"\x1b[2J\nnext.png": r"\x1b[2J\nnext.png",
    b"=1+1.png": "=1+1.png",
    "größe.png".encode(): "größe.png",
}


def test_from_training_to_the_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    data, run = tmp_path / "data", tmp_path / "run"
    data.mkdir()
    for name in NAMES:
        Image.fromarray(rng.integers(0, 255, (16, 16), dtype=np.uint8)).save(data / os.fsdecode(name))
    (data / os.fsdecode(b"\x1b[2Jbroken.png")).write_text("no image")
    words = [str(data), "--size", "16", "--encoder", "resnet10t", "--epochs", "1", "--probe-every", "0"]
    assert main(["pretrain", *words, "--skip-unreadable", "--out", str(run)]) == 0
    assert sorted(Run(run).instances["ids"]) == sorted(NAMES.values())
    assert main(["embed", str(run), "--out", str(tmp_path / "e.parquet"), "--skip-unreadable"]) == 0
    table = pd.read_parquet(tmp_path / "e.parquet")
    assert set(table["id"]) == set(NAMES.values())
    for suffix in (".npz", ".csv"):
        write_embeddings(table, tmp_path / f"e{suffix}")
    assert set(np.load(tmp_path / "e.npz")["id"]) == set(NAMES.values())
    with (tmp_path / "e.csv").open(newline="", encoding="utf-8") as file:
        ids = [row["id"] for row in csv.DictReader(file)]
    assert set(ids) == {name.replace("=1", "'=1") for name in NAMES.values()}
    pd.DataFrame({"id": ids, "label": ids}).to_csv(tmp_path / "labels.csv", index=False)
    labels = read_labels(tmp_path / "labels.csv", list(NAMES.values()))
    assert labels == tuple(name.replace("=1", "'=1") for name in NAMES.values())
    printed = "".join(capsys.readouterr())
    assert "skipped   1: " in printed
    assert "\x1b" not in printed
    assert not any("\udc80" <= character <= "\udcff" for character in printed)
