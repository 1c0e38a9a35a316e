"""The processes that train one network together, each on a share of every batch (`torch.distributed`).

Every rank encodes its own samples. The features of all ranks are then gathered, and every rank computes heads, tables
and loss of the whole batch. So a loss sees the same rows as in one process, and only the encoder's gradients, of which
every rank has the part of its own samples, are summed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

BUCKET_BYTES = 25 * 2**20
"""Gradients that are summed in one message, as in PyTorch's DistributedDataParallel."""
LARGE_BYTES = 2**20
"""A gradient from which on NCCL sums it where it lies: copying it into a bucket would take longer than a message."""


class Ranks:
    """The ranks of a process group, and which share of the present batch this one has.

    >>> import tempfile
    >>> _ = dist.init_process_group("gloo", init_method=f"file://{tempfile.mktemp()}", rank=0, world_size=1)
    >>> ranks = Ranks()
    >>> with ranks.sharing(3) as share:
    ...     share.gather(torch.ones(3, 2)).shape
    torch.Size([3, 2])
    >>> dist.destroy_process_group()
    """

    def __init__(self, group: dist.ProcessGroup | None = None, control: dist.ProcessGroup | None = None) -> None:
        """`group` (default: that of all ranks) exchanges tensors of the device, `control` those of the CPU."""
        self.group, self.control = group, control or group
        self.rank, self.size = dist.get_rank(group), dist.get_world_size(group)
        self.share: Share | None = None
        """What this rank has of the batch that is being encoded; None where every rank computes everything."""
        self._weights: dict[tuple[int, torch.device], Tensor] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy of a network belongs to the same ranks."""
        return self

    def counts(self, count: int) -> list[int]:
        """Rows of each rank of so many: they differ by one at most."""
        whole, rest = divmod(count, self.size)
        return [whole + (rank < rest) for rank in range(self.size)]

    def share_of(self, count: int) -> Share:
        """What this rank has of so many rows, in the order of the ranks."""
        counts = self.counts(count)
        start = sum(counts[: self.rank])
        if counts[self.rank] == 0:
            return Share(self, count - 1, count, count, is_empty=True)
        return Share(self, start, start + counts[self.rank], count)

    @contextmanager
    def sharing(self, count: int) -> Iterator[Share]:
        """Encode shares of a batch of so many samples within the block."""
        self.share = self.share_of(count)
        try:
            yield self.share
        finally:
            self.share = None

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all ranks; no gradient passes through."""
        values = values.detach().clone()
        dist.all_reduce(values, group=self.group)
        return values

    @torch._disable_dynamo  # type: ignore[attr-defined]  # compilers know nothing of messages
    def sum_rows(self, rows: Tensor) -> Tensor:
        """The sum over all ranks, of which every rank has the whole gradient: its own part comes back as it is."""
        return cast(Tensor, _Sum.apply(rows, self))

    def weights(self, count: int, device: torch.device) -> Tensor:
        """The part of so many rows that each rank has, made once: (ranks,)."""
        key = (count, device)
        if key not in self._weights:
            self._weights[key] = torch.tensor([own / count for own in self.counts(count)], device=device)
        return self._weights[key]

    @torch.no_grad()
    def sum_gradients(self, parameters: Sequence[nn.Parameter]) -> None:
        """Replace the gradients of parameters by their sums over all ranks; small ones are sent in buckets."""
        gradients = [p.grad for p in parameters if p.grad is not None]
        large = [gradient for gradient in gradients if gradient.is_cuda and gradient.nbytes >= LARGE_BYTES]
        for gradient in large:
            dist.all_reduce(gradient, group=self.group)
        for bucket in _buckets([gradient for gradient in gradients if all(gradient is not one for one in large)]):
            flat = torch.cat([gradient.reshape(-1) for gradient in bucket])
            dist.all_reduce(flat, group=self.group)
            parts = flat.split([gradient.numel() for gradient in bucket])
            torch._foreach_copy_(bucket, [p.view_as(g) for p, g in zip(parts, bucket, strict=True)])

    def broadcast(self, tensors: Sequence[Tensor]) -> None:
        """Give all ranks the tensors of rank 0."""
        for tensor in tensors:
            values = tensor.detach().contiguous()
            dist.broadcast(values, 0, group=self.group)
            tensor.detach().copy_(values)

    def highest(self, *values: int) -> list[int]:
        """The highest of each number over all ranks, through the CPU; waits for all ranks."""
        numbers = torch.tensor(values, dtype=torch.int64)
        dist.all_reduce(numbers, dist.ReduceOp.MAX, group=self.control)
        return cast(list[int], numbers.tolist())

    def barrier(self) -> None:
        """Wait until every rank is here."""
        self.highest(0)


@dataclass(frozen=True)
class Share:
    """Rows `start` to `stop` of `count`, those of this rank.

    A rank for which there are no rows has the last one instead, so that its network runs on something; it `is_empty`,
    and neither its features nor its gradients count.
    """

    ranks: Ranks
    start: int
    stop: int
    count: int
    is_empty: bool = False

    @property
    def part(self) -> tuple[int, int, int]:
        """The rows as plain numbers: start, stop, count."""
        return self.start, self.stop, self.count

    @torch._disable_dynamo  # type: ignore[attr-defined]  # compilers know nothing of messages
    def gather(self, rows: Tensor) -> Tensor:
        """The rows of all ranks in order, (own rows, …) -> (count, …); the gradient of own rows comes back.

        No gradients are added up: every rank computes the same loss of all rows, and so has the whole gradient.
        """
        return cast(Tensor, _Gather.apply(rows, self))

    def merge(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance of all rows, from those of the own rows (Chan, Golub and LeVeque 1983)."""
        found = torch.stack([mean, variance])
        every = found.new_empty(2 * self.ranks.size, len(mean))
        dist.all_gather_into_tensor(every, found, group=self.ranks.group)
        means, variances = every.view(self.ranks.size, 2, -1).unbind(1)
        weights = self.ranks.weights(self.count, mean.device).to(mean.dtype)[:, None]
        mean = (weights * means).sum(0)
        return mean, (weights * (variances + (means - mean).square())).sum(0)

    def total(self, x: Tensor) -> float:
        """Values of a tensor of own rows (own rows · views, …) that all ranks have together."""
        return x.numel() / (self.stop - self.start) * self.count


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, share: Share) -> Tensor:
        ctx.share, ctx.shape = share, rows.shape
        ranks, counts = share.ranks, share.ranks.counts(share.count)
        longest = max(counts)
        rows = F.pad(rows.contiguous(), (0, 0) * (rows.dim() - 1) + (0, longest - len(rows)))
        every = rows.new_empty(ranks.size * longest, *rows.shape[1:])
        dist.all_gather_into_tensor(every, rows, group=ranks.group)
        if share.count == len(every):
            return every
        return torch.cat([part[:own] for part, own in zip(every.split(longest), counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        share: Share = ctx.share
        if share.is_empty:
            return gradient.new_zeros(ctx.shape), None
        return gradient[share.start : share.stop], None


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, ranks: Ranks) -> Tensor:
        return ranks.sum(rows)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient, None


def _buckets(tensors: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    bucket: list[Tensor] = []
    for tensor in tensors:
        if bucket and (sum(t.nbytes for t in bucket) + tensor.nbytes > BUCKET_BYTES or tensor.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(tensor)
    if bucket:
        yield bucket
