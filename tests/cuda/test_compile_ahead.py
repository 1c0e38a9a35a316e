"""A run begins uncompiled, and goes on compiled when another process has filled the compiler's cache."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from icone.api.pretrain import pretrain
from icone.api.random_data import DataShape
from icone.api.training_parts import Parts, build_parts, step_compiler
from icone.config import PretrainConfig
from icone.config_text import to_json
from icone.cuda import ALL_ON, CompilerProcess, accelerate, compiler_process
from icone.cuda.graph import CapturedEngine, step_sizes
from icone.data import load_data
from icone.run import Run
from icone.training.context import RunContext
from icone.training.step import TrainStep

POINTS: dict[str, Any] = {"source": "synthetic:gaussians@x20", "epochs": 2, "probe_every": 0, "batch_size": 8}
CPU = torch.device("cpu")


def build() -> tuple[TrainStep, Parts]:
    config = PretrainConfig(**POINTS, device="cpu")
    parts = build_parts(config, load_data(config))
    parts.loader.begin(0)
    return TrainStep(parts.method.train(), parts.views, config, 10, CPU), parts


class FakeCompiler(CompilerProcess):
    """Says what it is told to say, after so many questions."""

    def __init__(self, outcome: bool, after: int) -> None:
        self.outcome, self.after, self.reason, self.calls = outcome, after, "no such GPU", 0
        self.sizes: Any = None
        self.closed = False

    @property
    def is_started(self) -> bool:
        return self.sizes is not None

    def start(self, known: dict[str, Any]) -> None:
        self.sizes = known["sizes"]

    def succeeded(self) -> bool | None:
        self.calls += 1
        return self.outcome if self.calls > self.after else None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def without_cuda(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Captured graphs are the step itself, and the compiler leaves functions as they are; the list says what it did."""
    done: list[str] = []

    def capture(self: CapturedEngine, sizes: Any) -> Any:
        done.append("captured compiled" if self.parts else "captured")
        return SimpleNamespace(replay=lambda: self._step(sizes))

    monkeypatch.setattr(CapturedEngine, "_capture", capture)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: None)
    monkeypatch.setattr(CapturedEngine, "_has_memory_for_two", lambda self: True)
    monkeypatch.setattr(torch, "compile", lambda function, **options: lambda *args: function(*args))
    return done


@pytest.mark.parametrize("succeeds", [True, False])
def test_the_step_is_captured_anew_when_the_compiler_is_done(succeeds: bool, without_cuda: list[str]) -> None:
    step, parts = build()
    other, other_parts = build()
    compiler = FakeCompiler(succeeds, after=2)
    said: list[str] = []
    engine = CapturedEngine(step, parts.loader, RunContext(CPU), pytest.fail, True, ALL_ON, compiler)
    engine.tell = said.append
    torch.manual_seed(0)
    for _ in range(6):
        engine((8,))
    assert without_cuda == ["captured", "captured compiled"]
    assert compiler.sizes == [(8,), (4,)]
    assert compiler.closed
    assert said == ([] if succeeds else [said[0]])
    assert succeeds or "no such GPU" in said[0]
    assert int(step.count) == 6
    plain = CapturedEngine(other, other_parts.loader, RunContext(CPU), pytest.fail, False)
    torch.manual_seed(0)
    for _ in range(6):
        plain((8,))
    torch.testing.assert_close(step.meter.means(), other.meter.means())


def test_runs_side_by_side_and_full_gpus_compile_themselves(
    without_cuda: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for alone, room in ((False, True), (True, False)):
        step, parts = build()
        monkeypatch.setattr(CapturedEngine, "_has_memory_for_two", lambda self, room=room: room)
        compiler = FakeCompiler(True, after=0)
        engine = CapturedEngine(step, parts.loader, RunContext(CPU), pytest.fail, True, ALL_ON, compiler)
        engine.alone = alone
        for _ in range(3):
            engine((8,))
        assert not compiler.is_started
    assert without_cuda == ["captured compiled", "captured", "captured compiled"]


def test_who_compiles(monkeypatch: pytest.MonkeyPatch, without_cuda: list[str]) -> None:
    """`auto` and `captured` are bit for bit the same each time, so that they compile before the first step."""
    monkeypatch.setattr("icone.cuda.find_spec", lambda name: True)
    monkeypatch.setattr("icone.cuda.is_tested_torch", lambda: True)
    monkeypatch.setattr("icone.cuda.COMPILED_STEPS", {0: 0})
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    for engine, ahead in (("ahead", True), ("auto", False), ("captured", False)):
        step, parts = build()
        monkeypatch.setattr(parts.loader, "device", torch.device("cuda"))
        compiler = FakeCompiler(True, after=0)
        chosen = accelerate(step, parts.loader, RunContext(CPU), pytest.fail, engine=engine, compiler=compiler)
        assert isinstance(chosen, CapturedEngine)
        assert (chosen.compiler is compiler) == ahead
        assert bool(chosen.parts) != ahead


def test_what_cannot_be_built_from_the_configuration_is_compiled_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    config = PretrainConfig(**POINTS)
    _, parts = build()
    assert step_compiler(config, parts) is None  # a CPU
    monkeypatch.setattr(parts.loader, "device", torch.device("cuda"))
    found = step_compiler(config, parts)
    assert found is not None
    assert found.request["data"]["samples"] == 20
    object.__setattr__(config, "encoder", "object:Mine")
    assert step_compiler(config, parts) is None


def test_sizes_of_steps() -> None:
    _, parts = build()
    assert step_sizes(parts.loader, 1) == [(8,), (4,)]
    assert step_sizes(parts.loader, 2) == [(8, 8), (4,)]


IMPORT = (
    f"import sys\nsys.path.append({str(Path(compiler_process.__file__).parent)!r})\nfrom compiler_process import *\n"
)
"""Without the package, which would import PyTorch: a second or more for each process."""


def started(folder: Path, text: str) -> CompilerProcess:
    (folder / "other.py").write_text(IMPORT + text)
    process = CompilerProcess("other", {"value": 3})
    process.start({"sizes": [(2,)]})
    return process


def outcome(process: CompilerProcess) -> bool:
    while (found := process.succeeded()) is None:
        time.sleep(0.05)
    return found


def test_the_process_gets_its_request_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    check = "request = read_request()\nassert (request['value'], request['sizes']) == (3, [[2]]), 'another request'\n"
    assert outcome(started(tmp_path, check))
    bad = started(tmp_path, "read_request()\nraise ValueError('a bad GPU')")
    assert not outcome(bad)
    assert bad.reason == "ValueError: a bad GPU"
    endless = started(tmp_path, "import time\nread_request()\ntime.sleep(600)")
    assert endless.succeeded() is None
    endless.close()
    endless.close()
    assert endless._process is not None
    assert endless._process.returncode < 0


def test_the_process_ends_with_the_one_that_started_it(tmp_path: Path) -> None:
    """That one is killed, and can do nothing about it."""
    (tmp_path / "other.py").write_text(
        f"{IMPORT}import pathlib, time\nread_request()\n"
        "pathlib.Path('number').write_text(str(os.getpid()))\ntime.sleep(600)\n"
    )
    (tmp_path / "first.py").write_text(
        f"{IMPORT}import time\none = CompilerProcess('other', {{}})\none.start({{}})\ntime.sleep(600)\n"
    )
    first = subprocess.Popen([sys.executable, "first.py"], cwd=tmp_path)
    wait_for(lambda: (tmp_path / "number").is_file() and (tmp_path / "number").read_text() != "")
    number = int((tmp_path / "number").read_text())
    first.kill()
    first.wait()
    wait_for(lambda: not is_there(number))


def is_there(number: int) -> bool:
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return "Z" not in Path(f"/proc/{number}/stat").read_text().rsplit(")", 1)[-1][:3]


def wait_for(happens: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not happens():
        assert time.monotonic() < end
        time.sleep(0.05)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")
def test_the_run_finds_what_the_other_process_has_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The compiler of the CPU; every graph of the run comes from the cache."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    step, parts = build()
    request = {"config": to_json(step.config), "data": DataShape.of(parts.loader.dataset).to_json(), "device": "cpu"}
    process = CompilerProcess("icone.api.compile_ahead", request)
    process.start({"sizes": [(8,), (4,)], "total_steps": 10, "checkpointed": False, "options": asdict(ALL_ON)})
    assert outcome(process), process.reason
    run = (
        "import test_compile_ahead as tests, torch\nfrom icone.cuda.graph import compile_step\n"
        "step, parts = tests.build()\ncompile_step(step, parts.loader, [(8,), (4,)])\n"
        "found = torch._dynamo.utils.counters['inductor']\n"
        "assert found['fxgraph_cache_hit'] > 0 and found['fxgraph_cache_miss'] == 0, found"
    )
    places = os.pathsep.join((str(Path(__file__).parent), *filter(None, sys.path)))
    subprocess.run([sys.executable, "-c", run], check=True, env={**os.environ, "PYTHONPATH": places})


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("kind", ["images", "volumes"])
def test_a_run_that_goes_on_compiled_is_the_eager_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings: dict[str, Any] = {
        "images": {"source": "synthetic:cells@32x30", "size": 32, "encoder": "vit_tiny_patch16_224"},
        "volumes": {"source": "synthetic:shapes@40x18", "encoder": "resnet10_3d", "width": 0.25},
    }[kind] | {"epochs": 4, "probe_every": 2, "precision": "fp32", "lr": 1e-4, "batch_size": 4, "device": "cuda"}
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("icone.cuda.WORTHWHILE_STEPS", 0)
    monkeypatch.setattr("icone.cuda.COMPILED_STEPS", dict.fromkeys((0, 2, 3), 0))
    compiled: list[int] = []
    go_on = CapturedEngine._go_on_compiled

    def noted(self: CapturedEngine) -> None:
        compiled.append(int(self.step.count))
        go_on(self)

    def patient(self: CompilerProcess) -> bool | None:
        """These runs are short: wait for it in the second step."""
        assert self._process is not None
        self._process.wait()
        return succeeded(self)

    succeeded = CompilerProcess.succeeded
    monkeypatch.setattr(CompilerProcess, "succeeded", patient)
    monkeypatch.setattr(CapturedEngine, "_go_on_compiled", noted)
    eager, switched = (pretrain(**settings, engine=engine, out=tmp_path / engine) for engine in ("eager", "ahead"))
    torch.testing.assert_close(losses(switched), losses(eager), rtol=1e-3, atol=1e-3)
    assert compiled == [2]
    said = capsys.readouterr().out
    assert not any(word in said for word in ("uncaptured", "uncompiled", "failed"))


def losses(run: Run) -> torch.Tensor:
    return torch.tensor([row["loss"] for row in run.history])
