"""A map of tiles: the features of every tile at its place, as OME-Zarr that others can open."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from PIL import Image
from sklearn.decomposition import PCA

import icone
from icone.api.tile_map import PrincipalAxes
from icone.cli import main
from icone.errors import InputError
from icone.run import Run
from icone.terminal import Terminal

RNG = np.random.default_rng(0)
QUIET = Terminal(file=io.StringIO())


def volume() -> np.ndarray:
    """Noise in one half, nothing much in the other."""
    array = RNG.integers(0, 5, (32, 40, 160)).astype(np.uint16)
    array[:, :, :80] = RNG.integers(500, 3000, (32, 40, 80))
    return array


def opened(path: Path | str) -> Any:
    return zarr.open_group(str(path), mode="r")


def write_ome_zarr(path: Path, array: np.ndarray) -> None:
    group = zarr.open_group(str(path), mode="w", zarr_format=2)
    group.create_array("0", data=array, chunks=(16, 16, 16))
    where = [{"type": "scale", "scale": [2.0, 0.5, 0.5]}, {"type": "translation", "translation": [1.0, 0.0, 3.0]}]
    axes = [{"name": name, "type": "space", "unit": "micrometer"} for name in "zyx"]
    levels: Any = [{"path": "0", "coordinateTransformations": where}]
    group.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": levels}]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("tiles")
    write_ome_zarr(folder / "brain.zarr", volume())
    return icone.pretrain(
        folder / "brain.zarr", tiles=16, encoder="resnet10_3d", width=0.125, features=12, epochs=1, batch_size=4,
        out=folder / "run", memory_gb=0.0, device="cpu", probe_every=0, console=QUIET,
    )  # fmt: skip


def test_a_run_by_tiles_trains_on_tiles(run: Run) -> None:
    assert run.preparation.size == (16, 16, 16)
    assert run.instances["ids"][0] == "brain.zarr/0,0,0"
    assert len(run.instances["ids"]) == 2 * 3 * 5
    assert any("30 of 60 tiles of 16×16×16 are samples; 30 are background" in n for n in run.record["data"]["notes"])


def test_the_map_has_the_features_of_every_tile_at_its_place(run: Run, tmp_path: Path) -> None:
    table = icone.embed(run, out=tmp_path / "map.zarr", batch_size=7, device="cpu", console=QUIET)
    image = opened(tmp_path / "map.zarr")
    features = np.asarray(image["0"][...])
    assert features.shape == (12, 2, 3, 10)
    assert len(table) == 30
    encoder = icone.load_encoder(run)
    array = zarr.open_array(str(Path(run.config.source) / "0"), mode="r")
    for name in table["id"]:
        z, y, x = map(int, name.rpartition("/")[2].split(","))
        tile = np.asarray(array[z : z + 16, y : y + 16, x : x + 16])
        tile = np.pad(tile, [(0, 16 - n) for n in tile.shape], mode="symmetric")
        np.testing.assert_allclose(
            features[:, z // 16, y // 16, x // 16], encoder(tile[None, None])[0].numpy(), rtol=1e-4, atol=1e-5
        )
    assert not features[:, :, :, 5:].any()  # background
    scale, translation = image.attrs["multiscales"][0]["datasets"][0]["coordinateTransformations"]
    assert scale["scale"] == [1.0, 32.0, 8.0, 8.0]
    assert translation["translation"] == [0.0, 1.0 + 7.5 * 2, 7.5 * 0.5, 3.0 + 7.5 * 0.5]
    picture = np.asarray(Image.open(tmp_path / "map.png"))
    assert picture.shape[2] == 3
    assert max(picture.shape) >= 512
    assert picture[:, : picture.shape[1] // 2].any(axis=2).all()
    assert not picture[:, picture.shape[1] // 2 :].any()


def test_other_readers_open_the_map(run: Run, tmp_path: Path) -> None:
    reader = pytest.importorskip("ome_zarr.reader")
    location = pytest.importorskip("ome_zarr.io")
    icone.embed(run, out=tmp_path / "map.zarr", components=3, device="cpu", console=QUIET)
    (node,) = reader.Reader(location.parse_url(str(tmp_path / "map.zarr")))()
    assert node.data[0].shape == (3, 2, 3, 10)
    assert [axis["name"] for axis in node.metadata["axes"]] == ["c", "z", "y", "x"]
    assert node.metadata["coordinateTransformations"][0][0]["scale"] == [1.0, 32.0, 8.0, 8.0]
    assert node.metadata["channel_names"] == ["component 1", "component 2", "component 3"]


def test_components_are_those_of_scikit_learn(run: Run, tmp_path: Path) -> None:
    icone.embed(run, out=tmp_path / "full.zarr", device="cpu", console=QUIET)
    icone.embed(run, out=tmp_path / "few.zarr", components=2, device="cpu", console=QUIET)
    full = np.asarray(opened(tmp_path / "full.zarr")["0"][...])[..., :5]
    few = np.asarray(opened(tmp_path / "few.zarr")["0"][...])
    rows = full.reshape(12, -1).T
    expected = PCA(2).fit_transform(rows)
    found = few[..., :5].reshape(2, -1).T
    np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-3 * np.abs(expected).max())
    assert not few[..., 5:].any()


def test_principal_axes_do_not_depend_on_the_pieces() -> None:
    x = RNG.normal(size=(300, 5)).astype(np.float32) * [5, 3, 1, 0.5, 0.1] + 7
    whole, pieces = PrincipalAxes(5), PrincipalAxes(5)
    whole.add(x.astype(np.float32))
    for part in np.array_split(x.astype(np.float32), 7):
        pieces.add(part)
    for one, other in zip(whole.fit(3), pieces.fit(3), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(whole.fit(3)[2], PCA(3).fit(x).singular_values_ / np.sqrt(300), rtol=1e-4)


def test_the_command_line_embeds_by_tiles_without_being_told(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    slides = tmp_path / "more"
    slides.mkdir()
    for name in ("a", "b"):
        np.save(slides / f"{name}.npy", volume())
    assert main(["embed", str(run.folder), "more", "--stride", "8", "--components", "2", "--device", "cpu"]) == 0
    target = run.folder / "features-more.zarr"
    assert str(target) in capsys.readouterr().out
    for name in ("a", "b"):
        assert opened(str(target))[f"{name}.npy/0"].shape == (2, 3, 4, 19)
        assert target.with_name(f"features-more-{name}.npy.png").is_file()
    assert main(["embed", str(run.folder), "--out", "tiles.parquet", "--device", "cpu"]) == 0
    assert Path("tiles.parquet").is_file()


def test_a_run_of_whole_samples_can_embed_by_tiles(tmp_path: Path) -> None:
    np.save(tmp_path / "images.npy", RNG.integers(0, 256, (6, 16, 16), dtype=np.uint8))
    np.save(tmp_path / "slide.npy", RNG.integers(0, 256, (64, 48), dtype=np.uint8))
    run = icone.pretrain(
        tmp_path / "images.npy", encoder="test_vit", size=16, epochs=1, out=tmp_path / "run", device="cpu",
        probe_every=0, console=QUIET,
    )  # fmt: skip
    icone.embed(run, tmp_path / "slide.npy", tiles=True, out=tmp_path / "map.zarr", device="cpu", console=QUIET)
    shape = opened(tmp_path / "map.zarr")["0"].shape
    assert shape[1:] == (4, 3)
    with pytest.raises(InputError, match="is there already"):
        icone.embed(run, tmp_path / "slide.npy", tiles=True, out=tmp_path / "map.zarr", device="cpu", console=QUIET)
    with pytest.raises(InputError, match="for tiles="):
        icone.embed(run, tmp_path / "images.npy", out=tmp_path / "other.zarr", console=QUIET)
