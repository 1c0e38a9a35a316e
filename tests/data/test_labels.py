"""Label tables: matching, separators, and what is refused."""

from __future__ import annotations

import csv
from pathlib import Path

import pandas as pd
import pytest

from icone.api.embedding_table import write_embeddings
from icone.data import read_labels
from icone.data.labels import class_names, read_columns, read_label_table
from icone.errors import InputError, printable

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
        ("id,label\nghost,x\n", r"labels 1 sample that is not in the data.*\(ghost\)"),
        ("id,label\n1,x\n1.png,y\n2,y\n3,x\n", "two labels: x and y"),
        ("id,colour\n1,x\n", "needs a column named label or class or target; it has: id, colour"),
        ("what,label\n1,x\n", "needs a column named id or path"),
        ("id,label\n1\n", "too few columns: 1"),
        ("id,label\nelsewhere/2.png,x\n", r"not in the data.*elsewhere/2\.png"),
    ],
)
def test_tables_that_do_not_fit(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_labels(table(tmp_path, text), IDS)


def test_partial_labels_and_rows_of_other_samples(tmp_path: Path) -> None:
    found = read_label_table(table(tmp_path, "id,label\n1,x\nghost,y\n"), IDS)
    assert found.labels == ("x", None, None)
    assert "1 row of" in found.notes[0]
    assert "such as ghost; 2 samples have no row, such as " in found.notes[0]


def test_a_misspelled_name_is_told_with_the_sample_that_it_leaves_without_a_label(tmp_path: Path) -> None:
    ids = ["benign/cell_01.png", "benign/cell_02.png", "malign/cell_03.png"]
    text = "id,label\ncell_01.png,a\ncel_02.png,b\ncell_03.png,a\n"
    (note,) = read_label_table(table(tmp_path, text), ids).notes
    assert "not in the data, such as cel_02.png (did you mean benign/cell_02.png?)" in note
    assert "1 sample has no row, such as benign/cell_02.png" in note
    (note,) = read_label_table(table(tmp_path, text.replace("cel_02", "cell_04")), ids).notes
    assert "did you mean" not in note  # another number is another sample
    assert "1 sample has no row" in note
    (note,) = read_label_table(table(tmp_path, text.replace("cel_02", "cell_02") + "cell_09.png,a\n"), ids).notes
    assert note.endswith("such as cell_09.png")


def test_columns_of_labels_and_groups(tmp_path: Path) -> None:
    path = table(tmp_path, "id,label,Age,cyst,stone,patient\n1,x,4.5,1,1,P\n2,y,7,0,0,P\n3,x,,,,Q\n")
    assert read_label_table(path, IDS, ["age"]).labels == ("4.5", "7", None)
    several = read_label_table(path, IDS, ["cyst", "stone"])
    assert several.labels == ("cyst|stone", "|", None)
    assert several.groups == ("P", "P", "Q")
    assert "column patient" in several.notes[0]
    by_label = read_label_table(path, IDS, group_column="label")
    assert (by_label.labels, by_label.groups) == (("x", "y", "x"),) * 2
    with pytest.raises(InputError, match=r"no column weight \(label_column=\); it has: id, label, Age"):
        read_label_table(path, IDS, ["weight"])
    with pytest.raises(InputError, match=r"row 1 of .* has '4\.5' in the column age: .* 0 or 1 each"):
        read_label_table(path, IDS, ["age", "cyst"])
    assert read_label_table(table(tmp_path, "id,well\n1,A\n"), IDS, group_column="well") == (
        None,
        ("A", None, None),
        (),
        ("id", "well"),
    )


def test_ambiguous_names_need_the_whole_id(tmp_path: Path) -> None:
    ids = ("a/1.png", "b/1.png")
    with pytest.raises(InputError, match="or there more than once"):
        read_labels(table(tmp_path, "id,label\n1.png,x\n"), ids)
    assert read_labels(table(tmp_path, "id,label\nb/1.png,x\na/1.png,y\n"), ids) == ("y", "x")


LONG = "7" * 5000


@pytest.mark.parametrize(
    ("text", "labels"),
    [
        (f"id,mask,label\n1,{'0 ' * 200_000},x\n2,,y\n3,,x\n", ("x", "y", "x")),
        (f"id,label\n1,{LONG}\n2,12\n3,{LONG}\n", (LONG, "12", LONG)),
        ("id,label\n1,a\\b\n2,\\\n3,x\n", ("a\\b", "\\", "x")),
        ('id,label\n1,"a\nb"\n2,\x1b[2J\n3,"é"\n', (r"a\nb", r"\x1b[2J", "é")),
        ("id,label\r1,x\r2,y\r3,x\r", ("x", "y", "x")),
        ("id,label\n1,x\n1,x\n2,y\n3,x\n", ("x", "y", "x")),
    ],
    ids=["long field", "5,000 digits", "backslashes", "control characters", "old line ends", "repeated"],
)
def test_odd_tables_are_read(tmp_path: Path, text: str, labels: tuple[str, ...]) -> None:
    limit = csv.field_size_limit()
    path = table(tmp_path, text)
    assert read_labels(path, IDS) == labels
    assert csv.field_size_limit() == limit
    assert set(class_names(labels)) == set(labels)
    assert tuple(printable(str(value)) for value in read_columns(path, IDS)["label"]) == labels


def test_numbers_are_ordered_by_value_at_any_length() -> None:
    assert class_names([LONG, "10", "9", "010", "0", "00"]) == ("0", "00", "9", "010", "10", LONG)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it is empty"),
        (b"\xef\xbb\xbf \n", "it is empty"),
        (b"id,label\n", r"no row for any of the 3 samples"),
        (b"id,label\n1,\xe9\n", "it is not UTF-8 .* save the table as CSV in UTF-8"),
        ("id,label\n1,x\n".encode("utf-16"), "it is not UTF-8 .* save the table as CSV in UTF-8"),
        ("id,label\n1,x\n".encode("utf-16-le"), "it holds NUL bytes; save the table as CSV in UTF-8"),
        (b"id,label\n1,x\0y\n2,x\n3,x\n", "it holds NUL bytes"),
        (b'id,label\n1,"x\n2,y\n3,x\n', "a quote is opened and never closed"),
        (b"id,label\n" + b"9" * 200_000 + b",x\n", r"\(9{100}…\)"),
        (b"id,label\n1," + b"x" * 200_000 + b"\n1,y\n", "gives a/1.png two labels: x{100}… and y"),
        (b"id,label\n" + b"x" * 200_000, "too few columns: x{100}…$"),
        (b"x" * 200_000, "needs a column named id .*: x{100}…$"),
        (b"id,label\n\\,x\n", r"not in the data"),
    ],
    ids=[
        "empty", "blank", "only a header", "Latin-1", "UTF-16", "UTF-16 without mark", "NUL", "open quote",
        "long name", "two long labels", "long row", "long header", "backslash",
    ],
)  # fmt: skip
def test_tables_that_cannot_be_used(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "labels.csv"
    path.write_bytes(content)
    with pytest.raises(InputError, match=rf"labels\.csv.*{message}") as caught:
        read_labels(path, IDS)
    assert len(str(caught.value)) < 600


def test_two_different_rows_for_one_sample(tmp_path: Path) -> None:
    path = table(tmp_path, "id,age\n1,5\n1.png,6\n")
    with pytest.raises(InputError, match=r"two rows for a/1\.png, and they differ"):
        read_columns(path, IDS)


@pytest.mark.parametrize("name", ["=1+1.png", "+a.png", "-a.png", "@a.png", "'a.png", "'=a.png", "a=b.png"])
def test_ids_come_back_from_a_csv_for_spreadsheets(tmp_path: Path, name: str) -> None:
    path = tmp_path / "embeddings.csv"
    write_embeddings(pd.DataFrame({"id": [name], "path": [name], "f0": [-1.5]}), path)
    cell = path.read_text().splitlines()[1].split(",")[0]
    assert cell[0] not in "=+-@"
    assert cell == (f"'{name}" if name[0] in "=+-@" else name)
    assert path.read_text().endswith(",-1.5\n")  # numbers stay numbers
    path.write_text(path.read_text().replace("f0", "label"))
    assert read_labels(path, (name, "other.png")[:1]) == ("-1.5",)


def test_missing_or_binary_table(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no table"):
        read_labels(tmp_path / "none.csv", IDS)
    (tmp_path / "labels.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="cannot read the table"):
        read_labels(tmp_path / "labels.csv", IDS)
