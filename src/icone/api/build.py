"""From a configuration and the data's preparation to encoder, views and method; the same for training and inference."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator
from functools import partial
from typing import Any

import torch
from torch import nn

from icone.config import PretrainConfig
from icone.data import Data, Preparation
from icone.encoders import build_encoder, check_batch_norm
from icone.errors import InputError, NotEnoughMemory, is_out_of_memory
from icone.methods import Method, Setting, build_method, method_class
from icone.nn import convert_batch_norm
from icone.recipe import initial_scale
from icone.training.context import kept_random_state, seed_random_numbers
from icone.views import Views, build_views


def make_encoder(config: PretrainConfig, preparation: Preparation) -> nn.Module:
    """An untrained encoder with the weights of the configuration's seed; leaves the generator of the CPU seeded."""
    seed_random_numbers(config.seed, torch.device("cpu"))
    return build_encoder(
        config.encoder,
        in_channels=preparation.channels,
        spatial_dims=preparation.spatial_dims,
        size=preparation.size,
        norm=config.norm,
        width=config.width,
        features=config.features,
    )


def make_views(config: PretrainConfig, preparation: Preparation) -> Views:
    return build_views(
        config, spatial_dims=preparation.spatial_dims, channels=preparation.channels, size=preparation.size
    )


def make_method(config: PretrainConfig, data: Data) -> Method:
    """The method with its encoder, on the CPU, initialised from the configuration's seed."""
    preparation, train = data.preparation, data.train
    encoder = make_encoder(config, preparation)
    if config.recipe != "paper":
        encoder = convert_batch_norm(encoder, config.batch_size)
    rows = partial(method_class(config.method).encoder_rows, num_views=config.views)
    fewest = check_batch_norm(encoder, (preparation.channels, *preparation.size), rows(config.batch_size))
    setting = Setting(
        num_instances=len(train),
        batch_size=config.batch_size,
        num_views=config.views,
        epochs=config.epochs,
        initial_scale=initial_scale(config.lr, config.recipe),
        labels=train.labels if (train.labels >= 0).all() else None,
        num_classes=len(train.class_names),
    )
    method = build_method(config.method, encoder, setting, config.options, config.recipe)
    of_encoder = next(batch_size for batch_size in itertools.count(1) if rows(batch_size) >= fewest)
    method.smallest_batch = max(method.smallest_batch, of_encoder)
    return method


def autocast_dtype(config: PretrainConfig, device: torch.device) -> torch.dtype | None:
    """What the encoder computes in, where that is not float32."""
    if config.precision == "auto":
        return torch.bfloat16 if device.type == "cuda" else None
    return torch.bfloat16 if config.precision == "bf16" else None


def pick_device(name: str) -> torch.device:
    """The device of this name, which this PyTorch and this machine must have."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InputError(f"unknown device {name!r}: use cpu, cuda or cuda:1") from error
    backend: Any = getattr(torch, device.type, None)  # torch.cuda, torch.mps, torch.xpu, …
    is_there = device.type == "cpu" or (hasattr(backend, "is_available") and backend.is_available())
    count = backend.device_count() if is_there else 0
    if count == 0:
        raise InputError(f"this machine has no {device.type} device that PyTorch can use: --device cpu")
    if (device.index or 0) >= count:
        raise InputError(f"there is no {device}: the last is {device.type}:{count - 1}")
    return device


@contextlib.contextmanager
def own_randomness(device: torch.device) -> Iterator[None]:
    """Leave the caller's random generators as they were."""
    with kept_random_state(device):
        yield


@contextlib.contextmanager
def memory_errors() -> Iterator[None]:
    """Turn an allocation that failed into a sentence with what would help."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else "allocation failed"
        if is_out_of_memory(error):
            raise NotEnoughMemory(
                f"not enough memory ({reason}). What helps: a smaller --batch-size or --size, a smaller encoder, "
                "--precision bf16 on a GPU, --memory-gb 0 to read files anew instead of keeping them"
            ) from error
        raise
