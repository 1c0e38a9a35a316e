"""MAE: a vision transformer that sees a quarter of the patches, and a light decoder that fills in the rest."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from icone.errors import InputError, UndefinedError
from icone.methods.base import Learning, Method, Reads, Setting
from icone.methods.ranges import Count, IntensityViews, MaskRatio
from icone.methods.simmim import hidden_of
from icone.nn.losses import masked_patch_error, normalise_patches, weighted_sum

HEAD_WIDTH = 32
"""Channels of one attention head of the decoder, as in the paper (512 in 16 heads)."""


class MAE(Method):
    """The encoder sees the visible quarter of the patches only, and a light decoder predicts the others.

    Patches are drawn anew for every view. The decoder gets the encoded patches in their places, one learned token in
    all others, and fixed sine-cosine positions; its targets are patches of mean 0 and variance 1. The paper's decoder
    for a ViT-L has 8 blocks of 512; here 4 of 256, for a ViT-S. Every view is an image of its own: as many a step as
    other methods have. The views are crops and flips, as in the paper; `intensity_views=true` takes all of them. The
    encoder is the same network as for other methods, with its own positions and class token.

    He, Chen, Xie, Li, Dollár and Girshick 2021, arXiv:2111.06377.
    """

    name: ClassVar[str] = "mae"
    title: ClassVar[str] = "MAE"
    small_options: ClassVar[dict[str, object]] = {"decoder_width": 32, "decoder_depth": 1}
    learning: ClassVar[Learning] = Learning(
        batch_size=4,
        gain=1,
        terms={"source": "synthetic:cells@96x500", "encoder": "test_vit", "features": None},
        options={"decoder_width": 96, "decoder_depth": 2},
    )
    gathers: ClassVar[Literal["losses"]] = "losses"
    prevents_collapse: ClassVar[str] = "reconstructing hidden parts of a sample"
    sums_over_samples = True
    reads: ClassVar[Reads] = "tokens"

    positions: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        setting: Setting,
        *,
        mask_ratio: MaskRatio = 0.75,
        decoder_width: Annotated[Count, "Width of the decoder; a multiple of 32."] = 256,
        decoder_depth: Annotated[Count, "Transformer blocks of the decoder."] = 4,
        intensity_views: IntensityViews = False,
    ) -> None:
        from timm.models.vision_transformer import Block, VisionTransformer

        super().__init__(encoder, setting)
        if not isinstance(encoder, VisionTransformer):
            is_volume = len(setting.sample_shape) == 4
            way_out = "for volumes use " if is_volume else "use one, such as vit_small_patch16, or "
            raise UndefinedError(
                "mae drops patches before a vision transformer of timm, and the encoder "
                f"{type(encoder).__name__} is none: {way_out}--method=simmim, which masks the input of any encoder "
                "with a feature map"
            )
        if decoder_width % HEAD_WIDTH:
            raise InputError(f"decoder_width must be a multiple of {HEAD_WIDTH}, got {decoder_width}")
        self.patch = cast(tuple[int, int], encoder.patch_embed.patch_size)
        grid = cast(tuple[int, int], encoder.patch_embed.grid_size)
        self.prefix: int = encoder.num_prefix_tokens
        self.num_patches = math.prod(grid)
        self.visible = self.num_patches - hidden_of(self.num_patches, mask_ratio)
        values = encoder.patch_embed.proj.in_channels * math.prod(self.patch)
        self.decoder_embed = nn.Linear(encoder.embed_dim, decoder_width)
        self.mask_token = nn.Parameter(torch.empty(decoder_width))
        nn.init.normal_(self.mask_token, std=0.02)
        heads = decoder_width // HEAD_WIDTH
        self.decoder = nn.Sequential(
            *(Block(decoder_width, heads, qkv_bias=True) for _ in range(decoder_depth)), nn.LayerNorm(decoder_width)
        )
        self.predictor = nn.Linear(decoder_width, values)
        self.register_buffer("positions", sine_cosine(grid, decoder_width), persistent=False)

    def forward(self, views: Tensor, index: Tensor, label: Tensor, progress: Tensor) -> dict[str, Tensor]:
        random = self.random_numbers(views, index, self.num_patches)
        return weighted_sum(reconstruction=self.mean_loss(self.errors, views, random))

    def errors(self, views: Tensor, random: Tensor) -> Tensor:
        """The error of every view, (B, V), its patches (B, V, L) being visible in the order of the random numbers."""
        images, order = views.flatten(0, 1), random.flatten(0, 1).argsort(dim=1)
        place = order.argsort(dim=1)  # of every patch in that order; the first are visible
        with self.autocast(images.device):
            predicted = self.decode(self.encode_visible(images, order[:, : self.visible]), place)
        targets = normalise_patches(patches_of(images, self.patch))
        masked = (place >= self.visible).to(targets.dtype)
        return masked_patch_error(predicted.float(), targets, masked, reduction="none").reshape(views.shape[:2])

    def encode_visible(self, images: Tensor, visible: Tensor) -> Tensor:
        """Tokens of the class and of the visible patches (n, k): (n, C, H, W) -> (n, prefix + k, width)."""
        from timm.models.vision_transformer import VisionTransformer

        encoder = cast(VisionTransformer, self.encoder)
        tokens: Tensor = encoder._pos_embed(encoder.patch_embed(images))
        seen = pick(tokens[:, self.prefix :], visible)
        seen = torch.cat([tokens[:, : self.prefix], seen], dim=1)
        encoded: Tensor = encoder.norm(encoder.blocks(encoder.norm_pre(seen)))
        return encoded

    def decode(self, tokens: Tensor, place: Tensor) -> Tensor:
        """Values of all patches (n, L, P) from the visible ones, which stand at the `place` (n, L) of each."""
        known = self.decoder_embed(tokens)
        hidden = self.mask_token.to(known.dtype).expand(len(known), self.num_patches - self.visible, -1)
        patches = pick(torch.cat([known[:, self.prefix :], hidden], dim=1), place) + self.positions
        decoded = self.decoder(torch.cat([known[:, : self.prefix], patches], dim=1))
        predicted: Tensor = self.predictor(decoded[:, self.prefix :])
        return predicted


def pick(tokens: Tensor, rows: Tensor) -> Tensor:
    """The tokens (n, L, d) at these rows (n, k)."""
    return tokens.gather(1, rows[:, :, None].expand(-1, -1, tokens.shape[-1]))


def patches_of(images: Tensor, patch: tuple[int, int]) -> Tensor:
    """Patches in the order of a transformer's tokens: (n, C, H, W) -> (n, L, C·p·q).

    >>> patches_of(torch.arange(16.0).reshape(1, 1, 4, 4), (2, 2))[0, 1]
    tensor([2., 3., 6., 7.])
    """
    p, q = patch
    grid: Tensor = images.unflatten(3, (-1, q)).unflatten(2, (-1, p)).permute(0, 2, 4, 1, 3, 5)
    return grid.flatten(3).flatten(1, 2)


def sine_cosine(grid: tuple[int, int], width: int) -> Tensor:
    """Fixed positions (L, width): for rows and columns each sines and cosines of width/4 frequencies from 1 to 10⁻⁴.

    Vaswani et al. 2017, arXiv:1706.03762, in two dimensions as in MAE.
    """
    frequencies = 10_000.0 ** -(torch.arange(width // 4) / (width // 4))
    waves = [torch.arange(float(edge))[:, None] * frequencies for edge in grid]
    rows, columns = (torch.cat([wave.sin(), wave.cos()], dim=1) for wave in waves)
    shape = (*grid, width // 2)
    return torch.cat([rows[:, None].expand(shape), columns[None].expand(shape)], dim=-1).flatten(0, 1)
