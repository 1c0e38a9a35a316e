"""The context of a run: its device, on a GPU a stream of its own, and the state of its random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor


class RunContext:
    """What several runs in one process must not share on a GPU.

    Work on one stream is done in order; runs on streams of their own go on side by side. A stream also gives its run
    workspaces of its own in the maths libraries: graphs that were captured on one stream share them, and must not be
    replayed side by side. The random numbers begin where the device's generator is when it is made.

    `reduced` allows TF32 in products of float32 on a GPU: 11 significant bits instead of 24.
    """

    def __init__(self, device: torch.device, *, reduced: bool = False) -> None:
        self.device, self.reduced = device, reduced
        if device.type == "cuda":
            # What runs beside it, on streams of the lowest priority, gets the processors that it leaves.
            self.stream = torch.cuda.Stream(device, priority=-1)
            self.stream.wait_stream(torch.cuda.current_stream(device))  # what was made before is ready
            self._random = self._generator.clone_state()

    @property
    def _generator(self) -> torch.Generator:
        index = torch.cuda.current_device() if self.device.index is None else self.device.index
        return torch.cuda.default_generators[index]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Compute in this context within the block."""
        if self.device.type != "cuda":
            yield
            return
        before = self._generator.graphsafe_get_state()
        self._generator.graphsafe_set_state(self._random)
        try:
            with torch.cuda.stream(self.stream), _products("high" if self.reduced else "highest"):
                yield
        finally:
            self._random = self._generator.graphsafe_get_state()
            self._generator.graphsafe_set_state(before)

    def random_state(self) -> Tensor:
        """Where the random numbers are; to be called inside `context.active()`."""
        return self._generator.get_state()

    def set_random_state(self, state: Tensor) -> None:
        self._generator.set_state(state)

    def renew_randomness(self) -> None:
        """Leave a generator that a failed capture has left unusable; its numbers are to be set after."""
        self._generator.graphsafe_set_state(torch.Generator(self.device))


def seed_random_numbers(seed: int, device: torch.device) -> None:
    """Seed the generators of the CPU and of this device, and of no other GPU, as `torch.manual_seed` would."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def kept_random_state(device: torch.device, seed: int | None = None) -> Iterator[None]:
    """Leave the generators of the CPU and of this device as they were; within the block seeded, if there is a seed."""
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        if seed is not None:
            seed_random_numbers(seed, device)
        yield


@contextmanager
def _products(precision: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
