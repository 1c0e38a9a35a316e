"""Probes with few labels: what is drawn, what all labels give, and how many labels are saved."""

from __future__ import annotations

import dataclasses
import io
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import icone
from icone.api.evaluate import score_sentences
from icone.api.few_labels import efficiency_table
from icone.cli import main
from icone.errors import InputError
from icone.evaluation.assessment import Partition, run_probes
from icone.evaluation.label_efficiency import draw_labels, label_efficiency
from icone.evaluation.multilabel import MultilabelResult
from icone.report.content import run_content


def partition(groups: bool = False) -> Partition:
    labels = np.array(["a"] * 80 + ["b"] * 20 + ["c"] * 2 + ["a", "b"] * 20)
    names = [f"g{row // 2}" for row in range(len(labels))] if groups else None
    return Partition(np.arange(102), np.arange(102, 142), labels, groups=names)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5])
def test_draws_are_stratified_and_nested(share: float) -> None:
    parts = partition()
    rows, larger = draw_labels(parts, share, 3), draw_labels(parts, 1.0, 3)
    counts = {name: int((parts.labels[rows] == name).sum()) for name in "abc"}
    for name, members in {"a": 80, "b": 20, "c": 2}.items():
        assert counts[name] == pytest.approx(max(1, share * members), abs=1)
        assert counts[name] >= 1
    assert len(rows) == max(3, round(share * 102))
    assert set(rows) <= set(larger)
    assert rows.tolist() != draw_labels(parts, share, 4).tolist()


def test_whole_groups_are_drawn() -> None:
    parts = partition(groups=True)
    for seed in range(5):
        rows = draw_labels(parts, 0.2, seed)
        assert set(parts.labels[rows]) == {"a", "b", "c"}
        assert all(row ^ 1 in rows for row in rows)  # rows 2k and 2k + 1 are one group
        assert abs(len(rows) - 20) <= 4


def test_all_labels_are_the_usual_probe_and_more_labels_are_better() -> None:
    parts = partition()
    rng = np.random.default_rng(0)
    means = {"a": 0.0, "b": 1.0, "c": 3.0}
    signal = np.array([means[name] for name in parts.labels])[:, None]
    trained = (signal + rng.normal(size=(142, 6))).astype(np.float32)
    untrained = (0.3 * signal + rng.normal(size=(142, 6))).astype(np.float32)
    found = label_efficiency({"trained": trained, "untrained": untrained}, parts, [0.1, 0.5])
    for name, features in (("trained", trained), ("untrained", untrained)):
        usual = run_probes(features, parts)
        for probe in ("linear_probe", "knn_5"):
            assert found["points"][name][probe][-1]["mean"] == float(usual[probe])
    points = found["points"]["trained"]["linear_probe"]
    assert [point["fraction"] for point in points] == [0.1, 0.5, 1.0]
    assert points[0]["mean"] < points[-1]["mean"]
    by_hand = [
        float(run_probes(trained, Partition(draw_labels(parts, 0.1, seed), parts.test, parts.labels))["linear_probe"])
        for seed in range(10)
    ]
    assert points[0]["scores"] == by_hand
    half = 2.262157 * np.std(by_hand, ddof=1) / np.sqrt(10)  # Student's t with 9 degrees of freedom
    assert points[0]["interval"] == pytest.approx([np.mean(by_hand) - half, np.mean(by_hand) + half], abs=1e-6)
    share = found["saved"]["fraction"]
    assert share is not None
    assert share < 1
    swapped = label_efficiency({"trained": untrained, "untrained": trained}, parts, [0.5])
    assert swapped["saved"]["fraction"] is None
    assert "No saving of labels" in swapped["saved"]["text"]
    same = label_efficiency({"trained": trained, "untrained": trained}, parts, [0.1])["saved"]["text"]
    assert same.startswith("No saving of labels shows: the trained encoder needs all of them to reach the linear probe")
    nothing = rng.normal(size=(142, 6)).astype(np.float32)
    numbers = Partition(parts.train, parts.test, np.arange(142).astype(str), task="regression")
    guessed = label_efficiency({"trained": trained, "untrained": nothing}, numbers, [0.5])["saved"]["text"]
    assert guessed.startswith("How many labels training saves cannot be told: the ridge probe")


def test_all_draws_are_scored_on_the_same_labels() -> None:
    """The rare labels cannot be read: means over the labels of a draw alone would fall from 0.9 to 0.6."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4)).astype(np.float32)
    has = np.column_stack([x[:, 0] + 0.3 * rng.normal(size=400) > 0, rng.random((400, 3)) < 0.03])
    names = np.array(["common", "rare0", "rare1", "rare2"])
    labels = np.array(["|".join(names[row]) or "|" for row in has])
    parts = Partition(np.arange(200), np.arange(200, 400), labels, task="multilabel")
    found = label_efficiency({"trained": x, "untrained": x}, parts, [0.05])
    few, every = found["points"]["trained"]["multilabel_probe"]
    usual = run_probes(x, parts)["multilabel_probe"]
    assert isinstance(usual, MultilabelResult)
    assert len(usual.per_label) == 4
    assert every["mean"] == usual.auroc
    for seed, score in enumerate(few["scores"]):
        rows = draw_labels(parts, 0.05, seed)
        try:
            drawn = run_probes(x, dataclasses.replace(parts, train=rows))["multilabel_probe"]
        except InputError:
            assert score == 0.5
            continue
        assert isinstance(drawn, MultilabelResult)
        areas = [label.auroc for label in drawn.per_label.values()]
        assert score == pytest.approx((sum(areas) + 0.5 * (4 - len(areas))) / 4)
    assert len(few["scores"]) == 10
    assert few["mean"] < every["mean"] + 0.02
    assert found["saved"]["fraction"] > 0.05


def test_a_draw_without_any_label_to_learn_counts_as_chance() -> None:
    labels = np.array(["a"] * 39 + ["|"] + ["a", "|"] * 5)
    parts = Partition(np.arange(40), np.arange(40, 50), labels, task="multilabel")
    x = np.random.default_rng(0).normal(size=(50, 3)).astype(np.float32)
    [few, _] = label_efficiency({"trained": x}, parts, [0.1])["points"]["trained"]["multilabel_probe"]
    alone = [seed for seed in range(10) if 39 not in draw_labels(parts, 0.1, seed)]
    assert alone
    assert all(few["scores"][seed] == 0.5 for seed in alone)


def test_from_the_command_line_to_the_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quiet = Console(file=io.StringIO())
    out = tmp_path / "run"
    run = icone.pretrain("synthetic:gaussians@x60", features=8, epochs=2, probe_every=0, out=out, console=quiet)
    words = ["evaluate", str(out), "--device", "cpu", "--geometry-instances", "0", "--label-fractions"]
    assert main([*words, "0.1"]) == 0
    printed = capsys.readouterr().out
    assert "±" in printed
    assert "of the untrained encoder with all 48 labels" in printed
    result = run.result
    assert result is not None
    table = efficiency_table(result)
    assert table is not None
    assert table.row_count == 2
    assert any("labels" in sentence for sentence in score_sentences(result))
    points = result["label_efficiency"]["points"]["untrained"]["linear_probe"]
    assert points[-1]["mean"] == result["untrained"]["linear_probe"]["balanced_accuracy"]
    shown = run_content(run, name="run", projections=("pca",), thumbnails=False)["label_efficiency"]
    assert {curve["encoder"] for curve in shown["curves"]} == {"trained", "untrained"}
    saved = result["label_efficiency"]["saved"]["text"]
    assert [probe for probe, note in shown["notes"].items() if saved in note] == ["Linear probe (%)"]  # not kNN-5
    assert main([*words, "2"]) == 2
