"""
Multi-channel microscopy in an array
====================================

Five fluorescence channels are not a photograph: they have no hue. A NumPy array with
any number of channels is trained on as it is, and the views change brightness and
contrast of every channel by itself.
"""

# %%
# The data
# --------
#
# Cells under three treatments, in five channels: nucleus, cytoplasm, membrane,
# mitochondria, vesicles. The array has the shape (samples, channels, height, width).

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import icone

channels = ("nucleus", "cytoplasm", "membrane", "mitochondria", "vesicles")
treatments = ("control", "swollen", "vesicular")


def cell(treatment, rng, size=40):
    """One cell (5, size, size): a large nucleus if swollen, or many vesicles."""
    y, x = np.mgrid[-1 : 1 : size * 1j, -1 : 1 : size * 1j]
    shift, angle = rng.uniform(-0.15, 0.15, 2), rng.uniform(0, np.pi)
    stretch = rng.uniform(0.8, 1.2)
    u = (np.cos(angle) * (y - shift[0]) + np.sin(angle) * (x - shift[1])) * stretch
    v = (-np.sin(angle) * (y - shift[0]) + np.cos(angle) * (x - shift[1])) / stretch
    radius = np.hypot(u, v)
    nucleus = radius < (0.45 if treatment == "swollen" else 0.3) * rng.uniform(0.9, 1.1)
    body = radius < rng.uniform(0.65, 0.8)
    image = np.zeros((5, size, size))
    image[0], image[1], image[2] = nucleus, body & ~nucleus, body & (radius > 0.6)
    for channel, count in ((3, 25), (4, 30 if treatment == "vesicular" else 4)):
        for _ in range(count):
            spot_radius, spot_angle = rng.uniform(0.35, 0.65), rng.uniform(0, 2 * np.pi)
            centre = spot_radius * np.cos(spot_angle), spot_radius * np.sin(spot_angle)
            image[channel] += np.exp(
                -((u - centre[0]) ** 2 + (v - centre[1]) ** 2) / 0.004
            )
    image *= rng.uniform(0.5, 1.5, (5, 1, 1))  # staining varies from cell to cell
    return image + rng.normal(0, 0.08, image.shape)


rng = np.random.default_rng(0)
labels = np.array([treatments[number % 3] for number in range(180)])
images = np.stack([cell(treatment, rng) for treatment in labels]).astype(np.float32)

figure, axes = plt.subplots(3, 5, figsize=(8, 4.8), layout="constrained")
for row, treatment in enumerate(treatments):
    for column, channel in enumerate(channels):
        axes[row, column].imshow(images[row, column], cmap="magma", vmin=0, vmax=1.5)
        axes[row, column].set(xticks=[], yticks=[])
        axes[0, column].set_title(channel, fontsize=9)
    axes[row, 0].set_ylabel(treatment)
plt.show()

# %%
# Train without labels
# --------------------
#
# The data are an object in memory, so there is no folder to name. ``axes`` says what
# the axes of one sample are: 5 × 40 × 40 could be a volume too.

folder = Path(tempfile.mkdtemp())
run = icone.pretrain(
    images,
    axes="CYX",
    batch_size=8,
    epochs=15,
    lr=1e-3,
    encoder="test_resnet",  # a tiny network of timm; leave it out for the default
    size=40,
    out=folder / "run",
)

# %%
# Use the features
# ----------------
#
# ``icone.embed`` gives a table with a row per sample; its columns f0, f1, … are
# features for any tool. Here a linear classifier reads the treatment from them, for the
# trained encoder and for the same network before training.

features = icone.embed(run, images).filter(regex=r"^f\d+$").to_numpy()
result = icone.evaluate(run, data=images, labels=labels)
for encoder in ("untrained", "trained"):
    accuracy = result[encoder]["knn_5"]["balanced_accuracy"]
    print(f"{encoder}: kNN-5 {accuracy:.0%} balanced accuracy")

classifier = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000))
scores = cross_val_score(classifier, features, labels)
print(f"scikit-learn, five folds: {scores.mean():.0%}")

# %%
# A map of the cells
# ------------------
#
# Two principal components of the features. The report page (``icone.report``) has a map
# on which every point shows its picture.

xy = PCA(2).fit_transform(StandardScaler().fit_transform(features))
figure, axis = plt.subplots(figsize=(6, 4), layout="constrained")
for treatment in treatments:
    axis.scatter(*xy[labels == treatment].T, s=14, label=treatment)
axis.set(xlabel="first component", ylabel="second component")
axis.legend(frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()
