"""
CT volumes in a folder
======================

A folder of NIfTI files in Hounsfield units becomes an encoder, without labels and with
one volume per step. Labels are used at the end, to see what the encoder has learned.
"""

# %%
# The data
# --------
#
# 120 small volumes stand in for a study: a body in air, with an organ that is healthy,
# holds a large cyst, or is full of calcifications. They are written as NIfTI files with
# a table of labels, as a study would have them.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import nibabel
import numpy as np

import icone

folder = Path(tempfile.mkdtemp())  # in your own scripts: Path("my_study")
findings = ("healthy", "cyst", "calcified")


def ball(centre, radius, size=24):
    """Where a ball with blurred edges is, in a volume of size³."""
    distance = np.linalg.norm(
        np.indices((size,) * 3) - np.reshape(centre, (3, 1, 1, 1)), axis=0
    )
    return 1 / (1 + np.exp(2 * (distance - radius)))


def scan(finding, rng):
    """One volume: air -1000, fat -90, organ 110, cyst 0, calcification 400 HU."""
    middle = rng.uniform(10, 14, 3)
    volume = np.full((24, 24, 24), -1000.0)
    volume += 910 * ball(middle, rng.uniform(9, 11))
    organ = middle + rng.uniform(-2, 2, 3)
    volume += 200 * ball(organ, rng.uniform(5, 6.5))
    if finding == "cyst":
        volume -= 110 * ball(organ + rng.uniform(-1, 1, 3), rng.uniform(3.5, 4.5))
    if finding == "calcified":
        for _ in range(8):
            volume += 290 * ball(
                organ + rng.uniform(-3.5, 3.5, 3), rng.uniform(0.8, 1.2)
            )
    return volume + rng.normal(0, 10, volume.shape)


rng = np.random.default_rng(0)
(folder / "scans").mkdir()
rows = ["id,label"]
for number in range(120):
    finding = findings[number % 3]
    image = nibabel.Nifti1Image(
        scan(finding, rng).astype(np.float32), affine=np.diag([2.0, 2.0, 2.0, 1.0])
    )
    nibabel.save(image, folder / "scans" / f"patient_{number:03d}.nii.gz")
    rows.append(f"patient_{number:03d},{finding}")
(folder / "labels.csv").write_text("\n".join(rows))

# %%
# Choose a window
# ---------------
#
# Air and bone take most of the range of a CT. ``window=(-160, 240)`` clips to soft
# tissue, as a radiologist would.

figure, axes = plt.subplots(2, 3, figsize=(7, 4.6), layout="constrained")
for column, finding in enumerate(findings):
    volume = icone.data.read_sample(
        folder / "scans" / f"patient_{column:03d}.nii.gz"
    ).array[0]
    axes[0, column].imshow(volume[:, :, 12].T, cmap="gray", vmin=-1000, vmax=400)
    axes[1, column].imshow(volume[:, :, 12].T, cmap="gray", vmin=-160, vmax=240)
    axes[0, column].set_title(finding)
axes[0, 0].set_ylabel("whole range")
axes[1, 0].set_ylabel("-160 to 240 HU")
for axis in axes.flat:
    axis.set(xticks=[], yticks=[])
plt.show()

# %%
# Train
# -----
#
# The lines say what was understood of the folder. Check them before a long run:
# ``icone.inspect`` prints them alone. A third of the scans is held out, so that the
# probes below see scans that nobody trained on.

run = icone.pretrain(
    folder / "scans",
    labels=folder / "labels.csv",  # for measurements alone
    window=(-160, 240),
    batch_size=1,
    epochs=12,
    lr=3e-4,
    test_fraction=0.33,
    encoder="resnet10_3d",  # a small network; the default is nf_resnet18_3d
    width=0.125,
    features=64,
    norm="group",
    size=24,  # the default is 64
    out=folder / "run",
)

# %%
# Did it work?
# ------------
#
# ``icone.evaluate`` compares with the same network before training. kNN-5 gives a scan
# the label that most of its five nearest neighbours have. Balanced accuracy is the mean
# over classes of the share that is right.

result = icone.evaluate(run)
print(result["verdict"]["headline"])
for encoder in ("untrained", "trained"):
    linear, rank = result[encoder]["linear_probe"], result[encoder]["rankme"]
    print(
        f"{encoder}: linear probe {linear['balanced_accuracy']:.0%}, RankMe {rank:.1f}"
    )

# %%
# Look at neighbours
# ------------------
#
# The features of a sample are a row of a table. For each scan on the left, the three
# nearest other scans stand beside it.

table = icone.embed(run)
features = table.filter(regex=r"^f\d+$").to_numpy()
features = (features - features.mean(0)) / features.std(0)
distances = np.linalg.norm(features[:, None] - features[None], axis=2)

figure, axes = plt.subplots(3, 4, figsize=(7, 5.4), layout="constrained")
for row, query in enumerate((0, 1, 2)):
    nearest = np.argsort(distances[query])[:4]  # the first is the scan itself
    for column, number in enumerate(nearest):
        volume = icone.data.read_sample(table["path"][number]).array[0]
        axes[row, column].imshow(volume[:, :, 12].T, cmap="gray", vmin=-160, vmax=240)
        axes[row, column].set_title(table["label"][number], fontsize=9)
        axes[row, column].set(xticks=[], yticks=[])
plt.show()
