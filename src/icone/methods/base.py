"""What every method is: a module that turns views into a loss, and owns all state that this takes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from icone.encoders import Region
from icone.errors import InputError, UndefinedError
from icone.nn import in_micro_batches
from icone.nn.ranks import Ranks
from icone.nn.shared_batchnorm import share_batch_norm

Reads = Literal["features", "feature map", "tokens"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a method may know of the run it serves."""

    num_instances: int
    batch_size: int = 1
    num_views: int = 2
    epochs: int = 100
    diversity_flops: float = math.inf
    """Floating-point operations that a step can afford for the diversity loss of the anchors."""
    sampled_share: float = 1.0
    """Share of them that sampled rows may take (`icone.recipe.SAMPLED_SHARE`)."""
    initial_scale: float = 1.0
    """By what the initial scales of anchors are multiplied (`icone.recipe.initial_scale`)."""
    sample_shape: tuple[int, ...] = ()
    """(C, *size) of a sample, for methods that reconstruct samples."""
    labels: Tensor | None = None
    """Class of every instance, shape (N,); only supervised methods need it."""
    num_classes: int = 0


@dataclass(frozen=True, kw_only=True)
class Learning:
    """What the comparison of all methods on generated volumes (`benchmarks/baselines.py`) holds a method to."""

    batch_size: int = 16
    """A batch size at which the method learns well."""
    gain: float = 0.0
    """Points of the linear probe that every seed gains at least over its untrained encoder."""
    terms: dict[str, object] = field(default_factory=dict)
    """Data and encoder of its own, where the method cannot use those of the comparison."""
    options: dict[str, object] = field(default_factory=dict)
    """Options that suit 240 samples and an encoder of 0.2 M parameters: wide heads would take most of the time."""


class Method(nn.Module, ABC):
    """Owns its encoder, heads, EMA copies, queues and tables; all of them in its `state_dict`.

    A method obeys the step contract of docs/architecture.md: fixed shapes, no host synchronisation,
    and everything scheduled is a torch expression of the 0-d tensor `progress`.
    """

    name: ClassVar[str]
    """What `--method` calls it."""
    title: ClassVar[str]
    """What tables and figures call it."""
    min_batch_size: ClassVar[int] = 1
    too_small: ClassVar[str] = ""
    """Why a batch below `min_batch_size` cannot work: the sentence of the error."""
    prevents_collapse: ClassVar[str]
    """What keeps the embeddings of different instances apart, in a few words: a column of `icone methods`."""
    needs_labels: ClassVar[bool] = False
    keeps_classes: ClassVar[bool] = True
    """Whether a method that needs labels has weights for each class, so that a run keeps its classes and their order.
    One that only asks which samples have the same label says False: a run can then be extended by other classes."""
    reads: ClassVar[Reads] = "features"
    """What it reads of an encoder: features, which any has; the last feature map; the tokens of a transformer."""
    max_gradient_norm: ClassVar[float | None] = None
    """Clipping that belongs to the method; the configuration may override it."""
    paper_options: ClassVar[dict[str, object]] = {}
    """Options that the recipe of the paper sets, where they are not the defaults."""
    small_options: ClassVar[dict[str, object]] = {}
    """Options that keep a step in milliseconds on a CPU, for tests and `icone paper --smoke`."""
    in_paper: ClassVar[bool] = False
    """Whether the paper's experiments run it where no methods are asked for."""
    learning: ClassVar[Learning] = Learning()
    """What the comparison of all methods holds it to."""
    per_instance: ClassVar[tuple[str, ...]] = ()
    """Names in the `state_dict` with one row per instance, so that a run can be extended by new files."""

    sums_over_samples: bool = False
    """Whether loss and head are means over the samples of the batch and nothing else, so that micro-batches need no
    second pass: their gradients add up to that of the batch. A term over the whole dataset would be computed for each
    micro-batch, so a method that has one says False."""
    notes: tuple[str, ...] = ()
    """What the user should know about how the method was set up."""
    smallest_batch: int
    """Instances that every batch must have, by the options of the method and the BatchNorm layers of its encoder."""
    autocast_dtype: torch.dtype | None = None
    """Arithmetic of the encoder's forward pass; losses and tables stay in float32."""
    ranks: Ranks | None = None
    """The processes that train it together: each encodes its share of a batch, all compute the loss of the whole."""
    gathers: ClassVar[Literal["features", "losses"] | None] = "features"
    """What ranks that share a batch gather. Features: the loss sees views through `run_encoder` alone, and every rank
    computes the loss of the whole batch. Losses: those of own views, by `mean_loss`. None: it trains in one process."""
    micro_batch: int | None = None
    """Samples that pass through an encoder at a time; None: the whole batch."""

    def __init__(self, encoder: nn.Module, setting: Setting, *, smallest_batch: int | None = None) -> None:
        """`smallest_batch` replaces `min_batch_size`, which holds for the defaults, if an option moves it."""
        super().__init__()
        self.smallest_batch = self.min_batch_size if smallest_batch is None else smallest_batch
        self._check(setting, self.smallest_batch)
        self.encoder = encoder
        self.setting = setting

    @abstractmethod
    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        """The loss of one batch under "loss", and its named terms, all 0-d.

        views: (B, V, C, *size); index: (B,) position in the training subset; label: (B,) class or -1;
        progress: 0-d, 0 at the first step and 1 after the last.
        """

    def before_step(self) -> None:
        """Called before every optimizer step, which has one pass, or several whose gradients are accumulated.

        What the passes of a step gather for `after_step` begins empty here, also after a step that failed.
        """

    def after_step(self, progress: Tensor) -> None:
        """Called after every optimizer step: moving averages and the like."""

    @property
    def starts_from_features(self) -> bool:
        """Whether `start` is to be called before the first step."""
        return False

    def start(self, features: Tensor, rows: Tensor) -> None:
        """Called with the embedding of all instances (N, e) before it trains on the new ones, `rows`."""

    def share(self, ranks: Ranks) -> None:
        """Train together with other processes from now on; called before an optimizer is made.

        Encoders take their BatchNorm statistics over the rows of all ranks. A method with a large table splits it.
        """
        if ranks.size > 1 and self.gathers is None:
            raise InputError(f"{self.name} trains in one process: it gathers neither features nor losses")
        self.ranks = ranks
        for encoder in self.encoders():
            assert share_batch_norm(encoder, ranks) is encoder, "an encoder is more than one BatchNorm"

    def own_parameters(self) -> list[nn.Parameter]:
        """Parameters of which a rank has the gradient of its own samples; of all others it has the whole gradient."""
        modules = [self] if self.gathers == "losses" else self.encoders()
        return list(dict.fromkeys(p for module in modules for p in module.parameters() if p.requires_grad))

    def adam_epsilon_floor(self, samples: int) -> dict[nn.Parameter, float]:
        """Parameters of which a step of so many samples reaches few rows, with the ε that Adam should add at least.

        Rows that no sample has reached yet know only the gradient that all rows get. Without a floor they would be
        moved by whole steps, however small that gradient is.
        """
        return {}

    def undecayed(self) -> list[nn.Parameter]:
        """Parameters that weight decay leaves alone."""
        return []

    def epoch_metrics(self) -> dict[str, Tensor]:
        """Metrics of the method's own state that are worth a column in the history, once per epoch."""
        return {}

    def encoders(self) -> list[nn.Module]:
        """The encoder; a method with moving copies of it adds them."""
        return [self.encoder]

    def compiled_parts(self) -> list[Region]:
        """Methods of its modules, besides the encoders, that are worth compiling on a GPU."""
        return []

    @classmethod
    def encoder_rows(cls, batch_size: int, num_views: int) -> int:
        """Views in one pass of the encoder: the rows over which its BatchNorm layers take statistics."""
        return batch_size * num_views

    def encode(self, views: Tensor) -> Tensor:
        """Features of all views in one pass of the encoder: (B, V, C, *size) -> (B, V, d), float32."""
        return self.run_encoder(self.encoder, views)

    def embed(self, views: Tensor) -> Tensor:
        """What the loss compares: the features, or what a head makes of them: (B, V, C, *size) -> (B, V, e)."""
        return self.encode(views)

    def run_encoder(self, encoder: nn.Module, views: Tensor) -> Tensor:
        """Like `encode`, for an encoder of the method's own, such as a moving copy.

        Micro-batches pass one after another, and the backward pass encodes each of them again with the gradient of its
        features (gradient caching, Gao et al. 2021, arXiv:2101.06983). Heads and losses see the whole batch.

        Where ranks share the batch, `views` are those of this rank and the features those of all.
        """

        def encode(views: Tensor) -> Tensor:
            with self.autocast(views.device):
                features: Tensor = encoder(views.flatten(0, 1))
            return features.float().reshape(*views.shape[:2], -1)

        return self._gather(encoder, encode, views)

    def mean_loss(self, losses: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        """The mean over the batch of what a function of samples computes for each of their views: (B, …) each -> 0-d.

        For a loss of more than features. Micro-batches pass as in `run_encoder`. Where ranks share the batch, `rows`
        are those of this rank, and the mean is that of all.
        """
        return self._gather(self, losses, *rows).mean()

    def random_numbers(self, views: Tensor, index: Tensor, count: int) -> Tensor:
        """Random numbers between 0 and 1 for every view, (B, V, count); of a shared batch those of this rank's samples.

        All ranks draw those of the whole batch, so that their generators stay together.
        """
        numbers = torch.rand(len(index) * views.shape[1], count, device=views.device)
        numbers = numbers.reshape(len(index), -1, count)
        share = None if self.ranks is None else self.ranks.share
        return numbers if share is None else numbers[share.start : share.stop]

    def _gather(self, network: nn.Module, function: Callable[..., Tensor], *rows: Tensor) -> Tensor:
        """A function of the network and of samples, in micro-batches; of a shared batch the rows of all ranks."""
        if self.micro_batch is None or len(rows[0]) <= self.micro_batch:
            results = function(*rows)
        else:
            results = in_micro_batches(network, function, *rows, size=self.micro_batch)
        share = None if self.ranks is None else self.ranks.share
        return results if share is None else share.gather(results)

    def autocast(self, device: torch.device) -> torch.autocast:
        """Around forward passes of networks: the arithmetic of `autocast_dtype`."""
        return torch.autocast(device.type, dtype=self.autocast_dtype, enabled=self.autocast_dtype is not None)

    @classmethod
    def _check(cls, setting: Setting, smallest_batch: int) -> None:
        if setting.num_views < 2:
            raise InputError(f"views must be at least 2 (views of one instance are compared), got {setting.num_views}")
        if setting.batch_size < smallest_batch:
            raise UndefinedError(
                f"{cls.name} needs a batch size of {smallest_batch} or more, got {setting.batch_size}: "
                f"{cls.too_small}. --batch-size=16 --micro-batch=1 is a batch of 16 in the memory of one"
            )
        if cls.needs_labels and setting.labels is None:
            raise InputError(
                f"{cls.name} is supervised and needs a label for every instance: "
                "give --labels, or a folder whose subfolders are classes"
            )
