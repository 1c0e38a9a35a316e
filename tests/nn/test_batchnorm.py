"""Moving-average BatchNorm: BatchNorm where the batch is large enough, and its equal where it is not."""

from __future__ import annotations

import copy
from typing import Any, cast

import pytest
import timm
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from icone.api.build import make_method
from icone.config import PretrainConfig
from icone.data import load_data
from icone.encoders import build_encoder
from icone.nn import MovingAverageBatchNorm, MovingStatistics, convert_batch_norm, plain_state_dict


def layers(
    batch_size: int = 1, samples: int = 16, gradient_rows: int | None = None
) -> tuple[nn.BatchNorm1d, MovingAverageBatchNorm]:
    """A layer with weights of its own, and its copy with moving averages."""
    plain = nn.BatchNorm1d(3).double()
    with torch.no_grad():
        plain.weight.uniform_(0.5, 2)
        plain.bias.normal_()
    return plain, MovingAverageBatchNorm(copy.deepcopy(plain), batch_size, samples, gradient_rows).double()


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
    averaged = MovingAverageBatchNorm(copy.deepcopy(plain), 1).double()
    for ours, theirs in zip(outcome(averaged, x, task), outcome(plain, x, task), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_with_the_whole_of_a_batch_every_pass_is_that_of_batch_norm() -> None:
    torch.manual_seed(0)
    plain, averaged = layers(batch_size=16)
    for _ in range(3):
        x, task = torch.randn(16, 3).double(), torch.randn(16, 3).double()
        for ours, theirs in zip(outcome(averaged, x, task), outcome(plain, x, task), strict=True):
            torch.testing.assert_close(ours, theirs)


def test_instances_one_by_one_get_what_they_get_in_a_batch() -> None:
    """Over many passes of one instance, output and gradient of an instance are on average those in batches of 16.

    Ordinary BatchNorm over the four values of one instance is far from that.
    """
    torch.manual_seed(0)
    offsets, scales = 3 * torch.randn(400, 1, 1).double(), torch.rand(400, 1, 1).double() + 0.5
    values = offsets + scales * torch.randn(400, 3, 4).double()  # instances differ by their mean most of all
    task = torch.randn(400, 3, 4).double() * offsets

    def seen_in_batches(layer: nn.Module, batch: int) -> tuple[Tensor, Tensor]:
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
        return outputs, gradients

    plain, averaged = layers()
    expected = seen_in_batches(copy.deepcopy(plain), 16)
    for ours, theirs, alone in zip(seen_in_batches(averaged, 1), expected, seen_in_batches(plain, 1), strict=True):
        similar = torch.corrcoef(torch.stack([ours.flatten(), theirs.flatten(), alone.flatten()]))
        assert similar[0, 1] > 0.95
        assert similar[1, 2] < 0.6
        assert ours.std() == pytest.approx(theirs.std().item(), rel=0.1)


@pytest.mark.parametrize("batch_size", [16, 64])
def test_gradients_are_centred_within_sixteen_instances_whatever_the_statistics(batch_size: int) -> None:
    """Statistics of 64 instances: means with the noise of 64, gradients whose mean over every 16 vanishes."""
    torch.manual_seed(0)
    plain, averaged = layers(batch_size, samples=64, gradient_rows=16)
    means, moved, untouched = [], 0.0, 0.0
    for _ in range(1000):
        x = torch.randn(batch_size, 3).double().requires_grad_()
        task = torch.randn(batch_size, 3).double()
        (averaged(x) * task).sum().backward()
        means.append(averaged.moving[0].clone())
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
    grouped = MovingAverageBatchNorm(copy.deepcopy(plain), 64, 64, gradient_rows=shape[0]).double()
    x, task = (torch.randn(shape).double().repeat(4, *[1] * (len(shape) - 1)) for _ in range(2))
    for ours, theirs in zip(outcome(grouped, x, task), outcome(plain, x, task), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_in_evaluation_it_is_the_layer_that_it_replaces() -> None:
    torch.manual_seed(0)
    network: Any = build_encoder("resnet10_3d", spatial_dims=3, in_channels=1, size=32, width=0.125)
    averaged = copy.deepcopy(network)
    convert_batch_norm(averaged, 1)
    assert not any(type(m) is nn.BatchNorm3d for m in averaged.modules())
    for _ in range(20):
        averaged(torch.rand(1, 1, 32, 32, 32))
    network.load_state_dict(plain_state_dict(averaged))
    assert not torch.equal(network.bn1.running_mean, torch.zeros(8))
    x = torch.rand(2, 1, 32, 32, 32)
    torch.testing.assert_close(averaged.eval()(x), network.eval()(x))


def test_statistics_for_evaluation_are_those_of_the_data() -> None:
    torch.manual_seed(0)
    _, averaged = layers()
    mean, deviation = torch.tensor([1.0, -2.0, 0.0]).double(), torch.tensor([1.0, 3.0, 0.1]).double()
    for _ in range(2000):
        averaged(mean + deviation * torch.randn(2, 3).double())
    torch.testing.assert_close(averaged.running_mean, mean, rtol=0.1, atol=0.1)
    torch.testing.assert_close(averaged.running_var, deviation**2, rtol=0.15, atol=0.0)


def test_large_batches_and_other_networks_keep_their_layers() -> None:
    network = build_encoder("resnet10_3d", spatial_dims=3, in_channels=1, size=32, width=0.125)
    convert_batch_norm(network, 16)
    assert not any(isinstance(m, MovingAverageBatchNorm) for m in network.modules())
    assert not MovingStatistics(network).layers


def test_layers_with_an_activation_inside_keep_it() -> None:
    torch.manual_seed(0)
    network: Any = timm.create_model("test_efficientnet", num_classes=0)
    x = torch.randn(2, 3, 64, 64)
    expected = network.train()(x)
    averaged = copy.deepcopy(network)
    convert_batch_norm(averaged, 1)
    torch.testing.assert_close(averaged(x), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(("batch_size", "gradient_rows"), [(1, None), (64, 32)])
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # the compiler asks
@pytest.mark.parametrize("how", ["deferred", "deferred and compiled", "compiled", "deep copy"])
def test_every_way_to_call_it_gives_the_same(batch_size: int, gradient_rows: int | None, how: str) -> None:
    """A layer that updates itself, in a loop that knows nothing of it, is what a training step defers and compiles.

    The compiler may compute parts of the forward pass anew in the backward pass, after the averages have changed.
    """
    torch.manual_seed(0)
    _, plain = layers(batch_size, 64, gradient_rows)
    other = copy.deepcopy(plain)
    statistics = MovingStatistics(other) if "deferred" in how else None
    layer: Any = torch.compile(other, backend="aot_eager", fullgraph=bool(statistics)) if "compiled" in how else other
    results = []
    for called in (plain, layer):
        torch.manual_seed(1)
        for _ in range(4):
            x = torch.randn(2 * batch_size, 3).double().requires_grad_()
            (called(x) ** 3).sum().backward()
            if statistics and called is layer:
                statistics.update()
        results.append([x.grad])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)
    for name, buffer in plain.named_buffers():
        torch.testing.assert_close(other.get_buffer(name).detach(), buffer)
    assert plain.passes == 4


@pytest.mark.parametrize("deferred", [False, True])
def test_two_passes_in_a_step_count_both(deferred: bool) -> None:
    torch.manual_seed(0)
    _, twice = layers()
    after_each = copy.deepcopy(twice)
    statistics = MovingStatistics(twice) if deferred else None
    first, second = torch.randn(2, 4, 3).double()
    (twice(first).sin().sum() + twice(second).cos().sum()).backward()
    if statistics:
        statistics.update()
    after_each(first)
    after_each(second)
    assert twice.passes == 2
    for name in ("moving", "running_mean", "running_var"):
        torch.testing.assert_close(getattr(twice, name), getattr(after_each, name))
    assert twice.gradient_means.abs().min() > 0


def test_a_step_that_failed_leaves_nothing() -> None:
    torch.manual_seed(0)
    _, layer = layers()
    statistics = MovingStatistics(layer)
    before = copy.deepcopy(layer.state_dict())
    layer(torch.randn(4, 3).double()).sum().backward()  # and something goes wrong
    statistics.begin()
    statistics.update()
    for name, tensor in layer.state_dict().items():
        torch.testing.assert_close(tensor, before[name])


def test_passes_without_gradients_count_too() -> None:
    _, layer = layers()
    with torch.no_grad():
        layer(torch.randn(4, 3).double() + 5)
    assert (layer.running_mean > 3).all()


def test_variance_survives_a_large_mean() -> None:
    torch.manual_seed(0)
    layer = MovingAverageBatchNorm(nn.BatchNorm1d(2), batch_size=1)
    for _ in range(40):
        output = layer(1000 + 0.1 * torch.randn(64, 2))
    assert output.std(0).tolist() == pytest.approx([1, 1], rel=0.2)
    assert layer.running_var.tolist() == pytest.approx([0.01, 0.01], rel=0.2)


@pytest.mark.parametrize("deferred", [False, True])
def test_a_training_goes_on_from_its_state_and_begins_anew_from_plain_weights(deferred: bool) -> None:
    torch.manual_seed(0)
    plain, layer = layers()
    statistics = MovingStatistics(layer) if deferred else None
    for _ in range(3):
        layer(torch.randn(4, 3).double()).sin().sum().backward()
        if statistics:
            statistics.update()
    _, other = layers()
    if deferred:
        MovingStatistics(other)
    other.load_state_dict(layer.state_dict())
    x, task = torch.randn(4, 3).double(), torch.randn(4, 3).double()
    results = [outcome(copy.deepcopy(one), x, task) for one in (layer, other)]
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs)
    other.load_state_dict(plain.state_dict())
    assert other.passes == 0
    with pytest.raises(RuntimeError, match="Unexpected key"):
        plain.load_state_dict(layer.state_dict())


@pytest.mark.parametrize("deferred", [False, True])
def test_activation_checkpointing_is_refused_and_not_wrong_in_silence(deferred: bool) -> None:
    network = nn.Sequential(nn.Linear(3, 3), convert_batch_norm(nn.BatchNorm1d(3), 1), nn.Linear(3, 1))
    if deferred:
        MovingStatistics(network)
    output = checkpoint(network, torch.randn(4, 3), use_reentrant=False)
    with pytest.raises(RuntimeError, match="activation checkpointing"):
        output.sum().backward()


def test_conversion_to_sync_batch_norm_leaves_it_alone() -> None:
    network = nn.Sequential(nn.Linear(2, 3), convert_batch_norm(nn.BatchNorm1d(3), 1))
    converted: Any = nn.SyncBatchNorm.convert_sync_batchnorm(network)
    assert isinstance(converted[1], MovingAverageBatchNorm)


def test_an_optimizer_and_weight_decay_see_the_parameters_only() -> None:
    _, layer = layers()
    MovingStatistics(layer)
    assert {name for name, _ in layer.named_parameters()} == {"weight", "bias"}
    assert set(plain_state_dict(layer)) == set(nn.BatchNorm1d(3).state_dict())


def test_the_recipe_decides_whether_encoders_have_moving_averages() -> None:
    config = PretrainConfig(source="synthetic:shapes@34x8", encoder="resnet10_3d", width=0.125, method="dino")
    data = load_data(config)
    method: Any = make_method(config, data)
    assert all(isinstance(network.bn1, MovingAverageBatchNorm) for network in (method.encoder, method.teacher_encoder))
    printed: Any = make_method(PretrainConfig(**{**vars(config), "recipe": "paper"}), data)
    assert type(printed.encoder.bn1) is nn.BatchNorm3d


@pytest.mark.parametrize(("batch_size", "rate"), [(1, 2 / 33), (16, 2 / 3), (64, 1.0)])
def test_the_head_of_icone_has_statistics_of_32_and_gradients_of_16(batch_size: int, rate: float) -> None:
    config = PretrainConfig(source="synthetic:gaussians@x70", batch_size=batch_size, views=3)
    method: Any = make_method(config, load_data(config))
    (layer,) = [m for m in method.head.modules() if isinstance(m, MovingAverageBatchNorm)]
    assert layer.rate == pytest.approx(rate)
    assert layer.gradient_rows == 16 * 3
