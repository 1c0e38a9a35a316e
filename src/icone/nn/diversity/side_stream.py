"""The diversity loss on a side stream: it depends on nothing that the encoder computes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from icone.nn.diversity.table import attach_gradient


class SideStream:
    """On a GPU computes a function and its gradient on a side stream, while the current stream goes on."""

    def __init__(self) -> None:
        self.enabled = True
        """Without it everything is computed in order, on the current stream."""
        self._stream: torch.cuda.Stream | None = None

    def compute(self, function: Callable[[Tensor], Tensor], table: Tensor) -> Callable[[], Tensor]:
        """Start to compute the function of a table; calling the result waits for its value.

        The gradient is computed at once. Autograd would compute it last, because the function came first in the forward
        pass, and the table would be updated after everything else.

        >>> SideStream().compute(torch.sum, torch.ones(2, 3))()
        tensor(6.)
        """
        if not (self.enabled and table.is_cuda):
            value = function(table)
            return lambda: value
        if self._stream is None:
            self._stream = torch.cuda.Stream(table.device)
        current, side = torch.cuda.current_stream(table.device), self._stream
        side.wait_stream(current)
        with torch.cuda.stream(side), torch.enable_grad():
            copy = table.detach().requires_grad_()
            value = function(copy)
            (gradient,) = torch.autograd.grad(value, copy)

        def join() -> Tensor:
            current.wait_stream(side)
            for computed in (value, gradient):
                computed.record_stream(current)
            return attach_gradient(table, value.detach(), gradient)

        return join
