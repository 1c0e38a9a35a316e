"""Classes of unequal frequency: what the loss of fine-tuning makes of them."""

from __future__ import annotations

import pytest
import torch

from icone.finetuning.label_code import LabelCode


def boundary(labels: list[str], x: torch.Tensor, balanced: bool) -> float:
    """Where a linear layer that has learned these labels of numbers goes from one class to the other."""
    code = LabelCode.of("classification", labels, balanced=balanced)
    layer = torch.nn.Linear(1, 2).double()
    for parameter in layer.parameters():
        torch.nn.init.zeros_(parameter)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=200, line_search_fn="strong_wolfe")
    targets = code.encode(labels)

    def closure() -> float:
        optimizer.zero_grad()
        loss = code.loss(layer(x[:, None]), targets)
        loss.backward()
        return float(loss.detach())

    optimizer.step(closure)
    slopes, starts = layer.weight[:, 0].diff(), layer.bias.diff()
    return float((-starts / slopes).detach())


@pytest.mark.parametrize(("balanced", "expected"), [(True, 0.0), (False, 1.1)])
def test_balanced_classes_are_parted_in_the_middle_of_two_normal_distributions(balanced: bool, expected: float) -> None:
    """Means -1 and 1, nine times as many of the first: the usual boundary is at log(9) / 2, the balanced one at 0."""
    usual = torch.distributions.Normal(0.0, 1.0)

    def quantiles(number: int) -> torch.Tensor:
        found: torch.Tensor = usual.icdf((torch.arange(number, dtype=torch.float64) + 0.5) / number)
        return found

    x = torch.cat([quantiles(900) - 1, quantiles(100) + 1])
    assert boundary(["often"] * 900 + ["rare"] * 100, x, balanced) == pytest.approx(expected, abs=0.05)


def test_only_classes_have_shares() -> None:
    assert LabelCode.of("classification", ["b", "a", "b", "b"], balanced=True).shares == (0.25, 0.75)
    assert LabelCode.of("classification", ["b", "a", "b", "b"]).shares == ()
    assert LabelCode.of("regression", ["1.5", "2"], balanced=True).shares == ()
    assert LabelCode.of("multilabel", ["a|b", "a"], balanced=True).shares == ()
