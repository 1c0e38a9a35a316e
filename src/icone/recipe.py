"""The default recipe: everything in which training differs from the paper, and why.

`--recipe paper` undoes all of it. The measurements behind each line are in docs/decisions/recipe.md.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:  # the configuration reads constants from here, and `icone --help` should not wait for PyTorch
    from torch import nn

    from icone.nn import IConELoss

RECIPE_VERSION = 2
"""A number that is raised whenever the same configuration starts to train or measure something else.

It is part of the key of every run of a sweep, and of the saved state of a run, which only the same version resumes.
Version 1 is that of icone 0.1.0 as first landed. Version 2 scales every channel by its own intensity range, measures
untrained encoders with calibrated BatchNorm statistics, keeps moving-average BatchNorm stable in its variance, trains
no batch below the smallest that a method is defined for, moves EMA copies, queues and centres once per step, and makes
views of three channels without colours where a file declares them as none.
"""

Recipe = Literal["icone", "paper"]

BASE_LR = 1e-4
"""The paper's learning rate, here meant for 16 samples a step: AdamW's settings follow the batch size."""
WEIGHT_DECAY = 0.05
"""The paper's weight decay."""
VOLUME_ENCODER = "nf_resnet18_3d"
"""Network of volumes where `--encoder` is auto: the paper's 3D ResNet-18 without its BatchNorm, for which one volume at
a time is too few. Without it batch size 1 is level with 16, and micro-batches are exact
(docs/decisions/volume-network.md)."""
IMAGE_BATCH = 16
"""Images of a step where `--batch-size` is not given. On three sets of images views are recognised more often with 16
than with one, in every seed; probe and kNN-5 differ within the noise, and an epoch takes a ninth of the time
(docs/decisions/default-batch-size.md). Volumes are trained one by one: often sixteen do not fit into memory, and with
the default network one at a time is as good."""
HEAD_SAMPLES = 32
"""Samples over which the BatchNorm of the head averages its statistics. With 16, features lose a third of their RankMe;
with 64, the averages lag behind the weights at batch size 1."""
HEAD_HIDDEN, HEAD_OUT = 2048, 128
"""Widths of a projection head before the anchors, as in SimCLR; the encoder is read before it, as there."""
VIEW_WEIGHT = 0.1
"""Weight of view consistency: views that are pulled to one anchor agree already, and so do those of a constant."""
ANCHOR_STD = 0.002
"""Initial scale of anchors that start at the untrained embeddings: ten times shorter than printed, which makes up for
the constant that Adam divides their gradient by."""
ANCHOR_EPSILON_FACTOR = 10.0
"""Adam divides the gradient of an anchor by at least ten times its usual size, which is a constant. The diversity loss,
which reaches every anchor in every step, then moves it by as much at any batch size."""
CLASS_SHARE = 0.75
"""IConE-Instance: share of the pull that goes to all anchors of the class. The paper does not print one. On generated
volumes at batch size 1 it gave the best probe of five shares, and at 16 one that is level with 1."""
SETTLING_BATCHES = 64
"""Batches of 16 samples from which BatchNorm takes its first statistics, before the anchors start at the embeddings."""
CONTINUED_LR = 0.5
"""With --weights: by what the learning rate of the encoder is multiplied. Head and anchors are new and keep the whole
rate; the encoder knows something already, which whole steps at the start would undo. Measured with the two settings
below: docs/decisions/continued-pretraining.md."""
LAYER_DECAY = 0.75
"""With --weights: by what the learning rate falls from one layer of the encoder to the one before it, because early
layers are the most general. The value with which BEiT (Bao et al. 2021, arXiv:2106.08254) and MAE (He et al. 2021,
arXiv:2111.06377) fine-tune."""
WARMUP = 0.05
"""Share of all steps over which the learning rate rises to its start. The first gradients all point the same way, and
Adam makes whole steps of them, which move all features together: a small ViT lost two thirds of its RankMe within an
epoch, and at batch size 1 hardly learned (docs/decisions/warm-up.md). With --weights it also keeps
a new head from pulling the encoder far before it is of use (Gupta et al. 2023, arXiv:2308.04014)."""

FINETUNE_EPOCHS, FINETUNE_STEPS = 50, 1000
"""Most epochs of fine-tuning, and the steps that they have at least, where the user says nothing. With 30 labels an
epoch has two steps, and fifty epochs only a hundred. An argument; not yet measured here."""
FINETUNE_LR = 1e-3
"""Learning rate of the new linear layer in fine-tuning, for 16 samples a step."""
FINETUNE_ENCODER = 0.3
"""In fine-tuning: by what the learning rate of the encoder is multiplied, in all layers. With a tenth, and less towards
the input, a ResNet of a short pretraining hardly moved and stayed below its own linear probe; a tenth in all layers and
the whole rate were level or worse (docs/fine-tuning.md). A network with random weights has the same rate."""
FINETUNE_LAYER_DECAY = 1.0
"""In fine-tuning: by what the learning rate falls from one layer of the encoder to the one before it: not at all."""

_ANCHORS_AS_PRINTED = {"normalisation": "pair", "start_at": "random", "view_weight": 1.0}
PAPER_OPTIONS: dict[str, dict[str, object]] = {
    "icone": {**_ANCHORS_AS_PRINTED, "out": 0, "init_std": 0.02, "diversity": "orthogonality"},
    "icone_class": {"normalisation": "pair", "view_weight": 1.0},
    "icone_instance": {**_ANCHORS_AS_PRINTED, "class_share": 1.0},
}
"""Options of the methods that `--recipe paper` sets. The defaults instead divide the diversity loss by the number of
anchors and not of pairs, so that it does not vanish with N, and start the anchors where the untrained network puts
their samples, because random anchors are targets without structure, to which the encoder answers with a constant."""


DIVERSITY_FLOPS = {"cpu": 4e9, "cuda": 2e12}
"""Floating-point operations that the diversity loss of a step may take, by kind of device, even if the encoder takes
fewer: about 40 ms on two cores and 4 ms on an H200. The exact term grows with the square of the number of samples.
Beyond this, or what the encoder takes if that is more, it is estimated without bias from some rows against all."""

SAMPLED_SHARE = {"cpu": 1.0, "cuda": 1 / 7}
"""Share of these operations that sampled rows may take, by kind of device. On a GPU the kernel of all pairs does about
seven times as many operations in a second, because it never writes its products to memory (H200, 100,000 anchors:
9 ms for all pairs, 5 ms for 4096 rows; `python benchmarks/tables.py`)."""


class AdamWSettings(NamedTuple):
    """The settings of AdamW that depend on the number of samples in a step."""

    lr: float
    betas: tuple[float, float]
    eps: float


def adamw_settings(lr: float, samples: int, recipe: Recipe = "icone") -> AdamWSettings:
    """AdamW's settings with which an epoch does the same at any number of samples a step, by the square-root rule.

    The gradient of B samples is mostly noise, with a variance of 1/B. Adam divides by its size, so that a step has the
    length lr whatever B is, and the signal in it grows with √B. An epoch has N/B steps. Over an epoch signal and noise
    are those of another batch size if lr ∝ √B. The moments must forget after as many samples, not steps: 1 − β ∝ B
    (Malladi et al. 2022, arXiv:2205.10287). The recipe of the paper keeps all of them constant.

    >>> adamw_settings(1e-4, 16) == adamw_settings(1e-4, 1, recipe="paper")
    True
    >>> small = adamw_settings(1e-4, 1)
    >>> f"{small.lr:g} {small.betas[0]:g}"
    '2.5e-05 0.99375'
    """
    from icone.nn.batchnorm import REFERENCE_SAMPLES

    scale = 1.0 if recipe == "paper" else samples / REFERENCE_SAMPLES
    betas = (1 - min(0.1 * scale, 1.0), 1 - min(0.001 * scale, 1.0))
    return AdamWSettings(lr * math.sqrt(scale), betas, 1e-8 / math.sqrt(scale))


class ContinuedSettings(NamedTuple):
    """How the learning rate of an encoder differs from that of the rest, and its warm-up."""

    lr_scale: float
    layer_decay: float
    warmup: float


FROM_NOTHING = ContinuedSettings(1.0, 1.0, 0.0)
"""Without weights the encoder learns like the rest."""


def continued_settings(
    has_weights: bool, layer_decay: float | None = None, warmup: float | None = None, recipe: Recipe = "icone"
) -> ContinuedSettings:
    """The settings of a run whose encoder starts from weights; without them, and in the paper's recipe, none apply.

    >>> continued_settings(False)
    ContinuedSettings(lr_scale=1.0, layer_decay=1.0, warmup=0.0)
    """
    usual = ContinuedSettings(CONTINUED_LR, LAYER_DECAY, WARMUP)
    if not has_weights or recipe == "paper":
        usual = FROM_NOTHING
    decay = usual.layer_decay if layer_decay is None else layer_decay
    return ContinuedSettings(usual.lr_scale, decay, usual.warmup if warmup is None else warmup)


def rate_share(progress: float) -> float:
    """Share of the learning rate at this point of a training, from 0 to 1: a warm-up, then a cosine to zero.

    For a training loop of your own:
    `torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate_share(step / steps))`.

    >>> [round(rate_share(progress), 3) for progress in (0.0, 0.025, 0.05, 0.5, 1.0)]
    [0.0, 0.499, 0.994, 0.5, 0.0]
    """
    return min(progress / WARMUP, 1.0) * 0.5 * (1 + math.cos(math.pi * progress))


def initial_scale(lr: float, recipe: Recipe = "icone") -> float:
    """By what initial anchors are multiplied: a step of Adam has the length lr, and should turn them as far at any."""
    return 1.0 if recipe == "paper" else lr / BASE_LR


def anchor_epsilon(length: float, values: int, samples: int, weight: float = 1.0) -> float:
    """The ε of Adam for anchors of this length, in a table of so many values (N·d), at so many samples a step.

    An anchor of length l that is far from its views gets a gradient of weight/(l·B) in B of N steps. The root of its
    mean square over an epoch is weight/(l·√(B·N·d)) per value, and Adam divides by ten times that.
    """
    return ANCHOR_EPSILON_FACTOR * weight / (max(length, 1e-12) * math.sqrt(samples * values))


def anchor_epsilon_floor(loss: IConELoss, samples: int) -> dict[nn.Parameter, float]:
    """The ε that Adam should add at least to what it divides the gradient of the anchors by, at this batch size."""
    table = loss.anchors.whole().detach()
    length = table.norm(dim=1).mean().item()
    epsilon = anchor_epsilon(length, table.numel(), samples, loss.weights["anchor_alignment"])
    return {loss.anchors.weight: epsilon}


def parameter_groups(
    *modules: nn.Module,
    batch_size: int,
    lr: float = BASE_LR,
    weight_decay: float = WEIGHT_DECAY,
    undecayed: Collection[nn.Parameter] = (),
    recipe: Recipe = "icone",
    lr_scales: Mapping[nn.Parameter, float] | None = None,
) -> list[dict[str, Any]]:
    """Parameter groups that give any training loop the AdamW of this recipe, anchors included.

    `batch_size` counts the samples of an optimizer step. The anchors of an `IConELoss` get an ε of their own.
    `lr_scales` multiplies the learning rate of single parameters; groups with the whole rate come first.

    >>> import torch, icone
    >>> from torch import nn
    >>> encoder, loss = nn.Linear(8, 4), icone.IConELoss(num_instances=100, dim=4)
    >>> optimizer = torch.optim.AdamW(parameter_groups(encoder, loss, batch_size=1))
    >>> [len(group["params"]) for group in optimizer.param_groups], optimizer.param_groups[0]["lr"]
    ([2, 1], 2.5e-05)
    """
    from icone.nn import IConELoss

    settings = adamw_settings(lr, batch_size, recipe)
    floors: dict[nn.Parameter, float] = {}
    for module in modules if recipe != "paper" else ():
        own: Any = getattr(module, "adam_epsilon_floor", None)  # a method says which of its parameters need one
        if isinstance(module, IConELoss):
            floors |= anchor_epsilon_floor(module, batch_size)
        elif own is not None:
            floors |= own(batch_size)
    spared, scales = set(undecayed), lr_scales or {}
    groups: dict[tuple[float, float, float], list[nn.Parameter]] = {}
    for p in (p for module in modules for p in module.parameters() if p.requires_grad):
        decay, eps = 0.0 if p in spared else weight_decay, max(settings.eps, floors.get(p, 0.0))
        groups.setdefault((scales.get(p, 1.0), decay, eps), []).append(p)
    return [
        {"params": params, "lr": settings.lr * scale, "betas": settings.betas, "eps": eps, "weight_decay": decay}
        for (scale, decay, eps), params in sorted(groups.items(), key=lambda group: -group[0][0])
    ]
