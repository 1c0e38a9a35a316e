"""What can be said about engines without a GPU."""

from __future__ import annotations

import io
import os
import signal
from contextlib import nullcontext
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from rich.console import Console

from icone.api.pretrain import pretrain, pretrain_many
from icone.config import PretrainConfig
from icone.cuda import accelerate
from icone.cuda.deferred_gradients import DeferredGradLinear
from icone.cuda.graph import CapturedEngine, compile_parts, many_recompiles, undo
from icone.data import Loader, load_data
from icone.encoders import build_encoder
from icone.errors import InputError, InterruptedRun, TrainingError
from icone.methods import METHODS, Setting, build_method
from icone.run import Run
from icone.tensor_files import read_tensors
from icone.training.context import RunContext
from icone.training.engine import EagerEngine
from icone.training.step import TrainStep
from icone.views import build_views

POINTS: dict[str, Any] = {"source": "synthetic:gaussians@x20", "epochs": 2, "probe_every": 0, "batch_size": 4}


def engine(method: str, device: str = "cpu", **settings: Any) -> EagerEngine:
    torch.manual_seed(0)
    data_of = {} if METHODS[method].reads == "features" else {"source": "synthetic:cells@32x20", "size": 32}
    config = PretrainConfig(**{**POINTS, **data_of, "method": method, **settings})
    data = load_data(config)
    channels, size = data.preparation.channels, data.preparation.size
    kind: dict[str, Any] = {"in_channels": channels, "spatial_dims": len(size), "size": size}
    encoder = build_encoder("test_vit" if size else "auto", **kind)
    setting = Setting(
        num_instances=20, batch_size=4, labels=data.train.labels, num_classes=5, sample_shape=(channels, *size)
    )
    views = build_views(config, spatial_dims=len(size), channels=channels, size=size)
    step = TrainStep(build_method(method, encoder, setting, ()), views, config, 10, torch.device("cpu"))
    loader = Loader(data.train, 4, seed=0)
    loader.begin(0)
    return EagerEngine(step, loader)


@pytest.mark.parametrize("method", METHODS)
def test_a_step_with_its_data_keeps_to_the_device(method: str, no_host_traffic: Any) -> None:
    """From the position in the epoch to the updated weights: what is captured must not talk to the host."""
    one = engine(method)
    one((4,))  # what is made once is made
    with no_host_traffic():
        one((4,))
    assert int(one.loader.position) == 8
    assert int(one.step.count) == 2


def test_everything_that_a_step_changes_is_known() -> None:
    """A capture is preceded by warm-up steps, which are undone: nothing may be forgotten."""
    one = engine("dino")
    one((4,))
    before = {name: t.clone() for name, t in one.step.method.state_dict().items()}
    copies = [t.detach().clone() for t in one.step.tensors()]
    one((4,))
    with torch.no_grad():
        for tensor, copy in zip(one.step.tensors(), copies, strict=True):
            tensor.copy_(copy)
    after = one.step.method.state_dict()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items())
    assert int(one.step.count) == int(one.step.meter.instances) // 4 == 1


def test_captured_needs_a_gpu(tmp_path: Path) -> None:
    with pytest.raises(InputError, match='engine="captured" needs a CUDA device'):
        pretrain(**POINTS, device="cpu", engine="captured", out=tmp_path / "run")
    one = engine("icone")
    chosen = accelerate(one.step, one.loader, RunContext(torch.device("cpu")), pytest.fail)
    assert isinstance(chosen, EagerEngine)


def test_an_older_torch_runs_uncaptured_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine("icone")
    monkeypatch.setattr(torch, "__version__", "2.10.1+cu128")
    monkeypatch.setattr(one.loader, "device", torch.device("cuda"))
    monkeypatch.setattr(one.step, "total_steps", 100_000)
    said: list[str] = []
    context = RunContext(torch.device("cpu"))
    assert type(accelerate(one.step, one.loader, context, said.append)) is EagerEngine
    assert "capturing needs torch 2.11 or later, and this is 2.10.1" in said[0]
    with pytest.raises(InputError, match=r'engine="captured" needs torch 2\.11 or later'):
        accelerate(one.step, one.loader, context, said.append, engine="captured")


def test_a_failed_capture_leaves_the_step_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first attempt compiles, the second one does not; after both have failed the run goes on in plain steps."""
    one, plain = engine("icone"), engine("icone")
    layers, attempts = list(one.step.method.modules()), []
    said: list[str] = []

    def refuse(self: CapturedEngine, sizes: object) -> None:
        deferred = [m for m in one.step.method.modules() if isinstance(m, DeferredGradLinear)]
        attempts.append((len(deferred) > 0, len(self.parts) > 0))
        self.step.last_backward = cast(Any, "that of the attempt")
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(CapturedEngine, "_capture", refuse)
    failing = CapturedEngine(one.step, one.loader, RunContext(torch.device("cpu")), said.append, compiled=True)
    torch.manual_seed(0)
    failing((4,))
    assert attempts == [(True, True), (True, False)]
    assert ["uncompiled" in said[0], "uncaptured" in said[1]] == [True, True]
    assert all("no such kernel" in message for message in said)
    assert one.step.last_backward is nullcontext
    assert all(now is before for now, before in zip(one.step.method.modules(), layers, strict=True))
    assert not any("forward" in vars(module) for module in [*layers, one.step.views])
    torch.manual_seed(0)
    plain((4,))
    for ours, theirs in zip(one.step.method.parameters(), plain.step.method.parameters(), strict=True):
        assert torch.equal(ours, theirs)
    strict = CapturedEngine(plain.step, plain.loader, RunContext(torch.device("cpu")), None, compiled=False)
    with pytest.raises(InputError, match='engine="eager" does without'):
        strict((4,))


def test_what_needs_triton_is_left_out_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    one = engine("icone")
    said: list[str] = []
    one.loader.device = torch.device("cuda")
    monkeypatch.setattr("icone.cuda.find_spec", lambda name: None)
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    context = RunContext(torch.device("cpu"))
    assert isinstance(accelerate(one.step, one.loader, context, said.append), EagerEngine)
    assert "triton is not installed" in said[0]
    with pytest.raises(InputError, match="triton, which is not installed"):
        accelerate(one.step, one.loader, context, pytest.fail, engine="captured")


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_compiled_parts_compute_what_they_did() -> None:
    """The compiler of the CPU; that of the GPU is tested there."""
    plain, fast = engine("icone"), engine("icone")
    parts = compile_parts(fast.step)
    for one in (plain, fast):
        torch.manual_seed(0)
        with many_recompiles():
            for _ in range(5):
                one((4,))
    assert plain.step.meter.means() == pytest.approx(fast.step.meter.means(), rel=1e-4)
    undo(parts)
    assert all(name not in module.__dict__ for module, name in parts)


def test_several_runs_are_each_the_run_alone(tmp_path: Path) -> None:
    configs = [PretrainConfig(**POINTS, seed=seed, method=method) for seed, method in enumerate(("icone", "diet"))]
    together = pretrain_many(configs, [tmp_path / "a", tmp_path / "b"])
    for config, run in zip(configs, together, strict=True):
        alone = pretrain(**POINTS, seed=config.seed, method=config.method, out=tmp_path / f"alone-{config.seed}")
        ours, theirs = (read_tensors(one.encoder_file)[0] for one in (run, alone))
        assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())
    again = pretrain_many(configs, [tmp_path / "a", tmp_path / "b"], resume=True)
    assert [one.finished for one in again] == [True, True]


def test_a_run_that_fails_does_not_stop_those_after_it(tmp_path: Path) -> None:
    settings = POINTS | {"epochs": 2}
    configs = [PretrainConfig(**settings, seed=seed, lr=lr) for seed, lr in enumerate((1e-4, 1e29, 1e29, 1e-4))]
    outs = [tmp_path / f"seed-{seed}" for seed in range(4)]
    told = Console(file=io.StringIO(), width=500)
    with pytest.raises(TrainingError, match="weights are not finite after step 0"):
        pretrain_many(configs, outs, console=told)
    assert [Run(out).finished for out in outs] == [True, False, False, True]
    assert isinstance(told.file, io.StringIO)
    assert [f"note: {out} failed: " in told.file.getvalue() for out in outs] == [False, True, True, False]


def test_an_interruption_stops_the_runs_that_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    step = TrainStep.__call__

    def interrupted(self: TrainStep, batches: Any) -> None:
        step(self, batches)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(TrainStep, "__call__", interrupted)
    outs = [tmp_path / "a", tmp_path / "b"]
    with pytest.raises(InterruptedRun, match="stopped after step 1 of"):
        pretrain_many([PretrainConfig(**POINTS, seed=seed) for seed in range(2)], outs)
    assert [Run(out).exists() for out in outs] == [True, False]


def test_runs_that_train_together_need_the_same_data(tmp_path: Path) -> None:
    configs = [PretrainConfig(**POINTS), PretrainConfig(**POINTS, subset=10)]
    with pytest.raises(InputError, match="need the same data: subset differs"):
        pretrain_many(configs, [tmp_path / "a", tmp_path / "b"])
    assert not list(tmp_path.iterdir())
