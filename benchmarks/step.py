"""Time of one training step: our captured engine and competent plain loops over the same encoder, in one run.

    python benchmarks/step.py --out step.json       # what the machine has: a GPU, or the CPU
    python benchmarks/step.py --only vit-b1 --peers fused graph
    python benchmarks/step.py --details             # also without compiler or diversity, several runs, memory

Ours is timed from indices to updated weights: views, head, diversity and schedules included. Peers do less, which
favours them: ready views lie on the device, there is no head and no anchor table, and the loss of `fused`,
`reduce-overhead` and `graph` is 1 − cos between the two views of an instance. All have two views an instance, bf16
autocast on a GPU, TF32, cuDNN's own search for kernels, channels last for volumes, and the layers of PyTorch, timm and
MONAI as they come.

`fused`: called operation by operation, with the fused AdamW. `reduce-overhead`: model and loss under
`torch.compile(mode="reduce-overhead")`, which captures both passes, and the fused AdamW. `graph`: the whole step
(`torch.compile` of model and loss, backward pass, fused AdamW) in one CUDA graph. `lightly`: SimCLR's step from
lightly's modules, or where lightly is not installed from equal ones, as is said below the table; SimCLR has no batch of
one, so at B = 1 its step has two instances.

Every loop has a process of its own. All loops of a case take turns, round by round, and the last column compares with
the strongest peer. A loop that fails is named, and the others go on. The file holds what was measured so far after
every round.
"""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal, cast, get_args

import torch
import torch.nn.functional as F
import tyro
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn

from icone.config import PretrainConfig
from icone.cuda import ALL_ON, CudaOptions, free_gpu_memory, prepare_network
from icone.cuda.replacement import replace_classes
from icone.data import Loader
from icone.encoders import build_encoder
from icone.encoders.layers import HalvingMaxPool3d, PatchConv2d, SmallMapConv3d, StemConv3d
from icone.errors import InputError
from icone.methods import Setting, build_method
from icone.nn import convert_batch_norm
from icone.nn.diversity import orthogonality
from icone.nn.losses import nt_xent
from icone.process import keep_freed_memory, use_more_queues
from icone.training.context import RunContext
from icone.training.engine import EagerEngine, Engine
from icone.training.step import TrainStep
from icone.views import build_views

WARM_UPS = 5
ROUNDS = 5
ROUND_MILLISECONDS = 500.0


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


def build(
    case: Case,
    device: torch.device,
    samples: Any,
    seed: int = 0,
    tricks: CudaOptions = ALL_ON,
    **settings: Any,
) -> tuple[TrainStep, Loader]:
    """A step of IConE on this case, with the defaults of the command line."""
    torch.manual_seed(seed)
    config = PretrainConfig(source="random", batch_size=case.batch, seed=seed, **settings)
    shape = (case.size,) * case.dims
    encoder = build_encoder(case.encoder, in_channels=case.channels, spatial_dims=case.dims, size=case.size)
    convert_batch_norm(encoder, min(case.batch, config.micro_batch or case.batch))
    setting = Setting(num_instances=case.instances, batch_size=case.batch)
    method = build_method(config.method, encoder, setting, config.options, config.recipe)
    method.micro_batch = config.micro_batch
    views = build_views(config, spatial_dims=case.dims, channels=case.channels, size=shape)
    if device.type == "cuda":
        method.autocast_dtype = torch.bfloat16
        prepare_network(method, tricks)
    else:
        keep_freed_memory()
    loader = Loader(samples, case.batch, seed=seed, device=device)
    loader.begin(0)
    step = TrainStep(method.to(device).train(), views.to(device), config, 10**6, device)
    if config.checkpoint_activations == "on":
        step.checkpoint_activations()
    return step, loader


def captured(
    case: Case,
    device: torch.device,
    samples: Any,
    seed: int = 0,
    options: tuple[str, ...] = (),
    compiled: bool = True,
    tricks: CudaOptions = ALL_ON,
    high_priority: bool = True,
) -> tuple[Engine, RunContext]:
    from icone.cuda.graph import CapturedEngine

    step, loader = build(case, device, samples, seed, tricks, options=options)
    context = RunContext(device, tf32=True, high_priority=high_priority)
    return CapturedEngine(step, loader, context, None, compiled, tricks), context


def eager(case: Case, device: torch.device, samples: Any) -> tuple[Engine, RunContext]:
    step, loader = build(case, device, samples)
    return EagerEngine(step, loader), RunContext(device, tf32=True)


@dataclass(frozen=True)
class Loop:
    """Something that takes training steps; `context()` is around all of them, `rewind` before a round."""

    step: Callable[[], None]
    rewind: Callable[[], None] = lambda: None
    context: Callable[[], AbstractContextManager[None]] = nullcontext
    made_of: str = ""


def loop_of(engine: Engine, context: RunContext, batch: int) -> Loop:
    return Loop(partial(engine, (batch,)), partial(engine.loader.begin, 0), context.active)


def ours(case: Case, device: torch.device, samples: Any) -> Loop:
    """The step of `icone pretrain`: captured and compiled on a GPU, eager on a CPU."""
    engine, context = (captured if device.type == "cuda" else eager)(case, device, samples)
    return loop_of(engine, context, case.batch)


def plain_encoder(case: Case) -> nn.Module:
    """The encoder of the case with the layers of its library; ours are subclasses with another `forward`."""
    network = build_encoder(case.encoder, in_channels=case.channels, spatial_dims=case.dims, size=case.size)
    library = {
        PatchConv2d: nn.Conv2d,
        StemConv3d: nn.Conv3d,
        SmallMapConv3d: nn.Conv3d,
        HalvingMaxPool3d: nn.MaxPool3d,
    }
    replace_classes(network, library)
    return network.to(memory_format=torch.channels_last_3d) if case.dims == 3 else network


def ready_views(case: Case, device: torch.device, instances: int) -> Tensor:
    """Two views of each instance, first views first: (2·B, C, *size)."""
    views = torch.rand(2 * instances, case.channels, *(case.size,) * case.dims, device=device)
    return views.contiguous(memory_format=torch.channels_last_3d) if case.dims == 3 else views


class Aligned(nn.Module):
    """What peers train: an encoder, and 1 − cos between the features of the two views."""

    def __init__(self, encoder: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, views: Tensor) -> Tensor:
        with torch.autocast(views.device.type, torch.bfloat16, enabled=views.is_cuda):
            features = self.encoder(views)
        first, second = features.float().chunk(2)
        return (1 - F.cosine_similarity(first, second)).mean()


class PlainStep:
    """Forward pass, backward pass and fused AdamW on ready views; with a `mode`, under torch.compile."""

    def __init__(self, case: Case, device: torch.device, mode: str | None = None) -> None:
        self.model = Aligned(plain_encoder(case)).to(device).train()
        self.views = ready_views(case, device, case.batch)
        on_device = device.type == "cuda" and mode is not None  # its count of steps too, as a captured step needs it
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, fused=True, capturable=on_device)
        self.loss: Callable[[Tensor], Tensor] = self.model
        if mode is not None:
            self.loss = torch.compile(self.model, mode=mode, dynamic=False)

    def __call__(self) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        torch.compiler.cudagraph_mark_step_begin()
        self.loss(self.views).backward()
        self.optimizer.step()


class GraphStep(PlainStep):
    """The compiled step, captured whole."""

    def __init__(self, case: Case, device: torch.device) -> None:
        if device.type != "cuda":
            raise InputError("a CUDA graph needs a GPU")
        super().__init__(case, device, mode="default")
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):
            for _ in range(WARM_UPS):
                super().__call__()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph, stream=stream):
            super().__call__()

    def __call__(self) -> None:
        self.graph.replay()


def fused(case: Case, device: torch.device, samples: Any) -> Loop:
    return Loop(PlainStep(case, device), context=tuned)


def reduce_overhead(case: Case, device: torch.device, samples: Any) -> Loop:
    return Loop(PlainStep(case, device, mode="reduce-overhead"), context=tuned)


def graph(case: Case, device: torch.device, samples: Any) -> Loop:
    with tuned():
        return Loop(GraphStep(case, device), context=tuned)


@contextmanager
def tuned() -> Iterator[None]:
    """What one sets for shapes that stay the same: TF32, and cuDNN tries out its kernels."""
    precision, search = torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.benchmark = True
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(precision)
        torch.backends.cudnn.benchmark = search


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


class LightlyStep:
    """SimCLR as lightly's examples write it: encoder, projection head, NT-Xent, AdamW; views are given."""

    def __init__(self, case: Case, device: torch.device) -> None:
        encoder = plain_encoder(case)
        head, self.criterion, self.made_of = simclr_modules(int(encoder.num_features))  # type: ignore[arg-type]
        self.model = nn.Sequential(encoder, head).to(device).train()
        self.views = ready_views(case, device, max(case.batch, 2)).chunk(2)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def __call__(self) -> None:
        with torch.autocast(self.views[0].device.type, torch.bfloat16, enabled=self.views[0].is_cuda):
            first, second = (self.model(view).float() for view in self.views)
        loss: Tensor = self.criterion(first, second)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()


def lightly(case: Case, device: torch.device, samples: Any) -> Loop:
    step = LightlyStep(case, device)
    return Loop(step, context=tuned, made_of=step.made_of)


Maker = Callable[[Case, torch.device, Any], Loop]
Peer = Literal["fused", "reduce-overhead", "graph", "lightly"]
PEERS: dict[Peer, Maker] = {
    "fused": fused,
    "reduce-overhead": reduce_overhead,
    "graph": graph,
    "lightly": lightly,
}


MAKERS: dict[str, Maker] = {"ours": ours, **{str(name): make for name, make in PEERS.items()}}
SPAWN = multiprocessing.get_context("spawn")


def timed(loop: Loop, steps: int) -> float:
    """Milliseconds of a step, the mean over one round."""
    with loop.context():
        loop.rewind()
        _wait()
        began = time.perf_counter()
        for _ in range(steps):
            loop.step()
        _wait()
        return 1000 * (time.perf_counter() - began) / steps


def milliseconds(engine: Engine, context: RunContext, batch: int, steps: int) -> float:
    """Median over the rounds of the mean time of a step."""
    loop = loop_of(engine, context, batch)
    timed(loop, WARM_UPS)
    return statistics.median(timed(loop, steps) for _ in range(ROUNDS))


def from_the_start(make: Callable[[], tuple[Engine, RunContext]], batch: int, steps: int) -> tuple[float, float]:
    """Milliseconds of a step, and the seconds before the first of them."""
    began = time.perf_counter()
    step = milliseconds(*make(), batch, steps)
    return step, time.perf_counter() - began - ROUNDS * steps * step / 1000


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def side_by_side(case: Case, device: torch.device, samples: Any, runs: int, steps: int) -> float:
    """Milliseconds of one step of each of several runs."""
    engines = [captured(case, device, samples, seed) for seed in range(runs)]
    for engine, context in engines:
        engine.alone = False
        milliseconds(engine, context, case.batch, 2)

    def everyone() -> float:
        for engine, context in engines:
            with context.active():
                engine.loader.begin(0)
        torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(steps):
            for engine, context in engines:
                with context.active():
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
    engine, context = captured(case, device, samples)
    milliseconds(engine, context, case.batch, 2)
    return torch.cuda.max_memory_allocated() / 1e9


def diversity_times(device: torch.device) -> list[dict[str, Any]]:
    """Value and gradient of the diversity loss: milliseconds, extra memory, error against float64 (small tables)."""
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
    """Milliseconds of a step without the diversity loss."""
    engine, context = captured(case, device, samples, options=options)
    objective: Any = engine.step.method.objective
    objective.diversity = lambda table: 0 * table[0, 0]
    return milliseconds(engine, context, case.batch, steps)


def main(
    only: tuple[str, ...] = (),
    steps: int = 100,
    peers: tuple[Peer, ...] = get_args(Peer),
    details: bool = False,
    runs: int = 5,
    out: Path | None = None,
) -> None:
    """Print milliseconds a step, and ratios to the peers.

    Args:
        only: names of the cases (default: all).
        steps: steps in each of five timed rounds, at most; a round of slow steps has fewer.
        peers: loops to compare with.
        details: measure on a GPU also our step without the compiler and without diversity, several runs side by side,
            the diversity loss alone, and memory.
        runs: runs side by side.
        out: file for the figures, as JSON.
    """
    use_more_queues()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    details = details and device.type == "cuda"
    cases = CASES if device.type == "cuda" else CPU_CASES
    found: list[dict[str, Any]] = []
    figures: dict[str, Any] = {
        **environment(device),
        "ours": "views, encoder, head, diversity, AdamW, schedules; milliseconds a step",
        "peers": "ready views, encoder, 1 - cos of two views (lightly: head and NT-Xent), AdamW; milliseconds a step",
        "rows": found,
    }

    def keep() -> None:
        """After every figure: what was measured outlives a run that is cut short."""
        if out is not None:
            out.write_text(json.dumps(figures, indent=1) + "\n")

    for name, case in cases.items():
        if not only or name in only:
            found.append({"case": name, **dataclasses.asdict(case)})
            loops = {loop: partial(LoopProcess, case, device, steps, MAKERS[loop]) for loop in ("ours", *peers)}
            measure(found[-1], loops, keep)
            if details:
                found[-1] |= measure_details(case, device, steps, runs, found[-1].get("ours", math.nan))
                keep()
            print(json.dumps(found[-1]), flush=True)
    if details and not only:
        figures["diversity"] = diversity_times(device)
        figures["peak_gb_vit_b4_100k"] = peak_memory(Case("vit_small_patch16", 2, 224, 100_000, 4), device)
        keep()
    console = Console()
    console.print(table_of(found, peers))
    for modules in {row["lightly_modules"] for row in found if "lightly_modules" in row}:
        console.print(f"lightly: {modules}")
    console.print("  ".join(str(value) for value in list(figures.values())[:4]))


def environment(device: torch.device) -> dict[str, str]:
    """What every file of figures says about the machine."""
    hardware = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    return {
        "date": date.today().isoformat(),
        "hardware": hardware,
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def serve(pipe: Connection, make: Maker, case: Case, device: torch.device, steps: int) -> None:
    """Build a loop, say how that went, and answer every question with the milliseconds of a step in a new round."""
    try:
        began = time.perf_counter()
        loop = make(case, device, RandomSamples(case))
        timed(loop, WARM_UPS)
        about: dict[str, Any] = {"seconds_to_start": time.perf_counter() - began, "made_of": loop.made_of}
        if device.type == "cuda":
            about["peak_gb"] = torch.cuda.max_memory_allocated() / 1e9
            about["reserved_gb"] = torch.cuda.max_memory_reserved() / 1e9
            torch.cuda.empty_cache()  # other processes need what the warm-up leaves
        most = min(steps, case.instances // case.batch)  # a round stays within an epoch
        count = max(3, min(most, int(ROUND_MILLISECONDS / timed(loop, 3))))
        pipe.send(about)
        while pipe.recv():
            pipe.send(timed(loop, count))
    except EOFError:
        pass  # the other side has ended
    except Exception as error:  # compilers and CUDA raise anything, and the other loops are to go on
        pipe.send(RuntimeError(f"{type(error).__name__}: {str(error).strip()[:300]}"))


class LoopProcess:
    """A loop in a process of its own: what PyTorch captures for one loop frees workspaces that others still use."""

    def __init__(self, case: Case, device: torch.device, steps: int, make: Maker) -> None:
        self.pipe, other = SPAWN.Pipe()
        self.process = SPAWN.Process(target=serve, args=(other, make, case, device, steps), daemon=True)
        self.process.start()
        other.close()

    def about(self) -> dict[str, Any]:
        """What is known of the loop, once it is built."""
        return cast(dict[str, Any], self._answer())

    def round(self) -> float:
        self.pipe.send(True)
        return cast(float, self._answer())

    def end(self) -> None:
        self.pipe.close()
        self.process.join()

    def _answer(self) -> object:
        try:
            answer = self.pipe.recv()
        except (EOFError, ConnectionResetError):
            raise RuntimeError("its process ended") from None
        if isinstance(answer, RuntimeError):
            raise answer
        return answer


def measure(row: dict[str, Any], starts: Mapping[str, Callable[[], LoopProcess]], keep: Callable[[], None]) -> None:
    """Milliseconds of a step of every loop into the row: all of them are built together, and then timed in turns."""
    row |= {"seconds_to_start_together": {}, "failed": {}}
    loops = {name: start() for name, start in starts.items()}
    times: dict[str, list[float]] = {name: [] for name in starts}

    def attempt(name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except RuntimeError as error:
            row["failed"][name] = str(error)
            loops.pop(name).end()
            row.pop(name, None)
            print(f"{row['case']}: {name} failed ({error})", file=sys.stderr, flush=True)
        keep()

    def begin(name: str) -> None:
        about = loops[name].about()
        row["seconds_to_start_together"][name] = about["seconds_to_start"]
        if name == "ours" and "peak_gb" in about:
            row["peak_gb"] = about["peak_gb"]
        if about["made_of"]:
            row[f"{name}_modules"] = about["made_of"]

    def one_round(name: str) -> None:
        times[name].append(loops[name].round())
        row[name] = statistics.median(times[name])

    for name in starts:
        attempt(name, partial(begin, name))
    for _ in range(ROUNDS):
        for name in list(loops):
            attempt(name, partial(one_round, name))
    for loop in loops.values():
        loop.end()
    peers = [name for name in loops if name != "ours"]
    if peers and "ours" in loops:
        row["strongest"] = min(peers, key=lambda name: row[name])
        row["ratio"] = row[row["strongest"]] / row["ours"]
    keep()


def measure_details(case: Case, device: torch.device, steps: int, runs: int, whole: float) -> dict[str, Any]:
    """What parts of our step cost, where the whole takes so many milliseconds."""
    samples = RandomSamples(case)
    row: dict[str, Any] = {}
    steps = min(steps, case.instances // case.batch)
    uncompiled = partial(captured, case, device, samples, compiled=False)
    row["uncompiled"], row["uncompiled_seconds_to_start"] = from_the_start(uncompiled, case.batch, steps)
    row["diversity_adds"] = whole - without_diversity(case, device, samples, steps, ())
    if case.batch == 1:
        headless = ("out=0",)  # the table is then as wide as the features
        engine, context = captured(case, device, samples, options=headless)
        plain = milliseconds(engine, context, case.batch, steps)
        row["diversity_adds_headless"] = plain - without_diversity(case, device, samples, steps, headless)
        del engine, context
        row["runs"] = side_by_side(case, device, samples, runs, steps)
        row["runs_ratio"] = row["runs"] / whole
    return row


def table_of(rows: Sequence[dict[str, Any]], peers: Sequence[str]) -> Table:
    """A line for every case; in brackets how many times as long as ours a peer takes."""
    table = Table(title="milliseconds a step, V = 2; ours with views, head and diversity, peers with ready views")
    columns = ["case", "ours", "goal", *(f"{peer} (×)" for peer in peers), "strongest peer (×)"]
    detailed = any("uncompiled" in row for row in rows)
    for column in [*columns, *(["uncompiled", "diversity adds", "several runs (×)"] if detailed else [])]:
        table.add_column(column, justify="right")
    for row in rows:
        mine = row.get("ours", math.nan)
        cells = [row["case"], f"{mine:.3f}", "–" if row["goal"] is None else f"{row['goal']:g}"]
        for peer in peers:
            missing = "failed" if peer in row["failed"] else "–"
            cells.append(f"{row[peer]:.2f} ({row[peer] / mine:.2f})" if peer in row else missing)
        cells.append(f"{row['strongest']} ({row['ratio']:.2f})" if "ratio" in row else "–")
        if detailed:
            cells += [f"{row[name]:.3f}" if name in row else "–" for name in ("uncompiled", "diversity_adds")]
            cells.append(f"{row['runs']:.2f} ({row['runs_ratio']:.2f})" if "runs" in row else "–")
        table.add_row(*cells)
    return table


if __name__ == "__main__":
    tyro.cli(main)
