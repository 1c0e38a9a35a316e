"""What the methods need and what it costs, found by building them: what capabilities.json holds.

    python -m icone.methods.measured_capabilities

writes the file anew, where a method or an option has changed.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
from pathlib import Path

import torch
from torch import Tensor, nn

from icone.methods.base import Method, Setting
from icone.methods.capabilities import STORED, Capability
from icone.methods.registry import METHODS, described_options

TRAINED_BYTES = 16
"""Of one trained float32: the weight, its gradient and the two moments of AdamW."""
STORED_BYTES = 4
"""Of one number that no optimizer touches: moving copies, queues, centres."""
PATCH = 16


def measure(
    method: type[Method],
    *,
    dim: int = 384,
    encoder_parameters: int = 21_665_664,
    num_instances: int = 5000,
    num_classes: int = 10,
) -> Capability:
    """A method with its cost for an encoder and a dataset of this size (default: ViT-S/16, 5,000 images).

    It is built without memory, on torch's meta device, and counted: no formula can go stale.

    >>> measure(METHODS["diet"]).extra_parameters == 5000 * 384
    True
    """
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
    return Capability(
        name=method.name,
        about=inspect.cleandoc(method.__doc__ or ""),
        prevents_collapse=method.prevents_collapse,
        smallest_batch=method.min_batch_size,
        why_not_smaller=method.too_small,
        good_batch=max(method.learning.batch_size, method.min_batch_size),
        second_pass=not built.sums_over_samples,
        needs_labels=method.needs_labels,
        extra_parameters=trained,
        extra_numbers=stored,
        extra_bytes=TRAINED_BYTES * trained + STORED_BYTES * stored,
        options=tuple(described_options(method.name)),
    )


def is_built_in(method: type[Method]) -> bool:
    """Whether a method is one of this package, so that the stored row is about it."""
    return method.__module__.startswith("icone.methods.")


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


def text_of_all() -> str:
    """The content of capabilities.json, by the methods as they are."""
    rows = [dataclasses.asdict(measure(method)) for method in METHODS.values() if is_built_in(method)]
    for row in rows:
        row["options"] = [option._asdict() for option in row["options"]]
    return json.dumps(rows, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name(STORED).write_text(text_of_all(), encoding="utf-8")
