"""Weights from elsewhere in an encoder: which tensor is which, what has to be adapted, and what stays as it was."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Group
from rich.table import Table
from rich.text import Text
from torch import Tensor, nn

from icone.errors import InputError

LOADED_WEIGHTS = "icone_loaded_weights"
"""The attribute of an encoder that says what became of the weights that it was given."""
DOUBTFUL_SHARE = 0.5
"""Of the encoder's numbers: where fewer fit, a note asks whether the weights are those of this network."""
SMALLEST_SHARE = 0.1
"""Of the encoder's numbers that must fit. In an encoder of another width a few counters and biases fit by chance."""
Statistics = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of every channel."""
POSITIONS = ("pos_embed", "position_embeddings")
"""How names of learned position embeddings (1, prefix + positions, channels) end, in timm and in MONAI."""


@dataclass(frozen=True, kw_only=True)
class LoadedWeights:
    """What became of weights in an encoder, by the names of the encoder's tensors."""

    origin: str
    """Where the weights are from."""
    loaded: list[str]
    """Taken as they are."""
    adapted: dict[str, str]
    """Brought to another shape, and how."""
    new: dict[str, str]
    """Left as the seed made them, and why."""
    unused: list[str]
    """Names in the weights that the encoder has no place for."""
    share: float
    """Share of the encoder's numbers that is loaded or adapted."""
    notes: tuple[str, ...] | list[str] = ()
    """What else should be known about them, a sentence each."""

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    def facts(self) -> dict[str, str]:
        """The same in a few words each, for the report page."""

        def listed(names: Mapping[str, str]) -> str:
            more = f", and {len(names) - 5} more" if len(names) > 5 else ""
            return "; ".join(f"{name}: {why}" for name, why in itertools.islice(names.items(), 5)) + more or "none"

        return {
            "weights from": self.origin,
            "weights loaded": f"{len(self.loaded)} tensors; with the adapted ones {self.share:.0%} of the encoder",
            "weights adapted": listed(self.adapted),
            "weights left as the seed made them": listed(self.new),
            "weights without a place in the encoder": _some(self.unused),
            **({"about the weights": " ".join(self.notes)} if self.notes else {}),
        }

    def table(self) -> Group:
        """A row for every part of the encoder, and a line for every tensor that was adapted, left or not used."""
        table = Table()
        for column in ("part", "loaded", "adapted", "left"):
            table.add_column(column, justify="left" if column == "part" else "right")
        counts = [Counter(name.partition(".")[0] for name in names) for names in (self.loaded, self.adapted, self.new)]
        for part in dict.fromkeys(itertools.chain(*counts)):
            table.add_row(part, *(str(count[part] or "") for count in counts))
        reasons = [*self.adapted.items(), *self.new.items()]
        lines = [f"{name}: {why}" for name, why in reasons[:10]]
        lines += [f"{len(reasons) - 10} more: see config.json"] if len(reasons) > 10 else []
        lines += [f"not used of the weights: {_some(self.unused)}"] if self.unused else []
        lines += [f"note: {note}" for note in self.notes]
        title = f"weights from {self.origin}: {self.share:.0%} of the encoder"
        return Group(Text(title), table, *map(Text, lines))


def put_weights(network: nn.Module, content: Mapping[str, Any], *, origin: str, in_channels: int) -> LoadedWeights:
    """Put all weights that fit into an encoder, and say what became of each; an `InputError` where hardly any fits.

    `content` is what a file holds: tensors by name, perhaps in dictionaries in dictionaries, under any prefix
    (`state_dict`, `module.`, `teacher.backbone.` …). Formats of other projects are converted as timm does it. The
    weight of the first convolution is adapted to the channels, position embeddings to the grid.
    """
    wanted = network.state_dict()
    found = _by_our_names(_flattened(content), network, wanted)
    tensors = _converted_by_timm(found, network)
    fitted: dict[str, Tensor] = {}
    adapted: dict[str, str] = {}
    new: dict[str, str] = {}
    for name, want in wanted.items():
        tensor = tensors.get(name)
        if tensor is None:
            new[name] = "not among the weights"
            continue
        fit = tensor if tensor.shape == want.shape else _adapted(name, tensor, want, network, in_channels)
        if fit is None:
            new[name] = f"{_shape(tensor)} in the weights, {_shape(want)} in the encoder"
            continue
        if want.is_floating_point() and not fit.isfinite().all():
            raise InputError(f"{origin} is damaged: {name} is not finite")
        fitted[name] = fit.to(want.dtype)
        before = found.get(name, tensor)
        if before.shape != want.shape:
            adapted[name] = f"{_shape(before)} → {_shape(want)}"
    share = sum(fit.numel() for fit in fitted.values()) / max(sum(want.numel() for want in wanted.values()), 1)
    if not tensors.keys() & wanted.keys():
        raise InputError(
            f"nothing in {origin} fits the encoder: its names are {_some(found)}, and those of the encoder "
            f"{_some(wanted)}. Choose the --encoder that the weights belong to"
        )
    if share < SMALLEST_SHARE:
        name, why = next((item for item in new.items() if item[0] in tensors), next(iter(new.items())))
        raise InputError(
            f"only {share:.1%} of the encoder fits {origin} ({name}: {why}). Choose the --encoder, --width and "
            "--features that the weights belong to"
        )
    network.load_state_dict(fitted, strict=False)
    few = f"only {share:.0%} of the encoder is from these weights, the rest is random. Are they of another --encoder?"
    return LoadedWeights(
        origin=origin,
        loaded=[name for name in fitted if name not in adapted],
        adapted=adapted,
        new=new,
        unused=[name for name in tensors if name not in wanted],
        share=share,
        notes=[few] if share < DOUBTFUL_SHARE else [],
    )


def _flattened(content: Mapping[str, Any], prefix: str = "") -> dict[str, Tensor]:
    """All tensors of dictionaries in dictionaries, by their names with dots between."""
    flat: dict[str, Tensor] = {}
    for key, value in content.items():
        if isinstance(value, Tensor):
            flat[f"{prefix}{key}"] = value
        elif isinstance(value, Mapping):
            flat |= _flattened(value, f"{prefix}{key}.")
    return flat


def _by_our_names(found: dict[str, Tensor], network: nn.Module, wanted: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by the names that they have in the encoder, as far as that is known.

    A network says as `released_names` what its released weights call things otherwise: patterns and replacements. Some
    releases hold what is one part of the encoder (`swinViT`) and leave its name out.
    """
    for pattern, replacement in getattr(network, "released_names", ()):
        found = {re.sub(pattern, replacement, name): tensor for name, tensor in found.items()}
    as_named = below_best_prefix(found, wanted)
    part, *others = {name.partition(".")[0] for name in wanted} - {"projection"} or {""}
    if others:
        return as_named
    inside = {name.removeprefix(f"{part}."): None for name in wanted if name.startswith(f"{part}.")}
    as_part = {f"{part}.{name}": tensor for name, tensor in below_best_prefix(found, inside).items()}
    return max(as_named, as_part, key=lambda named: len(named.keys() & wanted.keys()))


def below_best_prefix(found: dict[str, Tensor], wanted: Any) -> dict[str, Tensor]:
    """The tensors below the prefix under which most of the wanted names are found, without it.

    Of prefixes that are level, a teacher or moving average is taken before the network that it follows, and else the
    first.

    >>> names = ["student.fc.bias", "teacher.fc.bias", "optimizer.lr"]
    >>> list(below_best_prefix(dict.fromkeys(names, torch.zeros(1)), ["fc.bias"]))
    ['fc.bias']
    """
    matches: Counter[str] = Counter()
    for name in found:
        parts = name.split(".")
        for start in range(len(parts)):
            if ".".join(parts[start:]) in wanted:
                matches[".".join([*parts[:start], ""]) if start else ""] += 1
    if not matches:
        return found
    best = max(matches, key=lambda prefix: (matches[prefix], "teacher" in prefix or "ema" in prefix))
    return {name[len(best) :]: tensor for name, tensor in found.items() if name.startswith(best)}


def _converted_by_timm(found: dict[str, Tensor], network: nn.Module) -> dict[str, Tensor]:
    """Names and shapes of other projects in those of timm, where the network is one of timm's.

    Where timm's own conversion fails, the names do not fit, which the table then shows.
    """
    home = type(network).__module__
    convert: Any = getattr(sys.modules[home], "checkpoint_filter_fn", None) if home.startswith("timm.") else None
    if convert is None:
        return found
    try:
        converted: dict[str, Tensor] = convert(dict(found), network)
    except (KeyError, ValueError, TypeError, AttributeError, RuntimeError, AssertionError):
        return found
    return converted


def _adapted(name: str, tensor: Tensor, want: Tensor, network: nn.Module, in_channels: int) -> Tensor | None:
    if tensor.ndim != want.ndim:
        return None
    differ = [axis for axis in range(want.ndim) if tensor.shape[axis] != want.shape[axis]]
    if want.ndim >= 4 and differ == [1] and want.shape[1] == in_channels:
        return adapt_channels(tensor, in_channels)
    if want.ndim == 3 and differ == [1] and name.endswith(POSITIONS):
        grid = tuple(getattr(getattr(network, "patch_embed", network), "grid_size", None) or ())
        return adapt_positions(tensor, want.shape[1] - math.prod(grid), grid) if grid else None
    return None


def adapt_channels(weight: Tensor, channels: int) -> Tensor:
    """The weight (out, C, …) of a first convolution for another number of channels, as timm does it.

    One channel gets the sum over all; more get them in turn, scaled so that the sum over channels stays the same for
    an input whose channels are equal.

    >>> adapt_channels(torch.tensor([[1.0, 2.0, 3.0]]), 1), adapt_channels(torch.tensor([[6.0]]), 2)
    (tensor([[6.]]), tensor([[3., 3.]]))
    """
    before = weight.shape[1]
    if channels == 1:
        return weight.sum(1, keepdim=True)
    order = torch.arange(channels) % before
    return weight[:, order] * (before / channels)


def for_channels(statistics: Statistics, channels: int, *, is_rgb: bool) -> Statistics:
    """Mean and standard deviation of so many channels: of colours their own, of others the mean over the colours.

    >>> for_channels(((0.25, 0.5, 0.75), (0.5, 0.5, 0.5)), 2, is_rgb=False)
    ((0.5, 0.5), (0.5, 0.5))
    """
    if is_rgb and channels == len(statistics[0]):
        return statistics
    mean, std = (math.fsum(values) / len(values) for values in statistics)
    return (mean,) * channels, (std,) * channels


@torch.no_grad()
def renormalise(network: nn.Module, channels: int, theirs: Statistics, ours: Statistics) -> bool:
    """Let a network compute of samples (x − m)/s, `ours`, what it computed of (x − m′)/s′, `theirs`; whether it can.

    The first convolution W, b becomes W·s/s′ and b + Σ W·(m − m′)/s′, by channel. That is exact where the convolution
    has a bias, and does not pad its input with zeros, which mean something else then.
    """
    first = next((layer for layer in network.modules() if isinstance(layer, nn.Conv2d)), None)
    if first is None or first.in_channels != channels or first.groups != 1:
        return False
    if first.bias is None or isinstance(first.padding, str) or any(first.padding):
        return False
    (m2, s2), (m1, s1) = ([torch.tensor(values, dtype=torch.float64) for values in pair] for pair in (theirs, ours))
    weight = first.weight.double()
    first.bias.add_((weight.sum(dim=(2, 3)) * ((m1 - m2) / s2)).sum(1).to(first.bias.dtype))
    first.weight.copy_(weight * (s1 / s2)[:, None, None])
    return True


def adapt_positions(embedding: Tensor, prefix: int, grid: tuple[int, ...]) -> Tensor | None:
    """Position embeddings (1, prefix + n, channels) of a square or cubic grid, resampled to another grid.

    None where n is no square or cube. The prefix (class and register tokens) is kept.
    """
    dims, positions = len(grid), embedding.shape[1] - prefix
    edge = round(max(positions, 0) ** (1 / dims))
    if prefix < 0 or edge < 1 or edge**dims != positions:
        return None
    maps = embedding[:, prefix:].float().transpose(1, 2).reshape(1, -1, *[edge] * dims)
    mode = "bicubic" if dims == 2 else "trilinear"
    maps = F.interpolate(maps, size=grid, mode=mode, antialias=dims == 2)
    return torch.cat([embedding[:, :prefix].float(), maps.flatten(2).transpose(1, 2)], 1)


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "a number"


def _some(names: Iterable[str]) -> str:
    """The first three names.

    >>> _some(["a", "b"]), _some("abcde"), _some([])
    ('a, b', 'a, b, c and 2 more', 'none')
    """
    first, rest = (given := list(names))[:3], len(given) - 3
    return (", ".join(first) or "none") + (f" and {rest} more" if rest > 0 else "")
