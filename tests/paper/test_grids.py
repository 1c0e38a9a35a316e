"""The grids are the paper's: counts, shared runs, one split for all; every label of the paper is accounted for."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icone.config import PretrainConfig
from icone.errors import InputError
from icone.paper.experiments import EXPERIMENTS, NOT_A_RESULT, find_experiments
from icone.paper.grids import Grid
from icone.paper.options import Options, options_from_json
from icone.paper.spec import RunSpec
from icone.paper.tables import read_printed

LABELS = {
    "fig:IConE_vs_others", "alg:icone", "fig:main_results", "tab:knn3d_mean_balanced_accuracy",
    "fig:batch_sensitivity", "fig:umap_3d", "fig:repr_metrics", "fig:imbalance", "tab:supervised",
    "tab:main_ablation_regularizer", "tab:hyperparams", "fig:per_dataset_2d", "fig:per_dataset_3d",
    "fig:heatmap_batch_dataset", "tab:ablation_views", "tab:ablation_init", "fig:supp_gpu_memory_sweep",
    "fig:supp_wallclock_sweep", "tab:icone_memory_scaling", "fig:repr_metrics_2d", "fig:repr_metrics_3d",
    "fig:imagenet_subset", "fig:toy_representations", "tab:ablation_variants", "fig:toy_evolution",
    "fig:toy_accuracy", "fig:toy_alignment_uniformity", "tab:toy_results",
}  # fmt: skip
"""Everything that the paper labels, but for sections."""


def keys(name: str, options: Options) -> set[str]:
    return {cell.spec.key for cell in EXPERIMENTS[name].grid(options)}


def test_every_table_and_figure_of_the_paper_has_an_experiment() -> None:
    ours = {label.split()[0] for e in EXPERIMENTS.values() for label in e.labels} | NOT_A_RESULT.keys()
    assert ours == LABELS


def test_the_numbers_of_runs_are_the_papers() -> None:
    options = Options()
    assert len(keys("batch-size-2d", options)) == 7 * 8 * 7 * 5
    assert len(keys("batch-size-3d", options)) == 6 * 8 * 7 * 5
    assert len(keys("dataset-size", options)) == (4 * 7 - 2) * 8 * 7 * 5  # Breast has three of its four sizes only once
    assert len(keys("supervised", options)) == 13 * 4 * 6 * 5
    assert len(keys("synthetic", options)) == 4 * 20


def test_experiments_share_runs() -> None:
    options = Options()
    curves = keys("batch-size-3d", options)
    for name in ("knn-3d", "umap", "per-dataset-3d", "metrics-3d"):
        assert keys(name, options) <= curves, name
    assert keys("batch-size-2d", options) < keys("dataset-size", options)  # N = 5000 is one of its sizes
    assert len(keys("views", options) - keys("batch-size-2d", options)) == 3 * 7 * 6 * 5  # V = 2 is there already
    assert keys("batch-size-3d", Options(seeds=3)) < curves


def test_collapse_varies_the_printed_objective_and_shares_the_default_runs() -> None:
    cells = EXPERIMENTS["collapse"].grid(Options())
    assert len({cell.spec.key for cell in cells}) == len(cells) == 7 * 4 * 5
    default = {cell.spec.key for cell in cells if cell.labels["variant"] == "default recipe"}
    assert default < keys("batch-size-3d", Options())
    assert {c.spec.config.recipe for c in cells if c.spec.key not in default} == {"paper"}


def test_all_methods_and_seeds_see_one_split() -> None:
    for cell in EXPERIMENTS["geometry"].grid(Options()):
        config = cell.spec.config
        assert (config.split_seed, config.test_fraction) == (0, 0.2)
        assert config.subset == (5000 if cell.labels["dims"] == 2 else None)
    assert {cell.spec.config.seed for cell in EXPERIMENTS["batch-size-2d"].grid(Options())} == set(range(5))


def test_options_choose_and_refuse(tmp_path: Path) -> None:
    cells = EXPERIMENTS["batch-size-3d"].grid(
        Options(datasets=("adrenalmnist3d", "breastmnist@28"), methods=("icone", "simclr"), batch_sizes=(1, 2), seeds=3)
    )
    assert {cell.spec.config.source for cell in cells} == {"medmnist:adrenalmnist3d@64"}
    assert len(cells) == 2 * 2 * 3
    printed = EXPERIMENTS["regulariser"].grid(Options(recipe="paper", datasets=("adrenalmnist3d",)))
    assert {cell.spec.config.recipe for cell in printed} == {"paper"}
    with pytest.raises(InputError, match="simclr"):
        EXPERIMENTS["batch-size-2d"].grid(Options(methods=("simcrl",)))
    with pytest.raises(InputError, match="no data set 'organ'"):
        EXPERIMENTS["batch-size-2d"].grid(Options(datasets=("organ",)))
    Image.fromarray(np.zeros((8, 8), np.uint8)).save(tmp_path / "unlabelled.png")
    with pytest.raises(InputError, match=r"has no two classes.*labels="):
        EXPERIMENTS["batch-size-2d"].grid(Options(datasets=(str(tmp_path),)))
    for number in range(4):
        Image.fromarray(np.eye(8, dtype=np.uint8)).save(tmp_path / f"{number}.png")
    table = tmp_path.with_suffix(".csv")
    for texts, kind in ((("0.5", "1.25", "3", "4"), "numbers"), (("a|b", "a", "b", "|"), "several per sample")):
        table.write_text("id,label\n" + "".join(f"{number}.png,{cell}\n" for number, cell in enumerate(texts)))
        with pytest.raises(InputError, match=rf"labels of .* are {kind}, .* scored by classes: .*labels="):
            EXPERIMENTS["batch-size-2d"].grid(Options(datasets=(str(tmp_path),), labels=table))
    table.write_text("id,label\n0.png,0.5\n1.png,1.5\n2.png,0.5\n3.png,1.5\n")
    as_classes = Grid(datasets=(str(tmp_path),), settings={"task": "classification"})
    assert len(as_classes(Options(labels=table))) == 1
    with pytest.raises(InputError, match="batch-size-2d"):
        find_experiments(["batch-size-1d"])
    with pytest.raises(InputError, match="seeds must be"):
        Options(seeds=0)
    options = Options(datasets=("a",), batch_sizes=(1,), data_root=Path("/data"), lr=0.1)
    assert options_from_json(options.to_json()) == options


def test_natural_images_takes_twenty_classes_of_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for label in range(23):
        (tmp_path / "images" / f"class{label:02d}").mkdir(parents=True)
        for i in range(3):
            Image.fromarray(np.full((8, 8), i, np.uint8)).save(tmp_path / "images" / f"class{label:02d}" / f"{i}.png")
    options = Options(datasets=(str(tmp_path / "images"),), seeds=1)
    source = Path(EXPERIMENTS["natural-images"].grid(options)[0].spec.config.source)
    assert len(list(source.iterdir())) == 20
    assert len(list(source.glob("*/*.png"))) == 60
    assert EXPERIMENTS["natural-images"].grid(options)[0].spec.config.source == str(source)
    links = {path.relative_to(source): path.resolve() for path in source.glob("*/*.png")}

    (source / "class99").mkdir()  # somebody's hands in the cache
    next(source.glob("*/*.png")).unlink()
    assert EXPERIMENTS["natural-images"].grid(options)[0].spec.config.source == str(source)
    assert {path.relative_to(source): path.resolve() for path in source.glob("*/*.png")} == links
    before = EXPERIMENTS["natural-images"].grid(options)[0].spec.key

    for path in set(links.values()):  # every image of the first kind goes, others come
        if path.name == "0.png":
            path.rename(path.with_name("7.png"))
    changed = EXPERIMENTS["natural-images"].grid(options)[0].spec
    renewed = list(Path(changed.config.source).glob("*/*.png"))
    assert len(renewed) == 60
    assert all(path.exists() for path in renewed)  # none points to a file that is gone
    assert {path.resolve().name for path in renewed} == {"1.png", "2.png", "7.png"}
    assert changed.config.source != str(source)
    assert changed.key != before
    with pytest.raises(InputError, match="has 0 classes"):
        EXPERIMENTS["natural-images"].grid(Options(datasets=(str(tmp_path / "images" / "class00"),)))
    assert EXPERIMENTS["natural-images"].grid(Options()) == []
    mixed = Options(datasets=("bloodmnist", "synthetic:cells@32x60"), natural_images=tmp_path / "images", seeds=1)
    assert EXPERIMENTS["natural-images"].grid(mixed)[0].spec.key == changed.key
    assert {cell.labels["dataset"] for cell in EXPERIMENTS["batch-size-2d"].grid(mixed)} == {"Blood", "cells@32x60"}
    assert options_from_json(mixed.to_json()) == mixed


def test_printed_numbers_agree_with_what_the_paper_says_of_them() -> None:
    knn = read_printed("knn-3d").values
    best = knn.loc[knn.groupby(["batch_size", "k"])["paper"].idxmax()]
    assert set(best["row"]) == {"IConE"}  # bold in every column
    for name in ("views", "init-scale"):
        table = read_printed(name).values.pivot_table(index="row", columns="batch_size", values="paper", sort=False)
        columns = table.drop(columns="average").mean(axis=1)
        assert (table["average"] - columns).abs().max() < 0.11, name  # the printed average, from rounded numbers
    supervised = read_printed("supervised").values
    assert len(supervised) == 48
    assert supervised.query("row == 'IConE-Class' and dims == 3 and batch_size == 64")["paper"].item() == 76.21
    memory = read_printed("memory").values
    assert memory.query("row == 'IConE' and n == 100000 and batch_size == 64")["paper"].item() == 759.2


def test_every_setting_of_a_sweep_reaches_its_runs() -> None:
    options = Options(
        datasets=("synthetic:cells@32x60",), methods=("icone", "simclr"), batch_sizes=(2,), seeds=1, views=3,
        options=("simclr.temperature=0.2", "hidden=64"), precision="fp32", channels="rgb", split_seed=7,
        geometry_instances=99, skip_unreadable=True, official_test=True, ratios=(1, 4), per=("imbalance.epochs=3",),
    )  # fmt: skip
    icone, simclr = EXPERIMENTS["batch-size-2d"].cells(options)
    assert simclr.spec.config.options == ("temperature=0.2", "hidden=64")
    assert icone.spec.config.options == ("hidden=64",)
    c = icone.spec.config
    assert (c.views, c.precision, c.channels, c.split_seed, c.skip_unreadable) == (3, "fp32", "rgb", 7, True)
    assert (icone.spec.geometry_instances, icone.spec.official_test, c.test_fraction) == (99, True, 0.0)
    thinned = EXPERIMENTS["imbalance"].cells(options)
    assert {cell.labels["k"] for cell in thinned} == {1, 4}
    assert {cell.spec.config.epochs for cell in thinned} == {3}
    assert c.epochs == 100
    with pytest.raises(InputError, match="temperatur"):
        EXPERIMENTS["batch-size-2d"].cells(dataclasses.replace(options, options=("temperatur=1",)))
    with pytest.raises(InputError, match=r"EXPERIMENT\.seeds=N"):
        EXPERIMENTS["batch-size-2d"].cells(dataclasses.replace(options, per=("imbalance.lr=3",)))
    assert EXPERIMENTS["batch-size-2d"].cells(Options(datasets=("dermamnist",)))[0].labels["samples"] == 5000
    assert options_from_json(options.to_json()) == options


def test_a_set_smaller_than_the_subset_is_run_once() -> None:
    """BreastMNIST has 546 samples: the subsets of 1000, 2000 and 5000 are the same data, and the same runs."""
    runs = {n: set[str]() for n in (500, 1000, 2000, 5000)}
    for cell in EXPERIMENTS["dataset-size"].cells(Options(datasets=("breastmnist",), seeds=1)):
        runs[cell.labels["n"]].add(cell.spec.key)
    assert runs[1000] == runs[2000] == runs[5000]
    assert not runs[500] & runs[5000]
    larger = EXPERIMENTS["dataset-size"].cells(Options(datasets=("bloodmnist",), seeds=1))
    assert len({cell.spec.key for cell in larger}) == len(larger)


def test_as_printed_means_what_the_paper_says() -> None:
    printed = EXPERIMENTS["batch-size-3d"].cells(Options(recipe="paper", datasets=("adrenalmnist3d",)))[0].spec
    assert printed.geometry_instances > 512  # LiDAR of n samples is at most n - 1
    toy = EXPERIMENTS["synthetic"].cells(Options())[0].spec.config
    assert (toy.schedule, toy.precision, toy.lr) == ("constant", "fp32", 1e-3)


def test_settings_that_came_later_leave_the_names_of_runs_alone() -> None:
    """Stores of earlier versions stay valid: the key of a run with the defaults of new settings is that of before."""
    spec = RunSpec(config=PretrainConfig(source="synthetic:gaussians@x60"))
    assert "schedule" not in spec.identity()
    assert not {"measure_cost", "measure_official_test"} & spec.identity().keys()
    changed = RunSpec(config=PretrainConfig(source="synthetic:gaussians@x60", schedule="constant"))
    assert changed.identity()["schedule"] == "constant"
    assert changed.key != spec.key
