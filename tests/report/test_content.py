"""What goes into the page: rows, columns, thumbnails, provenance; and what odd data turns into."""

from __future__ import annotations

import base64
import dataclasses
import io
import json
import re
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import tyro
from PIL import Image

from icone.api.data_defaults import with_default_warmup
from icone.config import ImageViews, PretrainConfig
from icone.config_text import to_command
from icone.data.labels import read_columns, read_labels
from icone.errors import InputError
from icone.evaluation.metrics import metrics_shown
from icone.evaluation.projection import ProjectionName
from icone.files import write_json
from icone.recipe import WARMUP
from icone.report.content import history_columns, run_content
from icone.report.figures import plot_geometry
from icone.report.samples import Samples, Split, numbers_or_categories, read_samples, table_columns
from icone.report.thumbnails import lay_out, picture
from icone.report.write import embed_json, group_content, page, report
from icone.run import Run
from icone.seeds import group_seeds
from icone.wording import command_line

Array = npt.NDArray[np.float32]
RNG = np.random.default_rng(0)


def features(count: int, dims: int = 8) -> Array:
    return RNG.normal(size=(count, dims)).astype(np.float32)


def content_of(run: Run, *projections: ProjectionName) -> dict[str, Any]:
    return run_content(run, name="run", projections=projections or ("pca",))


def test_rows_that_are_not_finite_are_left_out_with_a_sentence(make_run: Callable[..., Run]) -> None:
    x = features(12)
    x[3, 2], x[7, 0] = np.nan, np.inf
    content = content_of(make_run(x, [""] * 12))
    assert content["map"]["notes"] == ["2 of 12 samples have NaN or infinite features and are left out."]
    assert len(content["map"]["ids"]) == len(content["map"]["neighbours"]) == 10
    assert [int(name) for name in content["map"]["ids"]] == [0, 1, 2, 4, 5, 6, 8, 9, 10, 11]


def test_more_samples_than_the_map_holds_are_drawn_at_random(make_run: Callable[..., Run]) -> None:
    run = make_run(features(40), [""] * 40)
    samples = read_samples(run, most=15)
    assert samples.notes == ["A random 15 of 40 samples are shown."]
    assert len(set(samples.ids)) == 15
    assert samples.ids == read_samples(run, most=15).ids
    with np.load(run.features_file) as file:
        np.testing.assert_array_equal(samples.features, file["features"][[int(i) for i in samples.ids]])


@pytest.mark.parametrize(
    ("x", "labels"),
    [
        (features(6), ["one"] * 6),  # a single class
        (features(6), [""] * 6),
        (np.full((6, 8), 0.5, np.float32), ["a", "b"] * 3),  # constant
        (features(2), ["a", "b"]),
    ],
)
def test_odd_data_still_makes_a_page(x: Array, labels: list[str], make_run: Callable[..., Run]) -> None:
    content = content_of(make_run(x, labels), "pca", "tsne")
    assert page({"title": "odd", "runs": [content]}).startswith("<!doctype html>")
    assert (content["verdict"]["state"] == "collapsed") == (x.std() == 0)
    assert bool(content["probes"]) == (len(set(labels)) == 2)
    if x.std() == 0:
        assert content["map"]["projections"][1]["note"] == "All features are the same: one point for all."


def test_a_run_without_evaluation_or_with_a_broken_file_is_a_sentence(make_run: Callable[..., Run]) -> None:
    run = make_run(features(5), [""] * 5)
    run.features_file.write_bytes(b"PK\x03\x04 torn")
    with pytest.raises(InputError, match=r"cannot read .*features\.npz.* again"):
        read_samples(run)
    run.features_file.unlink()
    with pytest.raises(InputError, match="icone evaluate"):
        read_samples(run)
    run.result_file.unlink()
    with pytest.raises(InputError, match="has not been evaluated"):
        content_of(run)


def test_data_that_has_moved_is_told_with_the_way_out(make_run: Callable[..., Run]) -> None:
    run = make_run(features(5), [""] * 5)
    Path(run.config.source).unlink()
    with pytest.raises(InputError, match=r"no pictures of the samples: .*pictures\.npy.* thumbnails=False"):
        content_of(run)
    assert run_content(run, name="run", projections=("pca",), thumbnails=False)["map"]["thumbnails"] is None


def test_columns_are_numbers_or_categories() -> None:
    ages = numbers_or_categories("age", [str(20 + i / 2) for i in range(30)] + [None])
    assert ages.categories is None
    assert ages.values[:2] == [20.0, 20.5]
    assert ages.values[-1] is None
    assert numbers_or_categories("grade", ["2", "10", "2", "1"]).categories == ["1", "2", "10"]
    assert numbers_or_categories("x", ["1", "nan", *map(str, range(20))]).categories is not None
    assert numbers_or_categories("label", [str(i) for i in range(30)], names=True).categories is not None
    many = numbers_or_categories("id", [f"n{i}" for i in range(100)])
    assert many.categories is not None
    assert len(many.categories) == 40
    assert many.categories[-1] == "other"
    assert many.values.count(39) == 61


def test_classes_are_counted_in_each_part_of_the_data(make_run: Callable[..., Run]) -> None:
    run = make_run(features(9), ["a", "b", "b", "a", "", "b", "c", "c", "a"])
    with np.load(run.features_file) as file:
        saved = dict(file)
    np.savez(run.features_file, **saved | {"splits": ["train"] * 5 + ["external"] * 4})
    found = run_content(run, name="run", projections=("pca",), thumbnails=False)["data"]["labels"]
    assert found["text"] == "3 classes; 1 sample without"
    assert found["parts"] == ["trained on", "external test"]
    assert found["counts"] == [["a", 2, 1], ["b", 2, 1], ["c", 0, 2]]
    record = json.loads((run.folder / "config.json").read_text())
    (run.folder / "config.json").write_text(json.dumps({**record, "data": {**record["data"], "held_out": 2}}))
    # of the training split of the source, and kept from training by the run itself
    ids = saved["ids"].tolist()
    instances = {"ids": ids[2:5], "labels": [], "minority": [], "test_ids": ids[:2]}
    (run.folder / "instances.json").write_text(json.dumps(instances))
    found = run_content(Run(run.folder), name="run", projections=("pca",), thumbnails=False)["data"]["labels"]
    assert found["parts"] == ["trained on", "held out", "external test"]
    assert found["counts"] == [["a", 1, 1, 1], ["b", 1, 1, 1], ["c", 0, 0, 2]]
    instances["ids"] = ids[2:3]  # as with --subset
    (run.folder / "instances.json").write_text(json.dumps(instances))
    found = run_content(Run(run.folder), name="run", projections=("pca",), thumbnails=False)["data"]["labels"]
    assert found["parts"] == ["trained on", "not trained on", "held out", "external test"]
    assert found["counts"] == [["a", 0, 1, 1, 1], ["b", 1, 0, 1, 1], ["c", 0, 0, 0, 2]]


def test_a_table_may_describe_more_samples_but_not_only_others(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text('file;site;note\na.png;Bern;"two\nlines"\nz.png;Rome;\n')
    assert read_columns(table, ["a.png", "b.png"]) == {"site": ("Bern", None), "note": ("two\nlines", None)}
    with pytest.raises(InputError, match=r"no row of .* names one of the samples"):
        read_columns(table, ["q.png"])
    table.write_text("id,label\na,x\u2028y\n", encoding="utf-8")
    assert read_labels(table, ["a"]) == ("x\u2028y",)


def test_a_table_of_the_run_is_found_beside_an_external_test_set(tmp_path: Path) -> None:
    names = ["a/1.png", "b/2.png", "a/1.png", "c/9.png"]
    splits: list[Split] = ["train", "train", "external", "external"]
    ids = [f"{split}/{name}" for split, name in zip(splits, names, strict=True)]
    samples = Samples(np.zeros((4, 2), np.float32), ids, names, splits, [""] * 4, [])
    table = tmp_path / "t.csv"
    table.write_text("id,site\na/1.png,Bern\nb/2.png,Rome\n")
    [site] = table_columns(table, samples)
    assert (site.categories, site.values) == (["Bern", "Rome"], [0, 1, -1, -1])
    table.write_text("id,site\ntrain/a/1.png,Bern\nexternal/a/1.png,Rome\nexternal/c/9.png,Oslo\n")
    [site] = table_columns(table, samples)
    assert (site.categories, site.values) == (["Bern", "Oslo", "Rome"], [0, -1, 2, 1])
    table.write_text("id,site\nx.png,Bern\n")
    with pytest.raises(InputError, match=r"ids such as train/a/1\.png"):
        table_columns(table, samples)
    official = dataclasses.replace(samples, splits=["train", "train", "test", "test"])  # which share an id
    table.write_text("id,site\na/1.png,Bern\n")
    with pytest.raises(InputError, match="no row"):
        table_columns(table, official)


def test_pictures_are_shared_by_runs_with_the_same_test_set(
    make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(features(6), [""] * 6)
    drawn: list[Path] = []
    monkeypatch.setattr("icone.report.content.draw_samples", lambda run, *_: drawn.append(run.folder))
    memory: Any = {}
    for external in ("one", "one", "other"):
        result = dict(run.result or {})
        write_json(run.result_file, {**result, "data": {**result["data"], "external_test": external}})
        run_content(Run(run.folder), name="run", projections=("pca",), memory=memory)
    assert len(drawn) == 2


def test_seeds_that_were_evaluated_otherwise_are_told(make_run: Callable[..., Run], tmp_path: Path) -> None:
    labels = ["a", "b"] * 6
    others = [*labels[:-1], "c"]

    def group(name: str, *given: list[str]) -> str:
        runs = []
        for seed, texts in enumerate(given):
            made = make_run(features(12), texts)
            runs.append(Run(shutil.copytree(made.folder, tmp_path / name / f"seed-{seed}")))
        [content] = group_content(group_seeds(runs), runs)
        return str(content["note"])

    assert group("same", labels, labels) == ""
    assert group("without", [""] * 12, [""] * 12) == ""
    note = group("other", labels, labels, others)
    assert "the seeds were not evaluated alike" in note
    assert "(seed-0 and seed-2: 1 test sample has another label (000011: c, not b))" in note


def test_the_history_is_told_by_epoch(make_run: Callable[..., Run]) -> None:
    run = make_run(features(5), [""] * 5)
    run.write_history([
        {"epoch": 0, "loss": 2.0, "anchor_cosine": 0.1, "lr": 1, "geometry": {"rankme": 3.0, "rank_limit": 9}},
        {"epoch": 1, "loss": 1.0, "anchor_cosine": 0.2, "seconds": 1, "probe_seconds": 2, "instances_per_second": 3},
    ])  # fmt: skip
    assert history_columns(run) == {
        "terms": {"loss": [[1, 2.0], [2, 1.0]]},
        "geometry": {"rankme": [[1, 3.0]], "anchor_cosine": [[1, 0.1], [2, 0.2]]},
    }


def test_epoch_0_is_the_encoder_before_training(make_run: Callable[..., Run]) -> None:
    run = make_run(features(5), [""] * 5)
    geometry = {"rankme": 3.0, "untrained_rankme": 4.0, "untrained_rank_limit": 9.0, "instances": 12}
    run.write_history([{"epoch": e, "loss": 1.0, "geometry": geometry | {"rankme": 3.0 - e}} for e in range(2)])
    assert history_columns(run)["geometry"] == {"rankme": [[0, 4.0], [1, 3.0], [2, 2.0]]}
    assert content_of(run)["live_samples"] == 12  # the page says so beside these charts
    assert plot_geometry(run).get_suptitle() == "while training, on random views of 12 samples"


def test_no_metric_of_the_training_charts_has_the_name_of_one_in_the_table(make_run: Callable[..., Run]) -> None:
    """They are measured on views of few samples, and have other values."""
    content = content_of(make_run(features(8), ["a", "b"] * 4))
    charts = {chart["name"]: chart["title"] for chart in content["charts"]}
    assert charts["rankme"] == "Live RankMe"
    assert charts["live_linear"] == "Live linear probe (%)"
    assert charts["anchor_cosine"] == "Mean cosine of anchors"  # of all anchors: there is no other value
    in_table = {metric.axis.lower() for metric in metrics_shown("evaluation")}
    assert len(in_table) > 10
    assert not in_table & {title.lower() for title in charts.values()}
    titles = {axis.get_title() for axis in plot_geometry(make_run(features(8), [""] * 8)).axes}
    assert "live RankMe" in titles


def test_the_page_says_when_it_was_written_and_when_the_run_began(
    make_run: Callable[..., Run], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(features(8), ["a", "b"] * 4)
    record = json.loads((run.folder / "config.json").read_text())
    began = {**record, "created": "2020-02-03T04:05:06+00:00"}
    (run.folder / "config.json").write_text(json.dumps(began))
    run = Run(run.folder)
    facts = content_of(run)["provenance"]["facts"]
    assert facts["started"] == "2020-02-03 04:05 UTC"
    assert facts["trained for"] == "6 s"  # six epochs of a second
    assert "written" not in facts
    before = datetime.now(UTC).replace(second=0, microsecond=0)
    first = report([run], out=tmp_path / "a.html", projections=("pca",)).read_text()
    found = re.search(r'"written":"([^"]+) UTC"', first)
    assert found is not None
    assert before <= datetime.fromisoformat(f"{found[1]}+00:00") <= datetime.now(UTC)
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1600000000")
    pages = [report([run], out=tmp_path / name, projections=("pca",)).read_bytes() for name in ("b.html", "c.html")]
    assert b'"written":"2020-09-13 12:26 UTC"' in pages[0]
    assert pages[0] == pages[1]
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(InputError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        report([run], out=tmp_path / "d.html", projections=("pca",))


def test_near_duplicates_that_part_training_from_test_are_marked(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(x := features(20), [""] * 20)
    pictures = np.load(run.config.source)
    pictures[1], pictures[3] = pictures[0], pictures[2]
    np.save(run.config.source, pictures)
    x[1], x[3] = x[0], x[2]
    with np.load(run.features_file) as file:
        saved = dict(file)
    np.savez(run.features_file, **saved | {"features": x})
    ids = saved["ids"].tolist()
    instances = {"ids": [ids[0], *ids[2:]], "labels": [], "minority": [], "test_ids": [ids[1]]}
    (run.folder / "instances.json").write_text(json.dumps(instances))
    found = content_of(Run(run.folder))["duplicates"]
    assert found["counts"][0] == 2
    assert found["pairs"] == [[0, 1, 1.0, 1.0, True], [2, 3, 1.0, 1.0, False]]


def test_steps_of_views_that_are_left_out_share_their_reason(make_run: Callable[..., Run]) -> None:
    run = make_run(features(5), [""] * 5)
    record = json.loads((run.folder / "config.json").read_text())
    left_out = {"vertical_flip": "set to 0", "hue": "needs RGB", "saturation": "needs RGB"}
    views = {"applied": {"crop": {}}, "left_out": left_out}
    (run.folder / "config.json").write_text(json.dumps({**record, "views": views}))
    told = content_of(Run(run.folder))["data"]["views"]
    assert told == "Every view: crop. Left out: vertical flip (set to 0); hue, saturation (needs RGB)."


def test_every_row_of_the_table_is_explained(make_run: Callable[..., Run]) -> None:
    assert all(metric.explanation for metric in metrics_shown("evaluation"))
    rows = content_of(make_run(features(8), ["a", "b"] * 4))["metrics"]
    assert {"linear probe, balanced accuracy (%)", "RankMe"} <= {row["title"] for row in rows}
    assert all(row["explanation"].endswith((".", ").")) for row in rows)


def test_the_verdict_of_the_evaluation_is_shown_as_it_is(make_run: Callable[..., Run]) -> None:
    run = make_run(features(6), [""] * 6)
    assert run.result is not None
    content = content_of(run)
    with command_line():  # a page calls settings by their flags
        assert content["verdict"] == run.result["verdict"]
    assert content["note"].startswith("Measured on 6 samples; recognition, LiDAR and alignment on random views of 6 of")
    html = run._repr_html_()
    assert run.result["verdict"]["headline"] in html


def test_a_run_that_version_0_1_evaluated_still_opens(make_run: Callable[..., Run]) -> None:
    run = make_run(features(6), [""] * 6)
    assert run.result is not None
    old = {key: value for key, value in run.result.items() if key not in ("comparison", "untrained")}
    write_json(run.result_file, old | {"data": {"note": "made up"}, "verdict": "The features are healthy: …"})
    verdict = content_of(run)["verdict"]
    assert verdict["state"] == "unclear"
    assert "an earlier version" in verdict["headline"]
    assert verdict["evidence"] == ["The features are healthy: …"]
    assert "an earlier version" in run._repr_html_()


def test_a_run_that_was_interrupted_has_no_page_yet(make_run: Callable[..., Run], tmp_path: Path) -> None:
    run = make_run(features(6), [""] * 6)  # with six epochs, and without an encoder
    run.result_file.unlink()
    with pytest.raises(InputError, match=r"not finished \(6 of 6 epochs\): go on with resume=True; .*`icone figures "):
        report([run], out=tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_a_run_that_was_not_evaluated_is_judged_by_its_history(make_run: Callable[..., Run]) -> None:
    run = make_run(features(6), [""] * 6)
    run.result_file.unlink()
    now = {"rankme": 5.0, "rank_limit": 8.0, "mean_cosine": 0.1, "first_component": 0.4,
           "recognition": 0.9, "recognition_error": 0.01}  # fmt: skip
    before = {f"untrained_{name}": value for name, value in now.items()} | {"untrained_recognition": 0.6}
    run.write_history([{"epoch": 0, "loss": 1.0, "geometry": now | before | {"instances": 16}}])
    html = run._repr_html_()
    assert "while training, on 16 samples" in html
    assert "The encoder has learned" in html


def test_a_volume_is_shown_by_its_three_centre_slices() -> None:
    volume = torch.zeros(1, 10, 10, 10)
    volume[0, 5], volume[0, :, 5] = 1.0, 0.5
    shown = picture(volume, 10)
    assert shown.shape == (10, 30, 3)
    expected = [volume[0, 5], volume[0, :, 5], volume[0, :, :, 5]]
    for i, plane in enumerate(expected):
        np.testing.assert_allclose(shown[:, 10 * i : 10 * i + 10, 0], 255 * plane.numpy(), atol=1)


def test_tiles_lie_where_the_page_looks_for_them() -> None:
    tiles = [np.full((8, 8, 3), i % 251, np.uint8) for i in range(300)]
    sheets = lay_out(iter(tiles), 8).sheets
    assert len(sheets) == 2
    for i in (0, 17, 255, 256, 299):
        sheet = np.asarray(Image.open(io.BytesIO(base64.b64decode(sheets[i // 256].split(",")[1]))))
        row, column = divmod(i % 256, 16)
        assert abs(int(sheet[8 * row + 4, 8 * column + 4, 0]) - i % 251) <= 3


def test_json_survives_inside_a_page() -> None:
    nasty = {"a": "</script><!--<script>]]>&amp;\u2028\u2029\x00\ud800é", "b": [1.5, None, True]}
    text = embed_json(nasty)
    assert text.isascii()
    assert not set(text) & set("<>&")
    assert json.loads(text) == nasty


@pytest.mark.parametrize(
    "config",
    [
        PretrainConfig(source="a folder/x", warmup=WARMUP),
        PretrainConfig(source="a folder/x", recipe="paper"),
        PretrainConfig(
            source="s", warmup=0.0, epochs=3, options=("diversity=sigreg", "view_weight=0"), skip_unreadable=True,
            norm="group", image_views=ImageViews(blur=0.0, crop_scale=(0.5, 1.0)), labels=Path("a b.csv"),
            log=("tensorboard",),
        ),
    ],
)  # fmt: skip
def test_the_command_gives_the_configuration_back(config: PretrainConfig) -> None:
    words = to_command(config)
    assert words[:2] == ["icone", "pretrain"]
    assert with_default_warmup(tyro.cli(PretrainConfig, args=words[2:])) == config
