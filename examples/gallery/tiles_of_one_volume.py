"""
Tiles of one big volume
=======================

A light-sheet volume is one file, not many samples. ``tiles`` cuts it into samples
without reading it whole, and the features come back as a map that lies over the volume.
"""

# %%
# The data
# --------
#
# One volume of 48 × 160 × 192 voxels: dark background on the left, then three layers of
# tissue: large nuclei, small nuclei and fibres. It is a Zarr store in chunks; OME-Zarr,
# HDF5, TIFF and ``.npy`` work in the same way.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import zarr
from scipy.ndimage import gaussian_filter

import icone

rng = np.random.default_rng(0)
shape = (48, 160, 192)
z, y, x = np.indices(shape)
depth = x + 12 * np.sin(y / 25)  # layers are bent
layer = np.digitize(depth, [24, 80, 136])

large = 250 * gaussian_filter((rng.random(shape) < 0.002).astype(float), 2.5)
small = 50 * gaussian_filter((rng.random(shape) < 0.02).astype(float), 1.0)
fibres = 8 * np.abs(gaussian_filter(rng.normal(size=shape), (0.8, 6, 0.8)))
volume = np.choose(
    layer, [np.zeros(shape), large + 1, small + 1, fibres + 1]
) + rng.normal(0, 0.1, shape)

folder = Path(tempfile.mkdtemp())
store = zarr.create_array(
    str(folder / "brain.zarr"), shape=shape, chunks=(16, 32, 32), dtype="float32"
)
store[:] = volume

# %%
# Train on its tiles
# ------------------
#
# Every tile of 16³ voxels that is not background is a sample. A tile has no label here;
# the map at the end is the test.

run = icone.pretrain(
    folder / "brain.zarr",
    tiles=16,
    stride=16,
    batch_size=8,
    epochs=10,
    lr=1e-3,
    encoder="resnet10_3d",
    width=0.125,
    features=64,
    norm="group",
    out=folder / "run",
)

# %%
# A map of features
# -----------------
#
# A smaller stride gives a finer map. ``components=3`` writes the first three principal
# components of the features as channels of an OME-Zarr image, which napari lays over
# the volume. Here they are red, green and blue.

icone.embed(run, stride=8, components=3, out=folder / "map.zarr")
components = np.asarray(
    zarr.open_array(str(folder / "map.zarr" / "0"))
)  # (3, tiles along z, y, x)
middle = components[:, components.shape[1] // 2].transpose(1, 2, 0)
known = (middle != 0).any(axis=2)  # background tiles are 0
low, high = np.percentile(middle[known], (2, 98), axis=0)
colours = np.where(known[..., None], ((middle - low) / (high - low)).clip(0, 1), 1)

figure, axes = plt.subplots(1, 3, figsize=(9, 2.8), layout="constrained")
axes[0].imshow(volume[24], cmap="gray", vmin=0, vmax=5)
axes[0].set_title("the middle slice")
axes[1].imshow(layer[24], cmap="Pastel1_r")
axes[1].set_title("how it was made")
axes[2].imshow(colours)
axes[2].set_title("features of its tiles")
for axis in axes:
    axis.set_axis_off()
plt.show()
