"""Label tables: matching, separators, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from icone.data import read_labels
from icone.errors import InputError

IDS = ("a/1.png", "a/2.png", "b/3.nii.gz")


def table(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "labels.csv"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "id,label\na/1.png,x\na/2.png,y\nb/3.nii.gz,x\n",
        "file,label\n1.png,x\n2.png,y\n3.nii.gz,x\n",
        "Name; Class ;age\n1;x;5\n\n2;y;6\n3;x;7\n",
        "\ufefftarget\timage\nx\t/home/me/data/a/1.png\ny\t.\\a\\2.png\nx\tb/3.nii.gz\n",
        'path,label\n"a/1.png","x"\na/1.png,x\n2,y\n3,x\n',
    ],
    ids=["ids", "names", "stems, semicolons", "BOM, tabs, long paths", "quotes, repeated row"],
)
def test_ways_to_write_a_table(tmp_path: Path, text: str) -> None:
    assert read_labels(table(tmp_path, text), IDS) == ("x", "y", "x")


def test_empty_label_means_unlabelled(tmp_path: Path) -> None:
    assert read_labels(table(tmp_path, "id,label\n1,x\n2,\n3,x"), IDS) == ("x", None, "x")


def test_numbers_address_array_samples(tmp_path: Path) -> None:
    assert read_labels(table(tmp_path, "id,label\n1,b\n0,a"), ("000000", "000001")) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("id,label\n1,x\n2,y\n3,x\nghost,x\n", r"labels 1 samples that are not in the data.*\(ghost\)"),
        ("id,label\n1,x\n", r"no row for 2 of 3 samples \(a/2\.png, b/3\.nii\.gz\)"),
        ("id,label\n1,x\n1.png,y\n2,y\n3,x\n", "two labels: x and y"),
        ("id,colour\n1,x\n", "needs a column named label or class or target; it has: id, colour"),
        ("what,label\n1,x\n", "needs a column named id or path"),
        ("", "needs a column"),
        ("id,label\n1\n", "too few columns: 1"),
        ("id,label\nelsewhere/2.png,x\n1,x\n3,x\n", r"not in the data.*elsewhere/2\.png"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_labels(table(tmp_path, text), IDS)


def test_ambiguous_names_need_the_whole_id(tmp_path: Path) -> None:
    ids = ("a/1.png", "b/1.png")
    with pytest.raises(InputError, match="or there more than once"):
        read_labels(table(tmp_path, "id,label\n1.png,x\n"), ids)
    assert read_labels(table(tmp_path, "id,label\nb/1.png,x\na/1.png,y\n"), ids) == ("y", "x")


def test_missing_or_binary_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read the labels in"):
        read_labels(tmp_path / "none.csv", IDS)
    (tmp_path / "labels.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot read the labels in"):
        read_labels(tmp_path / "labels.csv", IDS)
