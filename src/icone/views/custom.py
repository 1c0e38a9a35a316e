"""Views that a user's own callable makes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from icone.errors import InputError, type_and_line
from icone.views.base import Views, unit_range

ViewFunction = Callable[[Tensor], Tensor]
"""One random view of one sample: (C, *size) in [0, 1] -> (C, *size), as torchvision's and MONAI's transforms are."""


DRAWS = 32
"""Views after which a callable is taken to make no random changes. One that flips half of the samples and does nothing
else passes for such once in 16 million times."""
VIEWS_DRAWN = 4
"""Of each sample among them."""
LOW, HIGH = -0.5, 1.5
"""Values of a view beyond these are of another range than [0, 1]: normalised, and not only noisy."""


class CustomViews(Views):
    """Calls a user's function for every view of every sample.

    In evaluation the encoder sees the samples as they are, in [0, 1], unless the callable has an attribute `plain`, a
    function of the same kind without randomness: one that normalises, for example. A run repeats itself only if the
    callable takes its random numbers from PyTorch.
    """

    def __init__(self, view: ViewFunction, shape: tuple[int, ...]) -> None:
        """`shape` is that of one sample, (C, *size); the callable is tried once."""
        super().__init__()
        self._functions = (view, getattr(view, "plain", None))  # in a tuple: a module among them stays the user's
        self._shape = shape
        self._include("custom", {"callable": _name(view)})
        for function in self._functions:
            if function is not None:
                with torch.random.fork_rng([]):
                    _view_of(function, torch.rand(shape), shape)

    @cached_property
    def why_identical(self) -> str | None:
        """Why all views of a sample are the same: the callable makes no random changes.

        It is called for views of noise until two of them differ, at most `DRAWS` times.
        """
        view, name = self._functions[0], _name(self._functions[0])
        with kept_random_states():
            for _ in range(DRAWS // VIEWS_DRAWN):
                sample = torch.rand(self._shape)
                first = _view_of(view, sample.clone(), self._shape)
                if not all(
                    torch.equal(first, _view_of(view, sample.clone(), self._shape)) for _ in range(VIEWS_DRAWN - 1)
                ):
                    return None
        return (
            f"views={name} returns the same view of a sample at every call; let it change samples at random, for "
            "example by a random crop, or leave views out"
        )

    @cached_property
    def why_other_range(self) -> str | None:
        """Why the encoder sees other values in evaluation than in training: the callable normalises without `plain`."""
        view, plain = self._functions
        if plain is not None:
            return None
        with kept_random_states():
            seen = _view_of(view, torch.rand(self._shape), self._shape)
        low, high = float(seen.min()), float(seen.max())
        if low >= LOW and high <= HIGH:
            return None
        return (
            f"views={_name(view)} returns values from {low:.1f} to {high:.1f}, but embeddings and probes read samples "
            "as they are, in [0, 1]. Give the callable an attribute plain, a function that normalises a sample without "
            "randomness (docs/training.md)"
        )

    def augment(self, images: Tensor) -> Tensor:
        """One view of every sample."""
        return _mapped(self._functions[0], images)

    def plain(self, images: Tensor) -> Tensor:
        """The samples in [0, 1], or what `plain` makes of them."""
        function = self._functions[1]
        return unit_range(images) if function is None else _mapped(function, images)


class PlainViews(Views):
    """The deterministic view alone, for encoders whose random views are not at hand."""

    def augment(self, images: Tensor) -> Tensor:
        """There are no random views."""
        raise InputError("the run was given its views as a Python object: give it again, views=…")

    def plain(self, images: Tensor) -> Tensor:
        """The samples in [0, 1]."""
        return unit_range(images)


@contextmanager
def kept_random_states() -> Iterator[None]:
    """Leave the random states of PyTorch, NumPy and Python, which a callable may use, as they were."""
    random_state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng([]):
            yield
    finally:
        random.setstate(random_state)
        np.random.set_state(numpy_state)


def _mapped(function: ViewFunction, images: Tensor) -> Tensor:
    return torch.stack([function(sample) for sample in unit_range(images)]).float()


def _name(function: ViewFunction) -> str:
    return getattr(function, "__name__", type(function).__name__)


def _view_of(function: ViewFunction, sample: Tensor, shape: tuple[int, ...]) -> Tensor:
    """What a user's function makes of a sample, which must be a sample again."""
    name = _name(function)
    wanted = f"a function of one sample, a tensor {shape} in [0, 1], that returns a tensor of the same shape"
    try:
        view = function(sample)
    except Exception as error:  # it is the user's code: whatever it raises
        raise InputError(f"views={name} failed: {type_and_line(error)}. Give {wanted}") from error
    if not isinstance(view, Tensor) or tuple(view.shape) != shape:
        found = tuple(view.shape) if isinstance(view, Tensor) else type(view).__name__
        is_last = isinstance(view, Tensor) and tuple(view.shape) == (*shape[1:], shape[0])
        way_out = ": view.movedim(-1, 0) puts the channels first" if is_last else ""
        raise InputError(f"views={name} returned {found}{way_out}. Give {wanted}")
    if not torch.isfinite(view).all():
        raise InputError(f"views={name} returned values that are NaN or infinite. Give {wanted}")
    return view
