"""BatchNorm over a window of instances: BatchNorm where the batch is large enough, and its equal where it is not."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import timm
import torch
from torch import Tensor, nn

from icone.building import make_method
from icone.config import PretrainConfig
from icone.data import load_data
from icone.encoders import Windows, build_encoder, window_batch_norm
from icone.encoders.windows import WindowedBatchNorm


def layers(
    batch_size: int = 1, instances: int = 16, gradient_rows: int | None = None
) -> tuple[nn.BatchNorm1d, WindowedBatchNorm, Windows]:
    """A layer with weights of its own, its windowed copy, and what keeps the copy's windows."""
    plain = nn.BatchNorm1d(3).double()
    with torch.no_grad():
        plain.weight.uniform_(0.5, 2)
        plain.bias.normal_()
    windowed = WindowedBatchNorm(copy.deepcopy(plain), batch_size, instances, gradient_rows).double()
    return plain, windowed, Windows(windowed)


def outcome(layer: nn.Module, x: Tensor, task: Tensor) -> list[Tensor]:
    """Output, and gradients of input, weight and bias."""
    x = x.detach().requires_grad_()
    output = layer(x)
    gradients = torch.autograd.grad((output**3 * task).mean(), [x, *layer.parameters()], retain_graph=True)
    return [output.detach(), *gradients]


@pytest.mark.parametrize("shape", [(6, 3), (2, 3, 4, 5), (1, 3, 4, 4, 4)])
def test_a_first_pass_is_that_of_batch_norm(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, task = 3 + 2 * torch.randn(shape).double(), torch.randn(shape).double()
    kind: Any = {2: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}[len(shape)]
    plain = kind(3).double()
    windowed = WindowedBatchNorm(copy.deepcopy(plain), 1).double()
    for ours, theirs in zip(outcome(windowed, x, task), outcome(plain, x, task), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_with_the_whole_of_a_batch_every_pass_is_that_of_batch_norm() -> None:
    torch.manual_seed(0)
    plain, windowed, windows = layers(batch_size=16)
    for _ in range(3):
        x, task = torch.randn(16, 3).double(), torch.randn(16, 3).double()
        for ours, theirs in zip(outcome(windowed, x, task), outcome(plain, x, task), strict=True):
            torch.testing.assert_close(ours, theirs)
        (windowed(x) ** 3 * task).mean().backward()
        windows.take()


def test_instances_one_by_one_get_what_they_get_in_a_batch() -> None:
    """Over many passes of one instance, output and gradient of an instance are on average those in batches of 16.

    Ordinary BatchNorm over the four values of one instance is far from that.
    """
    torch.manual_seed(0)
    offsets, scales = 3 * torch.randn(400, 1, 1).double(), torch.rand(400, 1, 1).double() + 0.5
    values = offsets + scales * torch.randn(400, 3, 4).double()  # instances differ by their mean most of all
    task = torch.randn(400, 3, 4).double() * offsets

    def seen_in_batches(layer: nn.Module, windows: Windows | None, batch: int) -> tuple[Tensor, Tensor]:
        outputs, gradients = torch.zeros_like(values), torch.zeros_like(values)
        epochs = 10
        for _ in range(epochs):
            for rows in torch.randperm(400).split(batch):
                x = values[rows].requires_grad_()
                output = layer(x)
                (output.sin() * task[rows]).sum().backward()
                outputs[rows] += output.detach() / epochs
                assert x.grad is not None
                gradients[rows] += x.grad / epochs
                if windows:
                    windows.take()
        return outputs, gradients

    plain, windowed, windows = layers()
    expected = seen_in_batches(copy.deepcopy(plain), None, 16)
    for ours, theirs, alone in zip(
        seen_in_batches(windowed, windows, 1), expected, seen_in_batches(plain, None, 1), strict=True
    ):
        similar = torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten(), alone.flatten()]))
        assert similar[0, 1] > 0.95
        assert similar[1, 2] < 0.6
        assert ours.std() == pytest.approx(theirs.std().item(), rel=0.1)


@pytest.mark.parametrize("batch_size", [16, 64])
def test_gradients_are_centred_within_sixteen_instances_whatever_the_statistics(batch_size: int) -> None:
    """Statistics of 64 instances: means with the noise of 64, gradients whose mean over every 16 vanishes."""
    torch.manual_seed(0)
    plain, windowed, windows = layers(batch_size, instances=64, gradient_rows=16)
    means, moved, untouched = [], 0.0, 0.0
    for _ in range(1000):
        x = torch.randn(batch_size, 3).double().requires_grad_()
        task = torch.randn(batch_size, 3).double()
        (windowed(x) * task).sum().backward()
        windows.take()
        means.append(windowed.window[0].clone())
        moved += cast(Tensor, x.grad).unflatten(0, (-1, 16)).mean(1).square().sum().item()
        constant = plain.weight.detach() * task  # the gradient if statistics were constants
        untouched += constant.unflatten(0, (-1, 16)).mean(1).square().sum().item()
    assert torch.stack(means[100:]).std().item() == pytest.approx(64**-0.5, rel=0.1)
    assert moved < 0.1 * untouched


@pytest.mark.parametrize("shape", [(16, 3), (4, 3, 5, 5)])
def test_groups_that_are_alike_get_what_the_batch_gets(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    kind: Any = {2: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    plain = kind(3).double()
    grouped = WindowedBatchNorm(copy.deepcopy(plain), 64, 64, gradient_rows=shape[0]).double()
    x, task = (torch.randn(shape).double().repeat(4, *[1] * (len(shape) - 1)) for _ in range(2))
    for ours, theirs in zip(outcome(grouped, x, task), outcome(plain, x, task), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_in_evaluation_it_is_the_layer_that_it_replaces() -> None:
    torch.manual_seed(0)
    network: Any = build_encoder("resnet10_3d", spatial_dims=3, in_channels=1, size=32, width=0.125)
    windowed = copy.deepcopy(network)
    window_batch_norm(windowed, 1)
    assert not any(type(m) is nn.BatchNorm3d for m in windowed.modules())
    windows = Windows(windowed)
    for _ in range(20):
        windowed(torch.rand(1, 1, 32, 32, 32))
        windows.take()
    network.load_state_dict(windowed.state_dict())
    assert not torch.equal(network.bn1.running_mean, torch.zeros(8))
    x = torch.rand(2, 1, 32, 32, 32)
    torch.testing.assert_close(windowed.eval()(x), network.eval()(x))


def test_statistics_for_evaluation_are_those_of_the_data() -> None:
    torch.manual_seed(0)
    _, windowed, windows = layers()
    mean, deviation = torch.tensor([1.0, -2.0, 0.0]).double(), torch.tensor([1.0, 3.0, 0.1]).double()
    for _ in range(2000):
        windowed(mean + deviation * torch.randn(2, 3).double())
        windows.take()
    torch.testing.assert_close(windowed.running_mean, mean, rtol=0.1, atol=0.1)
    torch.testing.assert_close(windowed.running_var, deviation**2, rtol=0.15, atol=0.0)


def test_large_batches_and_other_networks_keep_their_layers() -> None:
    network = build_encoder("resnet10_3d", spatial_dims=3, in_channels=1, size=32, width=0.125)
    window_batch_norm(network, 16)
    assert not any(isinstance(m, WindowedBatchNorm) for m in network.modules())
    assert not Windows(network).tensors()


def test_layers_with_an_activation_inside_keep_it() -> None:
    torch.manual_seed(0)
    network: Any = timm.create_model("test_efficientnet", num_classes=0)
    x = torch.randn(2, 3, 64, 64)
    expected = network.train()(x)
    windowed = copy.deepcopy(network)
    window_batch_norm(windowed, 1)
    torch.testing.assert_close(windowed(x), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("batch_size", "gradient_rows"), [(1, None), (64, 32)])
def test_compiled_passes_are_those_of_the_layer(batch_size: int, gradient_rows: int | None) -> None:
    """The compiler may compute parts of the forward pass anew in the backward pass, after the windows have changed."""
    torch.manual_seed(0)
    _, windowed, _ = layers(batch_size, 64, gradient_rows)
    inside = copy.deepcopy(windowed)
    compiled: Any = torch.compile(inside, backend="aot_eager", fullgraph=True)
    results = []
    for layer, windows in ((windowed, Windows(windowed)), (compiled, Windows(inside))):
        torch.manual_seed(1)
        for _ in range(4):
            x = torch.randn(2 * batch_size, 3).double().requires_grad_()
            (layer(x) ** 3).sum().backward()
            windows.take()
        results.append([x.grad, *windows.tensors().values()])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_the_recipe_decides_whether_encoders_have_windows() -> None:
    config = PretrainConfig(source="synthetic:shapes@34x8", encoder="resnet10_3d", width=0.125, method="dino")
    data = load_data(config)
    method: Any = make_method(config, data)
    assert all(isinstance(network.bn1, WindowedBatchNorm) for network in (method.encoder, method.teacher_encoder))
    printed: Any = make_method(PretrainConfig(**{**vars(config), "recipe": "paper"}), data)
    assert type(printed.encoder.bn1) is nn.BatchNorm3d


@pytest.mark.parametrize(("batch_size", "rate"), [(1, 2 / 33), (16, 2 / 3), (64, 1.0)])
def test_the_head_of_icone_has_statistics_of_32_and_gradients_of_16(batch_size: int, rate: float) -> None:
    config = PretrainConfig(source="synthetic:gaussians@x70", batch_size=batch_size, views=3)
    method: Any = make_method(config, load_data(config))
    (layer,) = [m for m in method.head.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    assert isinstance(layer, WindowedBatchNorm)
    assert layer.rate == pytest.approx(rate)
    assert layer.gradient_rows == 16 * 3
