"""The probe and the alarm: right figures, no trace in the run, a warning where it belongs."""

from __future__ import annotations

import copy
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from sklearn.datasets import make_classification, make_multilabel_classification, make_regression
from sklearn.linear_model import Ridge, RidgeClassifier
from sklearn.metrics import balanced_accuracy_score, r2_score, roc_auc_score
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import nn

from icone.api import training_parts
from icone.api.build import make_encoder, make_method, make_views
from icone.api.pretrain import pretrain
from icone.api.summaries import pretraining_summary
from icone.config import PretrainConfig
from icone.data import load_data
from icone.data.targets import Task
from icone.errors import CollapseError, InputError
from icone.evaluation import live_probe
from icone.evaluation.assessment import geometry_metrics, with_untrained
from icone.evaluation.live_labels import FIT, PENALTY, LabelProbe, differences
from icone.evaluation.live_probe import (
    FEW_INSTANCES,
    VIEWS,
    CollapseAlarm,
    LiveProbe,
    ProbePlan,
    default_interval,
    plan_probe,
)
from icone.evaluation.metrics import Embedding
from icone.evaluation.verdict import judge_live
from icone.report.content import history_columns, live_warnings
from icone.run import Run
from icone.training.callbacks import flatten
from icone.training.checkpoint import load_state
from icone.training.live_score import LIVE_SCORES
from icone.training.progress import PlainDisplay

POINTS: dict[str, Any] = {"source": "synthetic:gaussians", "subset": 40, "epochs": 3, "features": 8, "seed": 3}
COLLAPSING: dict[str, Any] = POINTS | {
    "epochs": 24, "probe_every": 2, "lr": 3e-2, "weight_decay": 0.5, "batch_size": 4, "recipe": "paper",
    "options": ("anchor_weight=0", "diversity_weight=0"),
}  # fmt: skip


def quiet() -> Console:
    return Console(file=io.StringIO())


def weights(run: Run) -> dict[str, bytes]:
    return {name: t.numpy().tobytes() for name, t in load_state(run).tensors.items()}


def test_without_an_interval_a_gpu_measures_less_often_where_epochs_are_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_cpu = pretrain(**POINTS | {"epochs": 7}, out=tmp_path / "cpu", console=quiet())
    assert [row["epoch"] for row in on_cpu.history if "geometry" in row] == [0, 5, 6]
    asked: list[int] = []

    def on_a_gpu(device: torch.device, *, epochs: int, micro_batches: int, flops: float) -> int:
        asked.append(micro_batches)
        return default_interval(torch.device("cuda"), epochs=epochs, micro_batches=micro_batches, flops=flops)

    monkeypatch.setattr(training_parts, "default_interval", on_a_gpu)
    settings = POINTS | {"epochs": 7, "batch_size": 8, "micro_batch": 2}
    on_gpu = pretrain(**settings, out=tmp_path / "gpu", console=quiet())
    assert asked == [20]
    assert [row["epoch"] for row in on_gpu.history if "geometry" in row] == [6]


@pytest.mark.parametrize("epochs", [1, 3, 20, 100, 1000])
@pytest.mark.parametrize("micro_batches", [10, 63, 1000])
def test_measurements_of_a_gpu_stay_within_their_share_of_the_time(epochs: int, micro_batches: int) -> None:
    every = default_interval(torch.device("cuda"), epochs=epochs, micro_batches=micro_batches, flops=0)
    plan = ProbePlan(every, epochs, 512, first=every <= live_probe.DEFAULT_INTERVAL)
    share = (
        plan.measurements * live_probe.MEASUREMENT_SECONDS / (epochs * micro_batches * live_probe.MICRO_BATCH_SECONDS)
    )
    assert plan.due(epochs - 1)
    assert plan.measurements == 2 or share <= 0.03


CELLS: dict[str, Any] = {"source": "synthetic:cells@32x8", "encoder": "resnet10t", "size": 32, "epochs": 2}


@pytest.mark.parametrize("settings", [POINTS, CELLS | {"batch_size": 1}, CELLS | {"batch_size": 2}])
def test_the_probe_leaves_no_trace_in_weights_moments_and_generators(settings: dict[str, Any], tmp_path: Path) -> None:
    with_probe = pretrain(**settings, probe_every=1, out=tmp_path / "with", console=quiet())
    without = pretrain(**settings, probe_every=0, out=tmp_path / "without", console=quiet())
    assert weights(with_probe) == weights(without)
    assert all("geometry" in row for row in with_probe.history)
    assert not any("geometry" in row or "probe_seconds" in row for row in without.history)


def test_a_batchnorm_network_is_measured_in_eval_mode_and_left_in_training_mode() -> None:
    config = PretrainConfig(source="synthetic:cells@32x8", encoder="resnet10t", size=32, batch_size=2)
    data = load_data(config)
    method, views = make_method(config, data).train(), make_views(config, data.preparation)
    before = {name: t.clone() for name, t in method.state_dict().items()}
    probe = LiveProbe(method, views, data.train, torch.device("cpu"), ProbePlan(1, 3, 8))
    random = torch.get_rng_state()
    first, second = probe.measure(0)["geometry"], probe.measure(1)["geometry"]
    assert first == second  # the same views each time
    assert torch.equal(torch.get_rng_state(), random)
    assert method.training
    assert method.encoder.training
    assert all(torch.equal(before[name], t) for name, t in method.state_dict().items())


@pytest.mark.parametrize("batch_size", [1, 2])
def test_the_untrained_encoder_is_measured_with_statistics_of_its_own(batch_size: int) -> None:
    """BatchNorm of a new network holds the mean 0 and the variance 1, which no training would leave there."""
    config = PretrainConfig(source="synthetic:cells@32x24", encoder="resnet10t", size=32, batch_size=batch_size)
    data = load_data(config)
    method, views = make_method(config, data).train(), make_views(config, data.preparation)
    probe = LiveProbe(method, views, data.train, torch.device("cpu"), ProbePlan(1, 3, 24))
    as_new = probe.measure(0)["geometry"]
    assert as_new["untrained_rankme"] != as_new["rankme"]
    assert as_new["instances"] == 24
    reference = make_encoder(config, data.preparation).train()  # the same weights, with PyTorch's own BatchNorm
    for module in reference.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # a cumulative average
    with torch.no_grad():
        for _ in range(20):
            reference(views(probe.images, VIEWS).flatten(0, 1))
        method.encoder = reference.eval()
    expected, *_ = probe._measure()
    assert as_new["untrained_rankme"] == pytest.approx(expected["rankme"], rel=0.1)
    assert abs(as_new["rankme"] - expected["rankme"]) > 2 * abs(as_new["untrained_rankme"] - expected["rankme"])


def test_labels_are_probed_without_a_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Weights, moments and random state are bit for bit those of a run without the probe."""
    monkeypatch.setattr("icone.evaluation.live_labels.FEWEST", 10)
    settings = POINTS | {"subset": 60, "epochs": 6, "batch_size": 8, "lr": 3e-3}
    run = pretrain(**settings, probe_every=2, out=tmp_path / "with", console=(said := quiet()))
    without = pretrain(**settings, probe_every=0, out=tmp_path / "without", console=quiet())
    assert weights(run) == weights(without)
    rows = [row["probe"] for row in run.history if "probe" in row]
    assert [row["epoch"] for row in run.history if "probe" in row] == [0, 2, 4, 5]
    assert all(0 <= row[name] <= 1 for row in rows for name in ("live_linear", "live_knn"))
    assert len({row["untrained_live_linear"] for row in rows}) == 1
    assert "linear probe" in said.file.getvalue()  # type: ignore[attr-defined]
    assert history_columns(run)["geometry"]["live_knn"][0] == [0, rows[0]["untrained_live_knn"]]
    assert {"probe/live_linear", "probe/live_knn"} <= flatten(run.history[0]).keys()


def test_whoever_names_an_interval_gets_a_score_in_a_short_run(tmp_path: Path) -> None:
    run = pretrain(**POINTS | {"subset": 60, "probe_every": 1}, out=tmp_path / "run", console=quiet())
    assert [row["probe"]["instances"] for row in run.history] == [60, 60, 60]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"subset": 40}, "40 training samples have a label, and a score needs 50"),
        (
            {"subset": 60, "probe_every": None},
            "at 16 samples with a label, and a score needs 50. With an interval that you name (probe_every=5)",
        ),
        ({"subset": 60, "no_labels": True}, ""),
        ({"subset": 60, "probe_every": 0}, ""),
        ({"subset": 60, "method": "supcon", "batch_size": 8}, ""),
    ],
)
def test_one_note_says_why_labels_are_not_probed(settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    run = pretrain(**POINTS | {"probe_every": 1} | settings, out=tmp_path / "run", console=(out := quiet()))
    assert not any("probe" in row for row in run.history)
    printed = out.file.getvalue()  # type: ignore[attr-defined]
    assert printed.count("no probe of labels while training") == bool(said)
    assert said in printed


@pytest.mark.parametrize(
    ("task", "names", "said"),
    [
        ("regression", ("live_ridge", "live_knn_regressor"), "ridge probe R²"),
        ("multilabel", ("live_multilabel", "live_knn_multilabel"), "one-vs-rest probe mean AUROC"),
    ],
)
def test_numbers_and_several_labels_are_probed_without_a_trace(
    task: str, names: tuple[str, str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, moments and random state are those of a run without the probe; terminal, page and loggers have it."""
    points = np.random.default_rng(0).normal(size=(120, 6)).astype(np.float32)
    some = [None if i % 10 == 0 else number for i, number in enumerate(points[:, 0] + 0.1 * points[:, 1])]
    labels: Any = some if task == "regression" else points[:, :3] > 0.3
    settings: dict[str, Any] = {"features": 8, "epochs": 4, "batch_size": 8, "lr": 3e-3, "labels": labels}
    monkeypatch.setattr("icone.evaluation.live_probe.FEWEST_INSTANCES", 100)
    out = quiet()
    run = pretrain(points, **settings, probe_every=2, out=tmp_path / "with", console=out)
    without = pretrain(points, **settings, probe_every=0, out=tmp_path / "without", console=quiet())
    bare = pretrain(points, **settings | {"labels": None}, probe_every=2, out=tmp_path / "bare", console=quiet())
    assert weights(run) == weights(without) == weights(bare)
    assert not any("probe" in row for row in bare.history)
    rows = {row["epoch"]: row["probe"] for row in run.history if "probe" in row}
    assert list(rows) == [0, 2, 3]
    kinds = ("{}", "untrained_{}", "{}_error")
    assert rows[0].keys() == {*(kind.format(name) for name in names for kind in kinds), "instances"}
    assert all(0.3 < row[names[0]] <= 1 for row in rows.values())
    printed = out.file.getvalue()  # type: ignore[attr-defined]
    assert f"{said} {rows[0][names[0]]:.3f} (untrained" in printed
    assert f"{LIVE_SCORES[names[0]][1]} {rows[3][names[0]]:.3f}, " in "\n".join(pretraining_summary(run))
    assert history_columns(run)["geometry"][names[1]][0] == [0, rows[0][f"untrained_{names[1]}"]]
    assert {f"probe/{name}" for name in names} <= flatten(run.history[0]).keys()


def in_halves(probe: LabelProbe, model: Any, x: Any, y: Any, method: str = "predict") -> Any:
    """What a model of scikit-learn says about every sample, trained on the other half."""
    said = np.empty(np.shape(y))
    for half in (0, 1):
        train, test = probe.halves != half, probe.halves == half
        said[test] = getattr(make_pipeline(StandardScaler(), model).fit(x[train], y[train]), method)(x[test])
    return said


def test_probes_of_classes_are_those_of_scikit_learn() -> None:
    x, y = make_classification(60, 12, n_informative=8, n_classes=3, class_sep=0.8, random_state=1)
    features = np.stack([x + 0.1, x - 0.1], axis=1).astype(np.float32)
    targets = np.eye(3)[y]
    targets[::7] = np.nan  # some have no label
    groups = [f"patient {row // 2}" for row in range(60)]
    probe = LabelProbe("classification", targets, groups)
    sides = [{groups[row] for row in probe.rows[probe.halves == half]} for half in (0, 1)]
    assert min(map(len, sides)) > 10
    assert not sides[0] & sides[1]
    found = probe.scores(probe.read(features))
    rows = probe.rows
    for name, model in {
        "live_linear": RidgeClassifier(alpha=PENALTY * 12),
        "live_knn": KNeighborsClassifier(5),
    }.items():
        assert found[name] == pytest.approx(balanced_accuracy_score(y[rows], in_halves(probe, model, x[rows], y[rows])))
        assert 0.4 < found[name] < 1
    assert LabelProbe("classification", np.ones((60, 1))).read(features) == {}  # one class
    assert LabelProbe("classification", np.eye(3)[y[:40]]).read(features[:40]) == {}  # too few to say anything


def test_probes_of_numbers_are_those_of_scikit_learn() -> None:
    x, y = make_regression(80, 12, n_informative=6, noise=40.0, random_state=1)
    features = np.stack([x + 0.1, x - 0.1], axis=1).astype(np.float32)
    targets = np.where(np.arange(80) % 7 == 0, np.nan, y)[:, None]
    probe = LabelProbe("regression", targets, [f"patient {row // 2}" for row in range(80)])
    assert set(probe.rows) == set(np.flatnonzero(~np.isnan(targets[:, 0])))
    found, rows = probe.scores(probe.read(features)), probe.rows
    for name, model in {
        "live_ridge": Ridge(alpha=PENALTY * 12),
        "live_knn_regressor": KNeighborsRegressor(5),
    }.items():
        assert found[name] == pytest.approx(r2_score(y[rows], in_halves(probe, model, x[rows], y[rows])), abs=1e-4)
        assert 0.05 < found[name] < 0.95
    alike = LabelProbe("regression", np.full((80, 1), 3.0))
    assert alike.read(features) == {}
    assert "or are labelled alike" in alike.why_no_score(80)
    assert probe.why_no_score(80) == ""


def test_probes_of_several_labels_are_those_of_scikit_learn() -> None:
    x, y = make_multilabel_classification(100, 12, n_classes=4, random_state=1)
    features = np.stack([x + 0.1, x - 0.1], axis=1).astype(np.float32)
    y = np.column_stack([y, np.arange(100) == 50])  # one sample has the last label: it cannot be tested
    probe = LabelProbe("multilabel", y.astype(float))
    assert probe.targets.shape == (100, 4)
    found = probe.scores(probe.read(features))
    model = Ridge(alpha=PENALTY * 12)
    neighbours = KNeighborsRegressor(5)  # whose mean is the share of neighbours with the label
    for name, one in {"live_multilabel": model, "live_knn_multilabel": neighbours}.items():
        said = in_halves(probe, one, x, y[:, :4].astype(float))
        expected = [roc_auc_score(y[probe.halves == h, :4], said[probe.halves == h], average="macro") for h in (0, 1)]
        assert found[name] == pytest.approx(np.mean(expected), abs=1e-4)
        assert 0.6 < found[name] < 1


@pytest.mark.parametrize("per_group", [1, 2])
@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_errors_of_what_training_gained_are_those_of_leaving_samples_out(task: Task, per_group: int) -> None:
    """The jackknife: how the difference of the scores changes where a sample, or a group of them, does not count."""
    rng = np.random.default_rng(2)
    latent, count = rng.normal(size=(400, 3)), 400 // per_group
    shared = np.repeat(latent[:count], per_group, axis=0)
    targets = {"classification": np.eye(2)[(shared[:, 0] > 0).astype(int)], "regression": shared[:, :1]}
    probe = LabelProbe(
        task, targets.get(task, (shared > 0.4).astype(float)), [f"patient {row // per_group}" for row in range(400)]
    )
    before, after = (
        (np.repeat(shared[:, None], 2, axis=1) + noise * _of_groups(rng.normal(size=(count, 1, 3)), per_group)).astype(
            np.float32
        )
        for noise in (1.1, 1.0)
    )
    said, then = probe.read(after), probe.read(before)
    found = probe.errors(said, then)
    assert len(found) == 2
    numbers = probe.rows // per_group
    for name in said:
        left_out = []
        for number in np.unique(numbers):
            kept = numbers != number
            part = copy.copy(probe)
            part.targets, part.halves, part.rows = probe.targets[kept], probe.halves[kept], probe.rows[kept]
            left_out.append(part.scores({name: said[name][kept]})[name] - part.scores({name: then[name][kept]})[name])
        spread = np.sqrt((len(left_out) - 1) * np.var(left_out))
        assert found[f"{name}_error"] == pytest.approx(np.sqrt(FIT) * spread, rel=0.1)


def _of_groups(values: np.ndarray, size: int) -> np.ndarray:
    """What every sample of a group shares."""
    return np.repeat(values, size, axis=0)


@pytest.mark.parametrize("task", ["classification", "regression", "multilabel"])
def test_encoders_that_differ_by_chance_differ_by_their_errors(task: Task) -> None:
    """The same signal under other noise, for the probe to learn from and to be tested on."""
    rng = np.random.default_rng(0)
    found = []
    for _ in range(100):
        latent, mixed = rng.normal(size=(200, 3)), rng.normal(size=(3, 16))
        targets = {"classification": np.eye(2)[(latent[:, 0] > 0).astype(int)], "regression": latent[:, :1]}
        probe = LabelProbe(task, targets.get(task, (latent > 0.4).astype(float)))
        after, before = (
            probe.read((latent @ mixed + 3 * rng.normal(size=(200, 16)))[:, None].astype(np.float32)) for _ in range(2)
        )
        then, errors = probe.scores(before), probe.errors(after, before)
        found += [(score - then[name]) / errors[f"{name}_error"] for name, score in probe.scores(after).items()]
    assert 0.6 < np.std(found) < 1.1


def test_a_label_that_few_samples_have_makes_nothing_sure() -> None:
    """Two samples in each half, which one encoder tells from all others and the other takes for the last to have it."""
    targets = np.zeros((200, 1))
    targets[:4] = 1
    probe = LabelProbe("multilabel", targets)
    told = {"live_multilabel": targets.copy()}
    for said, other in ((told, {"live_multilabel": -targets}), ({"live_multilabel": -targets}, told)):
        row = {**with_untrained(probe.scores(said), probe.scores(other)), **probe.errors(said, other), "instances": 200}
        (found,) = differences(row).values()
        assert abs(found.value) == 1
        assert not found.better
        assert not found.worse


def test_the_figures_are_those_of_the_views_features() -> None:
    config = PretrainConfig(**(POINTS | {"subset": 30}))
    data = load_data(config)
    method, views = make_method(config, data), make_views(config, data.preparation)
    probe = LiveProbe(method, views, data.train, torch.device("cpu"), ProbePlan(1, 3, 30))
    figures = probe.measure(0)["geometry"]
    with torch.no_grad():
        features = probe._features().double().numpy()
    assert features.shape == (30, VIEWS, 8)
    flat = features.reshape(-1, 8)
    z = (features - flat.mean(0)) / flat.std(0)
    z /= np.linalg.norm(z, axis=-1, keepdims=True)
    assert figures["alignment"] == pytest.approx(((z[:, 0] - z[:, 1]) ** 2).sum(-1).mean())
    x = features[:, 0]
    values = np.linalg.svd((x - x.mean(0)) / x.std(0), compute_uv=False)
    p = values / values.sum() + 1e-7
    assert figures["rankme"] == pytest.approx(np.exp(-(p * np.log(p)).sum()))
    assert figures["rank_limit"] == 8


def test_features_that_share_much_are_measured_in_float32() -> None:
    """In bfloat16 the rounding error of a large common part points in all directions, and raises RankMe."""
    config = PretrainConfig(**(POINTS | {"subset": 40}))
    data = load_data(config)
    method, views = make_method(config, data), make_views(config, data.preparation)
    last = [module for module in method.encoder.modules() if isinstance(module, torch.nn.Linear)][-1]
    with torch.no_grad():
        last.weight[1:] = last.weight[:1] * torch.linspace(0.5, 2, len(last.weight) - 1)[:, None]  # one direction
        last.bias.fill_(30.0)
    probe = LiveProbe(method, views, data.train, torch.device("cpu"), ProbePlan(1, 3, 40))
    exact = probe.measure(0)["geometry"]["rankme"]
    assert exact == pytest.approx(1, abs=0.05)
    method.autocast_dtype = torch.bfloat16
    assert probe.measure(1)["geometry"]["rankme"] == exact
    assert method.autocast_dtype == torch.bfloat16  # training goes on as before
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        rounded = method.encoder(views(probe.images, VIEWS).flatten(0, 1)).float().numpy()
    features = rounded.reshape(40, VIEWS, -1)
    assert geometry_metrics(Embedding(features[:, 0], features))["rankme"] > 2 * exact


@pytest.mark.parametrize(("available", "epochs"), [(50, 4), (351, 100), (351, 12), (5000, 100), (40_000, 3)])
@pytest.mark.parametrize("pass_cost", [1, 2])
def test_the_plan_stays_within_its_share(pass_cost: int, available: int, epochs: int) -> None:
    plan = plan_probe(every=5, epochs=epochs, available=available, views=2, sample_bytes=12_288, pass_cost=pass_cost)
    probes = 1 + sum(plan.due(epoch) for epoch in range(epochs))  # and the untrained encoder
    forward_passes = (probes * plan.instances + min(plan.instances, 256)) * VIEWS  # and its BatchNorm statistics
    training_passes = epochs * available * 2 * 2
    assert plan.due(0)
    assert plan.due(epochs - 1)
    assert 2 <= plan.instances <= min(512, available)
    assert plan.instances == 16 or pass_cost * forward_passes <= 0.03 * training_passes


def test_the_plan_keeps_large_samples_out_of_memory() -> None:
    plan = plan_probe(every=5, epochs=100, available=5000, views=2, sample_bytes=8 * 2**20)
    assert plan.instances == 64


def test_collapse_is_told_where_ranks_alone_would_miss_it(tmp_path: Path) -> None:
    """Views alone shrink the map to a line; noise keeps RankMe up. The same run with anchors stays healthy."""
    settings: dict[str, Any] = POINTS | {
        "subset": 60, "epochs": 11, "batch_size": 4, "lr": 3e-3, "features": None, "seed": 0, "recipe": "paper",
    }  # fmt: skip
    alone: dict[str, Any] = {"options": ("anchor_weight=0", "diversity_weight=0")}
    said, quietly = quiet(), quiet()
    run = pretrain(**settings, **alone, out=tmp_path / "alone", console=said)
    figures = run.history[-1]["geometry"]
    assert figures["rankme"] > 0.2 * figures["rank_limit"]
    assert (
        judge_live({"geometry": figures}).headline == "The features have collapsed: they vary along one direction only."
    )
    assert "the run is collapsing" in said.file.getvalue()  # type: ignore[attr-defined]
    pretrain(**settings, out=tmp_path / "icone", console=quietly)
    assert "collapsing" not in quietly.file.getvalue()  # type: ignore[attr-defined]


def test_the_untrained_encoder_is_the_same_for_a_resumed_run(tmp_path: Path) -> None:
    settings = POINTS | {"lr": 1e-2}
    whole = pretrain(**settings, probe_every=1, out=tmp_path / "run", console=quiet())
    shares = [row["geometry"]["untrained_recognition"] for row in whole.history]
    assert len(set(shares)) == 1
    config = PretrainConfig(**settings)
    data = load_data(config)
    fresh = make_method(config, data)
    nbytes = data.preparation.nbytes
    plan = plan_probe(every=1, epochs=3, available=40, views=2, sample_bytes=nbytes, fewest=FEW_INSTANCES)
    probe = LiveProbe(fresh, make_views(config, data.preparation), data.train, torch.device("cpu"), plan)
    assert probe.untrained["recognition"] == shares[0]
    assert whole.history[0]["geometry"]["rankme"] != probe.untrained["rankme"]  # an epoch has passed


def test_a_method_with_labels_is_asked_for_classes(tmp_path: Path) -> None:
    run = pretrain(**(POINTS | {"epochs": 12}), method="cross_entropy", lr=1e-2, batch_size=8, out=tmp_path / "run",
                   probe_every=4, console=quiet())  # fmt: skip
    figures = run.history[-1]["geometry"]
    assert figures["recognition"] > figures["untrained_recognition"]
    assert not judge_live(run.history[-1]).collapsed


def test_a_collapsing_run_is_told_once_and_goes_on(tmp_path: Path) -> None:
    said = quiet()
    run = pretrain(**COLLAPSING, out=tmp_path / "run", console=said)
    text = said.file.getvalue()  # type: ignore[attr-defined]
    assert text.count("warning: the run is collapsing") == 1
    warned = [row["geometry"].get("warning") for row in run.history if "geometry" in row]
    assert warned[0] is None  # two in a row
    assert warned[-1] == "collapsed"
    assert any("found collapsed" in text for text in live_warnings(run))
    assert "lr=" in text
    assert len(run.history) == COLLAPSING["epochs"]


def test_stop_on_collapse_ends_the_run_with_its_state_saved(tmp_path: Path) -> None:
    with pytest.raises(CollapseError, match=r"collapsing \(epoch \d+\).*resume=True without"):
        pretrain(**COLLAPSING, stop_on_collapse=True, out=tmp_path / "stopped", console=quiet())
    stopped = Run(tmp_path / "stopped")
    assert not stopped.finished
    assert 2 <= len(stopped.history) < COLLAPSING["epochs"]
    resumed = pretrain(**COLLAPSING, resume=True, out=tmp_path / "stopped", console=quiet())
    whole = pretrain(**COLLAPSING, out=tmp_path / "whole", console=quiet())
    assert weights(resumed) == weights(whole)


BAD = {"rankme": 1.0, "rank_limit": 50.0, "mean_cosine": 1.0, "first_component": 1.0}
GOOD = {"rankme": 40.0, "rank_limit": 50.0, "mean_cosine": 0.0, "first_component": 0.1}


@pytest.mark.parametrize(
    ("before", "figures", "stops"),
    [
        ([], [BAD], False),  # once may be chance
        ([], [BAD, BAD], True),
        ([], [BAD, GOOD, BAD], False),
        ([BAD], [BAD], True),  # the first of the two was before an interruption
        ([BAD, GOOD], [BAD], False),
    ],
)
def test_the_alarm_needs_two_in_a_row(before: list[Any], figures: list[Any], stops: bool) -> None:
    alarm = CollapseAlarm(PlainDisplay(Console(file=io.StringIO())), stop=True)
    alarm.start([{"epoch": 0, "geometry": g} for g in before] + [{"epoch": 1}])
    rows = [{"epoch": 2 + i, "geometry": g} for i, g in enumerate(figures)] + [{"epoch": 9}]
    stopped = []
    for row in rows:
        try:
            alarm.end_epoch(row)
        except CollapseError:
            stopped.append(row["epoch"])
    assert stopped == ([1 + len(figures)] if stops else [])


WORSE = GOOD | {f"untrained_{name}": value for name, value in GOOD.items()} | {
    "recognition": 0.7, "recognition_error": 0.01, "untrained_recognition": 0.8, "untrained_recognition_error": 0.01,
    "rankme": 30.0,
}  # fmt: skip


def test_a_run_below_its_untrained_encoder_is_told_once_and_never_stopped() -> None:
    console = quiet()
    alarm = CollapseAlarm(PlainDisplay(console), stop=True)
    better = WORSE | {"recognition": 0.85}
    for epoch, geometry in enumerate([WORSE, better, WORSE, WORSE, WORSE]):
        alarm.end_epoch({"epoch": epoch, "geometry": geometry})
        said = console.file.getvalue()  # type: ignore[attr-defined]
        assert said.count("below its untrained encoder") == (epoch >= 3)
    assert "(epoch 4): Training made the features worse" in said
    assert "70 % of the cases (80 % before" in said
    taught = CollapseAlarm(PlainDisplay(console), stop=True, taught=True)
    for epoch in range(3):
        taught.end_epoch({"epoch": epoch, "geometry": WORSE})
    assert console.file.getvalue() == said  # type: ignore[attr-defined]


def probed(before: float, after: float, error: float, name: str = "live_linear") -> dict[str, float]:
    return {f"untrained_{name}": before, name: after, f"{name}_error": error, "instances": 200}


STILL_GOOD = WORSE | {"recognition": 0.8}


@pytest.mark.parametrize(
    ("geometry", "probe", "tells"),
    [
        (STILL_GOOD, {}, False),
        (STILL_GOOD, probed(0.6, 0.5, 0.03), True),  # surely worse by labels, which views do not show
        (STILL_GOOD, probed(0.6, 0.5, 0.08), False),
        (STILL_GOOD, probed(0.6, 0.5, 0.03) | probed(0.5, 0.6, 0.03, "live_knn"), False),  # the probes disagree
        (STILL_GOOD, probed(-0.3, -0.9, 0.1, "live_ridge"), False),  # neither says anything
        (WORSE, {}, True),
        (WORSE, probed(0.5, 0.6, 0.03), False),  # surely better by labels, whatever views show
        (WORSE, probed(0.5, 0.6, 0.08), True),
        (WORSE, {"live_linear": 0.6, "untrained_live_linear": 0.5, "instances": 200}, True),  # of an earlier version
    ],
)
def test_labels_decide_about_the_alarm_where_they_are_sure(
    geometry: dict[str, float], probe: dict[str, float], tells: bool
) -> None:
    alarm = CollapseAlarm(PlainDisplay(console := quiet()), stop=False)
    for epoch in range(2):
        alarm.end_epoch({"epoch": epoch, "geometry": geometry, "probe": probe})
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert ("below its untrained encoder" in said) == tells
    if tells and geometry is STILL_GOOD:
        assert "Linear probe: 60.0 % before training, 50.0 % after (-10.0 points" in said
        assert "200 test samples" in said


class Forgetful(nn.Module):
    """Passes points on, but for the number that tells their class, after so many steps."""

    num_features = 6
    seen: torch.Tensor

    def __init__(self, remembers: int) -> None:
        super().__init__()
        self.remembers = remembers
        self.gain = nn.Parameter(torch.ones(6))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, points: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.seen.add_(1)
        forgotten = (torch.arange(6) == 0) & (self.seen > self.remembers)
        return self.gain * points.where(~forgotten, torch.zeros(()))


def test_a_run_whose_labels_are_read_worse_says_so_while_it_trains(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(160, 6)).astype(np.float32)
    settings: dict[str, Any] = {
        "labels": (points[:, 0] > 0).astype(int).tolist(), "views": lambda point: point + 0.1 * torch.randn(6),
        "num_views": 2, "epochs": 6, "batch_size": 16, "probe_every": 1, "seed": 0,
    }  # fmt: skip
    run = pretrain(points, encoder=Forgetful(35), **settings, out=tmp_path / "forgets", console=(said := quiet()))
    other = pretrain(points, encoder=Forgetful(10**6), **settings, out=tmp_path / "keeps", console=quiet())
    found = [row["geometry"] for row in run.history]
    assert [row["probe"]["live_linear"] > 0.8 for row in run.history] == [True, True, False, False, False, False]
    assert min(geometry["recognition"] for geometry in found) > 0.9  # by views nothing is wrong
    assert [geometry.get("warning") for geometry in found] == [None] * 3 + ["worse than untrained"] * 3
    printed = said.file.getvalue()  # type: ignore[attr-defined]
    assert "the run is below its untrained encoder (epoch 4): Training made the features worse" in printed
    assert not any("warning" in row["geometry"] for row in other.history)


def test_a_warning_with_brackets_is_printed_as_it_is() -> None:
    console = quiet()
    PlainDisplay(console).warn("a [bold]folder[/bold]")
    assert "a [bold]folder[/bold]" in console.file.getvalue()  # type: ignore[attr-defined]


def test_stopping_without_measuring_is_refused() -> None:
    with pytest.raises(InputError, match="probe_every="):
        PretrainConfig(source="x", stop_on_collapse=True, probe_every=0)
