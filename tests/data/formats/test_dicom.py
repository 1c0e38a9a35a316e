"""DICOM series against volumes whose geometry is known."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

import icone
from icone.config import DataConfig
from icone.data import open_source, read_sample
from icone.data.formats.registry import quiet_readers
from icone.errors import InputError

VOLUME = np.random.default_rng(0).integers(0, 3000, (5, 4, 6)).astype(np.uint16)


def write_slice(path: Path, pixels: np.ndarray[tuple[int, ...], np.dtype[np.uint16]], **tags: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.MediaStorageSOPClassUID = CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    piece = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    piece.SOPClassUID, piece.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
    piece.Rows, piece.Columns = pixels.shape
    piece.SamplesPerPixel, piece.PhotometricInterpretation = 1, "MONOCHROME2"
    piece.BitsAllocated = piece.BitsStored = 16
    piece.HighBit, piece.PixelRepresentation = 15, 0
    piece.PixelSpacing = [0.5, 0.75]
    for name, value in tags.items():
        setattr(piece, name, value)
    piece.PixelData = pixels.tobytes()
    pydicom.dcmwrite(path, piece, enforce_file_format=True)


ROW, COLUMN = np.array([1.0, 0, 0]), np.array([0, 0.8, 0.6])
NORMAL = np.cross(ROW, COLUMN)


def place(step: float, sideways: float = 0.0) -> list[float]:
    """The position of a slice, so many steps of 2.5 mm along the normal and so many millimetres along its rows."""
    return [round(float(x), 6) for x in np.array([5.0, -7, 20]) + 2.5 * step * NORMAL + sideways * ROW]


def write_series(
    folder: Path, uid: str, suffix: str = ".dcm", changes: dict[int, dict[str, object] | None] | None = None
) -> None:
    """Slices along a tilted normal, 2.5 mm apart, stored in a scrambled order of names.

    `changes` are other tags for the slice number k, or None to leave it out.
    """
    for name, k in enumerate((3, 0, 4, 1, 2)):
        change = (changes or {}).get(k, {})
        if change is not None:
            tags = {
                "SeriesInstanceUID": uid,
                "ImageOrientationPatient": [*ROW, *COLUMN],
                "ImagePositionPatient": place(k),
                "RescaleSlope": 2,
                "RescaleIntercept": -1024,
            }
            write_slice(folder / f"{name}{suffix}", VOLUME[k], **(tags | change))


@pytest.mark.parametrize("suffix", [".dcm", ""])
def test_series_in_subfolders(tmp_path: Path, suffix: str) -> None:
    for name in ("p2/late", "p1/late", "p1/early", "p2/early"):
        write_series(tmp_path / name, generate_uid(), suffix)
    source = open_source(str(tmp_path), DataConfig())
    assert source.ids == ("p1/early", "p1/late", "p2/early", "p2/late")
    assert source.spatial_dims == 3
    assert source.labels is None  # two studies of each patient do not make the patients classes
    assert source.paths[0] == tmp_path / "p1" / "early"
    array, spacing, *_ = source.read(0)
    np.testing.assert_array_equal(array, VOLUME[None].astype(np.float32) * 2 - 1024)
    assert spacing == pytest.approx((2.5, 0.5, 0.75))


def test_the_folder_itself_can_be_the_series(tmp_path: Path) -> None:
    write_series(tmp_path / "scan", generate_uid())
    source = open_source(str(tmp_path / "scan"), DataConfig())
    assert source.ids == ("scan",)
    assert source.read(0).array.shape == (1, 5, 4, 6)


def test_two_series_in_one_folder(tmp_path: Path) -> None:
    """By the first and the last file; a slice of another series between them is found when the volume is read."""
    for name in ("a", "b"):
        write_series(tmp_path / "case", generate_uid(), suffix=f"{name}.dcm")
    for k in range(5):
        (tmp_path / "case" / f"{k}b.dcm").rename(tmp_path / "case" / f"9{k}b.dcm")
    source = open_source(str(tmp_path), DataConfig())
    assert source.ids == ("case/0a.dcm", "case/90b.dcm")
    for position in range(2):
        np.testing.assert_array_equal(source.read(position).array, VOLUME[None].astype(np.float32) * 2 - 1024)
    write_slice(tmp_path / "mixed" / "1x.dcm", VOLUME[0], SeriesInstanceUID=generate_uid())
    write_series(tmp_path / "mixed", generate_uid())
    with pytest.raises(InputError, match="mixes 2 DICOM series; put each series into a folder of its own"):
        open_source(str(tmp_path / "mixed"), DataConfig()).read(0)


def test_single_images_are_2d(tmp_path: Path) -> None:
    """X-rays: every file is a series, low values of MONOCHROME1 are the bright ones, and subfolders are classes."""
    for name in ("ill", "well"):
        for k in range(2):
            tags: dict[str, object] = {"PhotometricInterpretation": "MONOCHROME1"} if (name, k) == ("well", 1) else {}
            write_slice(tmp_path / name / f"{k}.dcm", VOLUME[k], SeriesInstanceUID=generate_uid(), **tags)
    source = open_source(str(tmp_path), DataConfig())
    assert source.spatial_dims == 2
    assert source.ids == ("ill/0.dcm", "ill/1.dcm", "well/0.dcm", "well/1.dcm")
    assert source.labels == ("ill", "ill", "well", "well")
    np.testing.assert_array_equal(source.read(1).array, VOLUME[1][None].astype(np.float32))
    assert source.read(0).spacing == (0.5, 0.75)
    turned = source.read(3)
    expected = int(VOLUME[1].min()) + int(VOLUME[1].max()) - VOLUME[1][None].astype(np.float32)
    np.testing.assert_array_equal(turned.array, expected)
    assert "MONOCHROME1" in turned.notes[0]


def test_a_volume_is_bright_where_it_is_shown_bright(tmp_path: Path) -> None:
    uid = generate_uid()
    tags: dict[str, object] = {"PhotometricInterpretation": "MONOCHROME1"}
    write_series(tmp_path / "a", uid, changes=dict.fromkeys(range(5), tags))
    write_series(tmp_path / "b", uid)
    turned, usual = (open_source(str(tmp_path / name), DataConfig()).read(0) for name in "ab")
    np.testing.assert_allclose(turned.array, usual.array.max() + usual.array.min() - usual.array)
    assert "MONOCHROME1" in turned.notes[0]


def test_numbers_of_a_palette_are_its_colours(tmp_path: Path) -> None:
    table = np.random.default_rng(1).integers(0, 65535, (3, 3000)).astype(np.uint16)
    tags: dict[str, object] = {"PhotometricInterpretation": "PALETTE COLOR"}
    for name, values in zip(("Red", "Green", "Blue"), table, strict=True):
        tags[f"{name}PaletteColorLookupTableDescriptor"] = [3000, 0, 16]
        tags[f"{name}PaletteColorLookupTableData"] = values.tobytes()
    write_slice(tmp_path / "colour" / "1.dcm", VOLUME[0], **tags)
    found = open_source(str(tmp_path / "colour"), DataConfig()).read(0)
    np.testing.assert_array_equal(found.array, table[:, VOLUME[0]])
    assert found.is_colour
    tags |= {f"{name}PaletteColorLookupTableData": table[0].tobytes() for name in ("Green", "Blue")}
    write_slice(tmp_path / "gray" / "1.dcm", VOLUME[0], **tags)
    gray = open_source(str(tmp_path / "gray"), DataConfig()).read(0)
    np.testing.assert_array_equal(gray.array, table[:1, VOLUME[0]])


def test_slices_without_or_with_equal_positions(tmp_path: Path) -> None:
    uid = generate_uid()
    for name in ("a", "b"):
        write_slice(tmp_path / "silent" / f"{name}.dcm", VOLUME[0], SeriesInstanceUID=uid)
        tags = {"ImageOrientationPatient": [1, 0, 0, 0, 1, 0], "ImagePositionPatient": [0, 0, 1]}
        write_slice(tmp_path / "twice" / f"{name}.dcm", VOLUME[0], SeriesInstanceUID=uid, **tags)
    with pytest.raises(InputError, match="do not say where they lie"):
        open_source(str(tmp_path / "silent"), DataConfig()).read(0)
    with pytest.raises(InputError, match="the same position"):
        open_source(str(tmp_path / "twice"), DataConfig()).read(0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({2: None}, r"slices 3\.dcm and 0\.dcm lie 5 mm apart, the others 2\.5 mm: slices are missing"),
        ({2: None, 4: None}, r"slices 3\.dcm and 0\.dcm lie 5 mm apart, the others 2\.5 mm"),
        ({1: None, 2: None}, r"slices 1\.dcm and 0\.dcm lie 7\.5 mm apart"),
        ({4: {"ImagePositionPatient": place(2000)}}, r"slices 0\.dcm and 2\.dcm lie 4992\.5 mm apart"),
        ({2: {"ImagePositionPatient": place(2, 5000)}}, r"slices 3\.dcm and 4\.dcm lie 5000 mm apart"),
        ({2: {"ImagePositionPatient": place(2.5)}}, r"slices .* lie 3\.75 mm apart"),
        ({2: {"ImagePositionPatient": place(1)}}, r"slices 3\.dcm and 4\.dcm lie at the same position"),
        ({2: {"ImageOrientationPatient": [1, 0, 0, 0, 1, 0]}}, r"slice 4\.dcm has the orientation 1, 0, 0, 0, 1, 0 "),
        ({3: {"PixelSpacing": [0.5, 0.8]}}, r"slice 0\.dcm has the pixel spacing 0\.5, 0\.8 .* have 0\.5, 0\.75"),
        ({2: {"ImagePositionPatient": ["nan", 0, 0]}}, r"slice 4\.dcm has a position that is no number"),
        ({3: {"PixelSpacing": ["nan", 0.75]}}, r"slice .* has the pixel spacing"),
        ({3: {"PixelSpacing": None}}, r"slice 0\.dcm does not say its pixel spacing"),
    ],
    ids=[
        "missing", "one of four missing", "two missing", "5 m away", "5 m sideways", "half a step off", "twice",
        "orientation", "pixel spacing", "position is no number", "pixel spacing is no number", "no pixel spacing",
    ],
)  # fmt: skip
def test_slices_that_are_not_one_volume(
    tmp_path: Path, changes: dict[int, dict[str, object] | None], message: str
) -> None:
    with quiet_readers():
        write_series(tmp_path / "scan", generate_uid(), changes=changes)
        with pytest.raises(InputError, match=rf"cannot read .*/scan: its {message}"):
            open_source(str(tmp_path), DataConfig()).read(0)


@pytest.mark.parametrize(
    "changes",
    [
        {k: {"ImagePositionPatient": [round(x, 1) for x in place(k)]} for k in range(5)},
        {k: {"ImagePositionPatient": place(k, 0.7 * k)} for k in range(5)},
        {k: {"ImagePositionPatient": place(k * 0.25 / 2.5, 0)} for k in range(5)},
        {2: {"ImageOrientationPatient": [1, 0, 0, 0, 0.80001, 0.59999]}, 3: {"PixelSpacing": [0.5, 0.7502]}},
        {1: None, 3: None},
        {0: None, 4: None},
    ],
    ids=["rounded", "tilted gantry", "thin", "rounded planes", "every second", "fewer"],
)
def test_series_that_are_one_volume(tmp_path: Path, changes: dict[int, dict[str, object] | None]) -> None:
    write_series(tmp_path / "scan", generate_uid(), changes=changes)
    kept = [k for k in range(5) if changes.get(k, {}) is not None]
    array = open_source(str(tmp_path), DataConfig()).read(0).array
    np.testing.assert_array_equal(array, VOLUME[kept][None].astype(np.float32) * 2 - 1024)


@pytest.mark.parametrize("spacing", [None, [0, 0.5]])
def test_a_series_without_pixel_spacing_has_no_spacing(tmp_path: Path, spacing: object) -> None:
    write_series(tmp_path / "scan", generate_uid(), changes={k: {"PixelSpacing": spacing} for k in range(5)})
    assert open_source(str(tmp_path), DataConfig()).read(0).spacing is None


def test_nested_series_stay_apart(tmp_path: Path) -> None:
    uid = generate_uid()
    write_series(tmp_path / "data" / "study", uid)
    write_series(tmp_path / "data" / "study" / "again", uid)
    source = open_source(str(tmp_path / "data"), DataConfig())
    assert source.ids == ("study", "study/again")
    assert all(source.read(i).array.shape == (1, 5, 4, 6) for i in range(2))
    write_series(tmp_path / "scan", uid, changes={3: None, 4: None})
    write_series(tmp_path / "scan" / "scan", uid, changes={0: None, 1: None, 2: None})
    with pytest.raises(InputError, match=r"/scan(/scan)? and .*/scan(/scan)? would share the id scan: rename one"):
        open_source(str(tmp_path / "scan"), DataConfig())


def test_truncated_slice(tmp_path: Path) -> None:
    write_series(tmp_path / "scan", generate_uid())
    path = tmp_path / "scan" / "1.dcm"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"cannot read .*scan"):
        open_source(str(tmp_path), DataConfig()).read(0)


@pytest.mark.parametrize("suffix", [".dcm", ""])
def test_one_file_is_its_image_or_the_volume_of_its_frames(tmp_path: Path, suffix: str) -> None:
    """They were refused in lists and tables, where folders of the same files are read."""
    slices = [tmp_path / f"{name}{suffix}" for name in "ab"]
    for path, pixels in zip(slices, VOLUME, strict=False):
        write_slice(path, pixels, SeriesInstanceUID=generate_uid())
    source = open_source(list(map(str, slices)), DataConfig())
    assert (source.spatial_dims, source.ids) == (2, tuple(map(str, slices)))
    for position, path in enumerate(slices):
        np.testing.assert_array_equal(source.read(position).array, VOLUME[position][None].astype(np.float32))
        assert source.paths[position] == path
    table = tmp_path / "table.csv"
    table.write_text(f"path,label\na{suffix},x\nb{suffix},y\n")
    assert open_source(str(table), DataConfig()).read(1).array.shape == (1, 4, 6)
    frames = tmp_path / f"frames{suffix}"
    write_slice(frames, VOLUME[0], NumberOfFrames=1)
    movie = pydicom.dcmread(frames)
    movie.NumberOfFrames, movie.PixelData = len(VOLUME), VOLUME.tobytes()
    movie.save_as(frames)
    source = open_source([str(frames)], DataConfig())
    assert source.spatial_dims == 3
    np.testing.assert_array_equal(source.read(0).array, VOLUME[None].astype(np.float32))
    if suffix:
        assert read_sample(slices[0]).array.shape == (1, 4, 6)
        assert read_sample(frames).array.shape == (1, 5, 4, 6)


def test_one_file_is_embedded_as_in_its_folder(tmp_path: Path) -> None:
    for number, pixels in enumerate(VOLUME):
        write_slice(tmp_path / "rays" / f"{number}.dcm", pixels, SeriesInstanceUID=generate_uid())
        write_series(tmp_path / "scans" / str(number), generate_uid())
    settings: dict[str, Any] = {
        "epochs": 1,
        "probe_every": 0,
        "device": "cpu",
        "cache": "off",
        "size": 16,
        "width": 0.125,
    }
    rays = icone.pretrain(tmp_path / "rays", encoder="test_vit", out=tmp_path / "2d", **settings | {"width": 1.0})
    whole, alone = (icone.embed(rays, data) for data in (tmp_path / "rays", tmp_path / "rays" / "2.dcm"))
    features = whole.filter(regex=r"^f\d").columns
    expected = whole[whole["path"].str.endswith("2.dcm")][features].to_numpy()
    np.testing.assert_allclose(alone[features].to_numpy(), expected, atol=1e-5)
    scans = icone.pretrain(tmp_path / "scans", encoder="resnet10_3d", out=tmp_path / "3d", **settings)
    with pytest.raises(InputError, match=r"2 spatial axes, but .* on 3; one file .* give the folder of the series"):
        icone.embed(scans, tmp_path / "scans" / "0" / "1.dcm")
    assert len(icone.embed(scans, tmp_path / "scans" / "0")) == 1
