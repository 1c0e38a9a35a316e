"""Layouts and formats as laboratories have them, each with the `icone inspect --json` that it must give."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import numpy.typing as npt
import pydicom
import pytest
import SimpleITK
import tifffile
import zarr
from PIL import Image
from pydicom.dataset import Dataset, FileDataset, FileMetaDataset
from pydicom.sequence import Sequence
from pydicom.uid import CTImageStorage, EnhancedCTImageStorage, ExplicitVRLittleEndian, generate_uid

import icone
from icone.cli import main
from icone.terminal import Terminal

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)
KEYS = {
    "samples", "dimensions", "shape", "spacing", "channels", "classes", "groups", "skipped", "size", "encoder", "notes",
}  # fmt: skip
SMALL = {0: [], 2: ["--encoder", "test_vit", "--size", "32"], 3: ["--encoder", "resnet10_3d", "--width", "0.125"]}
UM = 1e-3


def pixels(*shape: int, high: int = 200) -> Array:
    """Numbers from 0 to `high`, both of which occur in every channel (the first axis)."""
    array = RNG.integers(0, high + 1, shape).astype(np.uint8 if high < 256 else np.uint16)
    array.reshape(shape[0], -1)[:, 0], array.reshape(shape[0], -1)[:, 1] = 0, high
    return array


def png(path: Path, *shape: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    array = pixels(1, *shape)[0] if len(shape) == 2 else pixels(*shape)
    Image.fromarray(array).save(path)


def nifti(path: Path, array: Array, spacing: tuple[float, ...] = (1, 1, 1)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make: Any = nibabel.Nifti1Image
    nibabel.save(make(array, np.diag([*spacing, 1.0])), path)


# Layouts ------------------------------------------------------------------------------------------------------------


def flat_folder(root: Path) -> None:
    for i in range(3):
        png(root / f"{i}.png", 20, 24)
    (root / "readme.txt").write_text("hello")


def colour_images(root: Path) -> None:
    for i in range(3):
        array = pixels(20 + i, 24, 3)
        array[0, 0], array[0, 1] = 0, 200
        Image.fromarray(array).save(root / f"{i}.png")


def class_folders(root: Path) -> None:
    for name, count in (("cat", 2), ("dog", 3)):
        for i in range(count):
            png(root / name / f"{i}.png", 16, 16)


def split_folders(root: Path) -> None:
    for split, count in (("Training", 3), ("Testing", 2)):
        for name in ("glioma", "healthy"):
            for i in range(count):
                png(root / split / name / f"{i}.png", 16, 16)


def three_splits(root: Path) -> None:
    for split, count in (("train", 4), ("val", 1), ("test", 2)):
        for i in range(count):
            png(root / split / f"{i}.png", 16, 16)


def images_and_masks(root: Path) -> None:
    for i in range(3):
        png(root / "images" / f"{i}.png", 16, 16)
        png(root / "images" / f"{i}_mask.png", 16, 16)
        png(root / "thumbnails" / f"{i}.png", 16, 16)


def table(root: Path) -> None:
    for i in range(4):
        png(root / f"{i}.png", 16, 16)
    rows = ["a,p1,train", "b,p1,train", "a,p2,train", "b,p2,test"]
    text = "".join(f"{i}.png,{row}\n" for i, row in enumerate(rows))
    (root / "table.csv").write_text("path,label,group,split\n" + text)


def damaged(root: Path) -> None:
    flat_folder(root)
    (root / "broken.png").write_bytes(b"not an image")
    Image.new("L", (8, 8), 7).save(root / "flat.png")


def sequences(root: Path) -> None:
    for name in ("sub1", "sub2"):
        for high, channel in zip((100, 200, 300), ("t1", "t2", "flair"), strict=True):
            nifti(
                root / name / f"{name}_{channel}.nii.gz", pixels(1, 9, 10, 8, high=high)[0].astype(np.int16), (1, 1, 2)
            )


def lacking_sequences(root: Path) -> None:
    sequences(root)
    (root / "sub2" / "sub2_flair.nii.gz").unlink()


# Formats ------------------------------------------------------------------------------------------------------------


def npy_images(root: Path) -> None:
    np.save(root / "a.npy", pixels(6, 20, 20, 3))


def npy_channels(root: Path) -> None:
    np.save(root / "a.npy", pixels(4 * 5, 20, 20).reshape(4, 5, 20, 20))


def npz_with_splits(root: Path) -> None:
    labels = np.array([[0], [1], [1], [0]])
    np.savez(root / "a.npz", train_images=pixels(4, 8, 8), train_labels=labels, test_images=pixels(2, 8, 8))


def points(root: Path) -> None:
    np.save(root / "a.npy", RNG.standard_normal((6, 2)).clip(-1, 1).astype(np.float32))


def hdf5(root: Path) -> None:
    with h5py.File(root / "a.h5", "w") as file:
        file["raw/images"] = pixels(5, 16, 18)
        file["raw/labels"] = np.array([0, 1, 0, 1, 1])
        file["other"] = pixels(5, 4, 4)


def hdf5_names(root: Path) -> None:
    with h5py.File(root / "a.hdf5", "w") as file:
        file["images"] = pixels(4, 16, 18)
        file["labels"] = ["x", "y", "x", "y"]


def hdf5_files(root: Path) -> None:
    for i in range(2):
        with h5py.File(root / f"{i}.h5", "w") as file:
            file["volume"] = pixels(60, 8, 9)


def tiff_pages(root: Path) -> None:
    for i in range(2):
        tifffile.imwrite(root / f"{i}.tif", pixels(4, 24, 24, high=1000), photometric="minisblack")


def ome_tiff(root: Path) -> None:
    for i in range(2):
        metadata = {
            "axes": "CYX", "PhysicalSizeX": 0.5, "PhysicalSizeY": 0.25, "PhysicalSizeXUnit": "µm",
            "Channel": {"Name": ["DAPI", "CD3", "CD8", "CD20", "Ki67"]},
        }  # fmt: skip
        tifffile.imwrite(root / f"{i}.ome.tif", pixels(5, 24, 24, high=1000), metadata=metadata)


def ome_tiff_volume(root: Path) -> None:
    sizes = {"PhysicalSizeX": 0.2, "PhysicalSizeY": 0.2, "PhysicalSizeZ": 1.0}
    for i in range(2):
        metadata = {"axes": "ZCYX", **sizes, "Channel": {"Name": ["actin", "nuclei"]}}
        array = pixels(2, 6, 24, 24, high=1000).swapaxes(0, 1)
        tifffile.imwrite(root / f"{i}.ome.tif", array, metadata=metadata)


def imagej_time(root: Path) -> None:
    for i in range(2):
        tifffile.imwrite(root / f"{i}.tif", pixels(6, 24, 24), imagej=True, metadata={"axes": "TYX"})


def nifti_volumes(root: Path) -> None:
    nifti(root / "a.nii.gz", pixels(1, 12, 10, 8)[0], (1, 1, 2))
    nifti(root / "b.nii", pixels(1, 12, 14, 8)[0], (1, 1, 4))


def nifti_4d(root: Path) -> None:
    for i in range(2):
        nifti(root / f"{i}.nii.gz", np.moveaxis(pixels(3, 12, 10, 8), 0, -1))


def itk_volumes(suffix: str) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        for i in range(2):
            image = SimpleITK.GetImageFromArray(pixels(1, 8, 10, 12)[0])
            image.SetSpacing((1.0, 1.0, 2.5))
            SimpleITK.WriteImage(image, str(root / f"{i}{suffix}"))

    return write


def itk_colours(root: Path) -> None:
    for i in range(2):
        image = SimpleITK.GetImageFromArray(np.moveaxis(pixels(2, 16, 18), 0, -1), isVector=True)
        image.SetSpacing((0.5, 0.25))
        SimpleITK.WriteImage(image, str(root / f"{i}.mha"))


def ome_zarr_images(version: str, axes: str, shape: tuple[int, ...]) -> Callable[[Path], None]:
    def write(root: Path) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it deprecates a class of its own when it is imported
            from ome_zarr.format import format_from_version
            from ome_zarr.writer import write_image
        for i in range(2):
            array = pixels(*shape)
            named = [{"name": a, "type": "channel" if a == "c" else "space"} for a in axes]
            scale = [{"c": 1.0, "z": 2.0}.get(a, 0.5) for a in axes]
            channels = [{"label": f"marker {c}", "color": "FFFFFF"} for c in range(shape[0])]
            made = format_from_version(version)
            group = zarr.open_group(root / f"{i}.zarr", mode="w", zarr_format=made.zarr_format)
            write_image(
                array,
                group,
                axes=named,
                fmt=made,
                scaler=None,
                scale=dict(zip(axes, scale, strict=True)),
                axes_units={a: "micrometer" for a in axes if a != "c"},
            )
            about = {"omero": {"channels": channels}}
            if version == "0.4":
                group.attrs.update(about)
            else:
                group.attrs["ome"] = {**group.attrs["ome"], **about}  # type: ignore[dict-item]

    return write


def plate(root: Path) -> None:
    ome_zarr_images("0.4", "cyx", (2, 16, 18))(root / "wells")
    store = root / "plate.zarr"
    zarr.open_group(store, mode="w", zarr_format=2).attrs["plate"] = {"wells": []}
    for i, well in enumerate(("A/1", "B/2")):
        (store / well).parent.mkdir(parents=True, exist_ok=True)
        zarr.open_group(store / well.split("/")[0], mode="a", zarr_format=2)
        zarr.open_group(store / well, mode="a", zarr_format=2)
        (root / "wells" / f"{i}.zarr").rename(store / well / "0")
    (root / "wells").rmdir()


def zarr_array(root: Path) -> None:
    array = zarr.create_array(root / "a.zarr", shape=(5, 16, 18), dtype="uint8", chunks=(2, 16, 18))
    array[:] = pixels(5, 16, 18)


def dicom_file(path: Path, array: Array, **tags: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = FileMetaDataset()
    meta.TransferSyntaxUID = ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = EnhancedCTImageStorage if array.ndim == 3 else CTImageStorage
    meta.MediaStorageSOPInstanceUID = generate_uid()
    file = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    file.SOPClassUID, file.SOPInstanceUID = meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID
    file.Rows, file.Columns = array.shape[-2:]
    file.SamplesPerPixel, file.PhotometricInterpretation = 1, "MONOCHROME2"
    file.BitsAllocated = file.BitsStored = 16
    file.HighBit, file.PixelRepresentation = 15, 1
    if array.ndim == 3:
        file.NumberOfFrames = len(array)
    file.PixelData = array.astype(np.int16).tobytes()
    for name, value in tags.items():
        setattr(file, name, value)
    pydicom.dcmwrite(path, file)


PLANE = {"ImageOrientationPatient": [1, 0, 0, 0, 1, 0], "PixelSpacing": [0.5, 0.5]}


def ct_series(root: Path) -> None:
    for patient in ("p1", "p2"):
        uid, volume = generate_uid(), pixels(5, 12, 12)
        for i, one in enumerate(volume):
            tags = {**PLANE, "ImagePositionPatient": [0, 0, 3.0 * i], "SeriesInstanceUID": uid, "RescaleIntercept": -50}
            dicom_file(root / patient / f"{i}.dcm", one, **tags)
        scout = {"ImageType": ["ORIGINAL", "PRIMARY", "LOCALIZER"], "SeriesInstanceUID": generate_uid()}
        dicom_file(root / patient / "scouts" / "0.dcm", pixels(1, 12, 12)[0], **scout)
    dicom_file(root / "p2" / "scout.dcm", pixels(1, 9, 9)[0], **scout)


def enhanced_ct(root: Path) -> None:
    """Frames in a random order, and their places and units in functional groups."""
    for name in ("a", "b"):
        order = RNG.permutation(5)
        volume = np.arange(5)[:, None, None] * 10 + np.zeros((5, 12, 12), int)
        shared, frames = Dataset(), []
        for group, tags in (
            ("PixelMeasuresSequence", {"PixelSpacing": [0.5, 0.5], "SliceThickness": 2}),
            ("PlaneOrientationSequence", {"ImageOrientationPatient": [1, 0, 0, 0, 1, 0]}),
            ("PixelValueTransformationSequence", {"RescaleSlope": 2, "RescaleIntercept": -5}),
        ):
            item = Dataset()
            for tag, value in tags.items():
                setattr(item, tag, value)
            setattr(shared, group, Sequence([item]))
        for place in order:
            position, frame = Dataset(), Dataset()
            position.ImagePositionPatient = [0, 0, 2.0 * place]
            frame.PlanePositionSequence = Sequence([position])
            frames.append(frame)
        groups = {"SharedFunctionalGroupsSequence": [shared], "PerFrameFunctionalGroupsSequence": frames}
        dicom_file(root / f"{name}.dcm", volume[order], **{key: Sequence(value) for key, value in groups.items()})


def one(name: str, low: float = 0, high: float = 200) -> dict[str, Any]:
    return {"name": name, "low": low, "high": high}


def many(*names: str, high: float = 200) -> list[dict[str, Any]]:
    return [one(name, high=high) for name in names]


GRAY = [one("1")]
SEQUENCES = [one("t1", high=100), one("t2", high=200), one("flair", high=300)]
FROM = ["--channels-from", "{id}_{t1,t2,flair}.nii.gz"]
Case = tuple[Callable[[Path], None], str, int, list[str], dict[str, Any], str]
CASES: dict[str, Case] = {
    "flat folder": (flat_folder, "", 2, [], {"samples": 3, "shape": [20, 24], "channels": GRAY}, "1 .txt"),
    "colour images": (
        colour_images,
        "",
        2,
        [],
        {"shape": {"min": [20, 24], "max": [22, 24]}, "channels": many("red", "green", "blue")},
        "",
    ),
    "to gray": (colour_images, "", 2, ["--channels", "gray"], {"channels": GRAY}, ""),
    "class folders": (class_folders, "", 2, [], {"classes": {"cat": 2, "dog": 3}}, "2 subfolders are taken as classes"),
    "no labels": (class_folders, "", 2, ["--no-labels"], {"classes": {}, "samples": 5}, ""),
    "split and class folders": (
        split_folders,
        "",
        2,
        [],
        {"classes": {"glioma": 5, "healthy": 5}, "splits": {"train": 6, "val": 0, "test": 4}},
        "only train is trained on",
    ),
    "train, val, test": (
        three_splits,
        "",
        2,
        [],
        {"classes": {}, "splits": {"train": 4, "val": 1, "test": 2}, "samples": 7},
        "1 val",
    ),
    "include and exclude": (
        images_and_masks,
        "",
        2,
        ["--include", "*.png", "--exclude", "*_mask.png", "thumbnails"],
        {"samples": 3},
        "6 files",
    ),
    "include by path": (images_and_masks, "", 2, ["--include", "images/?.png"], {"samples": 3}, "leave out 6 files"),
    "table": (
        table,
        "table.csv",
        2,
        [],
        {"classes": {"a": 2, "b": 2}, "groups": 2, "splits": {"train": 3, "val": 0, "test": 1}},
        "",
    ),
    "damaged files": (damaged, "", 2, [], {"samples": 3}, "--skip-unreadable"),
    "shrinks": (
        npy_images,
        "a.npy",
        2,
        ["--size", "8"],
        {"size": [8, 8], "scale": [0.4, 0.4]},
        "shrink by more than 2",
    ),
    "sequences of an MRI": (
        sequences,
        "",
        3,
        FROM,
        {"samples": 2, "channels": SEQUENCES, "spacing": [1, 1, 2], "shape": [9, 10, 8]},
        "",
    ),
    "sequences, some missing": (
        lacking_sequences,
        "",
        3,
        [*FROM, "--missing-channels", "zero"],
        {"channels": SEQUENCES},
        "zero there: flair (1)",
    ),
    "npy of images": (
        npy_images,
        "a.npy",
        2,
        [],
        {"samples": 6, "shape": [20, 20], "channels": many("1", "2", "3")},
        "",
    ),
    "npy, few slices": (npy_channels, "a.npy", 3, [], {"shape": [5, 20, 20], "channels": GRAY}, "give --axes CYX"),
    "npy, channels": (
        npy_channels,
        "a.npy",
        2,
        ["--axes", "CYX"],
        {"shape": [20, 20], "channels": many("1", "2", "3", "4", "5")},
        "",
    ),
    "npz with splits": (
        npz_with_splits,
        "a.npz",
        2,
        [],
        {"samples": 4, "classes": {"0": 2, "1": 2}},
        "the file has the splits train (4), test (2), of which train is read (--split); `icone evaluate "
        "--official-test` tests on test",
    ),
    "points": (points, "a.npy", 0, [], {"samples": 6, "dimensions": 0, "encoder": "mlp", "size": []}, ""),
    "HDF5 array": (hdf5, "a.h5:/raw/images", 2, [], {"shape": [16, 18], "classes": {"0": 2, "1": 3}}, ""),
    "HDF5 with names": (hdf5_names, "a.hdf5", 2, [], {"samples": 4, "classes": {"x": 2, "y": 2}}, ""),
    "HDF5 files": (hdf5_files, "", 3, [], {"samples": 2, "shape": [60, 8, 9]}, ""),
    "TIFF pages": (tiff_pages, "", 3, [], {"shape": [4, 24, 24], "channels": [one("1", high=1000)]}, "give --axes CYX"),
    "TIFF, channels": (
        tiff_pages,
        "",
        2,
        ["--axes", "CYX"],
        {"shape": [24, 24], "channels": many("1", "2", "3", "4", high=1000)},
        "",
    ),
    "TIFF, slices": (tiff_pages, "", 3, ["--axes", "ZYX"], {"shape": [4, 24, 24]}, "!give --axes"),
    "OME-TIFF": (
        ome_tiff,
        "",
        2,
        [],
        {"channels": many("DAPI", "CD3", "CD8", "CD20", "Ki67", high=1000), "spacing": [0.25 * UM, 0.5 * UM]},
        "",
    ),
    "OME-TIFF volumes": (
        ome_tiff_volume,
        "",
        3,
        [],
        {"shape": [6, 24, 24], "channels": many("actin", "nuclei", high=1000), "spacing": [UM, 0.2 * UM, 0.2 * UM]},
        "",
    ),
    "ImageJ time series": (imagej_time, "", 3, [], {"shape": [6, 24, 24], "spacing": None}, "points in time"),
    "NIfTI": (
        nifti_volumes,
        "",
        3,
        [],
        {"shape": {"min": [12, 10, 8], "max": [12, 14, 8]}, "spacing": {"min": [1, 1, 2], "max": [1, 1, 4]}},
        "the spacing is mixed: 2 to 4 mm along axis 3",
    ),
    "NIfTI, 4D": (nifti_4d, "", 3, [], {"channels": many("1", "2", "3")}, "--axes XYZT"),
    "NIfTI, channels": (nifti_4d, "", 3, ["--axes", "XYZC"], {"channels": many("1", "2", "3")}, "!XYZT"),
    "NIfTI, time": (nifti_4d, "", 3, ["--axes", "XYZT"], {"shape": [12, 10, 8]}, "!XYZT"),
    "NRRD": (itk_volumes(".nrrd"), "", 3, [], {"shape": [12, 10, 8], "spacing": [1, 1, 2.5]}, ""),
    "MHA": (itk_volumes(".mha"), "", 3, [], {"shape": [12, 10, 8], "spacing": [1, 1, 2.5]}, ""),
    "MHD": (itk_volumes(".mhd"), "", 3, [], {"shape": [12, 10, 8], "spacing": [1, 1, 2.5]}, "!.raw"),
    "MHA, 2D channels": (
        itk_colours,
        "",
        2,
        [],
        {"shape": [16, 18], "channels": many("1", "2"), "spacing": [0.25, 0.5]},
        "",
    ),
    "OME-Zarr 0.4": (
        ome_zarr_images("0.4", "czyx", (2, 6, 16, 18)),
        "",
        3,
        [],
        {
            "samples": 2,
            "shape": [6, 16, 18],
            "channels": many("marker 0", "marker 1"),
            "spacing": [2 * UM, UM / 2, UM / 2],
        },
        "",
    ),
    "OME-Zarr 0.5": (
        ome_zarr_images("0.5", "cyx", (7, 16, 18)),
        "",
        2,
        [],
        {
            "samples": 2,
            "shape": [16, 18],
            "channels": many(*(f"marker {i}" for i in range(7))),
            "spacing": [UM / 2] * 2,
        },
        "",
    ),
    "OME-Zarr, one store": (
        ome_zarr_images("0.5", "cyx", (2, 16, 18)),
        "0.zarr",
        2,
        [],
        {"samples": 1},
        "needs at least 2",
    ),
    "OME-Zarr plate": (plate, "plate.zarr", 2, [], {"samples": 2, "shape": [16, 18]}, ""),
    "Zarr array": (zarr_array, "a.zarr", 2, [], {"samples": 5, "shape": [16, 18]}, ""),
    "CT series and localizers": (
        ct_series,
        "",
        3,
        [],
        {"samples": 2, "shape": [5, 12, 12], "spacing": [3, 0.5, 0.5], "channels": [one("1", -50, 150)]},
        "are left out: 1",
    ),
    "multi-frame DICOM": (
        enhanced_ct,
        "",
        3,
        [],
        {"samples": 2, "shape": [5, 12, 12], "spacing": [2, 0.5, 0.5], "channels": [one("1", -5, 75)]},
        "",
    ),
}
"""What is written, what of it is inspected, dimensions, flags, what must be found, a part of a note ("!": no such)."""


@pytest.mark.parametrize("name", CASES)
def test_what_is_understood(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write, inner, dims, flags, expected, note = CASES[name]
    (root := tmp_path / "data").mkdir()
    write(root)
    given = ["--encoder", "resnet10t"] if "--size" in flags else SMALL[dims]
    command = ["inspect", str(root / inner if inner else root), "--json", "--cache", str(tmp_path / "cache")]
    if flags:  # what the cache keeps of a look without the flags must not answer for a look with them
        main([*command, *given])
        capsys.readouterr()
    assert main([*command, *given, *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found.keys() >= KEYS
    expected = {"dimensions": dims, **expected}
    approximate = {"spacing"} if isinstance(expected.get("spacing"), list) else set()
    assert {key: found[key] for key in expected.keys() - approximate} == {
        key: value for key, value in expected.items() if key not in approximate
    }
    for key in approximate:
        assert found[key] == pytest.approx(expected[key])
    notes = " | ".join(found["notes"])
    assert note[1:] not in notes if note.startswith("!") else note in notes


def test_what_is_skipped_has_a_reason(tmp_path: Path) -> None:
    damaged(tmp_path)
    quiet = Terminal(quiet=True)
    found = icone.inspect(tmp_path, encoder="test_vit", size=32, cache="off", console=quiet)
    assert [problem["id"] for problem in found["skipped"]] == ["broken.png", "flat.png"]
    assert "is constant" in found["skipped"][1]["reason"]
    ct = tmp_path / "ct"
    ct_series(ct)
    found = icone.inspect(ct, encoder="resnet10_3d", width=0.125, cache="off", console=quiet)
    assert [problem["id"] for problem in found["skipped"]] == ["p1/scouts", "p2/scouts"]
    assert "localizers" in found["skipped"][0]["reason"]


def test_frames_are_put_in_order(tmp_path: Path) -> None:
    enhanced_ct(tmp_path)
    sample = icone.data.open_source(str(tmp_path), icone.config.DataConfig()).read(0)
    np.testing.assert_array_equal(sample.array[0, :, 0, 0], [-5, 15, 35, 55, 75])


def test_nrrd_is_turned_like_nifti(tmp_path: Path) -> None:
    """SimpleITK writes one oblique volume in both formats; nibabel reads one of them."""
    image = SimpleITK.GetImageFromArray(pixels(1, 5, 6, 7)[0])
    image.SetDirection((0, 1, 0, -1, 0, 0, 0, 0, -1))
    image.SetSpacing((1.0, 2.0, 3.0))
    for name in ("a.nrrd", "b.nii.gz"):
        SimpleITK.WriteImage(image, str(tmp_path / name))
    nrrd, nii = (icone.data.read_sample(tmp_path / name) for name in ("a.nrrd", "b.nii.gz"))
    np.testing.assert_array_equal(nrrd.array, nii.array)
    assert nrrd.spacing == pytest.approx(nii.spacing)


def test_zarr_pixels(tmp_path: Path) -> None:
    ome_zarr_images("0.5", "cyx", (3, 16, 18))(tmp_path)
    sample = icone.data.read_sample(tmp_path / "0.zarr")
    np.testing.assert_array_equal(sample.array, np.asarray(zarr.open_array(tmp_path / "0.zarr" / "s0", mode="r")))


def test_a_missing_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lacking_sequences(tmp_path)
    assert main(["inspect", str(tmp_path), *FROM]) == 2
    said = capsys.readouterr().err
    assert "there is no file sub2/sub2_flair.nii.gz" in said
    assert "--missing-channels zero" in said


def test_missing_channels_are_zero_where_the_encoder_sees_them(tmp_path: Path) -> None:
    """And count for no intensity range: here every value lies between 1000 and 1200."""
    for name in ("a", "b", "c"):
        for channel in ("t1", "t2"):
            nifti(tmp_path / f"{name}_{channel}.nii", 1000 + pixels(1, 8, 8, 8)[0].astype(np.int16))
    (tmp_path / "c_t2.nii").unlink()
    config = icone.config.PretrainConfig(
        source=str(tmp_path), channels_from="{id}_{t1,t2}.nii", missing_channels="zero", size=8, intensity="percentile"
    )
    data = icone.data.load_data(config)
    assert data.preparation.low is not None
    assert min(data.preparation.low) >= 1000
    assert data.train.images is not None
    assert data.train.images[2, 1].abs().max() == 0
    assert data.train.images[:2].amax(dim=(2, 3, 4)).min() > 0.9


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--axes", "CYX"], "not for image files"),
        (["--channels-from", "{id}.png"], "channels in braces"),
        (["--channels-from", "{id}_{a,b}.png"], "no file in"),
        (["--include", "*.jpg"], "leave nothing"),
        (["--missing-channels", "zero"], "goes with --channels-from"),
    ],
)
def test_flags_that_do_not_fit(tmp_path: Path, flags: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    flat_folder(tmp_path)
    assert main(["inspect", str(tmp_path), *flags]) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(("dims", "channels"), [(2, 40), (3, 5)])
def test_many_channels_end_to_end(dims: int, channels: int, tmp_path: Path) -> None:
    """Trained, embedded and reported; the summary comes before the first epoch."""
    images = RNG.integers(0, 4000, (6, channels, *[16] * dims)).astype(np.uint16)
    console = Terminal(quiet=True)
    encoder = {2: {"encoder": "resnet10t"}, 3: {"encoder": "resnet10_3d", "width": 0.125}}[dims]
    axes = "CYX" if dims == 2 else "CZYX"
    run = icone.pretrain(
        images,
        axes=axes,
        size=16,
        epochs=1,
        batch_size=2,
        out=tmp_path / "run",
        console=console,
        **encoder,  # type: ignore[arg-type]
    )
    views = run.record["views"]["applied"]
    assert views["brightness" if dims == 2 else "shift"]
    assert len(icone.embed(run, images, cache="off", console=console)) == 6


def test_the_summary_is_the_first_lines_of_pretrain(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class_folders(tmp_path / "data")
    words = ["--encoder", "test_vit", "--size", "32", "--epochs", "1", "--out", str(tmp_path / "run")]
    assert main(["pretrain", str(tmp_path / "data"), *words]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].split() == ["samples", "5", "images", "(2D)"]
    assert any(line.startswith("encoder   test_vit, 64 features") for line in shown[:12])
    assert main(["inspect", str(tmp_path / "data"), *words[:4]]) == 0
    assert capsys.readouterr().out.splitlines()[:9] == shown[:9]


def test_splits_of_folders_are_not_trained_on(tmp_path: Path) -> None:
    split_folders(tmp_path)
    data = icone.data.load_data(icone.config.PretrainConfig(source=str(tmp_path), size=16))
    assert all(name.startswith("Training/") for name in data.train.ids)
    assert data.test is not None
    assert all(name.startswith("Testing/") for name in data.test.ids)


def test_real_data(real_data: Path) -> None:
    quiet = Terminal(quiet=True)
    found = icone.inspect(
        real_data / "hippocampus", encoder="resnet10_3d", width=0.125, size=32, cache="off", console=quiet
    )
    assert (found["samples"], found["spacing"], found["shape"]["max"]) == (60, [1, 1, 1], [42, 55, 45])
    found = icone.inspect(
        real_data / "bloodcells", labels=real_data / "bloodcells" / "labels.csv", encoder="test_vit", cache="off",
        size=32, console=quiet,
    )  # fmt: skip
    assert sorted(found["classes"].values()) == [3, 20, 33, 88, 207]


def test_the_lines_say_nothing_twice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It was `channels  1: 1 (…)`, `classes  2: 0 2; 1 2` and `grows by 2, grows by 2`."""
    npz_with_splits(tmp_path)
    assert main(["inspect", str(tmp_path / "a.npz"), "--size", "16", "--encoder", "test_vit", "--cache", "off"]) == 0
    said = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert re.fullmatch(r"1 \(\d+ to \d+\)", said["channels"])
    assert said["classes"] == "2: 0 (2); 1 (2)"
    assert said["size"] == "16 × 16 (grows by 2)"
