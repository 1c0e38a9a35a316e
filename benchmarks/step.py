"""Time of one training step: our captured engine beside ordinary loops over the same modules, in one run.

    python benchmarks/step.py                       # what the machine has: a GPU, or the CPU
    python benchmarks/step.py --only vit-b1 --steps 200

Every row builds the method, views, optimizer and data from scratch and times steps from indices to updated weights,
views and diversity included. The loops take turns in one process. `eager` is the same step called operation by
operation; `uncompiled` (in the file) is our captured step without the compiler, which starts sooner; `compiled` is the
eager one with the encoder under torch.compile, as one would add it to a loop of one's own;
`lightly` is SimCLR's step built from lightly's modules on the same encoder, with ready views, or where lightly is not
installed from equal ones, as is said below the table; SimCLR has no batch of one, so at B = 1 its step has two
instances.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import torch.nn.functional as F
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from icone.config import PretrainConfig
from icone.data import Loader
from icone.diversity import orthogonality
from icone.encoders import arrange_for_cuda, build_encoder
from icone.losses import nt_xent
from icone.methods import Setting, build_method
from icone.nn import convert_batch_norm
from icone.training.allocation import free_gpu_memory, keep_freed_memory
from icone.training.engine import EagerEngine, Engine
from icone.training.place import Place
from icone.training.step import TrainStep
from icone.views import build_views


@dataclass(frozen=True)
class Case:
    """One row of the table; `goal` in milliseconds on an H200."""

    encoder: str
    dims: int
    size: int
    instances: int
    batch: int
    goal: float | None = None
    channels: int = 3


CASES = {
    "vit-b1": Case("vit_small_patch16", 2, 224, 5000, 1, goal=1.5),
    "vit-b64": Case("vit_small_patch16", 2, 224, 5000, 64, goal=9.0),
    "resnet3d-b1": Case("resnet18_3d", 3, 64, 1188, 1, goal=1.2, channels=1),
    "resnet3d-b16": Case("resnet18_3d", 3, 64, 1188, 16, goal=6.0, channels=1),
}
CPU_CASES = {
    "vit-b1": Case("vit_small_patch16", 2, 224, 500, 1),
    "resnet3d-b1": Case("resnet18_3d", 3, 64, 500, 1, channels=1),
}


class RandomSamples:
    """Stands in for a data set: bytes without meaning, in memory.

    With `one_on` all samples are one, on that device, where they take no memory to speak of.
    """

    def __init__(self, case: Case, one_on: torch.device | None = None) -> None:
        shape = (case.channels, *(case.size,) * case.dims)
        distinct = case.instances if one_on is None else 1
        images = torch.randint(0, 256, (distinct, *shape), dtype=torch.uint8, device=one_on or "cpu")
        self.images = images.expand(case.instances, *shape)
        self.labels = torch.full((case.instances,), -1)

    def __len__(self) -> int:
        return len(self.labels)


def build(case: Case, device: torch.device, samples: Any, seed: int = 0, **settings: Any) -> tuple[TrainStep, Loader]:
    """A step of IConE on this case, with the defaults of the command line."""
    torch.manual_seed(seed)
    config = PretrainConfig(source="random", batch_size=case.batch, seed=seed, **settings)
    shape = (case.size,) * case.dims
    encoder = build_encoder(case.encoder, in_channels=case.channels, spatial_dims=case.dims, size=case.size)
    convert_batch_norm(encoder, case.batch)
    setting = Setting(num_instances=case.instances, batch_size=case.batch)
    method = build_method(config.method, encoder, setting, config.options, config.recipe)
    views = build_views(config, spatial_dims=case.dims, channels=case.channels, size=shape)
    if device.type == "cuda":
        method.autocast_dtype = torch.bfloat16
        arrange_for_cuda(method)
    else:
        keep_freed_memory()
    loader = Loader(samples, case.batch, seed=seed, device=device)
    loader.begin(0)
    return TrainStep(method.to(device).train(), views.to(device), config, 10**6, device), loader


def captured(
    case: Case,
    device: torch.device,
    samples: Any,
    seed: int = 0,
    options: tuple[str, ...] = (),
    compiled: bool = True,
) -> tuple[Engine, Place]:
    from icone.training.captured import CapturedEngine

    step, loader = build(case, device, samples, seed, options=options)
    place = Place(device, reduced=True)
    return CapturedEngine(step, loader, place, warn=None, compiled=compiled), place


def eager(case: Case, device: torch.device, samples: Any) -> tuple[Engine, Place]:
    step, loader = build(case, device, samples)
    return EagerEngine(step, loader), Place(device, reduced=True)


def compiled(case: Case, device: torch.device, samples: Any) -> tuple[Engine, Place]:
    step, loader = build(case, device, samples)
    step.method.encoder.compile()
    return EagerEngine(step, loader), Place(device, reduced=True)


def simclr_modules(features: int) -> tuple[nn.Module, Callable[[Tensor, Tensor], Tensor], str]:
    """lightly's projection head and loss, or equal ones where it is not installed; and which of them."""
    try:
        import lightly  # type: ignore[import-untyped]
        from lightly.loss import NTXentLoss  # type: ignore[import-untyped]
        from lightly.models.modules import SimCLRProjectionHead  # type: ignore[import-untyped]
    except ImportError:
        first, second = nn.Linear(features, 2048, bias=False), nn.Linear(2048, 128, bias=False)
        head = nn.Sequential(first, nn.BatchNorm1d(2048), nn.ReLU(), second, nn.BatchNorm1d(128))
        return head, _nt_xent, "equal modules"
    return SimCLRProjectionHead(features, 2048, 128), NTXentLoss(), f"lightly {lightly.__version__}"


def _nt_xent(first: Tensor, second: Tensor) -> Tensor:
    return nt_xent(torch.stack([first, second], dim=1), temperature=0.5)


class LightlyStep(Engine):
    """SimCLR as lightly's examples write it: encoder, projection head, NT-Xent, AdamW; views are given."""

    def __init__(self, case: Case, device: torch.device) -> None:
        encoder = build_encoder(case.encoder, in_channels=case.channels, spatial_dims=case.dims, size=case.size)
        head, self.criterion, self.made_of = simclr_modules(int(encoder.num_features))  # type: ignore[arg-type]
        self.model = nn.Sequential(encoder, head).to(device).train()
        self.views = torch.rand(2, max(case.batch, 2), case.channels, *(case.size,) * case.dims, device=device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.device = device

    def __call__(self, sizes: tuple[int, ...]) -> None:
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            first, second = (self.model(view).float() for view in self.views)
        loss: Tensor = self.criterion(first, second)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def lightly(case: Case, device: torch.device, samples: Any) -> tuple[Engine, Place]:
    return LightlyStep(case, device), Place(device, reduced=True)


def milliseconds(engine: Engine, place: Place, batch: int, steps: int) -> float:
    """Median over five rounds of the mean time of a step."""

    def rounds() -> float:
        began = time.perf_counter()
        for _ in range(steps):
            engine((batch,))
        _wait(place)
        return 1000 * (time.perf_counter() - began) / steps

    with place.here():
        _rewind(engine)
        for _ in range(3):
            engine((batch,))
        _wait(place)
        return statistics.median(rounds() for _ in range(5))


def from_the_start(make: Callable[[], tuple[Engine, Place]], batch: int, steps: int) -> tuple[float, float]:
    """Milliseconds of a step, and the seconds before the first of them."""
    began = time.perf_counter()
    step = milliseconds(*make(), batch, steps)
    return step, time.perf_counter() - began - 5 * steps * step / 1000


def _wait(place: Place) -> None:
    if place.device.type == "cuda":
        torch.cuda.synchronize()


def _rewind(engine: Engine) -> None:
    if not isinstance(engine, LightlyStep):
        engine.loader.begin(0)


def side_by_side(case: Case, device: torch.device, samples: Any, runs: int, steps: int) -> float:
    """Milliseconds of one step of each of several runs."""
    engines = [captured(case, device, samples, seed) for seed in range(runs)]
    for engine, place in engines:
        engine.alone = False
        milliseconds(engine, place, case.batch, 2)

    def everyone() -> float:
        for engine, place in engines:
            with place.here():
                _rewind(engine)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            for engine, place in engines:
                with place.here():
                    engine((case.batch,))
        torch.cuda.synchronize()
        return 1000 * (time.perf_counter() - began) / steps

    return statistics.median(everyone() for _ in range(3))


def peak_memory(case: Case, device: torch.device) -> float:
    """Gigabytes at the peak of captured steps, without the samples."""
    samples = RandomSamples(case, one_on=device)
    torch.cuda.synchronize()
    free_gpu_memory()
    torch.cuda.reset_peak_memory_stats()
    engine, place = captured(case, device, samples)
    milliseconds(engine, place, case.batch, 2)
    return torch.cuda.max_memory_allocated() / 1e9


def diversity_times(device: torch.device) -> list[dict[str, Any]]:
    """Value and gradient of the repulsion alone: milliseconds, extra memory, error against float64 (small tables)."""
    rows = []
    for n, d in ((5_000, 384), (5_000, 512), (5_000, 1024), (50_000, 512), (100_000, 384)):
        unit = F.normalize(torch.randn(n, d, device=device), dim=1).requires_grad_()
        for precision in ("tf32", "bf16"):
            call = partial(_one_pass, unit, precision)
            call()
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            times = []
            for _ in range(3 if n > 10_000 else 20):
                began = time.perf_counter()
                call()
                torch.cuda.synchronize()
                times.append(1000 * (time.perf_counter() - began))
            extra = (torch.cuda.max_memory_allocated() - before) / 1e9
            rows.append({"n": n, "d": d, "precision": precision, "ms": statistics.median(times), "extra_gb": extra})
            if n <= 5_000:
                exact = _one_pass(unit.detach().double().requires_grad_(), "full")
                rows[-1]["error"] = float((call() - exact).norm() / exact.norm())
    return rows


def _one_pass(table: Tensor, precision: Literal["tf32", "bf16", "full"]) -> Tensor:
    return torch.autograd.grad(orthogonality(table, precision=precision), table)[0]


def without_diversity(case: Case, device: torch.device, samples: Any, steps: int, options: tuple[str, ...]) -> float:
    """Milliseconds of a step without the repulsion."""
    engine, place = captured(case, device, samples, options=options)
    objective: Any = engine.step.method.objective
    objective.diversity = lambda table: 0 * table[0, 0]
    return milliseconds(engine, place, case.batch, steps)


def main(
    only: tuple[str, ...] = (),
    steps: int = 100,
    peers: tuple[str, ...] = ("eager", "compiled", "lightly"),
    runs: int = 5,
    out: Path | None = None,
) -> None:
    """Print milliseconds a step, and ratios to the peers.

    Args:
        only: names of the cases (default: all).
        steps: steps in each of five timed rounds.
        peers: loops to compare with.
        runs: runs side by side (GPU).
        out: file for the figures, as JSON.
    """
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    cases = CASES if device.type == "cuda" else CPU_CASES
    makers: dict[str, Callable[..., tuple[Engine, Place]]] = {"eager": eager, "compiled": compiled, "lightly": lightly}
    found: list[dict[str, Any]] = []
    table = Table(title="milliseconds a step, V = 2, views and diversity included")
    for column in ("case", "ours", "goal", *(f"{peer} (×)" for peer in peers), "diversity adds", f"{runs} runs (×)"):
        table.add_column(column, justify="right")
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    figures: dict[str, Any] = {
        "date": date.today().isoformat(),
        "hardware": hardware,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "rows": found,
    }

    def keep(**more: Any) -> None:
        """After every figure: what was measured outlives a run that is cut short."""
        figures.update(more)
        print(json.dumps(more or found[-1]), flush=True)
        if out is not None:
            out.write_text(json.dumps(figures, indent=1) + "\n")

    if device.type == "cuda" and not only:
        keep(diversity=diversity_times(device))
        keep(peak_gb_vit_b4_100k=peak_memory(Case("vit_small_patch16", 2, 224, 100_000, 4), device))
    for name, case in cases.items():
        if not only or name in only:
            found.append(measure(name, case, device, steps, {peer: makers[peer] for peer in peers}, runs))
            table.add_row(*_cells(found[-1], peers))
            keep()
    console = Console()
    console.print(table)
    for modules in {row["lightly_modules"] for row in found if "lightly_modules" in row}:
        console.print(f"lightly: {modules}")
    console.print("  ".join(str(value) for value in list(figures.values())[:4]))


def measure(
    name: str, case: Case, device: torch.device, steps: int, makers: dict[str, Callable[..., Any]], runs: int
) -> dict[str, Any]:
    samples = RandomSamples(case)
    row: dict[str, Any] = {"case": name, **dataclasses.asdict(case)}
    cuda = device.type == "cuda"
    steps = min(steps, case.instances // case.batch // 6)  # rounds and warm-up stay within an epoch
    gc.collect()  # captured steps of the case before refer to each other
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    ours = captured if cuda else eager
    row["ours"], row["seconds_to_start"] = from_the_start(partial(ours, case, device, samples), case.batch, steps)
    if cuda:
        row["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
        uncompiled = partial(captured, case, device, samples, compiled=False)
        row["uncompiled"], row["uncompiled_seconds_to_start"] = from_the_start(uncompiled, case.batch, steps)
        row["diversity_adds"] = row["ours"] - without_diversity(case, device, samples, steps, ())
        if case.batch == 1:
            headless = ("out=0",)  # the table is then as wide as the features
            engine, place = captured(case, device, samples, options=headless)
            whole = milliseconds(engine, place, case.batch, steps)
            row["diversity_adds_headless"] = whole - without_diversity(case, device, samples, steps, headless)
            del engine, place
            row["runs"] = side_by_side(case, device, samples, runs, steps)
            row["runs_ratio"] = row["runs"] / row["ours"]
    for peer, maker in makers.items():
        if peer == "eager" and not cuda:
            continue  # it is ours
        gc.collect()
        torch._dynamo.reset()
        engine, place = maker(case, device, samples)
        row[peer] = milliseconds(engine, place, case.batch, max(steps // 5, 3))
        if isinstance(engine, LightlyStep):
            row["lightly_modules"] = engine.made_of
    return row


def _cells(row: dict[str, Any], peers: tuple[str, ...]) -> list[str]:
    ratios = [
        f"{row[peer]:.2f} ({row[peer] / row['ours']:.1f})" if row.get(peer) is not None else "–" for peer in peers
    ]
    return [
        row["case"],
        f"{row['ours']:.3f}",
        "–" if row["goal"] is None else f"{row['goal']:g}",
        *ratios,
        f"{row['diversity_adds']:.3f}" if "diversity_adds" in row else "–",
        f"{row['runs']:.2f} ({row['runs_ratio']:.2f})" if "runs" in row else "–",
    ]


if __name__ == "__main__":
    tyro.cli(main)
