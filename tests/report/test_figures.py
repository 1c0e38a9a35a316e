"""Figures: what is drawn is what was measured; files by name; hostile names and missing data."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from icone.cli import main
from icone.errors import InputError
from icone.report.content import NEIGHBOURS, QUERIES
from icone.report.figures import (
    FIGURES,
    plot_confusion,
    plot_gallery,
    plot_geometry,
    plot_map,
    plot_spectrum,
    save_figures,
)
from icone.run import Run

RNG = np.random.default_rng(0)
NAMES = ["$x_{", "<b>&", "漢字"]


@pytest.fixture(scope="module")
def run(make_run: Callable[..., Run]) -> Run:
    return make_run(RNG.normal(size=(30, 8)).astype(np.float32), [NAMES[i % 3] for i in range(30)])


def test_every_figure_is_saved_by_name_as_pdf_and_png(run: Run, tmp_path: Path) -> None:
    written = save_figures(run, tmp_path / "all", projection="pca")
    assert {path.name for path in written} == {f"{name}.{kind}" for name in FIGURES for kind in ("pdf", "png")}
    assert all(path.read_bytes().startswith(b"%PDF") for path in written if path.suffix == ".pdf")
    for path in written:
        if path.suffix == ".png":
            with Image.open(path) as image:
                assert min(image.size) >= 400  # 300 dots per inch
    assert main(["figures", str(run.folder), "--out", str(tmp_path / "some"), "--names", "spectrum"]) == 0
    assert {p.name for p in (tmp_path / "some").iterdir()} == {"spectrum.pdf", "spectrum.png"}


def test_several_runs_share_their_figures(run: Run, make_run: Callable[..., Run], tmp_path: Path) -> None:
    other = make_run(RNG.normal(size=(20, 8)).astype(np.float32), ["a", "b"] * 10)
    names = [run.folder.name, other.folder.name]
    assert main(["figures", str(run.folder), str(other.folder), "--out", str(tmp_path), "--projection", "pca"]) == 0
    assert {path.stem for path in tmp_path.iterdir()} == set(FIGURES)
    spectrum = plot_spectrum(run, other).axes[0]
    assert [str(line.get_label()) for line in spectrum.get_lines()] == [
        f"{name}, {which}" for name in names for which in ("untrained", "trained")
    ]
    for line, which in zip(plot_geometry(run, other).axes[0].get_lines(), (run, other), strict=True):
        ranks = [row["geometry"]["rankme"] for row in which.history]
        np.testing.assert_allclose(np.asarray(line.get_ydata(), float), ranks)
    maps = plot_map(run, other, projection="pca")
    assert [part.get_suptitle() for part in maps.subfigs] == names
    assert [sum(len(np.asarray(c.get_offsets())) for c in axis.collections) for axis in maps.axes] == [30, 20]


def test_the_history_is_drawn_as_it_was_written(run: Run) -> None:
    [axis] = run.plot_history().axes
    [line] = axis.get_lines()
    assert line.get_label() == "loss"
    np.testing.assert_allclose(np.asarray(line.get_ydata(), float), [row["loss"] for row in run.history])
    assert list(np.asarray(line.get_xdata())) == [1, 2, 3, 4, 5, 6]


def test_the_spectrum_is_relative_to_its_largest_value(run: Run) -> None:
    [axis] = run.plot_spectrum().axes
    lines = {str(line.get_label()): np.asarray(line.get_ydata(), float) for line in axis.get_lines()}
    assert set(lines) == {"untrained", "trained"}
    with np.load(run.features_file) as file:
        x = file["features"].astype(np.float64)
    values = np.linalg.svd((x - x.mean(0)) / x.std(0), compute_uv=False)
    np.testing.assert_allclose(lines["trained"], values / values[0], rtol=1e-3)


def test_nothing_is_drawn_as_raw_tex(run: Run) -> None:
    """Class names with dollar signs are printed as they are, and numbers of a logarithmic axis are no formula."""
    figure = run.plot_spectrum()
    figure.canvas.draw()
    [axis] = figure.axes
    ticks = [label.get_text() for label in (*axis.get_yticklabels(which="both"), *axis.get_xticklabels())]
    assert any(ticks)
    assert not any("$" in text or "math" in text for text in ticks)
    confusion = plot_confusion(run)
    confusion.canvas.draw()  # as a notebook does, outside of the style in which it was made
    assert NAMES[0] in [label.get_text() for label in confusion.axes[0].get_xticklabels()]
    assert not any(label.get_parse_math() for label in confusion.axes[0].get_xticklabels())


def test_figures_without_runs_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["figures", "--out", str(tmp_path / "none")]) == 2
    assert "at least one run" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(("colour", "groups"), [("label", 3), ("cluster", 3), ("density", 1)])
def test_the_map_holds_all_samples(run: Run, colour: str, groups: int) -> None:
    axis, *_ = run.plot_map("pca", colour).axes
    assert len(axis.collections) == groups
    assert sum(len(np.asarray(c.get_offsets())) for c in axis.collections) == 30
    with pytest.raises(InputError, match="unknown colour"):
        run.plot_map("pca", "weather")


def test_what_has_no_data_is_left_out_of_all_and_refused_by_name(make_run: Callable[..., Run], tmp_path: Path) -> None:
    bare = make_run(RNG.normal(size=(6, 8)).astype(np.float32), [""] * 6)
    bare.write_history([])
    names = {path.stem for path in save_figures(bare, tmp_path, projection="pca")}
    assert names == {"spectrum", "plane", "map", "gallery"}
    with pytest.raises(InputError, match="no probe results"):
        plot_confusion(bare)
    with pytest.raises(InputError, match="no probe results"):
        save_figures(bare, tmp_path, ["confusion"])
    with pytest.raises(InputError, match="unknown figure 'mapp'; did you mean map"):
        save_figures(bare, tmp_path, ["mapp"])


@pytest.mark.parametrize(
    ("labels", "frames"), [([""] * 9, set()), (["a"] * 9, set()), (["a", "b", ""] * 3, {"-", "--"})]
)
def test_neighbours_without_a_class_have_no_frame(
    make_run: Callable[..., Run], labels: list[str], frames: set[str]
) -> None:
    figure = plot_gallery(make_run(RNG.normal(size=(9, 8)).astype(np.float32), labels))
    [axis] = figure.axes
    queries = [patch for patch in axis.patches if patch.get_edgecolor()[:3] == (0, 0, 0)]
    rest = [patch for patch in axis.patches if patch not in queries]
    assert len(queries) == QUERIES
    assert {patch.get_linestyle() for patch in rest} == frames
    assert len(rest) < QUERIES * NEIGHBOURS


def test_a_notebook_shows_the_run_as_text_only(make_run: Callable[..., Run]) -> None:
    run = make_run(RNG.normal(size=(6, 8)).astype(np.float32), [""] * 6, [f"<b>{i}.png" for i in range(6)])
    moved = Run(run.folder.rename(run.folder.with_name("<script>alert(1)<")))
    html = moved._repr_html_()
    assert "<script" not in html
    assert "&lt;script&gt;" in html
    assert "RankMe" in html
