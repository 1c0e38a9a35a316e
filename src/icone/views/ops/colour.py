"""Colour jitter: brightness, contrast, saturation and hue in random order, for a whole batch at once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch
from torch import Tensor, nn

BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)

# Weights of R, G and B in the luma of ITU-R BT.601, rounded as torchvision rounds them.
LUMA = (0.2989, 0.587, 0.114)


def luma_weights(channels: int) -> Tensor:
    """Share of each channel in the brightness of a pixel, (C,): BT.601 for RGB, the mean otherwise."""
    return torch.tensor(LUMA) if channels == 3 else torch.full((channels,), 1 / channels)


def mix_channels(offset: Tensor, mix: Tensor, pixels: Tensor) -> Tensor:
    """offset + mix @ pixels for each sample: (C, C) matrices (N, C, C) and pixels (N, C, P).

    On a GPU such a narrow product took longer than all other steps of the views together, so there it is a sum
    of scaled channels, which compiling joins with what stands around it.
    """
    if not pixels.is_cuda:
        return torch.baddbmm(offset, mix, pixels)
    for channel in range(pixels.shape[1]):
        offset = offset + mix[:, :, channel, None] * pixels[:, None, channel]
    return offset


class ColourJitter(nn.Module):
    """Applies the `operations` (some of the four above) to each sample in an order of its own.

    Brightness, contrast and saturation blend a picture x with a target t (black, its mean luma, its luma):
    clip(a·x + (1 − a)·t, 0, 1). With a = 1 a blend changes nothing, bit for bit. So all samples pass all
    blends, with a = 1 for those that come after their hue, then the hue, and then all blends again, with
    a = 1 for those that came before. The costly hue is computed once, not once for each place in the order.
    """

    luma: Tensor
    orders: Tensor
    identity: Tensor

    def __init__(self, operations: Sequence[int], channels: int) -> None:
        super().__init__()
        self.operations = tuple(operations)
        self.register_buffer("luma", luma_weights(channels), persistent=False)
        self.register_buffer("identity", torch.eye(channels), persistent=False)
        orders = torch.tensor(list(itertools.permutations(self.operations)), dtype=torch.long)
        self.register_buffer("orders", orders, persistent=False)

    def draw_order(self, uniform: Tensor) -> Tensor:
        """A permutation of the operations for each number in [0, 1): (N,) -> (N, K)."""
        return self.orders[(uniform * len(self.orders)).long()]

    def forward(self, pixels: Tensor, order: Tensor, factors: Tensor) -> Tensor:
        """Jitter (N, C, P) pixels in [0, 1].

        order: (N, K) operations from first to last; factors: (N, 4), for the three blends a ≥ 0 and
        for the hue the turn in [-1/2, 1/2].
        """
        amounts = factors.gather(1, order)
        if HUE not in self.operations:
            return self._blend(pixels, order, amounts)
        is_hue = order == HUE
        hue_passed = is_hue.cumsum(1) > 0
        early = amounts.masked_fill(hue_passed, 1)
        late = amounts.masked_fill(is_hue | ~hue_passed, 1)
        pixels = self._blend(pixels, order[:, :-1], early[:, :-1])
        pixels = turn_hue(pixels, factors[:, HUE])
        return self._blend(pixels, order[:, 1:], late[:, 1:])

    def _blend(self, pixels: Tensor, order: Tensor, amounts: Tensor) -> Tensor:
        """Blend with the target of each operation in turn; order and amounts: (N, rounds)."""
        to_mean = (1 - amounts) * (order == CONTRAST)
        to_luma = (1 - amounts) * (order == SATURATION)
        mixes = amounts[..., None, None] * self.identity + to_luma[..., None, None] * self.luma
        for mix, share in zip(mixes.unbind(1), to_mean.unbind(1), strict=True):
            mean_luma = pixels.mean(dim=2) @ self.luma
            pixels = mix_channels((share * mean_luma)[:, None, None], mix, pixels).clamp_(0, 1)
        return pixels


class ChannelJitter(nn.Module):
    """Brightness and contrast of every channel by itself, for images whose channels are no colours.

    Markers of multiplexed microscopy or sequences of an MRI do not brighten together. A channel x_c becomes
    clip(b_c·x_c, 0, 1) and clip(a_c·x_c + (1 − a_c)·mean(x_c), 0, 1), in the order that was drawn for its sample.
    """

    def __init__(self, operations: Sequence[int]) -> None:
        super().__init__()
        self.operations = tuple(operations)

    def forward(self, pixels: Tensor, contrast_first: Tensor, brightness: Tensor, contrast: Tensor) -> Tensor:
        """Jitter (N, C, P) pixels in [0, 1] by factors (N, C), 1 where nothing changes; contrast_first: (N,)."""
        first = contrast_first[:, None]
        early = torch.where(first, contrast, torch.ones_like(contrast))
        late = torch.where(first, torch.ones_like(contrast), contrast)
        pixels = _to_own_mean(pixels, early) if CONTRAST in self.operations else pixels
        pixels = (pixels * brightness[:, :, None]).clamp(0, 1)
        return _to_own_mean(pixels, late) if CONTRAST in self.operations else pixels


def _to_own_mean(pixels: Tensor, amount: Tensor) -> Tensor:
    """Blend every channel of (N, C, P) with its own mean: amount (N, C), 1 changes nothing."""
    return torch.lerp(pixels.mean(dim=2, keepdim=True), pixels, amount[:, :, None]).clamp(0, 1)


def turn_hue(pixels: Tensor, turn: Tensor) -> Tensor:
    """Turn the HSV hue of (N, 3, P) pixels by `turn` (N,), in full circles within [-1/2, 1/2].

    Take the hue as an angle θ in [−3, 3], six units a circle, with R, G and B at −2, 0 and 2. With the
    chroma c = max − min, u = |B − R| / c and v = (max − G) / c, the point (u, v) goes from (0, 0) through
    (1, 0) and (1, 1) to (0, 1) as |θ| goes from 0 to 3, so |θ| = u + v + 2v(1 − u), with the sign of B − R.
    The other way round, a channel at the distance d from the hue has the value min + c · clip(2 − d, 0, 1).
    """
    red, green, blue = pixels.unbind(1)
    highest, lowest = pixels.amax(1), pixels.amin(1)
    chroma = highest - lowest
    per_chroma = chroma.clamp(min=torch.finfo(chroma.dtype).tiny).reciprocal_()
    sign = blue - red
    u = sign.abs().mul_(per_chroma)
    v = (highest - green).mul_(per_chroma)
    theta = torch.addcmul(u, v, 3 - 2 * u).copysign_(sign)

    channel = torch.arange(-2, 3, 2, device=pixels.device)
    away = (theta[:, None] + (6 * turn[:, None] - channel)[:, :, None]).abs_()
    distance = away.sub_(3).abs_().sub_(3).abs_()  # |||y| − 3| − 3| has the period 6 for |y| up to 9
    return distance.neg_().add_(2).clamp_(0, 1).mul_(chroma[:, None]).add_(lowest[:, None])
