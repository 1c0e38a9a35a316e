"""Whether crops from the disk keep the step fed: step time and share of waiting, against samples on the device.

    python benchmarks/crops.py                                          # a GPU: 512³, crop 96, 3D ResNet-18, batch 1
    python benchmarks/crops.py --edge 64 --crop 24 --width 0.125 --steps 8 --volumes 2    # small, on a CPU

Volumes are made up, written as .npy and kept in chunks by the cache, all in a temporary folder (--folder chooses the
disk). Both runs train on the same number of samples of the same shape by the same step, on CUDA captured; their rounds
alternate. `waits` is the share of the time in which the host waited for a batch that was not read yet, which is more
than the GPU waited.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from icone import cuda
from icone.api.build import autocast_dtype, make_method, make_training_views, pick_device
from icone.config import PretrainConfig
from icone.data import Data, Dataset, Loader, load_data
from icone.data.memory import GB
from icone.training.context import RunContext
from icone.training.engine import EagerEngine
from icone.training.step import TrainStep
from icone.views.base import unit_range

SAMPLES = 256
"""Samples of an epoch; they share the volumes, so that an epoch has more steps than there are volumes."""
ROUNDS = 5


class Timed(NamedTuple):
    """What one round took."""

    milliseconds: float
    """Of a step."""
    waits: float
    """Share of the time."""


def write_volumes(folder: Path, count: int, edge: int) -> None:
    """Smooth noise as 16-bit volumes."""
    for number in range(count):
        rng = np.random.default_rng(number)
        coarse = rng.integers(0, 4000, (-(-edge // 8),) * 3, dtype=np.uint16)
        volume = coarse.repeat(8, 0).repeat(8, 1).repeat(8, 2)[:edge, :edge, :edge]
        np.save(folder / f"{number}.npy", volume)


def on_the_device(config: PretrainConfig, data: Data) -> tuple[PretrainConfig, Data]:
    """As many samples of the shape of a crop, in memory, and views that take no crop of them either."""
    train = data.train
    plain = dataclasses.replace(data.preparation, crops=False)
    resident = Dataset(train.source, train.positions, plain, resident=False)
    resident.images = unit_range(train.images_at(torch.arange(len(train))))
    volume_views = dataclasses.replace(config.volume_views, crop_scale=(1.0, 1.0))
    return (
        dataclasses.replace(config, crop=None, volume_views=volume_views),
        dataclasses.replace(data, train=resident, preparation=plain),
    )


def sizes_of(loader: Loader) -> Iterator[int]:
    """The sizes of batches, epoch after epoch."""
    for epoch in itertools.count():
        loader.begin(epoch)
        yield from loader.sizes


def make_round(config: PretrainConfig, data: Data, words: argparse.Namespace) -> Callable[[], Timed]:
    """A function that takes the steps of a round and says how long they took."""
    device = pick_device(config.device)
    method = make_method(config, data)
    method.autocast_dtype = autocast_dtype(config, device)
    views = make_training_views(config, data.preparation).to(device)
    if device.type == "cuda":
        cuda.prepare_network(method)
    loader = Loader(
        data.train,
        config.batch_size,
        config.seed,
        device,
        config.workers,
        method.smallest_batch,
        num_views=config.views,
    )
    step = TrainStep(method.to(device).train(), views, config, 10**6, device)
    context = RunContext(device, tf32=True)
    if device.type == "cuda" and words.engine == "captured":
        from icone.cuda.graph import CapturedEngine

        run: CapturedEngine | EagerEngine = CapturedEngine(step, loader, context, None, compiled=words.compiled)
    else:
        run = EagerEngine(step, loader)
    sizes = sizes_of(loader)

    def one_round() -> Timed:
        with context.active():
            loader.waited, began = 0.0, time.perf_counter()
            for _ in range(words.steps):
                size = next(sizes)
                loader.advance([size])
                run((size,))
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            seconds = time.perf_counter() - began
        return Timed(1e3 * seconds / words.steps, loader.waited / seconds)

    return one_round


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--edge", type=int, default=512)
    parser.add_argument("--volumes", type=int, default=4)
    parser.add_argument("--crop", type=int, default=96)
    parser.add_argument("--batch-size", type=int, default=1)
    parser.add_argument("--encoder", default="resnet18_3d")
    parser.add_argument("--width", type=float, default=1.0)
    parser.add_argument("--steps", type=int, default=200, help="of a round")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--memory-gb", type=float, default=None)
    parser.add_argument("--engine", choices=("captured", "eager"), default="captured")
    parser.add_argument("--compiled", action="store_true", help="compile views and encoder, as in long runs")
    parser.add_argument("--folder", type=Path, default=None, help="where the temporary folder is made")
    parser.add_argument("--out", type=Path, default=None, help="write the result as JSON")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=words.folder) as folder:
        source = Path(folder) / "volumes"
        source.mkdir()
        write_volumes(source, words.volumes, words.edge)
        config = PretrainConfig(
            source=str(source),
            cache=str(Path(folder) / "cache"),
            crop=words.crop,
            batch_size=words.batch_size,
            encoder=words.encoder,
            width=words.width,
            workers=words.workers,
            memory_gb=words.memory_gb,
        )
        began = time.perf_counter()
        data = load_data(config)
        kept = time.perf_counter() - began
        disk = data.train.nbytes / GB
        data = dataclasses.replace(data, train=data.train.subset([row % words.volumes for row in range(SAMPLES)]))
        rounds = {
            "crops from the disk": make_round(config, data, words),
            "on the device": make_round(*on_the_device(config, data), words),
        }
        for one_round in rounds.values():  # captures, and fills the page cache
            one_round()
        found: dict[str, list[Timed]] = {name: [] for name in rounds}
        for _ in range(ROUNDS):
            for name, one_round in rounds.items():
                found[name].append(one_round())
    table = Table("samples", "ms per step", "waits (%)", title=f"{words.edge}³, crop {words.crop}, {words.encoder}")
    result: dict[str, Any] = {
        "chunking_seconds": kept,
        "disk_gb": disk,
        "settings": {k: str(v) for k, v in vars(words).items()},
    }
    for name, times in found.items():
        middle = Timed(*(statistics.median(column) for column in zip(*times, strict=True)))
        table.add_row(name, f"{middle.milliseconds:.2f}", f"{100 * middle.waits:.2f}")
        result[name] = middle._asdict()
    Console().print(table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"chunks: {disk:.2f} GB in {kept:.1f} s; peak memory of the process {peak:.2f} GB")
    if words.out is not None:
        words.out.write_text(json.dumps(result | {"peak_gb": peak}, indent=1))


if __name__ == "__main__":
    main()
