"""What the first samples do to the features, with and without a warm-up, at batch sizes 1 and 16.

    python benchmarks/early_features.py --images DIR/bloodcells/images                    # two minutes on a CPU
    python benchmarks/early_features.py --smoke                                           # generated images

IConE with timm's test_vit at its usual learning rate of 1e-3, in a schedule of 20 epochs of which 8 are trained. The
live probe looks at 128 samples. "Spread" is 1 minus the mean cosine, "first" the share of the variance along one
direction.
"""

from __future__ import annotations

from pathlib import Path

import torch
import tyro

from icone.api.training_parts import build_parts
from icone.config import PretrainConfig
from icone.data import load_data
from icone.evaluation.live_probe import LiveProbe, ProbePlan
from icone.process import configure_process
from icone.training.context import RunContext
from icone.training.engine import EagerEngine
from icone.training.initialization import start
from icone.training.step import TrainStep
from learning import markdown

AFTER = (0, 32, 128, 281, 562, 1124, 2248)
"""Samples after which the features are measured."""
EPOCHS = 20


def measure(config: PretrainConfig, after: tuple[int, ...]) -> list[list[str]]:
    """A line of the table for each of these numbers of samples."""
    device = torch.device("cpu")
    parts = build_parts(config, load_data(config))
    loader, dataset = parts.loader, parts.loader.dataset
    step = TrainStep(parts.method.train(), parts.views, config, EPOCHS * len(loader.sizes), device)
    probe = LiveProbe(parts.method, parts.views, dataset, device, ProbePlan(1, EPOCHS, min(128, len(dataset))))
    about, lines, seen = [f"{config.warmup:g}", str(config.batch_size)], [], 0
    with RunContext(device).active():
        start(parts.method, parts.views, loader, step.batch_norms, range(len(dataset)), lambda done, total: None)
        engine, waiting = EagerEngine(step, loader), list(after)
        for epoch in range(EPOCHS):
            loader.begin(epoch)
            for size in loader.sizes:
                if waiting and seen >= waiting[0]:
                    found = probe.measure(0)["geometry"]
                    numbers = [
                        f"{found['rankme']:.1f}", f"{1 - found['mean_cosine']:.0e}",
                        f"{100 * found['first_component']:.0f}", f"{100 * found['recognition']:.0f}",
                    ]  # fmt: skip
                    lines.append([*about, str(waiting.pop(0)), *numbers])
                if not waiting:
                    return lines
                loader.advance((size,))
                engine((size,))
                seen += size
    return lines


def main(images: Path | None = None, warmups: tuple[float, ...] = (0.0, 0.05), smoke: bool = False) -> None:
    """Print the table.

    Args:
        images: a folder of images.
        warmups: shares of all steps.
        smoke: generated images, and the first of them only.
    """
    configure_process()
    source = "synthetic:cells@32x60" if images is None else str(images)
    lines = []
    for warmup in warmups:
        for batch_size in (16, 1):
            config = PretrainConfig(
                source=source, encoder="test_vit", size=32 if smoke else 64, lr=1e-3, batch_size=batch_size,
                warmup=warmup, epochs=EPOCHS, device="cpu", cache="off",
            )  # fmt: skip
            lines += measure(config, AFTER[:2] if smoke else AFTER)
    print(markdown(["warm-up", "B", "samples", "RankMe", "spread", "first, %", "recognition, %"], lines))


if __name__ == "__main__":
    tyro.cli(main)
