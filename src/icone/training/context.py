"""The context of a run: its device, and on a GPU a stream and a random state of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


class RunContext:
    """What several runs in one process must not share on a GPU: a stream and a random state.

    Work on one stream is done in order; work on several streams overlaps. A stream also has workspaces of its own in
    the maths libraries: graphs that were captured on one stream share them, and must not be replayed at the same time.
    The random state begins as that of the device's generator.

    `tf32` allows TF32 in products of float32 on a GPU: 11 significant bits instead of 24. `high_priority` lets kernels
    of the stream start before those of side streams.
    """

    def __init__(self, device: torch.device, *, tf32: bool = False, high_priority: bool = True) -> None:
        self.device, self.tf32 = device, tf32
        if device.type == "cuda":
            self.stream = torch.cuda.Stream(device, priority=-1 if high_priority else 0)
            self.stream.wait_stream(torch.cuda.current_stream(device))  # what was made before is ready
            self._random_state = self._generator.clone_state()

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
        self._generator.graphsafe_set_state(self._random_state)
        try:
            with torch.cuda.stream(self.stream), matmul_precision("high" if self.tf32 else "highest"):
                yield
        finally:
            self._random_state = self._generator.graphsafe_get_state()
            self._generator.graphsafe_set_state(before)

    def synchronize(self) -> None:
        """Wait until everything is done that was begun in this context."""
        if self.device.type == "cuda":
            self.stream.synchronize()

    def replace_generator(self) -> None:
        """Replace the generator, which a failed capture leaves unusable; its random state is to be set after."""
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
def matmul_precision(precision: str) -> Iterator[None]:
    """Set within the block how PyTorch multiplies matrices of float32: "highest" is exact, "high" may use TF32."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)
