"""The anchors of IConE and its objective, for any training loop."""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from icone.errors import OWN_CODE, InputError, unknown_name
from icone.nn.diversity import DIVERSITY, orthogonality, shared_orthogonality
from icone.nn.losses import anchor_alignment, view_consistency, weighted_sum
from icone.nn.ranks import Ranks, Share


class AnchorTable(nn.Module):
    """One learnable anchor per instance: raw parameters are updated, unit vectors are used.

    Almpanakis and Kreshuk, "IConE: Batch Independent Collapse Prevention for Self-Supervised Representation
    Learning", 2026, arXiv:2603.15263.

    >>> AnchorTable(5, 8)(torch.tensor([0, 3])).norm(dim=1).allclose(torch.ones(2))
    True
    """

    share: Share | None = None
    """Where ranks share the table: which of its rows are the parameters of this one."""

    def __init__(self, num_instances: int, dim: int, std: float = 0.02, unit: bool = False) -> None:
        """Anchors start at N(0, std²), or with `unit` at length 1, from where the optimizer moves them freely."""
        super().__init__()
        drawn = torch.randn(num_instances, dim) * std
        self.weight = nn.Parameter(F.normalize(drawn, dim=-1) if unit else drawn)

    def forward(self, index: Tensor | None = None) -> Tensor:
        """Unit anchors of the given instances, or of all: (B, d) or (N, d)."""
        return F.normalize(self.whole() if index is None else self._rows(index), dim=-1)

    def whole(self) -> Tensor:
        """All raw anchors (N, d), gathered where ranks share the table; the gradient reaches own rows."""
        return self.weight if self.share is None else self.share.gather(self.weight)

    def _rows(self, index: Tensor) -> Tensor:
        if self.share is None:
            return self.weight.index_select(0, index)
        own = index - self.share.start
        mine = (own >= 0) & (own < len(self.weight))
        rows = self.weight.index_select(0, own.clamp(0, len(self.weight) - 1)) * mine[:, None]
        return self.share.ranks.sum_rows(rows)

    def split(self, ranks: Ranks) -> None:
        """Keep only the rows of this rank, to be called before an optimizer is made.

        Weight, gradient and moments of a row are then those of one rank. A table with fewer rows than ranks stays whole
        on all of them.
        """
        if 1 < ranks.size <= len(self.weight):
            self.share = ranks.share_of(len(self.weight))
            rows = self.weight.detach()[self.share.start : self.share.stop].clone()
            self.weight = nn.Parameter(rows, requires_grad=self.weight.requires_grad)

    def of_whole(self, term: Callable[..., Tensor]) -> Callable[..., Tensor]:
        """The same diversity term as a function of the rows of this rank.

        Orthogonality costs every rank its own rows against all. Other terms are computed from the gathered table, by
        every rank alike.
        """
        share = self.share
        if share is None:
            return term
        if isinstance(term, partial) and term.func is orthogonality:
            return partial(shared_orthogonality, share=share, **term.keywords)
        return lambda own, **options: term(share.gather(own), **options)

    @torch.no_grad()
    def start_from(self, features: Tensor, rows: Tensor | None = None) -> None:
        """Move the anchors, or those in `rows`, to where the features (N, d) of their instances point from their mean.

        Lengths stay, and a tenth of the random start, so that instances that look alike can part.
        """
        deviation = F.normalize(features - features.mean(0), dim=-1)
        whole = self.whole().detach().clone()
        length = whole.norm(dim=-1).mean()
        started = 0.1 * whole + length * deviation.to(whole)
        if rows is None:
            whole = started
        else:
            whole[rows] = started[rows]
        self.weight.copy_(whole if self.share is None else whole[self.share.start : self.share.stop])

    @torch.no_grad()
    def mean_cosine(self) -> Tensor:
        """Mean cosine over all pairs of different anchors; 1 is collapse. O(N·d) through the sum of the anchors."""
        anchors = self()
        n = anchors.shape[0]
        cosine: Tensor = (anchors.sum(0).square().sum() - n) / max(n * (n - 1), 1)
        return cosine


class IConELoss(nn.Module):
    """The objective with its anchors, for training loops of one's own.

    Almpanakis and Kreshuk, "IConE: Batch Independent Collapse Prevention for Self-Supervised Representation
    Learning", 2026, arXiv:2603.15263.

    L = view_weight·L_vv + anchor_weight·L_vi + diversity_weight·L_div, with L_vv = mean over pairs of views of
    1 − cos, L_vi = mean of 1 − cos(view, own anchor), L_div over the whole table. The anchors are parameters: hand
    them to the optimizer that updates the encoder, and update them densely, every step (a sparse or lazy optimizer
    silently disables the diversity term).

    `normalisation` divides the orthogonality by the number of pairs, as the paper prints it, or by the number of
    anchors, which keeps the diversity loss of one anchor independent of N and holds at batch size 1. `diversity` is the
    name of a term, or a function of the raw table (N, d), such as `affordable_orthogonality` gives.

    The weights are the paper's. `icone pretrain` takes a view_weight of 0.1, puts a projection head in front, before
    the first step moves the anchors to the untrained embeddings, `loss.anchors.start_from(embeddings)`, and gives them
    an ε of AdamW by which it divides by a constant: `icone.recipe.parameter_groups(encoder, loss, batch_size=…)`.

    >>> loss = IConELoss(num_instances=100, dim=16)
    >>> embeddings = torch.randn(4, 2, 16)           # 4 instances, 2 views each
    >>> loss(embeddings, torch.tensor([7, 1, 42, 99])).shape
    torch.Size([])
    """

    def __init__(
        self,
        num_instances: int,
        dim: int,
        *,
        diversity: str | Callable[[Tensor], Tensor] = "orthogonality",
        normalisation: str = "anchor",
        view_weight: float = 1.0,
        anchor_weight: float = 1.0,
        diversity_weight: float = 1.0,
        init_std: float = 0.02,
        init_unit: bool = False,
    ) -> None:
        super().__init__()
        for name, value in {"num_instances": num_instances, "dim": dim}.items():
            if not isinstance(value, numbers.Integral) or value < 1:
                raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
        self.anchors = AnchorTable(num_instances, dim, init_std, init_unit)
        self.weights = {
            "view_consistency": view_weight,
            "anchor_alignment": anchor_weight,
            "diversity": diversity_weight,
        }
        self.diversity = diversity if callable(diversity) else diversity_function(diversity, normalisation)

    def split(self, ranks: Ranks) -> None:
        """Share the anchors among ranks, which all compute the loss of the same embeddings (`AnchorTable.split`)."""
        self.anchors.split(ranks)
        self.diversity = self.anchors.of_whole(self.diversity)

    def forward(self, embeddings: Tensor, index: Tensor) -> Tensor:
        """Total loss of embeddings (B, V, d) of the instances `index` (B,), numbers from 0 to num_instances − 1.

        On a GPU the numbers are not looked at, because that would wait for it: one out of range ends in an error of
        CUDA.
        """
        self._check(embeddings, index)
        return self.terms(embeddings, index)["loss"]

    def _check(self, embeddings: Tensor, index: Tensor) -> None:
        count, dim = self.anchors.weight.shape
        if not (isinstance(embeddings, Tensor) and isinstance(index, Tensor)):
            raise InputError(f"embeddings and index must be tensors, got {type(embeddings)} and {type(index)}")
        if embeddings.ndim != 3 or embeddings.shape[2] != dim or not embeddings.is_floating_point():
            raise InputError(
                f"embeddings must be real numbers of shape (B, V, {dim}), as the anchors are, "
                f"got {embeddings.dtype} of {tuple(embeddings.shape)}"
            )
        if index.shape != embeddings.shape[:1] or index.dtype not in (torch.int64, torch.int32):
            raise InputError(
                f"index must be whole numbers of shape ({len(embeddings)},), one per instance of the batch, "
                f"got {index.dtype} of {tuple(index.shape)}"
            )
        if index.device.type == "cpu" and len(index):
            low, high = (int(end) for end in index.aminmax())
            if low < 0 or high >= count:
                wrong = low if low < 0 else high
                raise InputError(f"index holds {wrong}, but there are {count} anchors: 0 to {count - 1}")

    def terms(self, embeddings: Tensor, index: Tensor, diversity: Tensor | None = None) -> dict[str, Tensor]:
        """The total under "loss" and its three terms, unweighted; `diversity` where it was computed before."""
        consistency, alignment = self.pull(embeddings, index)
        return weighted_sum(
            self.weights,
            view_consistency=consistency,
            anchor_alignment=alignment,
            diversity=self.diversity(self.anchors.weight) if diversity is None else diversity,
        )

    def pull(self, embeddings: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        """View consistency and anchor alignment: what depends on the batch."""
        return view_consistency(embeddings), anchor_alignment(embeddings, self.anchors(index))


def diversity_function(name: str, normalisation: str) -> Callable[..., Tensor]:
    """The diversity term of this name as a function of the table, with the normalisation where it takes one.

    What a term takes is what its signature names: the orthogonalities have a `normalisation`, others have none.
    """
    if name not in DIVERSITY:
        raise unknown_name("diversity", name, DIVERSITY, OWN_CODE)
    if normalisation not in ("pair", "anchor"):
        raise unknown_name("normalisation", normalisation, ("pair", "anchor"))
    options = {"normalisation": normalisation}
    taken = options.keys() & inspect.signature(DIVERSITY[name]).parameters.keys()
    return partial(DIVERSITY[name], **{option: options[option] for option in taken})
