"""Micro-batches give the gradient of the whole batch, for every method; activations that are computed again too."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from icone.api.build import memory_errors
from icone.config import PretrainConfig, VolumeViews
from icone.data import Batch, Loader
from icone.encoders import build_encoder, checkpoint_activations
from icone.errors import NotEnoughMemory
from icone.methods import METHODS, Setting, build_method, option_texts
from icone.nn import Recomputation, convert_batch_norm
from icone.training.engine import EagerEngine
from icone.training.step import TrainStep
from icone.views import Views
from icone.views.volume import VolumePipeline

CPU = torch.device("cpu")
SAMPLES, CLASSES, BATCH = 12, 3, 8
FEATURE_METHODS = [name for name, method in METHODS.items() if method.reads == "features"]
"""Those that can train a network without a feature map. The others are means over samples, each with its own mask."""


class Pairs(Views):
    """Two views that differ, without random numbers."""

    def augment(self, images: Tensor) -> Tensor:
        return images + 0.1 * (torch.arange(len(images)) % 2)[:, None]

    def plain(self, images: Tensor) -> Tensor:
        return images


class Counted(nn.Module):
    """An encoder without BatchNorm that knows how many rows it has seen at a time."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.num_features = 6
        self.layers = nn.Sequential(nn.Linear(5, 16), nn.GELU(), nn.Dropout(dropout), nn.Linear(16, 6))
        self.rows: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.rows.append(len(x))
        features: Tensor = self.layers(x)
        return features


def make_step(
    method: str, micro_batch: int | None, encoder: nn.Module | None = None, options: Sequence[str] = (), **settings: Any
) -> TrainStep:
    torch.manual_seed(0)
    setting = Setting(
        num_instances=SAMPLES, batch_size=BATCH, labels=torch.arange(SAMPLES) % CLASSES, num_classes=CLASSES
    )
    options = [*option_texts(METHODS[method].small_options), *options]
    built = build_method(method, Counted() if encoder is None else encoder, setting, options)
    built.micro_batch = micro_batch
    config = PretrainConfig(source="none", batch_size=BATCH, micro_batch=micro_batch, lr=1e-2, **settings)
    step = TrainStep(built.train(), Pairs(), config, 10, CPU)
    for group in step.optimizer.param_groups:
        # A bias in front of a BatchNorm gets no gradient but for its rounding, of which Adam would make a whole step.
        group["eps"] = 1e-2
    return step


def batch(step: int) -> Batch:
    generator = torch.Generator().manual_seed(step)
    index = torch.randperm(SAMPLES, generator=generator)[:BATCH]
    images = torch.randn(SAMPLES, 5, generator=torch.Generator().manual_seed(99))
    return Batch(images[index], index, index % CLASSES)


@pytest.mark.parametrize("micro_batch", [1, 2, 3])
@pytest.mark.parametrize(
    ("method", "options"), [*((method, ()) for method in FEATURE_METHODS), ("icone", ("center_weight=10",))]
)
def test_five_steps_in_micro_batches_end_with_the_weights_of_the_plain_batch(
    method: str, options: Sequence[str], micro_batch: int
) -> None:
    """Everything that a method keeps: weights, EMA copies, queues, centres, tables, statistics of its heads."""
    plain, parts = make_step(method, None, options=options), make_step(method, micro_batch, options=options)
    for number in range(5):
        for step in (plain, parts):
            torch.manual_seed(number)
            step([batch(number)])
    expected, found = (step.method.state_dict() for step in (plain, parts))
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    assert parts.meter.means() == pytest.approx(plain.meter.means(), rel=1e-4, abs=1e-6)
    moved = make_step(method, None).method.state_dict()["encoder.layers.0.weight"]
    assert (expected["encoder.layers.0.weight"] - moved).abs().max() > 3e-4


@pytest.mark.parametrize("method", FEATURE_METHODS)
def test_no_more_than_a_micro_batch_is_encoded_at_a_time_and_only_once_where_gradients_add_up(method: str) -> None:
    network = Counted()
    step = make_step(method, 2, network)
    step([batch(0)])
    rows = network.rows
    assert max(rows) <= 4
    passes = BATCH // 2
    assert len(rows) == (passes if step.method.sums_over_samples else 2 * passes - 1)  # the last is still there


@pytest.mark.parametrize("method", ["simclr", "icone", "diet"])
def test_dropout_is_the_same_in_the_second_pass(method: str) -> None:
    """The gradient of a micro-batch is that of the features that the loss has seen, dropped units included."""
    torch.manual_seed(0)
    network = Counted(dropout=0.5)
    kept: list[Tensor] = []
    network.layers[2].register_forward_hook(lambda _, inputs, output: kept.append((output == 0).detach()))
    step = make_step(method, 2, network)
    step([batch(0)])
    passes = BATCH // 2
    first, again = kept[:passes], kept[passes:][::-1]
    assert len(again) == (0 if method == "diet" else passes - 1)
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=False))
    assert len({tuple(one.flatten().tolist()) for one in first}) == passes  # each draws its own


@pytest.mark.parametrize("micro_batch", [1, 3])
def test_moving_average_batchnorm_goes_on_from_one_micro_batch_to_the_next(micro_batch: int) -> None:
    """As if they came one after another, and the second pass counts for nothing."""

    def network() -> nn.Module:
        torch.manual_seed(1)
        encoder = nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 6))
        encoder.num_features = 6  # type: ignore[assignment]
        return convert_batch_norm(encoder, micro_batch)

    step = make_step("simclr", micro_batch, network())
    for number in range(3):
        one_by_one: Any = network()
        one_by_one.load_state_dict(step.method.encoder.state_dict())
        for part in step.views(batch(number).images, 2).tensor_split(-(-BATCH // micro_batch)):
            one_by_one(part.flatten(0, 1))
        step([batch(number)])
        found, expected = averages(step.method.encoder), averages(one_by_one)
        assert found["1.passes"] == (number + 1) * -(-BATCH // micro_batch)
        for name in ("1.moving", "1.running_mean", "1.running_var", "1.passes"):
            torch.testing.assert_close(found[name], expected[name])
    assert found["1.gradient_means"].abs().min() > 0


def averages(network: nn.Module) -> dict[str, Tensor]:
    return {name: t.detach().clone() for name, t in network.state_dict().items() if name.startswith("1.")}


def test_a_step_of_micro_batches_reads_nothing_back(no_host_traffic: type[TorchDispatchMode]) -> None:
    step = make_step("simclr", 2)
    step([batch(0)])
    following = [batch(1)]
    with no_host_traffic():
        step(following)


def test_views_of_volumes_are_the_same_made_in_parts() -> None:
    pipeline = VolumePipeline(VolumeViews(), channels=1, size=(8, 8, 8))
    images = torch.randint(0, 256, (5, 1, 8, 8, 8), dtype=torch.uint8)
    results = []
    for samples in (None, 2):
        torch.manual_seed(3)
        results.append(pipeline.in_parts(images, 2, samples))
    torch.testing.assert_close(*results)
    assert results[0].shape == (5, 2, 1, 8, 8, 8)


def test_a_batch_that_is_too_small_names_micro_batches_as_a_way_out() -> None:
    with pytest.raises(ValueError, match="batch_size=16 micro_batch=1"):
        build_method("simclr", Counted(), Setting(num_instances=4, batch_size=1))


def volumes(micro_batch: int | None, checkpointed: bool, norm: str = "batch") -> TrainStep:
    torch.manual_seed(0)
    encoder = build_encoder("resnet10_3d", in_channels=1, spatial_dims=3, size=16, width=0.125, norm=norm)
    convert_batch_norm(encoder, micro_batch or 4)
    method = build_method("icone", encoder, Setting(num_instances=6, batch_size=4), ("hidden=16", "out=8"))
    method.micro_batch = micro_batch
    config = PretrainConfig(source="none", batch_size=4, micro_batch=micro_batch)
    pipeline = VolumePipeline(VolumeViews(), channels=1, size=(16, 16, 16))
    step = TrainStep(method.train(), pipeline, config, 10, CPU)
    if checkpointed:
        assert step.checkpoint_activations() is None
    return step


@pytest.mark.parametrize("micro_batch", [None, 2])
def test_checkpointed_steps_of_volumes_are_the_same_steps(micro_batch: int | None) -> None:
    """Moving-average BatchNorm included: weights, statistics and what it averages of gradients, bit for bit."""
    states = []
    for checkpointed in (False, True):
        step = volumes(micro_batch, checkpointed)
        torch.manual_seed(1)
        for _ in range(3):
            images = torch.rand(4, 1, 16, 16, 16)
            step([Batch(images, torch.tensor([3, 0, 5, 1]), torch.full((4,), -1))])
        states.append(step.method.state_dict())
    assert all(torch.equal(value, states[0][name]) for name, value in states[1].items())


def test_checkpointing_keeps_fewer_activations() -> None:
    kept = []
    for checkpointed in (False, True):
        method = volumes(None, checkpointed).method
        seen: dict[int, int] = {}

        def keep(tensor: Tensor, seen: dict[int, int] = seen) -> Tensor:
            seen[tensor.data_ptr()] = tensor.nbytes
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            method.encoder(torch.rand(2, 1, 16, 16, 16))
        weights = {p.data_ptr() for p in method.parameters()}
        kept.append(sum(size for place, size in seen.items() if place not in weights))
    assert kept[1] < kept[0] / 2


def test_a_step_that_does_not_fit_is_tried_again_with_less_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the failed attempt changed is undone: random numbers, position in the data, meter."""
    engines: list[EagerEngine] = []
    said: list[str] = []
    for failing in (False, True):
        step = volumes(None, checkpointed=not failing)
        samples = Samples(torch.rand(6, 1, 16, 16, 16))
        loader = Loader(samples, 4, seed=0)  # type: ignore[arg-type]
        loader.begin(0)
        engine = EagerEngine(step, loader)
        engine.tell = said.append
        if failing:
            update = step.batch_norms.update

            def out_of_memory(step: TrainStep = step, update: Any = update) -> None:
                if not step.is_checkpointed:
                    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
                update()

            monkeypatch.setattr(step.batch_norms, "update", out_of_memory)
        torch.manual_seed(5)
        engine._try((4,))
        engine((2,))
        engines.append(engine)
    expected, found = ([*engine.step.tensors(), engine.loader.position] for engine in engines)
    assert all(torch.equal(one, other) for one, other in zip(expected, found, strict=True))
    assert ["--checkpoint-activations=on" in text for text in said] == [True]


class Samples:
    """A data set in memory."""

    def __init__(self, images: Tensor) -> None:
        self.images, self.labels = images, torch.full((len(images),), -1)

    def __len__(self) -> int:
        return len(self.images)


def test_a_network_of_one_s_own_is_checkpointed_by_its_blocks() -> None:
    torch.manual_seed(0)

    def block() -> nn.Module:
        return nn.Sequential(nn.Linear(5, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Dropout(0.5))

    network = nn.Sequential(nn.Linear(5, 5), block(), block())
    other = deepcopy(network)
    assert checkpoint_activations(other) is None
    assert [isinstance(part.forward, Recomputation) for part in other] == [False, True, True]
    x = torch.randn(6, 5)
    for one in (network, other):
        torch.manual_seed(1)
        one(x).sin().sum().backward()
    for (name, ours), theirs in zip(other.named_parameters(), network.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad, msg=name)
    torch.testing.assert_close(dict(other.named_buffers()), dict(network.named_buffers()))
    assert "saves little memory" in (checkpoint_activations(Counted().layers[0]) or "")


def test_what_changes_its_input_in_place_is_refused() -> None:
    network = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 3))
    with pytest.raises(RuntimeError, match="inplace=False"):
        Recomputation(network, network)(torch.randn(2, 3))


def test_large_inputs_of_batchnorm_are_taken_a_few_channels_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    results = []
    for most in (2**27, 1):
        monkeypatch.setattr("icone.nn.normalisation.SLICED_ELEMENTS", most)
        torch.manual_seed(0)
        layer: Any = convert_batch_norm(nn.BatchNorm3d(40), 1)
        nn.init.normal_(layer.weight)
        x = torch.randn(2, 40, 2, 3, 2, requires_grad=True)
        (layer(x) ** 3).sum().backward()
        results.append([x.grad, layer.weight.grad, layer.bias.grad, layer.gradient_means])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize(
    ("settings", "flags"),
    [
        ({"batch_size": 16, "size": 256}, ["micro_batch=8", "now 16 samples", "size= (now 256)"]),
        ({"batch_size": 16, "micro_batch": 1}, ['checkpoint_activations="on"']),
        ({"checkpoint_activations": "on"}, ["a smaller size= or encoder"]),
    ],
)
def test_out_of_memory_names_the_flags_that_help(settings: dict[str, Any], flags: list[str]) -> None:
    with pytest.raises(NotEnoughMemory) as raised, memory_errors(PretrainConfig(source="none", **settings)):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 99 bytes. Error code 12")
    assert all(flag in str(raised.value) for flag in [*flags, "allocate 99 bytes", "GB are free"])
    assert ("micro_batch" in str(raised.value)) == ("now 16 samples" in flags)
