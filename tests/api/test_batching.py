"""Batch size, micro-batch and accumulation that do not fit together are refused, or what is done instead is said."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import icone
from icone.api.batching import batch_norm_at_one, check_micro_batch_size, one_at_a_time, uneven_micro_batches
from icone.api.pretrain import pretrain_many
from icone.cli import main
from icone.config import PretrainConfig
from icone.errors import InputError
from icone.nn.ranks import Ranks
from icone.run import Run

POINTS: dict[str, Any] = {"source": "synthetic:gaussians@x40", "epochs": 1, "probe_every": 0, "device": "cpu"}
WORDS = ["synthetic:gaussians@x40", "--epochs", "1", "--probe-every", "0", "--device", "cpu", "--batch-size"]


def said_by_training(out: Path, **settings: Any) -> str:
    text = io.StringIO()
    icone.pretrain(**POINTS | settings, out=out, console=Console(file=text, width=300))
    return text.getvalue()


@pytest.mark.parametrize("verb", ["pretrain", "plan"])
def test_a_micro_batch_above_the_batch_is_refused(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([verb, *WORDS, "16", "--micro-batch", "32"]) == 2
    said = capsys.readouterr().err
    assert "--micro-batch 32 is larger than --batch-size 16" in said
    assert "leave --micro-batch out, or give --batch-size 32 or more" in said
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="micro_batch=3 is larger than batch_size=2"):
        pretrain_many([PretrainConfig(**POINTS, batch_size=2, micro_batch=3)], ["run"])


def test_a_run_that_began_with_a_micro_batch_above_the_batch_goes_on(
    tmp_path: Path, stop_after: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of earlier versions: the setting did nothing."""
    settings = {**POINTS, "batch_size": 16, "micro_batch": 32, "out": tmp_path}
    with monkeypatch.context() as patch:
        patch.setattr("icone.api.pretrain.check_batches", lambda *_: None)
        stop_after(1)
        with pytest.raises(icone.errors.InterruptedRun):
            icone.pretrain(**settings)
    assert icone.pretrain(**settings, resume=True).finished


def test_a_batch_that_is_found_is_told_of_a_larger_micro_batch(tmp_path: Path) -> None:
    said = said_by_training(tmp_path, batch_size="auto", micro_batch=32)
    assert "micro_batch=32 is larger than the batch of 16 samples, which is encoded at once" in said
    assert (Run(tmp_path).config.batch_size, Run(tmp_path).config.micro_batch) == (16, None)


def test_micro_batches_that_do_not_divide_a_batch_are_told(tmp_path: Path) -> None:
    sentence = "micro_batch=10 does not divide batch_size=16: the encoder takes 2 micro-batches of 8 samples"
    assert sentence in said_by_training(tmp_path, batch_size=16, micro_batch=10)
    assert sentence in icone.plan(**POINTS, batch_size=16, micro_batch=10)["notes"]
    assert "does not divide" not in said_by_training(tmp_path / "even", batch_size=16, micro_batch=8)


def test_processes_have_a_share_of_the_batch() -> None:
    ranks = Ranks.__new__(Ranks)
    ranks.size = 4
    config = PretrainConfig(**POINTS, batch_size=16, micro_batch=8)
    with pytest.raises(InputError, match=r"micro_batch=8 is larger than .*\(4 of batch_size=16\).* batch_size=32"):
        check_micro_batch_size(config, ranks)
    check_micro_batch_size(config)
    config = PretrainConfig(**POINTS, batch_size=16, micro_batch=3)
    assert uneven_micro_batches(config, ranks).endswith("the encoder takes 2 micro-batches of 2 samples")


def test_more_batches_than_an_epoch_has_cannot_be_added_up(tmp_path: Path) -> None:
    for refuse in (icone.plan, lambda **settings: icone.pretrain(**settings, out=tmp_path / "run")):
        with pytest.raises(InputError, match=r"accumulate=4 adds up more than the 3 batches .* give accumulate=3 or"):
            refuse(**POINTS, batch_size=16, accumulate=4)
    assert not (tmp_path / "run").exists()
    assert "note: accumulate" not in said_by_training(tmp_path / "run", batch_size=16, accumulate=3)


def test_a_plan_refuses_a_batch_above_the_samples() -> None:
    with pytest.raises(InputError, match="batch_size must be 1 to 40, the number of training samples, got 60"):
        icone.plan(**POINTS, batch_size=60)


@pytest.mark.parametrize(
    ("settings", "is_told"),
    [
        ({}, True),
        ({"batch_size": 16, "micro_batch": 1}, True),
        ({"batch_size": 2}, False),
        ({"norm": "group"}, False),
        ({"encoder": "nf_resnet10_3d"}, False),
        ({"encoder": "vit_small_patch16"}, False),
        ({"recipe": "paper"}, False),
        ({"weights": "elsewhere"}, False),
    ],
)
def test_batch_norm_that_sees_one_volume_at_a_time_is_told(settings: dict[str, Any], is_told: bool) -> None:
    said = batch_norm_at_one(PretrainConfig(**{"source": "scans", "encoder": "resnet10_3d"} | settings), 3)
    assert ("nf_resnet10_3d does without it" in said) == is_told


@pytest.mark.parametrize(("batch_size", "is_told"), [(1, True), (4, False)])
def test_a_plan_advises_on_the_encoder_too(batch_size: int, is_told: bool) -> None:
    found = icone.plan("synthetic:shapes@16x8", encoder="resnet10_3d", width=0.125, batch_size=batch_size, device="cpu")
    assert any("does without it" in note for note in found["notes"]) == is_told


def test_advice_on_the_encoder_comes_before_a_run_and_not_when_it_goes_on(tmp_path: Path, stop_after: Any) -> None:
    settings = {"source": "synthetic:shapes@16x4", "encoder": "resnet10_3d", "width": 0.125}
    stop_after(1)
    with pytest.raises(icone.errors.InterruptedRun):
        icone.pretrain(**POINTS | settings, out=tmp_path, console=Console(file=(first := io.StringIO()), width=300))
    assert "does without it" in first.getvalue()
    assert "does without it" not in said_by_training(tmp_path, **settings, resume=True)


@pytest.mark.parametrize(
    ("settings", "samples", "is_told"),
    [({}, 16, True), ({}, 15, False), ({"batch_size": 2}, 16, False), ({"recipe": "paper"}, 16, False)],
)
def test_who_takes_one_of_many_samples_a_step_is_told_of_more(
    settings: dict[str, Any], samples: int, is_told: bool
) -> None:
    assert bool(one_at_a_time(PretrainConfig(source="scans", **settings), samples)) == is_told


def test_a_run_and_its_plan_are_told_of_more_samples_a_step(tmp_path: Path) -> None:
    sentence = "several times as fast with batch_size=16"
    assert sentence in said_by_training(tmp_path / "one")
    assert any(sentence in note for note in icone.plan(**POINTS)["notes"])
    assert sentence not in said_by_training(tmp_path / "many", batch_size="auto")
