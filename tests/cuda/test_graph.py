"""On a GPU: captured steps do what eager ones do, for every method, alone and side by side."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from copy import deepcopy
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from icone import cuda
from icone.api.pretrain import pretrain, pretrain_many
from icone.config import PretrainConfig
from icone.cuda.deferred_gradients import WeightGradientStream, defer_weight_gradients
from icone.errors import InterruptedRun
from icone.methods import METHODS
from icone.run import Run
from icone.tensor_files import read_tensors
from icone.training.step import TrainStep

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("default")]  # compilers warn about themselves

POINTS: dict[str, Any] = {"source": "synthetic:gaussians@x60", "batch_size": 8, "precision": "fp32"}
CELLS: dict[str, Any] = {"source": "synthetic:cells@32x30", "size": 32, "encoder": "vit_tiny_patch16_224"}
SHAPES: dict[str, Any] = {"source": "synthetic:shapes@40x18", "encoder": "resnet10_3d", "width": 0.25}

PLAIN: dict[str, Any] = {"precision": "fp32", "lr": 1e-4}
SWITCHES = [field.name for field in dataclasses.fields(cuda.CudaOptions)]


def train(out: Path, **settings: Any) -> Run:
    return pretrain(**{"epochs": 3, "probe_every": 0, "lr": 1e-3, "device": "cuda", **settings}, out=out)


def losses(run: Run) -> torch.Tensor:
    return torch.tensor([row["loss"] for row in run.history])


def weights(run: Run) -> dict[str, torch.Tensor]:
    return read_tensors(run.encoder_file)[0]


@pytest.mark.parametrize("method", METHODS)
def test_captured_and_eager_runs_agree_for_every_method(method: str, tmp_path: Path) -> None:
    """60 points in batches of 8: the last batch of 4 has a graph of its own. Methods that reconstruct take images."""
    settings = POINTS if METHODS[method].reads == "features" else {**CELLS, "batch_size": 8, "precision": "fp32"}
    eager, captured = (
        train(tmp_path / engine, **settings, method=method, engine=engine) for engine in ("eager", "captured")
    )
    torch.testing.assert_close(losses(captured), losses(eager), rtol=1e-4, atol=1e-5)


def test_large_batches_are_captured(tmp_path: Path) -> None:
    """40 of 100 points: the head centres gradients in two groups, and in one of the last 20."""
    settings = {**POINTS, "source": "synthetic:gaussians@x100", "batch_size": 40}
    eager, captured = (train(tmp_path / engine, **settings, engine=engine) for engine in ("eager", "captured"))
    torch.testing.assert_close(losses(captured), losses(eager), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("settings", [CELLS, SHAPES], ids=["images", "volumes"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_captured_and_eager_runs_agree_on_images_and_volumes(
    settings: dict[str, Any], precision: str, tmp_path: Path
) -> None:
    """The rate is the default: at ten times that, roundings of bf16 alone part two transformers by 4 % in 3 epochs."""
    eager, captured = (
        train(tmp_path / engine, **settings, lr=1e-4, precision=precision, engine=engine)
        for engine in ("eager", "captured")
    )
    torch.testing.assert_close(losses(captured), losses(eager), rtol=1e-3 if precision == "fp32" else 1e-2, atol=1e-3)


@pytest.mark.parametrize("settings", [POINTS, CELLS, SHAPES], ids=["points", "images", "volumes"])
def test_short_runs_are_captured_without_the_compiler(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    monkeypatch.setattr("icone.cuda.graph.compile_parts", refuse)
    eager, short = (
        train(tmp_path / engine, **settings | {"precision": "fp32", "lr": 1e-4}, engine=engine)
        for engine in ("eager", "auto")
    )
    torch.testing.assert_close(losses(short), losses(eager), rtol=1e-3, atol=1e-3)
    assert "uncaptured" not in capsys.readouterr().out


@pytest.fixture(scope="module")
def eager_losses(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    """Of runs without any part of `icone.cuda`."""
    folder = tmp_path_factory.mktemp("eager")
    return {
        name: losses(train(folder / name, **settings, **PLAIN, engine="eager"))
        for name, settings in {"images": CELLS, "volumes": SHAPES}.items()
    }


@pytest.mark.parametrize("switches", [*SWITCHES, "everything"])
@pytest.mark.parametrize("kind", ["images", "volumes"])
def test_runs_without_a_trick_are_the_same_runs(
    kind: str,
    switches: str,
    eager_losses: dict[str, torch.Tensor],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Captured without the compiler, which takes long."""
    off = SWITCHES if switches == "everything" else [switches]
    options = dataclasses.replace(cuda.ALL_ON, **dict.fromkeys(off, False))
    monkeypatch.setattr(cuda, "WORTHWHILE_STEPS", 0)
    monkeypatch.setattr(cuda, "accelerate", partial(cuda.accelerate, options=options))
    monkeypatch.setattr(cuda, "prepare_network", partial(cuda.prepare_network, options=options))
    run = train(tmp_path / "run", **{"images": CELLS, "volumes": SHAPES}[kind], **PLAIN, engine="auto")
    torch.testing.assert_close(losses(run), eager_losses[kind], rtol=1e-3, atol=1e-3)
    assert "uncaptured" not in capsys.readouterr().out


def test_a_run_waits_for_what_was_made_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It computes on a stream of its own, and what it is built from was filled on another, which may be late."""

    class Late(TrainStep):
        def __init__(self, *args: Any) -> None:
            torch.cuda._sleep(2 * 10**9)  # about a second
            super().__init__(*args)

    expected = train(tmp_path / "a", **POINTS, engine="eager")
    monkeypatch.setattr(sys.modules["icone.training.loop"], "TrainStep", Late)  # `fit` of the package is the function
    assert losses(train(tmp_path / "b", **POINTS, engine="eager")).tolist() == losses(expected).tolist()


@pytest.mark.parametrize("options", [("diversity=variance_covariance",), ("diversity=sigreg",)])
def test_other_diversity_terms_are_captured(options: tuple[str, ...], tmp_path: Path) -> None:
    eager, captured = (
        train(tmp_path / engine, **POINTS, options=options, engine=engine) for engine in ("eager", "captured")
    )
    torch.testing.assert_close(losses(captured), losses(eager), rtol=1e-3, atol=1e-4)


def test_accumulated_and_clipped_steps_are_captured(tmp_path: Path) -> None:
    extra = {"accumulate": 3, "clip_gradient": 0.5}
    eager, captured = (train(tmp_path / engine, **POINTS, **extra, engine=engine) for engine in ("eager", "captured"))
    torch.testing.assert_close(losses(captured), losses(eager), rtol=1e-4, atol=1e-5)


def test_streamed_samples_give_the_run_of_resident_ones(tmp_path: Path) -> None:
    settings = {**CELLS, "batch_size": 4, "engine": "captured"}
    resident, streamed = (train(tmp_path / str(memory), **settings, memory_gb=memory) for memory in (None, 0.0))
    torch.testing.assert_close(losses(streamed), losses(resident), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("settings", [POINTS, SHAPES], ids=["points", "volumes"])
def test_runs_side_by_side_are_the_runs_alone(settings: dict[str, Any], tmp_path: Path) -> None:
    """Bit for bit: what they share on the device changes nothing."""
    methods = ["icone", "icone", "moco", "icone", "diet"]
    common = {"epochs": 4, "probe_every": 2, "lr": 1e-3, "device": "cuda", "engine": "captured", **settings}
    configs = [PretrainConfig(**common, method=method, seed=seed) for seed, method in enumerate(methods)]
    together = pretrain_many(configs, [tmp_path / f"together-{seed}" for seed in range(len(methods))])
    for seed, (method, run) in enumerate(zip(methods, together, strict=True)):
        alone = pretrain(**common, method=method, seed=seed, out=tmp_path / f"alone-{seed}")
        assert losses(run).tolist() == losses(alone).tolist()
        assert all(torch.equal(weights(run)[name], weight) for name, weight in weights(alone).items())
        assert run.history[0]["geometry"]["rankme"] == alone.history[0]["geometry"]["rankme"]


def test_a_captured_run_survives_being_stopped(tmp_path: Path, stop_after: Callable[[int], None]) -> None:
    """Stopped in the middle of an epoch and resumed, it ends with the weights of an undisturbed one."""
    whole = train(tmp_path / "whole", **POINTS, engine="captured")
    stop_after(11)
    with pytest.raises(InterruptedRun, match="stopped after step 11"):
        train(tmp_path / "stopped", **POINTS, engine="captured")
    resumed = train(tmp_path / "stopped", **POINTS, engine="captured", resume=True)
    assert losses(resumed).tolist() == losses(whole).tolist()
    assert all(torch.equal(weights(resumed)[name], weight) for name, weight in weights(whole).items())


def test_a_step_that_cannot_be_captured_runs_eagerly_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A method that reads a value back cannot be captured."""
    eager = train(tmp_path / "eager", **POINTS, engine="eager")
    forward = METHODS["icone"].forward

    def reading(self: Any, *args: Any) -> dict[str, torch.Tensor]:
        terms: dict[str, torch.Tensor] = forward(self, *args)
        terms["loss"].item()
        return terms

    monkeypatch.setattr(METHODS["icone"], "forward", reading)
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    run = train(tmp_path / "auto", **POINTS, engine="auto")
    assert "steps run uncaptured" in capsys.readouterr().out
    torch.testing.assert_close(losses(run), losses(eager), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match='engine="eager"'):
        train(tmp_path / "captured", **POINTS, engine="captured")


def test_weight_gradients_that_come_late_are_still_right() -> None:
    """Around a residual layer autograd adds to the gradient that the layer's weight gradient is computed from."""
    torch.manual_seed(0)
    usual = nn.ModuleList(nn.Linear(64, 64) for _ in range(4)).cuda()
    layers = deepcopy(usual)
    defer_weight_gradients(layers)
    x = torch.randn(32, 64, device="cuda")

    def run(network: nn.ModuleList) -> None:
        y = x
        for layer in network:
            y = y + layer(y)
        y.square().mean().backward()

    run(usual)
    side = WeightGradientStream(torch.device("cuda"))
    with torch.cuda.stream(torch.cuda.Stream()), side.during_backward(list(layers.parameters())):
        with torch.cuda.stream(side.stream):
            torch.cuda._sleep(2 * 10**8)  # about a tenth of a second
        run(layers)
    torch.cuda.synchronize()
    assert len(side.results) == 8
    for mine, theirs in zip(layers.parameters(), usual.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)


@pytest.mark.parametrize("method", METHODS)
def test_micro_batches_are_captured_for_every_method(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """60 points in batches of 8, 3 at a time: captured as eager, and as the plain batch; points have no BatchNorm.

    The methods that need images are not compiled here, which would take minutes. They draw their masks for each
    micro-batch, and a GPU draws other numbers for pieces than for the whole, so that they are not compared with it.
    """
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    monkeypatch.setattr("icone.cuda.COMPILED_STEPS", {0: 0, 2: 10**9, 3: 10**9})
    settings = POINTS if METHODS[method].reads == "features" else {**CELLS, "batch_size": 8, "precision": "fp32"}
    runs = [
        train(tmp_path / f"{engine}-{micro_batch}", **settings, method=method, engine=engine, micro_batch=micro_batch)
        for engine, micro_batch in (("eager", None), ("eager", 3), ("auto", 3))
    ]
    plain, eager, captured = map(losses, runs)
    torch.testing.assert_close(captured, eager, rtol=1e-3, atol=1e-4)
    if settings is POINTS:
        torch.testing.assert_close(eager, plain, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("settings", [CELLS, SHAPES], ids=["images", "volumes"])
@pytest.mark.parametrize(
    "memory",
    [{"micro_batch": 2}, {"checkpoint_activations": "on"}, {"micro_batch": 1, "checkpoint_activations": "on"}],
    ids=["micro-batches", "checkpointed", "both"],
)
@pytest.mark.parametrize("compiled", [False, True], ids=["uncompiled", "compiled"])
def test_steps_that_save_memory_are_captured(
    settings: dict[str, Any],
    memory: dict[str, Any],
    compiled: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Captured as eager; moving-average BatchNorm repeats its pass in both."""
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    monkeypatch.setattr("icone.cuda.COMPILED_STEPS", dict.fromkeys((0, 2, 3), 0 if compiled else 10**9))
    together = {**settings, **PLAIN, **memory, "batch_size": 4}
    eager, captured = (train(tmp_path / engine, **together, engine=engine) for engine in ("eager", "auto"))
    torch.testing.assert_close(losses(captured), losses(eager), rtol=1e-3, atol=1e-3)
    said = capsys.readouterr().out
    assert "uncaptured" not in said
    assert "uncompiled" not in said


@pytest.mark.parametrize("settings", [CELLS, SHAPES], ids=["images", "volumes"])
def test_checkpointed_runs_are_the_runs_without(settings: dict[str, Any], tmp_path: Path) -> None:
    plain, checkpointed = (
        train(tmp_path / how, **settings | PLAIN, batch_size=4, engine="eager", checkpoint_activations=how)
        for how in ("off", "on")
    )
    torch.testing.assert_close(losses(checkpointed), losses(plain), rtol=1e-4, atol=1e-5)


def test_dropout_in_micro_batches_runs_uncaptured_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 8))
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    train(tmp_path / "run", **POINTS, encoder=network, micro_batch=2, engine="auto")
    assert "draws random numbers" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_a_step_that_does_not_fit_is_tried_again_with_less_memory(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The memory of the first attempts is out; the run is the one that checkpoints from the start."""
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    expected = train(tmp_path / "on", **SHAPES, **PLAIN, engine=engine, checkpoint_activations="on")
    forward = METHODS["icone"].forward

    def failing(self: Any, *args: Any) -> dict[str, torch.Tensor]:
        terms: dict[str, torch.Tensor] = forward(self, *args)
        if "stem" not in vars(self.encoder):
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return terms

    monkeypatch.setattr(METHODS["icone"], "forward", failing)
    run = train(tmp_path / "auto", **SHAPES, **PLAIN, engine=engine, checkpoint_activations="auto")
    assert "computed again in the backward pass" in capsys.readouterr().out.replace("\n", " ")
    torch.testing.assert_close(losses(run), losses(expected), rtol=1e-4, atol=1e-5)
    with pytest.raises(ValueError, match=r"checkpoint_activations=.on.*size="):
        train(tmp_path / "off", **SHAPES, **PLAIN, engine=engine, checkpoint_activations="off")


def test_micro_batches_take_the_memory_of_one_sample(tmp_path: Path) -> None:
    """Of the eager step, whose memory is what its tensors take."""
    peaks = {}
    for name, extra in {
        "one": {"batch_size": 1},
        "sixteen": {"batch_size": 16, "micro_batch": 1},
        "plain": {"batch_size": 16},
    }.items():
        cuda.free_gpu_memory()
        torch.cuda.reset_peak_memory_stats()
        settings = {"source": "synthetic:shapes@64x16", "encoder": "resnet10_3d", "size": 64, "norm": "group"}
        method = "diet" if name == "one" else "simclr"
        train(tmp_path / name, **settings, **extra, epochs=1, engine="eager", method=method)
        peaks[name] = torch.cuda.max_memory_allocated()
    assert peaks["sixteen"] < 0.5 * peaks["plain"]
    assert peaks["sixteen"] < 1.5 * peaks["one"]
