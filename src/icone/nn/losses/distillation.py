"""Losses of a student that predicts what its EMA copy says about another view: BYOL and DINO."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from icone.nn.losses.pairs import mean_over_other_views


def bootstrap(prediction: Tensor, target: Tensor) -> Tensor:
    """Squared distance on the sphere between the prediction from one view and the target of another (BYOL).

        L = mean over instances and pairs of views of (2 − 2⟨p_1, t_2⟩) + (2 − 2⟨p_2, t_1⟩)

    Grill et al. 2020, arXiv:2006.07733.

    prediction, target: (B, V, d), of any scale; the target passes no gradient.

    >>> x = torch.eye(2)[None]  # two views at a right angle
    >>> bootstrap(x, x), bootstrap(x, x.flip(1))
    (tensor(4.), tensor(0.))
    """
    prediction, target = F.normalize(prediction, dim=-1), F.normalize(target.detach(), dim=-1)
    return 4 - 4 * mean_over_other_views(prediction @ target.transpose(1, 2))


def self_distillation(
    student: Tensor,
    teacher: Tensor,
    centre: Tensor,
    teacher_temperature: Tensor | float,
    student_temperature: float = 0.1,
) -> Tensor:
    """Cross-entropy between the teacher on one view and the student on another (DINO).

        L = mean over instances and ordered pairs of views s≠t of −Σ_k P_sk log Q_tk,
        P = softmax((teacher − centre)/τ_t),   Q = softmax(student/τ_s)

    Centring keeps one output from winning everywhere, the low τ_t keeps the outputs from becoming uniform. Caron
    et al. 2021, arXiv:2104.14294.

    student, teacher: logits (B, V, K); centre: (K,); the teacher passes no gradient.
    """
    target = ((teacher.detach() - centre) / teacher_temperature).softmax(dim=-1)
    predicted = (student / student_temperature).log_softmax(dim=-1)
    return -mean_over_other_views(target @ predicted.transpose(1, 2))


def moved_centre(centre: Tensor, teacher: Tensor, momentum: float = 0.9) -> Tensor:
    """The centre after a batch: m·centre + (1 − m)·mean of the teacher's logits over instances and views.

    Caron et al. 2021, arXiv:2104.14294.

    centre: (K,); teacher: (B, V, K).

    >>> moved_centre(torch.tensor([1.0]), torch.zeros(1, 2, 1))
    tensor([0.9000])
    """
    return torch.lerp(teacher.detach().mean(dim=(0, 1)), centre, momentum)
