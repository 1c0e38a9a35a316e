"""Switches of what makes a step fast on a GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CudaOptions:
    """Which parts of `icone.cuda` a run uses: all of them, unless someone measures what one of them earns.

    `benchmarks/ablation.py` switches them off one by one. No switch changes what is computed, except for the rounding.
    """

    deferred_gradients: bool = True
    """Compute weight gradients on a side stream."""
    column_sum_kernel: bool = True
    """Sum bias gradients by our Triton kernel instead of `Tensor.sum`; only deferred layers use it."""
    attention_kernels: bool = True
    """Compute attention over few tokens by our Triton kernels."""
    diversity_stream: bool = True
    """Compute the diversity loss of IConE on a side stream."""
    combo_kernels: bool = True
    """Let the compiler join small independent kernels, such as the casts of weights."""
    patch_conv: bool = True
    """Use `PatchConv2d` for patch embeddings."""
    stem_conv: bool = True
    """Use `StemConv3d` for the stem of 3D networks."""
    halving_pool: bool = True
    """Use `HalvingMaxPool3d` behind that stem."""
    channels_last: bool = True
    """Lay out the weights of convolutions channels last."""


ALL_ON = CudaOptions()
