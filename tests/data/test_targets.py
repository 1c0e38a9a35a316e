"""What labels are taken for, and which ids look like groups."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from icone.config import DataConfig
from icone.data import grouped_split, open_source
from icone.data.dataset import integer_labels
from icone.data.targets import TaskSetting, find_task, suggested_groups
from icone.errors import InputError

POINTS = np.zeros((4, 3), np.float32)


@pytest.mark.parametrize(
    ("labels", "wanted", "task"),
    [
        (["a", "b", None], "auto", "classification"),
        (["0", "1", "1.0"], "auto", "classification"),
        ([str(i) for i in range(20)] * 2, "auto", "classification"),
        ([str(20 + i) for i in range(60)] * 3, "auto", "regression"),
        ([str(i) for i in range(60)] * 10, "auto", "classification"),
        (["0.5", "1"], "auto", "regression"),
        (["0.5", "nan"], "classification", "classification"),
        (["0.5", "1"], "classification", "classification"),
        (["0", "1"], "regression", "regression"),
        (["a|b", "a"], "auto", "multilabel"),
        (["a|b", "a"], "classification", "classification"),
    ],
)
def test_the_task_follows_from_the_labels(labels: list[str | None], wanted: TaskSetting, task: str) -> None:
    found, note = find_task(labels, wanted)
    assert found == task
    assert wanted == "auto" or not note  # only what was guessed is said
    assert bool(note) == (wanted == "auto" and labels[0] != "a")


def test_a_missing_number_is_no_class() -> None:
    """One text `nan` among ages made every age a class of its own."""
    with pytest.raises(InputError, match=r"1 of 3 are 'nan'"):
        find_task(["0.5", "1.5", "nan"], "auto")
    task, note = find_task(["cat", "nan", "nan"], "auto")
    assert task == "classification"
    assert note == "2 samples have the label 'nan': it is a class"


def test_numbers_without_a_square_are_refused() -> None:
    """The largest float, which stands for "unknown" in some tables, made every score and prediction NaN."""
    tasks: tuple[TaskSetting, ...] = ("auto", "regression")
    for task in tasks:
        with pytest.raises(InputError, match=r"a label is 1\.79769e\+308"):
            find_task(["0.5", "1.5", "1.7976931348623157e308"], task)
    assert find_task(["1e300", "2e300"], "classification")[0] == "classification"


@pytest.mark.parametrize(
    ("labels", "texts"),
    [
        (pd.Series(pd.array([1, None, 0, 1], dtype="Int64")), ("1", None, "0", "1")),
        (pd.Series(pd.array(["a", None, "b", "a"], dtype="string")), ("a", None, "b", "a")),
        (["cat", "cat ", " dog", "  "], ("cat", "cat", "dog", None)),
        ([torch.tensor(0.0078125), torch.tensor(1.0), torch.tensor(2.0), None], ("0.0078125", "1", "2", None)),
        ([np.float32(1), np.int64(2), np.bool_(True), np.nan], ("1", "2", "True", None)),
        (["1", "1.0", "0", "0"], ("1", "1", "0", "0")),
        (["01", "1", "0", "0"], ("01", "1", "0", "0")),
    ],
)
def test_labels_of_all_types_are_texts(labels: Any, texts: tuple[str | None, ...]) -> None:
    found = open_source(POINTS, DataConfig(), labels).labels
    assert found is not None
    assert tuple(found) == texts


def test_a_regression_needs_numbers() -> None:
    with pytest.raises(InputError, match=r"task=.regression. needs numbers, but one label is 'b'"):
        find_task(["1", "b"], "regression")


@pytest.mark.parametrize(
    ("ids", "groups"),
    [
        ([f"patient{p:02d}_slice{s}.png" for p in range(5) for s in range(4)], 5),
        ([f"p{p}/{s:03d}.nii.gz" for p in range(3) for s in range(2)], 3),
        ([f"2019-{p}_z{s}" for p in range(3) for s in range(2)], 3),
        ([f"cell_{i:03d}.png" for i in range(20)], 0),
        ([f"cat.{i}.jpg" for i in range(5)] + [f"dog.{i}.jpg" for i in range(5)], 0),
        ([f"{i:06d}" for i in range(9)], 0),
        ([f"scan{i}_1.png" for i in range(9)], 0),
    ],
)
def test_ids_that_suggest_groups(ids: list[str], groups: int) -> None:
    said = suggested_groups(ids)
    assert (f"suggest {groups} groups" in said) if groups else said == ""


def test_labels_as_objects_of_every_kind() -> None:
    def opened(labels: object, groups: object = None, **settings: object) -> tuple[object, ...]:
        source = open_source(POINTS, DataConfig(**settings), labels, groups)  # type: ignore[arg-type]
        return source.labels, source.groups, source.task

    ids = open_source(POINTS, DataConfig()).ids
    assert opened(np.array([0.5, 2, np.nan, 1])) == (("0.5", "2", None, "1"), None, "regression")
    assert opened(np.array([[1, 0], [1, 1], [0, 0], [0, 1]]))[0] == ("0", "0|1", "|", "1")
    frame = pd.DataFrame({"cyst": [1, 0, 0, 1], "stone": [0, 0, 1, 1]}, index=list(ids[::-1]))
    assert opened(frame) == (("cyst|stone", "stone", "|", "cyst"), None, "multilabel")
    frame = pd.DataFrame({"id": ids[:3], "age": [3.5, 4.25, 1], "patient": ["P", "P", "Q"]})
    assert opened(frame, label_column=("age",)) == (("3.5", "4.25", "1", None), ("P", "P", "Q", None), "regression")
    assert opened(["a", "b", "a", None], groups={ids[1]: "P"})[1] == (None, "P", None, None)
    with pytest.raises(InputError, match=r"label_column=.age. is a column of a table"):
        opened(None, label_column=("age",))
    with pytest.raises(InputError, match=r"the table of labels has no column nobody .*; it has: id, label"):
        opened(pd.DataFrame({"id": ids, "label": list("abab")}), group_column="nobody")


def test_numbers_are_no_classes_to_stratify_by() -> None:
    source = open_source(POINTS, DataConfig(), [0.5, 1.5, 2.5, 3.5])
    assert integer_labels(source).tolist() == [-1] * 4
    assert "4 of 4" not in " ".join(source.label_notes)


@pytest.mark.parametrize("seed", range(5))
def test_no_group_is_on_both_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = [f"g{rng.integers(12)}" if rng.random() < 0.8 else None for _ in range(100)]
    train, test = grouped_split(rng.integers(0, 3, 100), groups, 0.25, seed)
    assert sorted([*train, *test]) == list(range(100))
    assert not {groups[i] for i in train} & {groups[i] for i in test} - {None}
    assert 10 <= len(test) <= 40
