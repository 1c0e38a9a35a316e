"""Layers with deferred weight gradients compute what the layers do that they replace."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from icone.cuda import deferred_gradients
from icone.cuda.deferred_gradients import (
    DeferredGradConv3d,
    DeferredGradLinear,
    WeightGradientStream,
    defer_weight_gradients,
)
from icone.cuda.graph import many_recompiles
from icone.encoders import build_encoder, regions
from icone.nn import MovingStatistics, convert_batch_norm

NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "transformer": (
        lambda: build_encoder("test_vit", in_channels=3, spatial_dims=2, size=32),
        (2, 3, 32, 32),
    ),
    "volumes": (
        lambda: build_encoder("resnet10_3d", in_channels=1, spatial_dims=3, size=32, width=0.125, norm="group"),
        (2, 1, 32, 32, 32),
    ),
    "volumes with moving averages": (
        lambda: build_encoder("resnet10_3d", in_channels=1, spatial_dims=3, size=40, width=0.125),
        (2, 1, 40, 40, 40),
    ),
}


def gradients(network: nn.Module, x: Tensor) -> dict[str, Tensor]:
    network.zero_grad()
    output = network(x).float()
    (output * torch.linspace(-1, 1, output.numel()).view_as(output)).sum().backward()
    return {name: p.grad for name, p in network.named_parameters() if p.grad is not None}


# Not "volumes" in bf16: PyTorch's weight gradient of convolutions on maps of 2³ is then arbitrary (CPU, 2.11 and 2.15).
@pytest.mark.parametrize(("kind", "reduced"), [("transformer", False), ("transformer", True), ("volumes", False)])
def test_gradients_are_those_of_the_usual_layers(kind: str, reduced: bool) -> None:
    torch.manual_seed(0)
    build, shape = NETWORKS[kind]
    usual, x = build(), torch.randn(shape)
    network = deepcopy(usual)
    defer_weight_gradients(network)
    assert any(isinstance(m, (DeferredGradLinear, DeferredGradConv3d)) for m in network.modules())
    assert list(network.state_dict()) == list(usual.state_dict())
    with torch.autocast("cpu", torch.bfloat16, enabled=reduced):
        expected, found = gradients(usual, x), gradients(network, x)
    assert list(found) == list(expected)
    for name, gradient in found.items():
        assert gradient.dtype == torch.float32
        error = (gradient - expected[name]).norm() / expected[name].norm()
        assert error < (0.05 if reduced else 1e-5), name


@pytest.mark.parametrize("stride", [1, 2])
def test_reduced_convolutions_have_gradients_laid_out_like_their_weights(stride: int) -> None:
    torch.manual_seed(0)
    usual = nn.Sequential(nn.Conv3d(8, 16, 3, stride, padding=1, bias=False)).to(memory_format=torch.channels_last_3d)
    network = deepcopy(usual)
    defer_weight_gradients(network)
    x = torch.randn(2, 8, 6, 6, 6).to(memory_format=torch.channels_last_3d)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = gradients(usual, x)["0.weight"], gradients(network, x)["0.weight"]
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)
    assert found.stride() == next(usual.parameters()).stride()


def test_large_layers_are_left_to_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("deferred")

    monkeypatch.setattr(deferred_gradients._Linear, "apply", refuse)
    network = nn.Sequential(nn.Linear(4, 8))
    defer_weight_gradients(network)
    monkeypatch.setattr(DeferredGradLinear, "max_elements", 3 * 8 - 1)
    assert network(torch.randn(3, 4)).shape == (3, 8)
    monkeypatch.setattr(DeferredGradLinear, "max_elements", 3 * 8)
    with pytest.raises(AssertionError, match="deferred"):
        network(torch.randn(3, 4))


class TestCheck:
    """Of a stand-in: its stream would need a GPU."""

    @staticmethod
    def parameters() -> list[nn.Parameter]:
        result = [nn.Parameter(torch.zeros(2)) for _ in range(2)]
        for p in result:
            p.grad = torch.ones(2)
        return result

    @staticmethod
    def with_results(*results: int) -> WeightGradientStream:
        side = WeightGradientStream.__new__(WeightGradientStream)
        side.results = list(results)
        return side

    def test_results_that_became_gradients_pass(self) -> None:
        first, second = self.parameters()
        assert first.grad is not None
        self.with_results(first.grad.data_ptr()).check([first, second])

    def test_results_that_were_copied_or_added_up_are_an_error(self) -> None:
        first, second = self.parameters()
        assert first.grad is not None
        with pytest.raises(RuntimeError, match="takes part twice"):
            self.with_results(first.grad.data_ptr() + 4096).check([first, second])
        with pytest.raises(RuntimeError, match="takes part twice"):
            self.with_results(*[first.grad.data_ptr()] * 2).check([first, second])


@pytest.mark.filterwarnings("default")  # of the compiler
@pytest.mark.parametrize(
    ("kind", "reduced"), [("transformer", True), ("volumes", False), ("volumes with moving averages", True)]
)
def test_the_compiler_takes_every_region_whole(kind: str, reduced: bool) -> None:
    """Where it cannot follow it goes on without a word, with many more kernels."""
    build, shape = NETWORKS[kind]
    network, x = build(), torch.randn(shape)
    MovingStatistics(convert_batch_norm(network, 1))  # layers that update themselves are not compiled
    defer_weight_gradients(network)
    for module, name in regions(network):
        whole = torch.compile(getattr(module, name), backend="aot_eager", fullgraph=True, dynamic=False)
        setattr(module, name, whole)
    with torch.autocast("cpu", torch.bfloat16, enabled=reduced), many_recompiles():
        assert gradients(network, x)
