"""A run that is extended is the old finished one or a resumable new one, whenever it is killed."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from rich.console import Console
from torch import Tensor, nn

import icone.data
import icone.files
import icone.run
from icone.api.build import make_views
from icone.api.embed import embed, load_encoder
from icone.api.evaluate import evaluate
from icone.api.pretrain import pretrain, pretrain_many
from icone.api.summaries import pretraining_summary
from icone.config import PretrainConfig
from icone.errors import InputError, InterruptedRun, TrainingError
from icone.files import replace_file
from icone.run import Run
from icone.tensor_files import read_tensors
from icone.training import Fit
from icone.training.checkpoint import load_state
from icone.training.step import TrainStep

POINTS: dict[str, Any] = {"epochs": 2, "features": 4, "batch_size": 4, "device": "cpu", "cache": "off"}


def quiet() -> Console:
    return Console(file=io.StringIO())


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def weights(run: Run) -> dict[str, bytes]:
    encoder = {f"encoder/{name}": t for name, t in read_tensors(run.encoder_file)[0].items()}
    return {name: t.numpy().tobytes() for name, t in {**load_state(run).tensors, **encoder}.items()}


def losses(run: Run) -> list[tuple[int, float]]:
    return [(row["epoch"], row["loss"]) for row in run.history]


class Case:
    """A finished and evaluated run, and data that has grown since."""

    def __init__(self, folder: Path) -> None:
        points = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
        self.data, self.template = folder / "points.npy", folder / "template"
        np.save(self.data, points[:8])
        run = pretrain(self.data, **POINTS, out=self.template, console=quiet())
        evaluate(run, geometry_instances=4, device="cpu", console=quiet())
        self.before = weights(run)
        np.save(self.data, points)

    def copy(self, folder: Path) -> Run:
        shutil.copytree(self.template, folder)
        return Run(folder)

    def go_on(self, run: Run, **more: Any) -> Run:
        return pretrain(self.data, **POINTS | more, out=run.folder, console=quiet())


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    return Case(tmp_path_factory.mktemp("case"))


@pytest.fixture(scope="module")
def extended(case: Case, tmp_path_factory: pytest.TempPathFactory) -> Run:
    return case.go_on(case.copy(tmp_path_factory.mktemp("extended") / "run"), extend=True, lr=1e-3)


def test_an_extended_run_keeps_its_history_and_sets_its_result_aside(case: Case, extended: Run) -> None:
    before = losses(Run(case.template))
    assert losses(extended)[:2] == before
    assert [epoch for epoch, _ in losses(extended)] == [0, 1, 2, 3]
    assert extended.epochs == 4
    assert "4/4 epochs, finished" in repr(extended)
    assert extended.result is None
    assert not extended.features_file.exists()
    kept = extended.folder / "earlier" / "result-after-2-epochs.json"
    assert extended.earlier_results == {2: kept}
    assert kept.read_bytes() == (case.template / "result.json").read_bytes()
    assert extended.why_no_result == "was evaluated after 2 epochs, and has been extended since"
    assert f"evaluated after 2 epochs ({kept}), not since the run was extended" in pretraining_summary(extended)
    assert extended.record["extensions"] == 1
    assert extended.record["changes"] == [{"epoch": 2, "step": 4, "settings": ["lr: 0.0001 -> 0.001"]}]
    assert len(extended.instances["ids"]) == 12
    assert weights(extended) != case.before
    assert len(embed(extended, device="cpu", console=quiet())) == 12


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours catches it."""


def killing(patch: pytest.MonkeyPatch, nth: int) -> Callable[[], int]:
    """Kill before the n-th change of a file, counted from 0; returns how many there were."""
    count = 0
    replace, remove, move, append = replace_file, icone.files.remove, icone.files.move, Run.append_history

    def strike() -> None:
        nonlocal count
        count += 1
        if count > nth:
            raise Killed

    @contextlib.contextmanager
    def replacing(path: Path) -> Iterator[Path]:
        strike()
        with replace(path) as temporary:
            yield temporary

    def removing(path: Path) -> None:
        strike()
        remove(path)

    def moving(path: Path, target: Path) -> None:
        strike()
        move(path, target)

    def appending(self: Run, row: dict[str, Any]) -> None:
        strike()
        append(self, row)

    patch.setattr(icone.files, "replace_file", replacing)
    patch.setattr(icone.run, "remove", removing)
    patch.setattr(icone.run, "move", moving)
    patch.setattr(Run, "append_history", appending)
    return lambda: count


@pytest.mark.parametrize("nth", range(14))
def test_a_kill_between_any_two_writes_of_an_extension(case: Case, extended: Run, nth: int, tmp_path: Path) -> None:
    run = case.copy(tmp_path / "run")
    with pytest.MonkeyPatch.context() as patch:
        count = killing(patch, nth)
        if nth == 13:
            case.go_on(run, extend=True, lr=1e-3)
            assert (
                count() == 13
            )  # state, result, 3 stale files, history, instances, 2 of config, 2 epochs, state, encoder
        else:
            with pytest.raises(Killed):
                case.go_on(run, extend=True, lr=1e-3)
    if nth == 0:
        assert run.finished
        assert weights(run) == case.before
        assert run.result is not None
        assert run.instances == Run(case.template).instances
        case.go_on(run, extend=True, lr=1e-3)
    elif nth < 13:
        assert not run.finished
        assert run.result is None
        assert losses(run)[:2] == losses(extended)[:2]
        with pytest.raises(InputError, match=r"resume=True"):
            load_encoder(run)
        with pytest.raises(InputError, match="another configuration"):
            case.go_on(run, resume=True)
        case.go_on(run, resume=True, lr=1e-3)
    assert weights(run) == weights(extended)
    assert losses(run) == losses(extended)
    assert run.finished
    assert run.result is None
    assert run.record["config"] == extended.record["config"]
    assert run.record["changes"] == extended.record["changes"]
    assert run.instances == extended.instances
    assert list(run.earlier_results) == [2]


@pytest.mark.parametrize("nth", range(8))
def test_a_kill_between_the_first_writes_of_a_run(nth: int, tmp_path: Path) -> None:
    settings: dict[str, Any] = {**POINTS, "source": "synthetic:gaussians@x8", "out": tmp_path / "run"}
    undisturbed = pretrain(**settings | {"out": tmp_path / "undisturbed"}, console=quiet())
    with pytest.MonkeyPatch.context() as patch:
        killing(patch, nth)
        with pytest.raises(Killed):
            pretrain(**settings, console=quiet())
    run = Run(tmp_path / "run")
    pretrain(**settings, resume=run.exists(), console=quiet())
    assert weights(run) == weights(undisturbed)
    assert losses(run) == losses(undisturbed)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"method": "simclr"}, "method: icone -> simclr"),
        ({"options": ("view_weight=0",)}, "options"),
        ({"features": 6}, "features: 4 -> 6"),
        ({"width": 0.5}, "width: 1.0 -> 0.5"),
        ({"recipe": "paper"}, "recipe: icone -> paper"),
        ({"encoder": "resnet10_3d"}, "encoder: auto -> resnet10_3d"),
        ({"size": 16}, "size: None -> 16"),
        ({"channels": "gray"}, "channels: auto -> gray"),
    ],
)
def test_another_network_is_refused_before_anything_is_written(
    case: Case, more: dict[str, Any], words: str, tmp_path: Path
) -> None:
    run = case.copy(tmp_path / "run")
    before = files(run.folder)
    with pytest.raises(InputError, match=f"cannot be extended with another network .*{words}"):
        case.go_on(run, extend=True, **more)
    assert files(run.folder) == before


def test_data_of_another_shape_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(12, 3)).astype(np.float32)
    np.save(tmp_path / "points.npy", points[:, :2])
    run = pretrain(tmp_path / "points.npy", **POINTS, out=tmp_path / "run", console=quiet())
    before = files(run.folder)
    np.save(tmp_path / "points.npy", points)
    with pytest.raises(InputError, match="does not fit this configuration and data"):
        pretrain(tmp_path / "points.npy", **POINTS, extend=True, out=run.folder, console=quiet())
    assert files(run.folder) == before


@pytest.mark.parametrize("flag", ["resume", "extend"])
@pytest.mark.parametrize("columns", [2, 3])
def test_data_without_a_sample_of_the_run_is_refused(case: Case, flag: str, columns: int, tmp_path: Path) -> None:
    run, other = case.copy(tmp_path / "run"), tmp_path / "other.npy"
    before = files(run.folder)
    np.save(other, np.random.default_rng(1).normal(size=(9, columns)).astype(np.float32))
    words = f"run of other data: it has 8 samples of {case.data}, and none of them is among the 9 of {other}. Choose"
    with pytest.raises(InputError, match=words) as refusal:
        pretrain(other, **POINTS | {flag: True}, out=run.folder, console=quiet())
    assert "extend=" not in str(refusal.value)
    assert ("weights=" in str(refusal.value)) == (flag == "extend" and columns == 2)
    assert files(run.folder) == before
    new = pretrain(other, **POINTS, weights=run.folder, out=tmp_path / "new", console=quiet()) if columns == 2 else None
    assert new is None or new.finished  # the way that is named works


def test_contents_that_all_changed_in_place_are_trained_on(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    for number, more in enumerate(({}, {"extend": True})):
        np.save(tmp_path / "points.npy", points + number)
        run = pretrain(tmp_path / "points.npy", **POINTS | more, out=tmp_path / "run", console=quiet())
    assert run.epochs == 4


def test_results_left_in_the_folder_of_a_new_run_are_not_its_own(case: Case, tmp_path: Path) -> None:
    run = case.copy(tmp_path / "run")
    (run.folder / "config.json").unlink()

    def killed(*_: Any) -> None:
        raise Killed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainStep, "__call__", killed)
        with pytest.raises(Killed):
            case.go_on(run)
    assert not run.finished
    assert run.result is None
    assert run.history == []


def test_after_a_loss_that_is_not_finite_the_advice_works(tmp_path: Path) -> None:
    settings: dict[str, Any] = {**POINTS, "source": "synthetic:gaussians@x8", "out": tmp_path / "run"}
    step = TrainStep.__call__

    def exploding(self: TrainStep, batches: Any) -> None:
        if int(self.count) == 3:
            self.method.encoder.state_dict()["layers.0.bias"].fill_(float("nan"))
        step(self, batches)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainStep, "__call__", exploding)
        with pytest.raises(TrainingError, match="resume=True and adjust=True"):
            pretrain(**settings, console=quiet(), checkpoint_seconds=0.0)
    with pytest.raises(InputError, match="add adjust=True"):
        pretrain(**settings, lr=1e-5, resume=True, console=quiet())
    console = Console(file=io.StringIO(), width=500)
    run = pretrain(**settings, lr=1e-5, clip_gradient=1.0, resume=True, adjust=True, console=console)
    changed = ["lr: 0.0001 -> 1e-05", "clip_gradient: None -> 1.0"]
    assert run.record["changes"] == [{"epoch": 1, "step": 3, "settings": changed}]
    assert "settings change after step 3, from epoch 2 on" in console.file.getvalue()  # type: ignore[attr-defined]
    assert run.finished
    assert all(t.isfinite().all() for t in run.trained_weights().values())
    pretrain(**settings, lr=1e-5, clip_gradient=1.0, resume=True, console=quiet())  # they are the run's own now
    assert len(run.record["changes"]) == 1


def test_adjusting_needs_a_run_to_resume(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="give resume=True too"):
        pretrain("synthetic:gaussians@x8", **POINTS, adjust=True, out=tmp_path / "run", console=quiet())


@pytest.mark.parametrize("flag", ["resume", "extend"])
def test_another_version_of_the_recipe_is_refused(
    case: Case, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = case.copy(tmp_path / "run")
    before = files(run.folder)
    monkeypatch.setattr("icone.training.checkpoint.RECIPE_VERSION", 77)
    with pytest.raises(InputError, match=r"version 2 of the recipe, and this is version 77.*finish .* or start anew"):
        case.go_on(run, **{flag: True})
    assert files(run.folder) == before
    assert len(embed(run, device="cpu", console=quiet())) == 12
    assert run.record["recipe_version"] == 2


@pytest.mark.parametrize("flag", ["resume", "extend"])
def test_a_run_of_version_0_1_can_be_used_but_not_continued(case: Case, flag: str, tmp_path: Path) -> None:
    from safetensors.torch import save_file

    run = case.copy(tmp_path / "run")
    saved, encoder = load_state(run).tensors, run.trained_weights()
    clones = {name: t.clone() for name, t in encoder.items()}
    save_file(clones, run.encoder_file, {"finished": "true", "epochs": "2"})
    save_file({n: t.clone() for n, t in saved.items()}, run.state_file, {"step": "4", "history": "[]", "ids": "[]"})
    with pytest.raises(InputError, match="version 1 of the recipe"):
        case.go_on(run, **{flag: True})
    assert run.finished
    assert len(embed(run, device="cpu", console=quiet())) == 12
    assert torch.equal(load_encoder(run).encoder.state_dict()["layers.0.bias"], clones["layers.0.bias"])


def untrained(run: Run) -> list[dict[str, float]]:
    """What the live probe has found about the encoder before training, in every epoch that it measured."""
    rows = [row["geometry"] for row in run.history if "geometry" in row]
    return [{name: value for name, value in row.items() if name.startswith("untrained_")} for row in rows]


@pytest.mark.parametrize("weights", [False, True])
def test_figures_before_training_stay_when_a_run_goes_on(case: Case, weights: bool, tmp_path: Path) -> None:
    """Files that sort between the others are gained and one is lost: the probe looks at the samples of before."""
    images = np.random.default_rng(3).integers(0, 255, (44, 12, 12), np.uint8)
    folder = tmp_path / "images"
    folder.mkdir()

    def write(number: int) -> Path:
        path = folder / f"{number:02d}.png"
        Image.fromarray(images[number]).save(path)
        return path

    for number in range(0, 40, 2):
        write(number)
    settings: dict[str, Any] = {
        "source": folder, "encoder": "test_vit", "size": 16, "epochs": 2, "batch_size": 4,
        "device": "cpu", "cache": "off", "intensity": "range",
    }  # fmt: skip
    if weights:
        begun = pretrain(**settings, seed=5, out=tmp_path / "begun", console=quiet())
        settings["weights"] = begun.folder
    run = pretrain(**settings, out=tmp_path / "run", console=quiet())
    for number in (5, 11, 41):
        write(number)
    probed = load_state(run).probed
    assert len(probed) == 16
    unseen = next(path for path in sorted(folder.iterdir()) if path.name not in probed)
    unseen.unlink()
    run = pretrain(**settings, extend=True, out=run.folder, console=quiet())
    assert len(untrained(run)) == 4  # after the first and the last epoch of either part
    for later in untrained(run)[1:]:
        assert later == pytest.approx(untrained(run)[0], rel=1e-4)
    (folder / probed[0]).unlink()
    console = Console(file=io.StringIO(), width=500)
    run = pretrain(**settings, extend=True, out=run.folder, console=console)
    assert "looks at 16 samples from here on, and knows 15 of them" in console.file.getvalue()  # type: ignore[attr-defined]
    assert load_state(run).probed[0] != probed[0]


@pytest.mark.parametrize("groups", [None, [f"patient {row // 2}" for row in range(30)]])
def test_what_was_trained_on_is_not_held_out_later(groups: list[str] | None, tmp_path: Path) -> None:
    """The split was drawn anew among all files, and half of the test samples had been trained on."""
    points = np.random.default_rng(0).normal(size=(30, 2)).astype(np.float32)

    def go_on(count: int, name: str = "run", **more: Any) -> Run:
        own = None if groups is None else groups[:count]
        settings = POINTS | {"test_fraction": 0.25, "console": quiet()} | more
        return pretrain(points[:count], groups=own, **settings, out=tmp_path / name)

    before = go_on(20).instances
    assert go_on(20, "alone", epochs=1).instances["test_ids"] == before["test_ids"]
    told = Console(file=io.StringIO(), width=500)
    after = go_on(30, extend=True, console=told).instances
    held_out = len({*after["test_ids"]} - {*before["test_ids"]})
    assert f"10 new samples: {held_out} of them {'is' if held_out == 1 else 'are'} held out" in told.file.getvalue()  # type: ignore[attr-defined]
    assert {*before["ids"]} <= {*after["ids"]}
    assert {*before["test_ids"]} < {*after["test_ids"]}
    assert len(after["ids"]) + len(after["test_ids"]) == 30
    assert go_on(30, resume=True).instances == after
    if groups is not None:
        sides = [{groups[int(name)] for name in after[part]} for part in ("ids", "test_ids")]
        assert not sides[0] & sides[1]


@pytest.mark.parametrize(
    ("stop", "epochs", "said", "rows"),
    [
        (None, 2, "2 epochs are finished; 2 more follow, with a learning-rate schedule of their own", 4),
        (None, 3, "training goes on with epoch 3 of 3", 3),
        (12, 2, "epoch 2 was interrupted after 8 of 16 samples. It is repeated from its start, on all samples", 2),
    ],
    ids=["finished", "longer", "interrupted"],
)
def test_an_extended_run_says_where_it_goes_on(
    stop: int | None, epochs: int, said: str, rows: int, tmp_path: Path
) -> None:
    points = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    step = TrainStep.__call__

    def interrupted(self: TrainStep, batches: Any) -> None:
        step(self, batches)
        if int(self.count) == stop:
            os.kill(os.getpid(), signal.SIGINT)

    settings = POINTS | {"batch_size": 2, "epochs": 2, "out": tmp_path / "run"}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TrainStep, "__call__", interrupted)
        with pytest.raises(InterruptedRun) if stop else contextlib.nullcontext():
            pretrain(points[:16], **settings, console=quiet())
    told = Console(file=io.StringIO(), width=500)
    run = pretrain(points, **settings | {"epochs": epochs}, extend=True, console=told)
    text = told.file.getvalue()  # type: ignore[attr-defined]
    assert f"extending: {said}" in text
    assert "4 new samples: 0 of them are held out for testing" in text
    assert [row["epoch"] for row in run.history] == list(range(rows))


def test_samples_of_a_run_that_held_out_nothing_stay_in_training(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(20, 2)).astype(np.float32)
    pretrain(points[:16], **POINTS, out=tmp_path / "run", console=quiet())
    told = Console(file=io.StringIO(), width=200)
    run = pretrain(points, **POINTS, test_fraction=0.25, extend=True, out=tmp_path / "run", console=told)
    assert {int(name) for name in run.instances["test_ids"]} <= {16, 17, 18, 19}
    assert isinstance(told.file, io.StringIO)
    assert "stay in training: the run was trained on them before" in told.file.getvalue()


def test_assigned_test_samples_that_were_trained_on_are_no_test_samples(tmp_path: Path) -> None:
    frame = pd.DataFrame({"path": [tmp_path / f"{i}.npy" for i in range(20)], "label": ["a", "b"] * 10})
    for i, path in enumerate(frame["path"]):
        np.save(path, np.random.default_rng(i).integers(0, 255, (8, 8), dtype=np.uint8))
    settings: dict[str, Any] = {**POINTS, "encoder": nn.Sequential(nn.Flatten(), nn.Linear(64, 4)), "size": 8}
    settings |= {"features": None, "out": tmp_path / "run"}
    pretrain(frame[:16].assign(split="train"), **settings, console=quiet())
    later = frame.assign(split=["test"] * 4 + ["train"] * 12 + ["test"] * 4)
    told = Console(file=io.StringIO(), width=200)
    run = pretrain(later, **settings, extend=True, console=told)
    assert run.instances["test_ids"] == [str(path) for path in frame["path"][16:]]
    assert run.instances["trained_before"] == sorted(str(path) for path in frame["path"][:4])
    assert isinstance(told.file, io.StringIO)
    assert "4 held-out samples were trained on before: probes leave them out" in told.file.getvalue()
    again = pretrain(later, **settings | {"epochs": 3}, extend=True, console=quiet())
    assert again.instances["test_ids"] == run.instances["test_ids"]


def test_anchors_keep_their_epsilon_whatever_the_learning_rate_becomes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ε of their Adam belongs to their length, which is that of the rate with which the run began."""
    points = np.random.default_rng(0).normal(size=(10, 2)).astype(np.float32)
    settings = POINTS | {"out": tmp_path / "run", "epochs": 6, "checkpoint_seconds": 0.0, "console": quiet()}
    per_anchor: list[float] = []
    rates: list[float] = []
    lengths: list[Tensor] = []
    steps = Fit.steps

    def watched(self: Fit) -> Iterator[None]:
        anchors = self.step.method.get_parameter("objective.anchors.weight")
        (group,) = [g for g in self.step.optimizer.param_groups if any(p is anchors for p in g["params"])]
        per_anchor.append(group["eps"] * len(anchors) ** 0.5)  # it falls with the root of their number
        rates.append(self.config.lr)
        lengths.append(anchors.detach().norm(dim=1))
        return steps(self)

    def stop(row: dict[str, Any]) -> None:
        raise InterruptedRun

    monkeypatch.setattr(Fit, "steps", watched)
    for more in ({}, *({"resume": True, "adjust": True, "lr": lr} for lr in (1e-3, 1e-5))):
        with pytest.raises(InterruptedRun):
            pretrain(points[:8], **settings | more, callbacks=[stop])
    pretrain(points[:8], **settings, lr=1e-5, resume=True)
    pretrain(points, **settings, lr=1e-2, extend=True)
    pretrain(points, **settings, lr=1e-3, extend=True)
    assert rates == [1e-4, 1e-3, 1e-5, 1e-5, 1e-2, 1e-3]
    assert per_anchor[:4] == [per_anchor[0]] * 4
    assert per_anchor == pytest.approx([per_anchor[0]] * 6, rel=0.2)  # more anchors are drawn anew
    new = lengths[4][8:].numpy()
    assert new == pytest.approx(lengths[0].mean().item(), rel=0.5)


TAUGHT = POINTS | {"probe_every": 0, "epochs": 1}


@pytest.mark.parametrize("method", ["icone_class", "cross_entropy"])
@pytest.mark.parametrize(
    ("classes", "said"),
    [(["b", "c"], "b, c"), (["a", "b", "c"], "a, b, c"), (["aa", "a", "b"], "a, aa, b"), (["a"], "a")],
    ids=["renamed", "gained", "in-between", "lost"],
)
def test_a_class_does_not_get_the_weights_of_another(
    method: str, classes: list[str], said: str, tmp_path: Path
) -> None:
    points = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    settings = TAUGHT | {"method": method, "out": tmp_path / "run", "console": quiet()}
    run = pretrain(points[:8], **settings, labels=["a", "b"] * 4)
    before = files(run.folder)
    others = [classes[row % len(classes)] for row in range(12)]
    words = f"extended by other classes: it was taught a, b, and the data has {said}. {method} has weights for each "
    with pytest.raises(InputError, match=words) as refusal:
        pretrain(points, **settings, labels=others, extend=True)
    assert f'with weights="{run.folder}" the new run starts' in str(refusal.value)
    assert files(run.folder) == before
    run = pretrain(points, **settings, labels=["b", "a"] * 6, extend=True)  # the same classes, found in another order
    assert (run.epochs, run.instances["class_names"]) == (2, ["a", "b"])
    new = pretrain(points, **settings | {"out": tmp_path / "new"}, labels=[*others[:11], "z"], weights=run.folder)
    assert new.finished  # the way that is named works


@pytest.mark.parametrize("method", ["icone_instance", "supcon"])
def test_methods_that_only_compare_labels_go_on_with_other_classes(method: str, tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    settings = TAUGHT | {"method": method, "out": tmp_path / "run", "console": quiet()}
    pretrain(points[:8], **settings, labels=["a", "b"] * 4)
    run = pretrain(points, **settings, labels=["c", "b"] * 4 + ["d"] * 4, extend=True)
    assert (run.epochs, run.instances["class_names"]) == (2, ["b", "c", "d"])


def test_a_run_that_does_not_say_its_classes_is_extended_with_a_note(tmp_path: Path) -> None:
    points = np.random.default_rng(0).normal(size=(8, 2)).astype(np.float32)
    settings = TAUGHT | {"method": "cross_entropy", "labels": ["a", "b"] * 4, "out": tmp_path / "run"}
    run = pretrain(points, **settings, console=quiet())
    (run.folder / "instances.json").write_text("{}")
    told = Console(file=io.StringIO(), width=500)
    pretrain(points, **settings, extend=True, console=told)
    assert f"note: {run.folder} does not say which classes it was taught" in told.file.getvalue()  # type: ignore[attr-defined]


class Pictures:
    """Images of 16 bits, of which the later ones are sixty times as bright as the first eight."""

    def __init__(self, folder: Path) -> None:
        pictures = np.random.default_rng(0).random((12, 16, 16)) * 1000
        pictures[8:] *= 60
        self.all, self.data, self.out = pictures.astype(np.uint16), folder / "pictures.npy", folder / "run"
        self.settings: dict[str, Any] = {
            "encoder": "test_resnet", "size": 16, "epochs": 1, "batch_size": 4, "probe_every": 0, "device": "cpu",
        }  # fmt: skip

    def train(self, count: int, **more: Any) -> tuple[Run, str]:
        """A training on the first pictures, and what it said."""
        np.save(self.data, self.all[:count])
        told = Console(file=io.StringIO(), width=1000)
        run = pretrain(self.data, **{"out": self.out} | self.settings | more, console=told)
        return run, told.file.getvalue()  # type: ignore[attr-defined]


@pytest.fixture
def pictures(tmp_path: Path) -> Pictures:
    return Pictures(tmp_path)


def test_an_extended_run_keeps_its_scale_of_intensities(pictures: Pictures) -> None:
    """Four images of another range made all others dark, without a word."""
    run, _ = pictures.train(8)
    began = run.preparation
    assert began.high is not None
    assert began.high[0] < 1000
    run, told = pictures.train(12, extend=True)
    assert run.preparation == began
    assert "the scale of intensities stays that of the run so far, because its encoder has learned it; " in told
    assert "from all samples of now it would be: each sample is scaled by its own" in told
    lost = float((pictures.all[8:] > began.high[0]).mean())
    assert f". {lost:.0%} of the values of new samples lie outside and are clipped. " in told
    assert 'intensity="sample" scales each sample by itself' in told
    seen = icone.data.load_data(run.config, kept=run.preparation).train.images_at(torch.arange(12))
    assert torch.equal(seen, began.batch(pictures.all[:, None]))
    trained_on = make_views(run.config, began).plain(seen)
    features = embed(run, pictures.data, device="cpu", console=quiet()).filter(regex=r"^f\d").to_numpy()
    np.testing.assert_allclose(features, load_encoder(run).encoder(trained_on).detach().numpy(), rtol=1e-3, atol=1e-5)
    run, told = pictures.train(12, extend=True)
    assert run.preparation == began
    assert "clipped" not in told  # these samples are not new any more


def test_an_interrupted_extension_keeps_its_scale_too(pictures: Pictures) -> None:
    def stop(row: dict[str, Any]) -> None:
        raise InterruptedRun

    began = pictures.train(8)[0].preparation
    with pytest.raises(InterruptedRun):
        pictures.train(12, epochs=3, extend=True, checkpoint_seconds=0.0, callbacks=[stop])
    run, told = pictures.train(12, epochs=3, resume=True)
    assert run.preparation == began
    assert "the scale of intensities stays that of the run so far" in told


def test_a_window_replaces_the_scale_of_a_run(pictures: Pictures, monkeypatch: pytest.MonkeyPatch) -> None:
    began = pictures.train(8)[0].preparation
    assert (began.low, began.high) != (None, None)

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(Run, "describe", killed)  # between the state and config.json
        with pytest.raises(Killed):
            pictures.train(12, extend=True, window=(0, 60_000))
    run, told = pictures.train(12, resume=True, window=(0, 60_000))
    assert "becomes 0 to 1; from here on: 0 to 60000 becomes 0 to 1" in told
    assert (run.preparation.low, run.preparation.high) == ((0.0,), (60_000.0,))
    again, told = pictures.train(12, extend=True, window=(0, 60_000))
    assert again.preparation == run.preparation
    assert "from here on" not in told
    assert "scale of intensities" not in told


def test_seeds_beside_an_extended_run_have_its_scale(pictures: Pictures, tmp_path: Path) -> None:
    outs = [tmp_path / f"seed-{seed}" for seed in range(3)]
    began = pictures.train(8, out=outs[0])[0].preparation
    run, _ = pictures.train(12, epochs=2, extend=True, out=outs[0])
    configs = [dataclasses.replace(run.config, seed=seed) for seed in range(3)]
    _, second, _ = pretrain_many(configs, outs, resume=True, console=quiet())
    assert second.preparation == began
    content = json.loads((outs[1] / "config.json").read_text())
    content["data"]["preparation"]["high"] = [60_000.0]
    (outs[1] / "config.json").write_text(json.dumps(content))
    with pytest.raises(InputError, match="seed-1 began with other samples than the others, and scales intensities"):
        pretrain_many(configs, outs, resume=True, console=quiet())


def test_what_three_channels_are_stays(tmp_path: Path) -> None:
    np.save(tmp_path / "colours.npy", np.random.default_rng(0).integers(0, 255, (6, 3, 16, 16), np.uint8))
    config = PretrainConfig(source=str(tmp_path / "colours.npy"), size=16, cache="off")
    plain = icone.data.load_data(config).preparation
    data = icone.data.load_data(config, kept=dataclasses.replace(plain, is_rgb=False, size=(32, 32)))
    assert data.preparation == dataclasses.replace(plain, is_rgb=False)
    (note,) = [note for note in data.notes if "as in the run so far" in note]
    assert "views take the three channels for channels without colours" in note
    assert "--colour=yes" in note
    gray = dataclasses.replace(plain, channels=1, is_rgb=False)  # of another network, which is refused later
    assert icone.data.load_data(config, kept=gray).preparation == plain
