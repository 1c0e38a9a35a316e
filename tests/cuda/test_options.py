"""Every switch removes its trick, and no trick changes what a step computes (on a CPU, with stand-ins for streams)."""

from __future__ import annotations

import dataclasses
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from timm.models.vision_transformer import Attention  # type: ignore[attr-defined]
from torch import Tensor, nn

from icone.config import PretrainConfig
from icone.cuda import ALL_ON, CudaOptions, deferred_gradients, prepare_network
from icone.cuda.attention import ShortAttention
from icone.cuda.deferred_gradients import DeferredGradConv3d, DeferredGradLinear, WeightGradientStream
from icone.cuda.graph import compile_options, prepare_step
from icone.data import Batch
from icone.encoders import build_encoder
from icone.encoders.layers import HalvingMaxPool3d, PatchConv2d, StemConv3d
from icone.methods import Setting, build_method
from icone.nn import convert_batch_norm
from icone.nn.diversity import SideStream
from icone.training.context import RunContext
from icone.training.step import TrainStep
from icone.views import build_views

CPU = torch.device("cpu")
SWITCHES = [field.name for field in dataclasses.fields(CudaOptions)]
ALL_OFF = CudaOptions(**dict.fromkeys(SWITCHES, False))
IMAGES: dict[str, Any] = {"name": "test_vit", "in_channels": 3, "spatial_dims": 2, "size": 32}
VOLUMES: dict[str, Any] = {"name": "resnet10_3d", "in_channels": 1, "spatial_dims": 3, "size": 32, "width": 0.125}
LAYERS = {
    "attention_kernels": (IMAGES, ShortAttention, Attention),
    "patch_conv": (IMAGES, PatchConv2d, nn.Conv2d),
    "stem_conv": (VOLUMES, StemConv3d, nn.Conv3d),
    "halving_pool": (VOLUMES, HalvingMaxPool3d, nn.MaxPool3d),
}
"""Switch, a network that has its layer, the layer with the trick, and without."""


def without(*switches: str) -> CudaOptions:
    return dataclasses.replace(ALL_ON, **dict.fromkeys(switches, False))


def build_step(kind: dict[str, Any], options: CudaOptions, dtype: torch.dtype | None = None) -> TrainStep:
    torch.manual_seed(0)
    config = PretrainConfig(source="random", batch_size=2)
    encoder = convert_batch_norm(build_encoder(**kind), 2)
    method = build_method("icone", encoder, Setting(num_instances=6, batch_size=2), ("hidden=16", "out=8"))
    method.autocast_dtype = dtype
    edges = (kind["size"],) * kind["spatial_dims"]
    views = build_views(config, spatial_dims=kind["spatial_dims"], channels=kind["in_channels"], size=edges)
    prepare_network(method, options)
    step = TrainStep(method.train(), views, config, 10, CPU)
    prepare_step(step, options)
    return step


def trained(step: TrainStep, kind: dict[str, Any], steps: int = 3) -> Tensor:
    """How far all weights have moved, as one vector."""
    before = [p.detach().clone() for p in step.method.parameters()]
    shape = (2, kind["in_channels"], *(kind["size"],) * kind["spatial_dims"])
    torch.manual_seed(1)
    for number in range(steps):
        index = torch.arange(2) + 2 * number
        step([Batch(torch.rand(shape), index, torch.full((2,), -1))])
    return torch.cat([(p.detach() - b).flatten() for p, b in zip(step.method.parameters(), before, strict=True)])


def types(network: nn.Module) -> set[type[nn.Module]]:
    return {type(layer) for layer in network.modules()}


@pytest.mark.parametrize("switch", LAYERS)
def test_layers_are_those_of_the_library_without_their_switch(switch: str) -> None:
    kind, ours, library = LAYERS[switch]
    assert ours in types(build_step(kind, ALL_ON).method)
    found = types(build_step(kind, without(switch, "deferred_gradients")).method)
    assert ours not in found
    assert library in found


@pytest.mark.parametrize("switch", [*LAYERS, "channels_last", "deferred_gradients", "everything"])
@pytest.mark.parametrize("kind", [IMAGES, VOLUMES], ids=["images", "volumes"])
def test_a_step_moves_the_weights_alike_with_and_without_each_replaced_layer(kind: dict[str, Any], switch: str) -> None:
    options = ALL_OFF if switch == "everything" else without(switch)
    ours, theirs = build_step(kind, ALL_ON), build_step(kind, options)
    assert list(ours.method.state_dict()) == list(theirs.method.state_dict())
    expected = trained(theirs, kind)
    assert expected.norm() > 0
    assert (trained(ours, kind) - expected).norm() < 1e-2 * expected.norm()


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_steps_with_deferred_gradients_are_usual_steps(dtype: torch.dtype | None, stand_in_streams: list[Any]) -> None:
    expected = trained(build_step(IMAGES, ALL_OFF, dtype), IMAGES)
    step, main = build_step(IMAGES, ALL_ON, dtype), stand_in_streams[-1]
    side: Any = WeightGradientStream(CPU)
    step.last_backward = partial(side.during_backward, list(step.method.parameters()))
    found = trained(step, IMAGES)
    assert (found - expected).norm() < (1e-2 if dtype is None else 0.1) * expected.norm()
    assert side.stream.waited_for[0] is main  # a captured stream may wait only for streams that have waited for it
    assert main.waited_for[-1] is side.stream


@pytest.mark.parametrize("wanted", [True, False])
def test_deferred_layers_are_there_if_wanted(wanted: bool) -> None:
    for kind, layer in ((IMAGES, DeferredGradLinear), (VOLUMES, DeferredGradConv3d)):
        assert (layer in types(build_step(kind, CudaOptions(deferred_gradients=wanted)).method)) == wanted


@pytest.mark.usefixtures("stand_in_streams")
def test_stream_priority(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RunContext, "_generator", SimpleNamespace(clone_state=lambda: None))
    cuda = torch.device("cuda")
    assert [RunContext(cuda, high_priority=high).stream.priority for high in (True, False)] == [-1, 0]


def test_column_sum_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton", reason="Triton comes with torch for CUDA")
    monkeypatch.setattr("icone.cuda.column_sums.column_sums", lambda matrix: "kernel")
    on_gpu: Any = SimpleNamespace(is_cuda=True, sum=lambda axis, dtype: "library")
    assert [deferred_gradients._column_sums(on_gpu, kernel) for kernel in (True, False)] == ["kernel", "library"]
    for options in (ALL_ON, without("column_sum_kernel")):
        layers = [m for m in build_step(IMAGES, options).method.modules() if isinstance(m, DeferredGradLinear)]
        assert layers
        assert {layer.column_sum_kernel for layer in layers} == {options.column_sum_kernel}


def test_diversity_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in (ALL_ON, without("diversity_stream")):
        method: Any = build_step(IMAGES, options).method
        assert method.side_stream.enabled == options.diversity_stream
    in_order = SideStream()
    in_order.enabled = False
    on_gpu: Any = SimpleNamespace(is_cuda=True)
    assert in_order.compute(lambda table: table, on_gpu)() is on_gpu  # no stream, which would need a GPU


def test_options_of_the_compiler() -> None:
    assert not compile_options(ALL_ON)["allow_buffer_reuse"]
    assert "allow_buffer_reuse" not in compile_options(without("deferred_gradients"))


def test_channels_last() -> None:
    convolutions = [
        [m.weight for m in build_step(VOLUMES, options).method.modules() if isinstance(m, nn.Conv3d)]
        for options in (ALL_ON, without("channels_last"))
    ]
    last, first = (
        [w.is_contiguous(memory_format=torch.channels_last_3d) for w in weights if min(w.shape) > 1]
        for weights in convolutions
    )
    assert all(last)
    assert not any(first)
