"""Benchmarks of the step compare what they claim to compare."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import alarm
import continued
import early_features
import evidence
import probe
import vary
from icone.encoders import build_encoder
from icone.methods import METHODS
from icone.paper import Experiment, Options, import_runs, run_experiment
from icone.paper.experiments import EXPERIMENTS
from icone.paper.store import Store
from icone.recipe import WARMUP
from step import (
    PEERS,
    WARM_UPS,
    Case,
    GraphStep,
    LightlyStep,
    LoopProcess,
    PlainStep,
    measure,
    plain_encoder,
    table_of,
    timed,
)

IMAGES = Case("vit_tiny_patch16_224", 2, 32, 8, 2)
VOLUMES = Case("resnet10_3d", 3, 16, 8, 2, channels=1)
CPU = torch.device("cpu")
CASES = pytest.mark.parametrize("case", [IMAGES, VOLUMES], ids=["images", "volumes"])


@CASES
@pytest.mark.parametrize("mode", [None, "reduce-overhead", "default"])
def test_a_peer_s_step_aligns_two_views_with_adamw(case: Case, mode: str | None) -> None:
    torch.manual_seed(0)
    step = PlainStep(case, CPU, mode)
    before = [p.detach().clone() for p in step.model.parameters()]
    with torch.compiler.set_stance("force_eager"):  # what is compiled, without the compiler
        expected = 1 - F.cosine_similarity(*step.model.encoder(step.views).chunk(2)).mean()
        torch.testing.assert_close(step.loss(step.views), expected)
        step()
    gradients = [p.grad for p in step.model.parameters() if p.grad is not None]
    assert any(g.abs().max() > 0 for g in gradients)
    assert any(not torch.equal(p, b) for p, b in zip(step.model.parameters(), before, strict=True))


@CASES
def test_peers_have_the_layers_of_the_libraries(case: Case) -> None:
    def build(make: Any) -> nn.Module:
        torch.manual_seed(0)
        network: nn.Module = make()
        return network.eval()

    ours = build(lambda: build_encoder(case.encoder, in_channels=case.channels, spatial_dims=case.dims, size=case.size))
    plain = build(lambda: plain_encoder(case))
    assert not any(type(m).__module__.startswith("icone.encoders.layers") for m in plain.modules())
    x = torch.rand(2, case.channels, *(case.size,) * case.dims)
    torch.testing.assert_close(plain(x), ours(x), rtol=1e-4, atol=1e-5)


def test_lightly_s_step_has_two_instances_or_more() -> None:
    step = LightlyStep(Case("vit_tiny_patch16_224", 2, 32, 8, 1), CPU)
    assert [len(view) for view in step.views] == [2, 2]
    before = [p.detach().clone() for p in step.model.parameters()]
    step()
    assert any(not torch.equal(p, b) for p, b in zip(step.model.parameters(), before, strict=True))


def test_a_loop_that_fails_is_named_and_the_others_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    rounds: list[str] = []
    milliseconds = {"ours": 2.0, "fused": 8.0, "graph": 3.0}

    class Fake:
        def __init__(self, name: str) -> None:
            self.name = name

        def about(self) -> dict[str, Any]:
            if self.name not in milliseconds:
                raise RuntimeError("no such kernel")
            return {"seconds_to_start": 1.0, "made_of": ""}

        def round(self) -> float:
            rounds.append(self.name)
            return milliseconds[self.name]

        def end(self) -> None:
            rounds.append(f"end of {self.name}")

    row: dict[str, Any] = {"case": "tiny", "goal": None}
    written: list[str] = []
    starts: Any = {name: partial(Fake, name) for name in ("ours", "fused", "reduce-overhead", "graph")}
    measure(row, starts, lambda: written.append(json.dumps(row)))
    assert row["failed"] == {"reduce-overhead": "no such kernel"}
    assert "tiny: reduce-overhead failed (no such kernel)" in capsys.readouterr().err
    assert (row["strongest"], row["ratio"]) == ("graph", 1.5)
    assert rounds[1:7] == ["ours", "fused", "graph"] * 2  # in turns
    assert rounds[-3:] == ["end of ours", "end of fused", "end of graph"]
    assert '"graph": 3.0' in written[-2]  # before the end
    assert len(table_of([row], ["fused", "reduce-overhead", "graph"]).rows) == 1


@pytest.mark.slow  # two processes that import everything, for a benchmark
def test_a_loop_runs_in_a_process_of_its_own() -> None:
    loop = LoopProcess(Case("vit_tiny_patch16_224", 2, 32, 8, 2), CPU, 3, PEERS["fused"])
    assert loop.about()["seconds_to_start"] > 0
    assert loop.round() > 0
    loop.end()
    broken = LoopProcess(Case("no_such_encoder", 2, 32, 8, 2), CPU, 3, PEERS["fused"])
    with pytest.raises(RuntimeError, match="unknown encoder"):
        broken.about()
    broken.end()


def test_a_graph_needs_a_gpu_and_says_so() -> None:
    assert list(PEERS) == ["fused", "reduce-overhead", "graph", "lightly"]
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="needs a GPU"):
            GraphStep(IMAGES, CPU)


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")  # compilers warn about themselves
@pytest.mark.parametrize("case", [IMAGES, dataclasses.replace(VOLUMES, size=64)], ids=["images", "volumes"])
def test_captured_peers_train_as_the_eager_one_does(case: Case) -> None:
    """After as many steps they have about the same loss; a capture is preceded by steps, and is none itself."""
    losses = []
    for name in ("fused", "reduce-overhead", "graph"):
        torch.manual_seed(0)
        loop = PEERS[name](case, torch.device("cuda"), None)
        step = loop.step
        assert isinstance(step, PlainStep)
        timed(loop, 35 - WARM_UPS if name == "graph" else 35)
        with torch.no_grad():
            losses.append(step.model(step.views).item())
    assert losses == pytest.approx(losses[:1] * 3, rel=0.1, abs=1e-3)


def test_the_probe_is_measured_beside_the_same_run_without_it() -> None:
    settings = {"source": "synthetic:gaussians@x60", "features": 8, "epochs": 2, "batch_size": 8, "cache": "off"}
    with_probe, without = (probe.train(settings, "cpu", probe_every) for probe_every in (1, 0))
    assert with_probe.probing > 0 == without.probing
    assert with_probe.weights.keys() == without.weights.keys()
    *seconds, by_clock, by_difference, probed, same = probe.side_by_side(settings, "cpu", repeats=1)
    assert len(seconds) == 3
    assert float(by_clock) > 0
    assert float(by_difference) > -100
    assert (probed, same) == ("0", "yes")  # so short a run affords 16 samples, too few for a score


def test_continued_pretraining_is_compared_in_pairs_of_set_and_seed() -> None:
    scores = {"default": (50.0, 60.0, 70.0), "layer decay 1": (51.0, 63.0, 68.0)}
    where = (("blood", 0), ("blood", 1), ("breast", 0))
    rows = [
        {"data": data, "seed": seed, "row": name, "score": score, "linear_probe": score, "knn_5": score}
        for name, values in scores.items()
        for (data, seed), score in zip(where, values, strict=True)
    ]
    rows.append({**rows[-1], "seed": 7})  # has no default to be compared with
    line = next(line for line in continued.differences(rows).splitlines() if "layer decay 1" in line)
    assert [cell.strip() for cell in line.split("|")[2:4]] == ["+2.00±1.00 (2)", "-2.00 (1)"]
    line = next(line for line in continued.table(rows, "knn_5").splitlines() if "default" in line)
    assert [cell.strip() for cell in line.split("|")[2:6]] == ["55.0±7.1", "–", "–", "70.0"]
    assert {name for part in continued.PARTS.values() for name in part} == continued.SETS.keys()


def registered_for_once(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`run_experiment` whose experiment is forgotten after the test."""

    def run(experiment: Experiment, **settings: Any) -> Any:
        monkeypatch.setitem(EXPERIMENTS, experiment.name, experiment)
        return run_experiment(experiment, **settings)

    return run


def test_evidence_runs_what_is_left_and_keeps_what_was_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evidence, "run_experiment", registered_for_once(monkeypatch))
    kept = Path(evidence.__file__).parent / "results" / "evidence.zip"
    store = Store(tmp_path / "imported").create()
    (counts,) = import_runs(store, [kept]).values()
    assert counts.added > 0
    assert counts.others == 0  # a new option must not change the names of runs that are done
    generated = dataclasses.replace(evidence.QUESTIONS[0], data=evidence.GENERATED)
    assert {cell.spec.config.warmup for cell in generated.cells(tmp_path)} == {WARMUP}
    assert {cell.spec.config.warmup for cell in generated.cells(tmp_path, warmup=False)} == {None}
    assert len(evidence.left_of(generated.cells(tmp_path), store)) == 6  # none of it is there
    for left in ("2", "0", "0"):
        evidence.main(tmp_path / "store", smoke=True, workers=1, show=left == "2")
        assert capsys.readouterr().out.splitlines()[-2].split("│")[3:5] == [" 2    ", f" {left}    "]
    assert len(list((tmp_path / "store" / "outcomes").iterdir())) == 2


def test_a_study_varies_its_settings_and_nothing_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = vary.GENERATED
    chosen = dict(map(vary.parse, ["warmup=0,0.05", "lr=1e-3"]))
    cells = vary.study(name, vary.GENERATED[name], tmp_path, chosen).grid(Options(batch_sizes=(1, 16)))
    configs = [cell.spec.config for cell in cells]
    assert [(c.warmup, c.lr, c.batch_size) for c in configs] == [
        (warmup, 1e-3, batch_size) for batch_size in (1, 16) for warmup in (0, 0.05)
    ]
    assert len({dataclasses.replace(c, warmup=None, batch_size=1) for c in configs}) == 1
    with pytest.raises(SystemExit, match="NAME=VALUE,VALUE, got 'warmup'"):
        vary.parse("warmup")
    monkeypatch.setattr(vary, "run_experiment", registered_for_once(monkeypatch))
    vary.main(("warmup=0,0.05",), tmp_path / "store", smoke=True, batch_sizes=(16,), workers=1,
              out=tmp_path / "runs.csv")  # fmt: skip
    kept = pd.read_csv(tmp_path / "runs.csv")
    assert kept["warmup"].tolist() == [0, 0.05]
    assert kept["linear_probe"].between(0, 1).all()
    assert len(list((tmp_path / "store" / "outcomes").iterdir())) == 2
    assert "IConE, warmup 0.05" in capsys.readouterr().out


def test_the_first_samples_are_followed(capsys: pytest.CaptureFixture[str]) -> None:
    early_features.main(smoke=True)
    rows = [line.split("|")[1:-1] for line in capsys.readouterr().out.splitlines()[2:]]
    found = {(warmup.strip(), b.strip(), n.strip()): float(rank) for warmup, b, n, rank, *_ in rows}
    assert len({found[warmup, b, "0"] for warmup in ("0", "0.05") for b in ("1", "16")}) == 1  # untrained
    assert all(found["0", b, "32"] < 0.8 * found["0.05", b, "32"] for b in ("1", "16"))


def test_questions_of_evidence_are_asked_once_and_name_methods_that_exist_there() -> None:
    assert len({question.asks for question in evidence.QUESTIONS}) == len(evidence.QUESTIONS)
    for question in evidence.QUESTIONS:
        assert all(METHODS[method].min_batch_size <= min(question.batch_sizes) for method in question.methods)


def test_the_alarm_is_measured_beside_what_held_out_samples_say(tmp_path: Path) -> None:
    ((source, settings),) = alarm.GENERATED.items()
    threads = torch.get_num_threads()
    try:
        row = alarm.measure(source, settings, tmp_path, alarm.CASES[0], seed=0)
    finally:
        torch.set_num_threads(threads)
    assert [one["epoch"] for one in row["live"]] == [0, 5]  # as by default: the first, every fifth, the last
    assert set(row["comparison"]) == {"linear_probe", "knn_5"}
    alike = [{**one, "geometry": {**one["geometry"], "mean_cosine": 1.0}} for one in row["live"]]
    assert alarm.alarms(alike, labels=True) == alarm.alarms(alike, labels=False) == [(6, "collapsed")]
    rows = json.loads(json.dumps([{**row, "live": alike}, {**row, "seed": 1, "live": alike[:1]}]))  # one is no alarm
    assert "| IConE, B = 1 | 1 of 2 | 1 of 2 | " in " ".join(alarm.table(rows).split())
