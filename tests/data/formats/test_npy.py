"""NumPy files against the arrays that were written."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from icone.config import DataConfig
from icone.data import Sample, open_source
from icone.data.formats.npy import channel_axis
from icone.errors import InputError

ReadOne = Callable[[Path], Sample]

RNG = np.random.default_rng(0)

VOLUME = RNG.normal(size=(7, 8, 9)).astype(np.float32)


def test_numpy_files(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", VOLUME)
    np.savez(tmp_path / "b.npz", image=VOLUME + 1, mask=VOLUME > 0)
    source = open_source(str(tmp_path), DataConfig())
    np.testing.assert_array_equal(source.read(0).array, VOLUME[None])
    np.testing.assert_array_equal(source.read(1).array, VOLUME[None] + 1)


def test_boolean_arrays_become_black_and_white(tmp_path: Path, read_one: ReadOne) -> None:
    np.save(tmp_path / "a.npy", VOLUME > 0)
    array = read_one(tmp_path).array
    assert array.dtype == np.uint8
    np.testing.assert_array_equal(array[0] == 255, VOLUME > 0)
    np.testing.assert_array_equal(array[0] == 0, VOLUME <= 0)


@pytest.mark.parametrize(
    ("shape", "axis"),
    [
        ((20, 30), None),
        ((3, 3), None),
        ((20, 30, 3), -1),
        ((20, 30, 4), -1),
        ((3, 20, 30), 0),
        ((20, 30, 5), None),
        ((20, 20, 20, 2), -1),
        ((6, 20, 20, 20), 0),
        ((20, 20, 20, 9), -1),
    ],
)
def test_channel_rule(shape: tuple[int, ...], axis: int | None) -> None:
    assert channel_axis(shape) == axis


def test_object_array_is_never_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, ...]:
            return (Path.write_text, (tmp_path / "sprung", "!"))

    np.save(tmp_path / "a.npy", np.array([[Trap()] * 2] * 2, dtype=object), allow_pickle=True)
    np.save(tmp_path / "b.npy", VOLUME)
    source = open_source(str(tmp_path), DataConfig())
    with pytest.raises(InputError, match=r"a\.npy: .*pickles are never opened"):
        source.read(0)
    assert not (tmp_path / "sprung").exists()


def test_complex_values_are_refused(tmp_path: Path, read_one: ReadOne) -> None:
    np.save(tmp_path / "a.npy", VOLUME.astype(np.complex64))
    with pytest.raises(InputError, match="complex64"):
        read_one(tmp_path)
