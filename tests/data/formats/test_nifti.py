"""NIfTI volumes against the arrays that were written."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import nibabel
import numpy as np
import pytest

from icone.data import Sample
from icone.errors import InputError

ReadOne = Callable[[Path], Sample]
WriteNifti = Callable[..., None]

RNG = np.random.default_rng(0)

VOLUME = RNG.normal(size=(7, 8, 9)).astype(np.float32)


def test_nifti_is_turned_to_canonical_axes(tmp_path: Path, read_one: ReadOne, write_nifti: WriteNifti) -> None:
    # Stored as (inferior, right-to-left, anterior): canonical X = -axis 1, Y = axis 2, Z = -axis 0.
    affine = np.array([[0, -2, 0, 0], [0, 0, 3, 0], [-5, 0, 0, 0], [0, 0, 0, 1.0]])
    write_nifti(tmp_path / "a.nii.gz", VOLUME, affine)
    array, spacing, *_ = read_one(tmp_path)
    np.testing.assert_array_equal(array[0], VOLUME.transpose(1, 2, 0)[::-1, :, ::-1])
    assert spacing == (2.0, 3.0, 5.0)


@pytest.mark.parametrize(("unit", "step"), [("mm", 5.0), ("micron", 0.005), ("meter", 5000.0), ("unknown", 5.0)])
def test_nifti_spacing_is_in_millimetres(unit: str, step: float, tmp_path: Path, read_one: ReadOne) -> None:
    image = nibabel.Nifti1Image(VOLUME, np.diag([5.0, 5.0, 10.0, 1.0]))
    image.header.set_xyzt_units(unit)
    nibabel.save(image, tmp_path / "a.nii")
    assert read_one(tmp_path).spacing == pytest.approx((step, step, 2 * step))


def test_nifti_scaling_and_channels(tmp_path: Path, read_one: ReadOne, write_nifti: WriteNifti) -> None:
    stored = np.arange(48, dtype=np.int16).reshape(2, 3, 4, 2)
    write_nifti(tmp_path / "a.nii", stored, scaling=(2.0, -10.0))
    np.testing.assert_allclose(read_one(tmp_path).array, np.moveaxis(2.0 * stored - 10, -1, 0))


def test_nifti_keeps_integers(tmp_path: Path, read_one: ReadOne, write_nifti: WriteNifti) -> None:
    write_nifti(tmp_path / "a.nii", np.arange(24, dtype=np.uint8).reshape(2, 3, 4))
    assert read_one(tmp_path).array.dtype == np.uint8


def test_damaged_gzip_stream(tmp_path: Path, read_one: ReadOne) -> None:
    path = tmp_path / "a.nii.gz"
    path.write_bytes(gzip.compress(b"far too short for a header"))
    with pytest.raises(InputError, match=r"cannot read .*a\.nii\.gz"):
        read_one(tmp_path)


@pytest.mark.parametrize(
    ("damage_it", "message"),
    [
        (lambda raw: raw[:-8] + b"abcd" + raw[-4:], "CRC check failed"),
        (lambda raw: raw[:-4] + b"abcd", "Incorrect length"),
        (lambda raw: raw[:-4], "ended before the end-of-stream"),
        (lambda raw: raw[:-9], "ended before the end-of-stream"),
        (lambda raw: raw + b"rubbish", "Not a gzipped file"),
        (lambda raw: raw[:2000] + bytes(64) + raw[2064:], "."),
        (lambda raw: raw[:-40] + bytes(16) + raw[-24:], "."),
    ],
    ids=[
        "checksum",
        "length",
        "no length",
        "no checksum",
        "rubbish at the end",
        "overwritten",
        "overwritten at the end",
    ],
)
def test_damaged_volumes_in_gzip(
    tmp_path: Path, read_one: ReadOne, write_nifti: WriteNifti, damage_it: Callable[[bytes], bytes], message: str
) -> None:
    path = tmp_path / "a.nii.gz"
    write_nifti(path, RNG.integers(0, 256, (12, 13, 14), dtype=np.uint8))
    path.write_bytes(damage_it(path.read_bytes()))
    with pytest.raises(InputError, match=rf"cannot read .*a\.nii\.gz: .*{message}"):
        read_one(tmp_path)


def test_zeros_after_gzip_are_padding(tmp_path: Path, read_one: ReadOne, write_nifti: WriteNifti) -> None:
    write_nifti(tmp_path / "a.nii.gz", VOLUME)
    with (tmp_path / "a.nii.gz").open("ab") as file:
        file.write(bytes(512))
    np.testing.assert_array_equal(read_one(tmp_path).array, VOLUME[None])


def test_volumes_are_not_mapped(tmp_path: Path, read_one: ReadOne, write_nifti: WriteNifti) -> None:
    """A mapped file that is cut later would end the process."""
    write_nifti(tmp_path / "a.nii", VOLUME)
    array = read_one(tmp_path).array
    (tmp_path / "a.nii").write_bytes(b"")
    np.testing.assert_array_equal(array, VOLUME[None])
