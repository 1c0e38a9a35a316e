"""A plan says what a run takes by taking steps, changes nothing, and `--batch-size auto` is a number in the run."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import icone
from icone.api import planning
from icone.api.batching import AUTO_BATCH
from icone.api.data_defaults import with_data_defaults
from icone.api.planning import Plan, Trial, Way, make_plan, ways
from icone.api.pretrain import pretrain
from icone.api.random_data import DataShape
from icone.api.training_parts import build_parts
from icone.cli import main
from icone.config import PretrainConfig
from icone.data import inspect_data, load_data
from icone.errors import InputError, InterruptedRun
from icone.run import Run
from icone.tensor_files import read_tensors

POINTS: dict[str, Any] = {"source": "synthetic:gaussians@x40", "epochs": 2, "probe_every": 0, "device": "cpu"}
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def short_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planning, "TIMED_SECONDS", 0.01)


def plan_of(**settings: Any) -> Plan:
    config = PretrainConfig(**{**POINTS, "batch_size": AUTO_BATCH, **settings})
    shape = DataShape.of(load_data(config).train)
    return make_plan(config, shape, CPU, build_parts, in_memory=shape.nbytes)


def test_a_plan_takes_steps_and_leaves_random_states() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    found = plan_of()
    assert torch.equal(torch.get_rng_state(), before)
    (one,) = found.trials
    assert (one.fits, one.measured, one.micro_batch, one.checkpoint_activations) == (True, True, None, False)
    assert found.steps_per_epoch == 3
    assert one.step_seconds is not None
    assert found.seconds == pytest.approx(2 * 3 * one.step_seconds)
    assert found.flags == ["--batch-size", "16"]
    assert json.loads(json.dumps(found.to_json()))["fits"]


def costs(limit: int, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, Way]]:
    """Let a sample take 100 bytes and a second, checkpointed 40; the list has what was measured."""
    taken: list[tuple[int, Way]] = []

    def measure(self: Any, batch: int, way: Way) -> Any:
        taken.append((batch, way))
        self.steps_per_epoch = 3
        memory = (40 if way.checkpointed else 100) * way.at_once
        return planning._Cost(memory, float(batch))

    monkeypatch.setattr(planning, "free_bytes", lambda: limit)
    monkeypatch.setattr(planning, "USABLE", 1.0)
    monkeypatch.setattr(planning._Planner, "_measure", measure)
    return taken


@pytest.mark.parametrize(
    ("limit", "flags"),
    [
        (1600, ["--batch-size", "16"]),
        (850, ["--batch-size", "16", "--micro-batch", "8"]),
        (100, ["--batch-size", "16", "--micro-batch", "1"]),
        (50, ["--batch-size", "16", "--micro-batch", "1", "--checkpoint-activations", "on"]),
    ],
)
def test_the_fewest_micro_batches_that_fit_are_chosen(
    limit: int, flags: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = costs(limit, monkeypatch)
    found = plan_of()
    assert found.flags == flags
    # a CPU never takes a step that would not fit, but for the two that everything is estimated from
    assert all(way.at_once * 100 <= limit or way.checkpointed for _, way in taken[2:])
    applied = found.apply(PretrainConfig(**POINTS))
    assert (applied.batch_size, applied.checkpoint_activations) == (16, "on" if limit == 50 else "auto")


def test_nothing_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    costs(30, monkeypatch)
    found = plan_of()
    assert found.chosen is None
    assert len(found.trials) == 6
    assert "no way to train" in found.sentences()[0]
    with pytest.raises(InputError, match=r"no way to train fits.*size="):
        found.apply(PretrainConfig(**POINTS))


def test_samples_in_main_memory_are_told_and_leave_less_for_a_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU they were 0, and a plan gave a step the memory that the samples would take."""
    monkeypatch.setattr(planning, "free_bytes", lambda: 3 * 10**9)
    settings = {**POINTS, "epochs": 1, "batch_size": 4}
    samples = 40 * 2 * 4
    assert icone.plan(**settings)["samples"] == samples
    assert icone.plan(**settings)["free"] == 3 * 10**9
    config = PretrainConfig(**settings)
    shape = DataShape.of(load_data(config).train)._replace(samples=10**8)
    costs(10**9, monkeypatch)
    before, after = (make_plan(config, shape, CPU, build_parts, in_memory=x) for x in (None, 8 * 10**8))
    assert (before.samples, before.free) == (0, 10**9)  # more than half of what is free: they are read while it trains
    assert any("not kept" in note for note in before.notes)
    assert (after.samples, after.free) == (8 * 10**8, 18 * 10**8)
    read_anew = icone.plan(**settings, memory_gb=0)
    assert read_anew["samples"] == 0
    assert any("not kept" in note for note in read_anew["notes"])
    made: list[Plan] = []

    def watched(*args: Any, **given: Any) -> Plan:
        made.append(make_plan(*args, **given))
        return made[-1]

    monkeypatch.setattr("icone.api.pretrain.make_plan", watched)
    icone.pretrain(**settings | {"batch_size": "auto"}, out=tmp_path / "run")
    assert (made[0].samples, made[0].free) == (samples, 10**9 + samples)  # they are in memory when it plans


def test_long_steps_are_estimated_from_short_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = costs(10**6, monkeypatch)
    monkeypatch.setattr(planning._Planner, "_is_late", lambda self, seconds: seconds > 10)
    (one,) = plan_of().trials
    assert (one.measured, one.memory, one.step_seconds) == (False, 1600, 16.0)
    assert [batch for batch, _ in taken] == [1, 2]


def test_what_the_user_says_is_kept() -> None:
    def sizes(**settings: Any) -> list[tuple[int, bool]]:
        return [tuple(way) for way in ways(PretrainConfig(source="", **settings))]  # type: ignore[misc]

    assert sizes(batch_size=6, checkpoint_activations="off") == [(6, False), (3, False), (2, False), (1, False)]
    assert sizes(batch_size=2, checkpoint_activations="on") == [(2, True), (1, True)]
    assert sizes(batch_size=16, micro_batch=4) == [(4, False), (4, True)]
    with pytest.raises(InputError, match="batch size of 2 or more"):
        plan_of(method="simclr", batch_size=1)


def test_auto_is_a_number_in_the_run_and_the_run_of_that_number(tmp_path: Path, stop_after: Any) -> None:
    common = {**POINTS, "encoder": "mlp", "lr": 1e-3}
    plain = pretrain(**common, batch_size=16, out=tmp_path / "plain")
    stop_after(4)
    with pytest.raises(InterruptedRun, match="stopped after step 4"):
        pretrain(**common, batch_size="auto", out=tmp_path / "auto")
    stored = json.loads((tmp_path / "auto" / "config.json").read_text())["config"]
    assert (stored["batch_size"], stored["micro_batch"]) == (16, None)
    run = pretrain(**common, batch_size="auto", out=tmp_path / "auto", resume=True)
    ours, theirs = (read_tensors(one.encoder_file)[0] for one in (run, plain))
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())


def test_a_few_samples_and_a_built_method() -> None:
    config = PretrainConfig(**POINTS | {"source": "synthetic:gaussians@x5"})
    built = build_parts(PretrainConfig(**POINTS | {"batch_size": 3}), load_data(config)).method
    sizes = [with_data_defaults(config, "by plan", 0, 5, method).batch_size for method in (None, built)]
    assert sizes == [5, 3]


@pytest.mark.parametrize("source", ["synthetic:cells@16x12", "synthetic:gaussians@x12"])
def test_data_that_was_looked_at_has_the_shape_of_data_that_was_read(source: str) -> None:
    config = PretrainConfig(source=source, test_fraction=0.25)
    read, seen = DataShape.of(load_data(config).train), DataShape.expected(*inspect_data(config))
    assert read == seen == DataShape.from_json(json.loads(json.dumps(read.to_json())))
    random = read.random(CPU, 2).train
    assert random.images is not None
    assert random.images.shape == load_data(config).train.images.shape  # type: ignore[union-attr]
    assert random.images.dtype == load_data(config).train.images.dtype  # type: ignore[union-attr]


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    words = ["synthetic:gaussians@x40", "--epochs", "2", "--batch-size", "auto", "--device", "cpu"]
    assert main(["plan", *words, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["flags"] == ["--batch-size", "16"]
    assert not list(tmp_path.iterdir())
    assert main(["pretrain", *words, "--probe-every", "0", "--out", "run"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 epochs of 3 steps take" in said
    assert "--batch-size auto is --batch-size 16" in said
    assert Run("run").config.batch_size == 16
    for flags, words_of_it in ((["--seeds", "2"], "one run"), (["--devices", "2"], "one process")):
        assert main(["pretrain", *words, "--out", "other", *flags]) == 2
        assert words_of_it in capsys.readouterr().err
    assert icone.plan("synthetic:gaussians@x40", epochs=1, device="cpu")["batch_size"] == 1
    with pytest.raises(InputError, match="unknown settings: epoch"):
        icone.plan("synthetic:gaussians@x40", epoch=1)


def test_sentences_and_table() -> None:
    trial = Trial(
        micro_batch=8, checkpoint_activations=True, fits=True, memory=2 * 10**9, step_seconds=0.05, measured=True
    )
    found = Plan(
        batch_size=16,
        device="cuda",
        free=11 * 10**9,
        samples=10**9,
        epochs=100,
        steps_per_epoch=72,
        trials=[trial],
        notes=["a note"],
    )
    assert found.sentences() == [
        "a step on 16 samples, 8 at a time, activations computed again takes 2.00 of 10.0 GB and 50.0 ms: 100 epochs "
        "of 72 steps take 6 min",
        "a note",
    ]
    assert found.table().row_count == 1
    short = dataclasses.replace(found, batch_size=1, epochs=1, steps_per_epoch=12, notes=[])
    assert short.sentences()[0].startswith("a step on 1 sample, ")
    assert "1 epoch of 12 steps takes " in short.sentences()[0]
    assert "2 epochs of 1 step take " in dataclasses.replace(short, epochs=2, steps_per_epoch=1).sentences()[0]


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
def test_a_gpu_with_little_memory_takes_micro_batches() -> None:
    config = PretrainConfig(source="synthetic:shapes@64x32", encoder="resnet10_3d", size=64, batch_size=16, epochs=20)
    device, shape = torch.device("cuda"), DataShape.of(load_data(config).train)
    state = torch.cuda.get_rng_state()
    free = make_plan(config, shape, device, build_parts)
    assert torch.equal(torch.cuda.get_rng_state(), state)
    (one,) = free.trials
    assert one.memory is not None
    assert one.step_seconds is not None
    assert one.measured
    torch.cuda.empty_cache()
    allowed = torch.cuda.memory_reserved() + 0.5 * one.memory
    torch.cuda.set_per_process_memory_fraction(allowed / torch.cuda.mem_get_info()[1])
    try:
        small = make_plan(config, shape, device, build_parts)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert small.chosen is not None
    assert small.chosen.micro_batch is not None or small.chosen.checkpoint_activations
    assert not small.trials[0].fits


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("engine", ["eager", "auto"])
def test_auto_on_a_gpu_is_the_run_of_the_number(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    common = {**POINTS, "device": "cuda", "engine": engine}
    runs = [pretrain(**common, batch_size=size, out=tmp_path / str(size)) for size in ("auto", 16)]
    ours, theirs = (read_tensors(run.encoder_file)[0] for run in runs)
    assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())


def test_a_plan_says_that_samples_are_enlarged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    costs(10**9, monkeypatch)
    images = np.random.default_rng(0).random((4, 16, 16), dtype=np.float32)
    monkeypatch.setenv("COLUMNS", "400")
    settings: dict[str, Any] = {"epochs": 1, "device": "cpu", "encoder": "resnet18"}
    found = icone.plan(images, **settings)
    hint = "samples are enlarged from 16 to 224; size=16 keeps their size, and steps on smaller samples are faster"
    assert hint in found["notes"]
    assert hint in repr(found)
    assert not icone.plan(images, size=32, **settings)["notes"]
    np.save(tmp_path / "a.npy", images)
    monkeypatch.setattr(planning, "free_bytes", lambda: 1)
    found = icone.plan(tmp_path / "a.npy", **settings)
    assert not found["fits"]
    assert hint in repr(found)
