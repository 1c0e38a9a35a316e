"""Switches of what makes a step fast on a GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CudaOptions:
    """Which parts of `icone.cuda` a run uses: all of them, unless someone measures what one of them earns.

    `benchmarks/ablation.py` switches them off one by one. No switch changes what is computed, except for the rounding.
    """

    bucketed_updates: bool = True
    """Update every bucket of parameters on a side stream as soon as it has all its gradients."""
    deferred_gradients: bool = True
    """Compute weight gradients on a side stream."""
    cast_weights: bool = True
    """Cast all weights to the autocast type at once, on a side stream, instead of one by one in the forward pass."""
    adamw_kernel: bool = True
    """Update parameters by our Triton kernel instead of PyTorch's fused AdamW."""
    column_sum_kernel: bool = True
    """Sum bias gradients by our Triton kernel instead of `Tensor.sum`; only deferred layers use it."""
    attention_kernels: bool = True
    """Compute attention over few tokens by our Triton kernels."""
    diversity_stream: bool = True
    """Compute the diversity loss of IConE on a side stream."""
    metrics_stream: bool = True
    """Compute the learning rate of the step and the means of the loss on a side stream."""
    combo_kernels: bool = True
    """Let the compiler join small independent kernels."""
    patch_conv: bool = True
    """Use `PatchConv2d` for patch embeddings."""
    stem_conv: bool = True
    """Use `StemConv3d` for the stem of 3D networks."""
    halving_pool: bool = True
    """Use `HalvingMaxPool3d` behind that stem."""
    channels_last: bool = True
    """Lay out the weights of convolutions channels last."""


ALL_ON = CudaOptions()
