"""Which parts of a run are compiled, and how."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from icone.encoders import Region, regions
from icone.methods import Method
from icone.views import Views

OPTIONS: dict[str, Any] = {
    "combo_kernels": True,  # casts of many small weights become few kernels
    "fallback_random": True,  # the random numbers of the uncompiled code
    # Memory may still be read on another stream (weight_gradients.py), of which the compiler knows nothing:
    "allow_buffer_reuse": False,
    "inplace_buffers": False,
}
MOST_VARIANTS = 256
"""Shapes and modes of one function that are compiled: a block has one for each place in the network and batch."""


def compile_parts(method: Method, views: Views) -> list[Region]:
    """Compile the views, the encoder's regions and those of its moving copies; compiling happens at the first call."""
    encoders = [region for network in method.encoders() for region in regions(network)]
    parts = [Region(views), *encoders, *method.compiled_parts()]
    for module, name in parts:
        setattr(module, name, torch.compile(getattr(module, name), dynamic=False, options=OPTIONS))
    return parts


def undo(parts: list[Region]) -> None:
    for module, name in parts:
        module.__dict__.pop(name, None)


@contextmanager
def compiling() -> Iterator[None]:
    """Allow as many variants as a deep network has, and fail rather than go on uncompiled without a word."""
    with torch._dynamo.config.patch(
        recompile_limit=MOST_VARIANTS, accumulated_recompile_limit=16 * MOST_VARIANTS, fail_on_recompile_limit_hit=True
    ):
        yield
