"""SwAV's loss: a view predicts to which prototypes another view of its instance was assigned."""

from __future__ import annotations

import torch
from torch import Tensor

from icone.nn.losses.pairs import mean_over_other_views


@torch.no_grad()
def sinkhorn(scores: Tensor, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Assign rows to prototypes such that all prototypes are used alike (Sinkhorn–Knopp).

    Q = exp(scores/ε) is scaled in turn so that every prototype receives the same mass and every row gives 1;
    it ends with the rows. One row alone is assigned uniformly, whatever its scores. Cuturi 2013, arXiv:1306.0895; for
    prototypes Caron et al. 2020, arXiv:2006.09882.

    scores: (..., B, K), each matrix on its own; returns the same shape, rows of sum 1, no gradient.

    >>> sinkhorn(torch.tensor([[1.0, 0.0], [0.9, 0.0]]))  # both prefer the first, one has to give way
    tensor([[0.7272, 0.2728],
            [0.2651, 0.7349]])
    """
    log_q = scores / epsilon  # in logarithms nothing overflows, and a log-softmax is one scaling
    for _ in range(iterations):
        log_q = log_q.log_softmax(dim=-2).log_softmax(dim=-1)
    return log_q.exp()


def swapped_prediction(scores: Tensor, temperature: float = 0.1, epsilon: float = 0.05, iterations: int = 3) -> Tensor:
    """Cross-entropy between the assignment of one view and the prediction from another (SwAV).

        L = mean over instances and ordered pairs of views s≠t of −Σ_k q_sk log softmax_k(scores_t/τ)

    with q from `sinkhorn` over the batch, for each view on its own. Caron et al. 2020, arXiv:2006.09882.

    scores: (B, V, K), cosines of embeddings and prototypes.
    """
    assigned = sinkhorn(scores.transpose(0, 1), epsilon, iterations).transpose(0, 1)
    predicted = (scores / temperature).log_softmax(dim=-1)
    return -mean_over_other_views(assigned @ predicted.transpose(1, 2))
