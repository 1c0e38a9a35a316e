"""Data that was once misread in silence, each with what `icone.inspect` must say about it."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import nibabel
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
import tifffile
import zarr
from PIL import Image

import icone
from icone.errors import InputError
from icone.terminal import Terminal

Array = npt.NDArray[Any]
RNG = np.random.default_rng(0)
SMALL: dict[int, dict[str, Any]] = {
    2: {"encoder": "test_vit", "size": 32},
    3: {"encoder": "resnet10_3d", "width": 0.125, "size": 16},
}


def numbers(*shape: int, high: int = 200, kind: Any = np.uint8) -> Array:
    return RNG.integers(0, high + 1, shape).astype(kind)


def png(path: Path, *shape: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(numbers(*shape)).save(path)


def nifti(path: Path, *shape: int, spacing: tuple[float, ...] = (1, 1, 1)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    make: Any = nibabel.Nifti1Image
    nibabel.save(make(numbers(*shape, kind=np.int16), np.diag([*spacing, 1.0])), path)


def channels(path: Path, *names: str) -> None:
    about = {"axes": "CYX", "Channel": {"Name": list(names)}}
    tifffile.imwrite(path, numbers(len(names), 16, 16, kind=np.uint16), photometric="minisblack", metadata=about)


def decathlon(root: Path) -> None:
    for folder, count in (("imagesTr", 3), ("imagesTs", 2), ("labelsTr", 3)):
        for i in range(count):
            nifti(root / folder / f"la_{i:03d}.nii.gz", 8, 8, 8)


def patients(root: Path) -> None:
    for name in ("sub1", "sub2"):
        for kind in ("t1", "flair", "seg"):
            nifti(root / name / f"{name}_{kind}.nii.gz", 8, 8, 8)


def masks_in_a_folder(root: Path) -> None:
    for i in range(3):
        png(root / "scans" / f"{i}.png", 16, 16)
        png(root / "masks" / f"{i}.png", 16, 16)


def unknown_split(root: Path) -> None:
    for folder in ("TRAIN", "VALIDATION", "HOLDOUT"):
        for name in ("a", "b"):
            png(root / folder / name / "0.png", 16, 16)


def two_depths(root: Path) -> None:
    for i, (high, kind) in enumerate([(255, np.uint8), (60000, np.uint16)] * 2):
        tifffile.imwrite(root / f"{i}.tif", numbers(16, 16, high=high, kind=kind))


def differing_maxima(root: Path) -> None:
    for i, (high, kind) in enumerate([(100, np.uint8), (200, np.uint8), (3000, np.uint16), (9000, np.uint16)]):
        array = numbers(16, 16, high=high, kind=kind)
        array[0, 0] = high
        tifffile.imwrite(root / f"{i}.tif", array)


def thick_slices(root: Path) -> None:
    for i in range(2):
        nifti(root / f"{i}.nii", 14, 12, 5, spacing=(0.5, 0.5, 3))


def mixed_spacing(root: Path) -> None:
    for i, step in enumerate((1, 3)):
        nifti(root / f"{i}.nii", 10, 10, 10, spacing=(1, 1, step))


def white_is_zero(root: Path) -> None:
    for i, kind in enumerate(("miniswhite", "minisblack")):
        tifffile.imwrite(root / f"{i}.tif", numbers(16, 16), photometric=kind)


def raw_and_label(root: Path) -> None:
    for i in range(2):
        with h5py.File(root / f"{i}.h5", "w") as file:
            file["raw"], file["label"] = numbers(60, 8, 9), numbers(60, 8, 9, high=1)


def plates(root: Path) -> None:
    for drug in ("none", "much"):
        group = zarr.open_group(root / drug / "plate.zarr", mode="w", zarr_format=2)
        for place in ("A/1/0", "A/1/1", "B/1/0"):
            field = group.create_group(place)
            field.create_array("0", data=numbers(16, 16, kind=np.uint16))
            axes = [{"name": name, "type": "space"} for name in "yx"]
            field.attrs["multiscales"] = [{"version": "0.4", "axes": axes, "datasets": [{"path": "0"}]}]


def flat_nifti(root: Path) -> None:
    for i in range(2):
        nifti(root / f"{i}.nii", 16, 16)


def time_and_depth(root: Path) -> None:
    for i in range(2):
        array = numbers(3, 2, 4, 16, 16, kind=np.uint16)
        tifffile.imwrite(root / f"{i}.ome.tif", array, metadata={"axes": "TCZYX"}, photometric="minisblack")


def slices_of_patients(root: Path) -> None:
    for name in ("ill", "well"):
        for i in range(4):
            png(root / name / f"{name}{i // 2:02d}_slice{i % 2}.png", 16, 16)


def names_differ(root: Path) -> None:
    channels(root / "0.ome.tif", "DAPI", "GFP")
    channels(root / "1.ome.tif", "DAPI", "eGFP")


def parted_group(root: Path) -> None:
    for i in range(4):
        png(root / f"{i}.png", 16, 16)
    rows = ["a,p1,train", "b,p1,train", "a,p2,test", "b,p1,test"]
    text = "".join(f"{i}.png,{row}\n" for i, row in enumerate(rows))
    (root / "table.csv").write_text("path,label,group,split\n" + text)


Case = tuple[Callable[[Path], None], int, dict[str, Any], dict[str, Any], str]
CASES: dict[str, Case] = {
    "Decathlon": (
        decathlon,
        3,
        {},
        {"samples": 5, "classes": {}, "splits": {"train": 3, "val": 0, "test": 2}},
        "3 segmentations in labelsTr",
    ),
    "patients": (patients, 3, {}, {"samples": 6, "classes": {}}, 'channels_from="{id}_{flair,t1}.nii.gz"'),
    "segmentations": (patients, 3, {}, {}, "2 of 6 samples are segmentations by their names, such as sub1/sub1_seg"),
    "segmentations in a folder": (masks_in_a_folder, 2, {}, {"samples": 6}, 'exclude=["masks"] leaves such files out'),
    "an unknown split": (unknown_split, 2, {}, {"samples": 6}, "TRAIN and VALIDATION are named like splits"),
    "8 and 16 bit": (two_depths, 2, {}, {}, "2 of 4 are uint8 with values up to"),
    "8 bit, the largest value": (differing_maxima, 2, {}, {}, "2 of 4 are uint8 with values up to 200, such as"),
    "16 bit, the largest value": (differing_maxima, 2, {}, {}, "others uint16 with values up to 9000."),
    "8 and 16 bit, each by itself": (two_depths, 2, {"intensity": "sample"}, {}, "!mix types"),
    "thick slices": (thick_slices, 3, {}, {"scale": [0.5, 0.5, 3.2]}, "!enlarged"),
    "mixed spacing": (
        mixed_spacing,
        3,
        {},
        {"scales": {"min": [0.5, 0.5, 1.6], "max": [1.6, 1.6, 1.6]}},
        "the spacing is mixed",
    ),
    "cut by a spacing": (mixed_spacing, 3, {"spacing": 1.0}, {}, "1 of 2 samples is larger than 16 voxels of 1 mm"),
    "padded by a spacing": (mixed_spacing, 3, {"spacing": 3.0}, {}, "!enlarged"),
    "white is zero": (white_is_zero, 2, {}, {}, "0.tif: 0 is white here"),
    "HDF5 with raw and label": (raw_and_label, 3, {}, {"shape": [60, 8, 9], "samples": 2}, ""),
    "plates": (plates, 2, {}, {"samples": 6, "classes": {"much": 3, "none": 3}, "groups": 4}, "one well of a plate"),
    "NIfTI images": (flat_nifti, 2, {"axes": "XY"}, {"shape": [16, 16]}, ""),
    "time and depth": (time_and_depth, 3, {"axes": "TCZYX"}, {"shape": [4, 16, 16]}, ""),
    "slices of patients": (slices_of_patients, 2, {}, {"samples": 8}, "suggest 4 groups"),
    "names of channels": (names_differ, 2, {}, {}, "call their channels differently, DAPI, GFP in"),
    "a group on both sides": (parted_group, 2, {}, {"groups": 2}, "1 of 2 test samples is of a group that is trained"),
}
"""What is written, dimensions, settings, what must be found, a part of a note ("!": no such)."""


@pytest.mark.parametrize("name", CASES)
def test_what_is_said(name: str, tmp_path: Path) -> None:
    write, dims, settings, expected, note = CASES[name]
    write(tmp_path)
    data = tmp_path / "table.csv" if (tmp_path / "table.csv").exists() else tmp_path
    found = icone.inspect(data, cache="off", console=Terminal(quiet=True), **SMALL[dims], **settings)
    assert found["dimensions"] == dims
    assert {key: found[key] for key in expected} == expected
    notes = " | ".join(found["notes"])
    assert note[1:] not in notes if note.startswith("!") else note in notes


def refusal(data: Any, **settings: Any) -> str:
    with pytest.raises(InputError) as caught:
        icone.inspect(data, cache="off", console=Terminal(quiet=True), **settings)
    return str(caught.value)


def test_what_is_refused_has_a_way_out(tmp_path: Path) -> None:
    swapped, lacking, flat, arrays = (tmp_path / name for name in ("swapped", "lacking", "flat", "arrays"))
    for folder in (swapped, lacking, flat, arrays):
        folder.mkdir()
    channels(swapped / "0.ome.tif", "DAPI", "GFP")
    channels(swapped / "1.ome.tif", "GFP", "DAPI")
    said = refusal(swapped)
    assert "DAPI, GFP in" in said
    assert "1.ome.tif; write them in one order, or leave one kind out with exclude=" in said
    channels(lacking / "0.ome.tif", "A", "B", "C", "D")
    channels(lacking / "1.ome.tif", "A", "B", "C", "D", "E")
    assert "0.ome.tif has 4 and" in (said := refusal(lacking))
    assert 'missing_channels="zero"' in said
    flat_nifti(flat)
    assert 'if it is an image, give axes="XY"' in refusal(flat)
    time_and_depth(arrays)
    assert 'axes="TCZYX" takes the mean over time' in refusal(arrays)
    np.savez(tmp_path / "two.npz", a=numbers(3, 8, 8), b=numbers(3, 8, 8))
    assert "FILE:/a" in refusal(tmp_path / "two.npz")
    assert refusal(flat, labels=tmp_path / "none.csv").endswith("none.csv; check the path")


def test_a_run_is_no_data(tmp_path: Path) -> None:
    from icone.cli import main

    for name in ("config.json", "instances.json"):
        (tmp_path / name).write_text("{}")
    assert main(["inspect", str(tmp_path)]) == 2


def test_values_in_another_unit_are_said(tmp_path: Path) -> None:
    """An encoder that was trained on 0 to 255 sees nothing of 0 to 1, and white of 16 bits."""
    images = numbers(6, 16, 16, high=255)
    quiet = Terminal(quiet=True)
    run = icone.pretrain(images, epochs=1, probe_every=0, out=tmp_path / "run", console=quiet, **SMALL[2])
    for scale, kind, said in ((1, np.uint8, ""), (1, np.float32, ""), (1 / 255, np.float32, "almost constant"),
                              (257, np.uint16, "become 1")):  # fmt: skip
        heard = io.StringIO()
        other = (images * scale if scale != 257 else images.astype(np.uint16) * np.uint16(257)).astype(kind)
        icone.embed(run, other, console=Terminal(file=heard))
        assert ("same unit" in heard.getvalue()) == bool(said)
        assert said in heard.getvalue()


def test_groups_and_labels_of_a_table_are_kept(tmp_path: Path) -> None:
    """A DataFrame with the same mistake as the CSV above is told the same."""
    parted_group(tmp_path)
    frame = pd.read_csv(tmp_path / "table.csv")
    frame["path"] = [str(tmp_path / name) for name in frame["path"]]
    found = icone.inspect(frame, cache="off", console=Terminal(quiet=True), **SMALL[2])
    assert any("such as p1: probes leave them out" in note for note in found["notes"])
