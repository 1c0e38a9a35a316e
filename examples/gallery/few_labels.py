"""
Few labels: what pretraining saves
==================================

Labels are expensive, images are not. This page measures how many labels an encoder that
was trained without any saves, and fine-tunes it with a few.
"""

# %%
# The data
# --------
#
# Generated images of stained white blood cells in five classes.
# ``synthetic:cells@32x300`` is 300 of them at 32 pixels; a folder of your own goes in
# the same place. A third is held out: neither the encoder nor a classifier sees it
# before the end.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import icone
from icone.config import PretrainConfig

folder = Path(tempfile.mkdtemp())
source = icone.data.open_source(
    "synthetic:cells@32x300", PretrainConfig(source="synthetic:cells@32x300")
)
figure, axes = plt.subplots(1, 5, figsize=(8, 1.9), layout="constrained")
for number, axis in enumerate(axes):
    axis.imshow(source.read(number).array.transpose(1, 2, 0))
    axis.set_title(source.labels[number], fontsize=9)
    axis.set_axis_off()
plt.show()

# %%
# Pretrain, without labels
# ------------------------

run = icone.pretrain(
    "synthetic:cells@32x300",
    batch_size=8,
    epochs=20,
    lr=1e-3,
    test_fraction=0.33,
    encoder="test_resnet",
    size=32,
    out=folder / "run",
)

# %%
# How many labels does it save?
# -----------------------------
#
# Linear probes are trained on shares of the labels, with several draws of each share,
# and tested on all held-out images. The line of the untrained encoder is what the same
# network gives without pretraining.

result = icone.evaluate(run, label_fractions=(0.05, 0.1, 0.25, 0.5))
efficiency = result["label_efficiency"]
figure, axis = plt.subplots(figsize=(5, 3.4), layout="constrained")
for encoder in ("untrained", "trained"):
    points = pd.DataFrame(efficiency["points"][encoder]["linear_probe"])
    axis.plot(100 * points["fraction"], 100 * points["mean"], "o-", label=encoder)
axis.set(xlabel="share of the labels (%)", ylabel="balanced accuracy (%)", xscale="log")
axis.legend(frameon=False)
plt.show()
print(efficiency["saved"]["text"])

# %%
# Fine-tune with half of the labels
# ---------------------------------
#
# ``icone.finetune`` trains the whole network. It measures three things with the same
# labels, on the same held-out images: the same network from random weights, the linear
# probe, and the fine-tuned encoder.

classifier = icone.finetune(run, fraction=0.5, epochs=20, out=folder / "classifier")

# %%

for name in ("from_scratch", "probe", "fine_tuned"):
    accuracy = classifier.result[name]["balanced_accuracy"]
    print(f"{name}: {accuracy:.0%} balanced accuracy")
