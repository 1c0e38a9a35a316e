"""Attention over few tokens on a GPU, where starting the library's many kernels takes longest."""

from __future__ import annotations

from typing import Any, cast

import torch
from timm.models.vision_transformer import Attention  # type: ignore[attr-defined]  # where all versions have it
from torch import Tensor, nn

from icone.cuda.replacement import replace_classes

MAX_TOKENS = 256
"""197 tokens were measured. The backward pass computes every weight twice, which pays only where there are few."""
HEAD_DIMS = (16, 32, 64, 128)
"""Sizes of a head that the kernels can take."""


def attention(qkv: Tensor, heads: int) -> Tensor:
    """softmax(q kᵀ / √d) v for every head, on CUDA: (B, N, 3·heads·d) -> (B, N, heads·d).

    qkv: packed as one linear layer gives them, queries of all heads, then keys, then values. Differentiable once.
    """
    result, _ = _attention(qkv, heads)
    return cast(Tensor, result)


# To the compiler both passes are black boxes. Triton is imported inside: it is there only where CUDA is.


@torch.library.custom_op("icone::attention", mutates_args=())
def _attention(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """The result, and for the backward pass log Σ exp of the logits of every query."""
    from icone.cuda.attention_kernels import attend

    return attend(qkv, heads)


@_attention.register_fake
def _(qkv: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    batch, n, width = qkv.shape
    return qkv.new_empty(batch, n, width // 3), qkv.new_empty(batch * heads, n, dtype=torch.float32)


@torch.library.custom_op("icone::attention_backward", mutates_args=())
def _attention_backward(grad_output: Tensor, qkv: Tensor, result: Tensor, log_sums: Tensor, heads: int) -> Tensor:
    from icone.cuda.attention_kernels import attend_backward

    return attend_backward(grad_output, qkv, result, log_sums, heads)


@_attention_backward.register_fake
def _(grad_output: Tensor, qkv: Tensor, result: Tensor, log_sums: Tensor, heads: int) -> Tensor:
    return torch.empty_like(qkv, memory_format=torch.contiguous_format)


def _setup_context(ctx: Any, inputs: tuple[Tensor, int], output: tuple[Tensor, Tensor]) -> None:
    qkv, ctx.heads = inputs
    ctx.save_for_backward(qkv, *output)
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)  # or zeros would be written for the logarithms in every backward pass


def _backward(ctx: Any, grad_output: Tensor, _: None) -> tuple[Tensor, None]:
    return _attention_backward(grad_output, *ctx.saved_tensors, ctx.heads), None


_attention.register_autograd(_backward, setup_context=_setup_context)


class ShortAttention(Attention):
    """timm's layer, with kernels of our own for few tokens on a GPU."""

    def forward(self, x: Tensor, *masks: Any, **named_masks: Any) -> Tensor:
        """(B, N, C) -> (B, N, C); masks are those of timm's layer, which differ between its versions."""
        masked = any(mask is not None and mask is not False for mask in (*masks, *named_masks.values()))
        if masked or not self._is_plain() or not self._is_short(x):
            return super().forward(x, *masks, **named_masks)
        return cast(Tensor, self.proj_drop(self.proj(attention(self.qkv(x), self.num_heads))))

    def _is_plain(self) -> bool:
        """No dropped weights, and none of the parts that timm adds to some layers."""
        parts = [getattr(self, name, None) for name in ("q_norm", "k_norm", "norm", "gate")]
        drops = self.training and self.attn_drop.p > 0
        return not drops and all(part is None or isinstance(part, nn.Identity) for part in parts)

    def _is_short(self, x: Tensor) -> bool:
        return x.is_cuda and x.dtype != torch.float64 and self.head_dim in HEAD_DIMS and x.shape[1] <= MAX_TOKENS


def use_short_attention(network: nn.Module) -> None:
    """Replace timm's attention layers of a network of our own by layers that use the kernels."""
    replace_classes(network, {Attention: ShortAttention})
