"""The table's term beside the encoder: it depends on nothing that the encoder computes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Beside:
    """On a GPU computes a function on a stream of its own, while its user goes on."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None

    def compute(self, function: Callable[[], Tensor], device: torch.device) -> Callable[[], Tensor]:
        """Start; calling the result waits for the value. The backward pass goes on the same stream.

        >>> Beside().compute(lambda: torch.ones(()), torch.device("cpu"))()
        tensor(1.)
        """
        if device.type != "cuda":
            value = function()
            return lambda: value
        if self._stream is None:
            self._stream = torch.cuda.Stream(device)
        user, side = torch.cuda.current_stream(device), self._stream
        side.wait_stream(user)
        with torch.cuda.stream(side):
            value = function()

        def join() -> Tensor:
            user.wait_stream(side)
            value.record_stream(user)
            return value

        return join
