"""The table's term beside the encoder: it depends on nothing that the encoder computes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor


class Beside:
    """On a GPU computes a function on a stream of its own, while its user goes on."""

    def __init__(self) -> None:
        self._stream: torch.cuda.Stream | None = None

    def compute(self, function: Callable[[Tensor], Tensor], table: Tensor) -> Callable[[], Tensor]:
        """Start with the function of a table; calling the result waits for its value.

        The backward pass goes on the same stream.

        >>> Beside().compute(torch.sum, torch.ones(2, 3))()
        tensor(6.)
        """
        if not table.is_cuda:
            value = function(table)
            return lambda: value
        if self._stream is None:
            self._stream = torch.cuda.Stream(table.device)
        user, side = torch.cuda.current_stream(table.device), self._stream
        alias = table.view_as(table)  # its gradient comes back to the user's stream before it reaches the table
        side.wait_stream(user)
        with torch.cuda.stream(side):
            value = function(alias)

        def join() -> Tensor:
            user.wait_stream(side)
            value.record_stream(user)
            return value

        return join
