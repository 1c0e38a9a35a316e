"""The ablation leaves out one trick at a time, compares within a group, and keeps what it has."""

from __future__ import annotations

import json
import os
import pickle
import time
from functools import partial
from typing import Any

import pytest
import torch

import ablation
from ablation import ALL_TRICKS, SWITCHES, VARIANTS, ablate, loop_without, table_of, tricks_of
from icone.cuda import ALL_ON
from step import CASES


def test_every_variant_but_the_last_leaves_out_one_trick_and_every_trick_is_left_out_once() -> None:
    left_out = []
    for variant in list(VARIANTS.values())[1:-1]:
        switches = [name for name in SWITCHES if not getattr(variant.options, name)]
        switches += [name for name in ("high_priority", "connections") if not getattr(variant, name)]
        left_out += switches
        assert len(switches) == 1
    assert sorted(left_out) == sorted((*SWITCHES, "high_priority", "connections"))
    everything = VARIANTS["everything"]
    assert not any(getattr(everything.options, name) for name in SWITCHES)
    assert not everything.high_priority
    assert not everything.connections
    assert VARIANTS[ALL_TRICKS].options == ALL_ON


def test_cases_have_the_tricks_that_they_can_show() -> None:
    images, volumes = (set(tricks_of(CASES[name])) for name in ("vit-b1", "resnet3d-b16"))
    assert images - volumes == {"attention-kernels", "patch-conv"}
    assert volumes - images == {"stem-conv", "halving-pool", "channels-last"}
    assert tricks_of(CASES["vit-b64"], ["patch-conv", "stem-conv"]) == ["patch-conv"]


def test_a_variant_reaches_the_captured_step(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []

    def captured(*_: object, **given: Any) -> tuple[Any, Any]:
        calls.append(given)
        raise RuntimeError("far enough")

    monkeypatch.setattr(ablation, "captured", captured)
    monkeypatch.setenv(ablation.CONNECTIONS, "32")
    found = []
    for trick in VARIANTS:
        os.environ[ablation.CONNECTIONS] = "32"
        make = pickle.loads(pickle.dumps(partial(loop_without, trick)))  # as a process gets it
        with pytest.raises(RuntimeError, match="far enough"):
            make(CASES["vit-b1"], torch.device("cpu"), None)
        found.append(os.environ.get(ablation.CONNECTIONS))
    assert [call["tricks"] for call in calls] == [variant.options for variant in VARIANTS.values()]
    assert [call["high_priority"] for call in calls] == [variant.high_priority for variant in VARIANTS.values()]
    assert found == ["32" if variant.connections else None for variant in VARIANTS.values()]


class FakeProcess:
    """A step of 2 ms with all tricks and 3 ms without one; one variant cannot be built."""

    started: list[tuple[str, str]]
    running: int

    def __init__(self, case: str, trick: str) -> None:
        self.case, self.trick = case, trick
        self.started.append((case, trick))
        FakeProcess.running += 1

    def about(self) -> dict[str, Any]:
        if self.trick == "column-sum-kernel":
            raise RuntimeError("no such option")
        return {"seconds_to_start": 1.0, "made_of": "", "reserved_gb": 9.0}

    def round(self) -> float:
        return 2.0 if self.trick == ALL_TRICKS else 3.0

    def end(self) -> None:
        FakeProcess.running -= 1


@pytest.fixture
def fake() -> Any:
    FakeProcess.started, FakeProcess.running = [], 0
    return FakeProcess


def test_rows_compare_within_groups_that_fit_and_are_written_as_they_come(
    fake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    figures: dict[str, Any] = {"rows": [], "failed": {}}
    written: list[str] = []
    chosen = {name: tricks_of(CASES[name]) for name in ("vit-b1", "resnet3d-b1")}
    ablate(chosen, fake, figures, lambda: written.append(json.dumps(figures)), memory_gb=120, seconds=60)
    assert fake.running == 0
    assert fake.started[:2] == [("vit-b1", ALL_TRICKS), ("resnet3d-b1", ALL_TRICKS)]  # the compiler's cache
    assert fake.started.count(("vit-b1", ALL_TRICKS)) == 2  # 10 GB each: one group of eight or fewer
    expected = [(case, trick) for case, tricks in chosen.items() for trick in tricks if trick != "column-sum-kernel"]
    assert [(row["case"], row["trick"]) for row in figures["rows"]] == expected
    assert all((row["with"], row["without"], row["complete"]) == (2, 3, True) for row in figures["rows"])
    assert {row["gain_percent"] for row in figures["rows"]} == {50.0}
    assert figures["failed"]["vit-b1 without column-sum-kernel"] == "no such option"
    first = json.loads(next(text for text in written if '"rows": [{' in text))
    assert len(first["rows"]) == 1  # after the first round of the first variant
    assert not first["rows"][0]["complete"]
    table = table_of(figures["rows"], list(CASES))
    assert len(table.rows) == len(VARIANTS) - 1
    assert "2.000 → 3.000 +50.0 %" in list(table.columns[1].cells)


def test_nothing_is_begun_that_would_not_end_in_time(
    fake: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "environ", dict(os.environ))
    clock = iter(range(0, 10**6, 100))  # a look at the clock takes 100 s
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    figures: dict[str, Any] = {"rows": [], "failed": {}}
    chosen = {"vit-b1": ["patch-conv"], "vit-b64": ["patch-conv"]}
    ablate(chosen, fake, figures, lambda: None, memory_gb=100, seconds=250)
    assert [row["case"] for row in figures["rows"]] == ["vit-b1"]
    assert "vit-b64: no time for patch-conv" in capsys.readouterr().out
