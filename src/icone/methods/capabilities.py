"""What the methods need and what it costs: the rows of `icone methods`."""

from __future__ import annotations

import inspect
from dataclasses import dataclass

import torch
from rich import box
from rich.console import Group
from rich.table import Table
from torch import Tensor, nn

from icone.methods import METHODS, Method, Setting, method_class, method_options

TRAINED_BYTES = 16
"""Of one trained float32: the weight, its gradient and the two moments of AdamW."""
STORED_BYTES = 4
"""Of one number that no optimizer touches: moving copies, queues, centres."""
PATCH = 16
ANY_BATCH = "any batch size"


@dataclass(frozen=True, kw_only=True)
class Capability:
    """One method at a glance; parameters and memory come on top of the encoder's own."""

    name: str
    summary: str
    prevents_collapse: str
    smallest_batch: int
    why_not_smaller: str
    second_pass: bool
    """Whether micro-batches are encoded a second time; else their gradients add up to that of the batch."""
    needs_labels: bool
    extra_parameters: int
    """Trained numbers: heads, classifiers, tables."""
    extra_numbers: int
    """Numbers that are kept but not trained: moving copies, queues, centres."""
    extra_bytes: int
    options: dict[str, object]


def capabilities(
    *, dim: int = 384, encoder_parameters: int = 21_665_664, num_instances: int = 5000, num_classes: int = 10
) -> list[Capability]:
    """All methods with their cost for an encoder and a dataset of this size (default: ViT-S/16, 5,000 images).

    The methods are built without memory, on torch's meta device, and counted: no formula can go stale.

    >>> {row.name: row.extra_parameters for row in capabilities()}["diet"] == 5000 * 384
    True
    """
    rows = []
    for name, method in METHODS.items():
        setting = Setting(
            num_instances=num_instances,
            batch_size=method.min_batch_size,
            sample_shape=(3, 224, 224),
            labels=torch.arange(num_instances) % num_classes,
            num_classes=num_classes,
        )
        with torch.device("meta"):
            encoder = _transformer(dim) if method.reads == "tokens" else _Stub(dim, encoder_parameters)
            built = method(encoder, setting)
        trained, stored = _count(built)
        trained -= sum(p.numel() for p in encoder.parameters())
        rows.append(
            Capability(
                name=name,
                summary=(method.__doc__ or "").strip().splitlines()[0],
                prevents_collapse=method.prevents_collapse,
                smallest_batch=method.min_batch_size,
                why_not_smaller=method.too_small,
                second_pass=not built.sums_over_samples,
                needs_labels=method.needs_labels,
                extra_parameters=trained,
                extra_numbers=stored,
                extra_bytes=TRAINED_BYTES * trained + STORED_BYTES * stored,
                options=method_options(name),
            )
        )
    return rows


class _Stub(nn.Module):
    """Stands in for an encoder with this many features and parameters."""

    def __init__(self, dim: int, parameters: int) -> None:
        super().__init__()
        self.num_features = dim
        self.weight = nn.Parameter(torch.empty(parameters))

    def forward_features(self, images: Tensor) -> Tensor:
        """A feature map with cells of 16 pixels."""
        return images.new_zeros(len(images), self.num_features, images.shape[2] // PATCH, images.shape[3] // PATCH)


def _transformer(dim: int) -> nn.Module:
    """A transformer of one block: what a method adds to it depends on its width and patches alone."""
    from timm.models.vision_transformer import VisionTransformer

    return VisionTransformer(patch_size=PATCH, embed_dim=dim, depth=1, num_heads=1, num_classes=0)


def _count(method: Method) -> tuple[int, int]:
    """Trained numbers, and those that are only kept."""
    trained = sum(p.numel() for p in method.parameters() if p.requires_grad)
    kept = sum(t.numel() for t in method.state_dict().values())
    return trained, kept - trained


def method_table() -> Table:
    """All methods at a glance; memory is that of weights, gradients and moments beyond the encoder's."""
    caption = (
        "+ : beyond the encoder, for ViT-S/16, 5,000 images and 10 classes. passes: how often --micro-batch encodes a "
        "sample to get the gradient of the whole batch; 2: again, with the gradient of its features"
    )
    table = Table(box=box.SIMPLE, caption=caption)
    table.add_column("method", no_wrap=True)
    table.add_column("what prevents collapse")
    table.add_column("min B", justify="right")
    table.add_column("passes", justify="right")
    table.add_column("labels", no_wrap=True)
    table.add_column("+parameters", justify="right", no_wrap=True)
    table.add_column("+memory", justify="right", no_wrap=True)
    for row in capabilities():
        labels = "needed" if row.needs_labels else "none"
        parameters, memory = f"{row.extra_parameters / 1e6:.2f} M", f"{row.extra_bytes / 1e6:.0f} MB"
        passes = "2" if row.second_pass else "1"
        table.add_row(row.name, row.prevents_collapse, str(row.smallest_batch), passes, labels, parameters, memory)
    return table


def option_table(name: str) -> Group:
    """What a method does, its options with their defaults, and why its smallest batch is what it is."""
    method = method_class(name)
    table = Table("option", "default", box=box.SIMPLE)
    for option, default in method_options(name).items():
        table.add_row(option, str(default))
    why = f"smallest batch {method.min_batch_size}: {method.too_small}" if method.too_small else ANY_BATCH
    return Group(inspect.cleandoc(method.__doc__ or ""), table, why)
