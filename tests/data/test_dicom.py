"""DICOM series against volumes whose geometry is known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pydicom
import pytest
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid

from icone.config import DataConfig
from icone.data import open_source
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


def write_series(folder: Path, uid: str, suffix: str = ".dcm") -> None:
    """Slices along a tilted normal, 2.5 mm apart, stored in a scrambled order of names."""
    row, column = np.array([1.0, 0, 0]), np.array([0, 0.8, 0.6])
    normal = np.cross(row, column)
    for name, k in enumerate((3, 0, 4, 1, 2)):
        write_slice(
            folder / f"{name}{suffix}",
            VOLUME[k],
            SeriesInstanceUID=uid,
            ImageOrientationPatient=[*row, *column],
            ImagePositionPatient=[round(float(x), 6) for x in np.array([5.0, -7, 20]) + 2.5 * k * normal],
            RescaleSlope=2,
            RescaleIntercept=-1024,
        )


@pytest.mark.parametrize("suffix", [".dcm", ""])
def test_series_in_subfolders(tmp_path: Path, suffix: str) -> None:
    for name in ("p2/late", "p1/late", "p1/early", "p2/early"):
        write_series(tmp_path / name, generate_uid(), suffix)
    source = open_source(str(tmp_path), DataConfig())
    assert source.ids == ("p1/early", "p1/late", "p2/early", "p2/late")
    assert source.spatial_dims == 3
    assert source.labels is None  # two studies of each patient do not make the patients classes
    assert source.paths[0] == tmp_path / "p1" / "early"
    array, spacing, _ = source.read(0)
    np.testing.assert_array_equal(array, VOLUME[None].astype(np.float32) * 2 - 1024)
    assert spacing == pytest.approx((2.5, 0.5, 0.75))


def test_the_folder_itself_can_be_the_series(tmp_path: Path) -> None:
    write_series(tmp_path / "scan", generate_uid())
    source = open_source(str(tmp_path / "scan"), DataConfig())
    assert source.ids == ("scan",)
    assert source.read(0).array.shape == (1, 5, 4, 6)


def test_two_series_in_one_folder(tmp_path: Path) -> None:
    write_series(tmp_path, generate_uid())
    write_slice(tmp_path / "other.dcm", VOLUME[0], SeriesInstanceUID=generate_uid())
    with pytest.raises(InputError, match="mixes 2 DICOM series; put each series into a folder of its own"):
        open_source(str(tmp_path), DataConfig()).read(0)


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


def test_truncated_slice(tmp_path: Path) -> None:
    write_series(tmp_path / "scan", generate_uid())
    path = tmp_path / "scan" / "1.dcm"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(InputError, match=r"cannot read .*scan"):
        open_source(str(tmp_path), DataConfig()).read(0)
