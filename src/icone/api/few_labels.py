"""Networks fine-tuned with shares of the labels, for `icone.evaluate`, and the tables of what few labels give."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from rich.console import Console
from rich.table import Table

from icone.api.build import Given
from icone.api.partition import EvaluationData, cannot_probe
from icone.api.summaries import NETWORKS, PROBES, TITLES
from icone.api.tuning import Network, Parts, Tuning, choose_parts
from icone.config import FinetuneConfig
from icone.data.identity import content_digest, file_digest
from icone.errors import InputError, InterruptedRun
from icone.evaluation.label_efficiency import point_of, score_of, taught_labels
from icone.evaluation.metrics import METRICS
from icone.files import remove, write_json
from icone.recipe import RECIPE_VERSION
from icone.run import FINISHED_SHARES, Run
from icone.terminal import Terminal, counted, say
from icone.training.progress import Display, ProgressBar


@dataclass(frozen=True)
class FinetuneShares:
    """Which shares of the labels networks are fine-tuned with, and how often."""

    fractions: tuple[float, ...]
    draws: int
    epochs: int | None
    from_scratch: bool

    def __post_init__(self) -> None:
        if self.draws and not self.fractions:
            raise InputError("--finetune-draws is about shares of the labels: give --label-fractions too")
        if not self.draws and (self.from_scratch or self.epochs is not None):
            flag = "--from-scratch" if self.from_scratch else "--finetune-epochs"
            raise InputError(f"{flag} is about fine-tuning: give --finetune-draws too, for example 3")

    @property
    def networks(self) -> tuple[Network, ...]:
        return ("fine_tuned", "from_scratch") if self.from_scratch else ("fine_tuned",)

    def configs(self) -> list[FinetuneConfig]:
        """The settings of every draw, those with few labels first. All labels can be drawn in one way only."""
        return [
            FinetuneConfig(fraction=share, epochs=self.epochs, seed=draw)
            for share in sorted({*self.fractions, 1.0})
            for draw in range(self.draws if share < 1 else 1)
        ]


def finetuned_shares(
    run: Run, samples: EvaluationData, shares: FinetuneShares, given: Given, device: str, console: Console
) -> dict[str, Any]:
    """The scores of networks that are fine-tuned with shares of the labels: mean and interval over draws.

    The settings are those of `icone.finetune`, and draw s has the labels of its seed s, which are those of draw s of
    the probes, scored on the same labels. A draw that leaves nothing to score is left out, or of several labels per
    sample counts as chance, as it does for the probes. A finished network is kept on disk, so that an interruption
    costs at most one.
    """
    metric, finished = METRICS[PROBES[samples.task]], _Finished(run, samples)
    plan = list(itertools.product(shares.configs(), shares.networks))
    taught = taught_labels(choose_parts(samples, shares.configs()[-1], run.config.split_seed).partition)
    scores: dict[tuple[Network, float], list[tuple[int, float]]] = {}
    with ProgressBar(console) as bar:
        for number, (config, network) in enumerate(plan, start=1):
            parts = choose_parts(samples, config, run.config.split_seed)
            labels = len(parts.partition.train)
            what = f"{NETWORKS[network]} with {counted(labels, 'label')}, draw {config.seed + 1}"
            if why := cannot_probe(parts.partition):
                counts = f"counts as {metric.text(score_of(None, taught))}" if taught else "left out"
                say(console, f"{number}/{len(plan)} {what}: {counts}, because {why}")
                if taught:
                    scores.setdefault((network, config.fraction), []).append((labels, score_of(None, taught)))
                continue
            score = finished.find(config, parts, network)
            if score is None:
                tuning = Tuning(
                    pretrained=run, config=config, samples=samples, parts=parts, given=given, device=device,
                    console=Terminal(quiet=True), display=partial(_InBar, bar, what, console),
                )  # fmt: skip
                with _interruptions(number - 1, len(plan)):
                    score = score_of(tuning.tune(network, tuning.encoder(network)).result, taught)
                finished.keep(config, parts, network, score)
            told = f"{metric.text(score)}{' %' if metric.percent else ''}"
            say(console, f"{number}/{len(plan)} {what}: {TITLES[metric.name].removesuffix(' (%)')} {told}")
            scores.setdefault((network, config.fraction), []).append((labels, score))
    points: dict[str, list[dict[str, Any]]] = {}
    for (network, share), scored in scores.items():
        points.setdefault(network, []).append(point_of(share, scored))
    return {"draws": shares.draws, "epochs": shares.epochs, "metric": metric.name, "points": points}


@contextlib.contextmanager
def _interruptions(done: int, planned: int) -> Iterator[None]:
    """Say to whoever interrupts the block what is kept: finished networks, not epochs as `fit` says."""
    try:
        yield
    except KeyboardInterrupt as error:
        networks = counted(planned, "network")
        kept = f"{done} of {networks} are fine-tuned, and their scores are kept"
        raise InterruptedRun(f"interrupted: {kept if done else f'none of {networks} is fine-tuned yet'}") from error


class _Finished:
    """The scores of networks that are trained already, in a file of the run while others are not.

    A score counts for the same encoder, settings, samples and labels alone.
    """

    def __init__(self, run: Run, samples: EvaluationData) -> None:
        self.run, self.file = run, run.folder / FINISHED_SHARES
        self.about = [file_digest(run.encoder_file), RECIPE_VERSION, samples.task]
        self.scores: dict[str, float] = run.read_json(FINISHED_SHARES) if self.file.is_file() else {}

    def find(self, config: FinetuneConfig, parts: Parts, network: Network) -> float | None:
        return self.scores.get(self._key(config, parts, network))

    def keep(self, config: FinetuneConfig, parts: Parts, network: Network, score: float) -> None:
        self.scores[self._key(config, parts, network)] = score
        with self.run.locked():
            write_json(self.file, self.scores)

    def _key(self, config: FinetuneConfig, parts: Parts, network: Network) -> str:
        settings = [self.about, dataclasses.asdict(config), parts.labelled(), network]
        return content_digest(json.dumps(settings).encode())


def forget_finished(run: Run) -> None:
    """Remove what was kept of finished networks: the result has it."""
    remove(run.folder / FINISHED_SHARES)


class _InBar(Display):
    """Shows the steps of one of many trainings in a bar that all of them share."""

    def __init__(self, bar: ProgressBar, what: str, console: Console) -> None:
        self.bar, self.what, self.console = bar, what, console
        self.total = 0

    def start(self, done: int, total: int, epochs: int) -> None:
        self.total = total
        self.bar(self.what, done, total)

    def refresh(self, done: int, epoch: int, terms: dict[str, float], instances_per_second: float) -> None:
        self.bar(self.what, done, self.total)

    def end_epoch(self, row: dict[str, Any]) -> None:
        pass  # a line for every epoch of every network is too much

    def warn(self, text: str) -> None:
        say(self.console, f"warning: {self.what}: {text}")

    def note(self, text: str) -> None:
        say(self.console, f"note: {self.what}: {text}")

    def close(self) -> None:
        pass  # the bar goes on


def efficiency_table(result: dict[str, Any]) -> Table | None:
    """Scores by share of the labels, mean and interval over draws; None where that was not measured."""
    found = result.get("label_efficiency")
    if found is None:
        return None
    points = found["points"]
    table = Table(
        title=f"with a share of the {found['labels']} labels, {counted(found['draws'], 'draw')}", title_justify="left"
    )
    columns = [(probe, name) for probe in points["trained"] for name in ("untrained", "trained") if name in points]
    table.add_column("labels", justify="right")
    for probe, name in columns:
        table.add_column(f"{METRICS[probe].axis}, {name}", justify="right")
    for share, labels in {
        point["fraction"]: point["labels"] for point in next(iter(points["trained"].values()))
    }.items():
        cells = []
        for probe, name in columns:
            here = [point for point in points[name].get(probe, ()) if point["fraction"] == share]
            cells.append(_with_interval(METRICS[probe].text, here[0]) if here else "–")
        table.add_row(f"{share:.3g} ({labels})", *cells)
    return table


def finetuned_table(result: dict[str, Any]) -> Table | None:
    """Scores of fine-tuned networks by share of the labels; None where that was not measured."""
    efficiency = result.get("label_efficiency", {})
    found = efficiency.get("fine_tuning")
    if found is None:
        return None
    metric, points = METRICS[found["metric"]], found["points"]
    title = f"with a share of the {efficiency['labels']} labels, {counted(found['draws'], 'draw')}"
    table = Table(title=title, title_justify="left")
    table.add_column("labels", justify="right")
    for network in points:
        table.add_column(f"{NETWORKS[network]}, {TITLES[metric.name]}", justify="right")
    for row in zip(*points.values(), strict=True):
        cells = [_with_interval(metric.text, point) for point in row]
        table.add_row(f"{row[0]['fraction']:.3g} ({row[0]['labels']})", *cells)
    return table


def _with_interval(text: Callable[[float], str], point: dict[str, Any]) -> str:
    if point["interval"] is None:
        return text(point["mean"])
    return f"{text(point['mean'])} ± {text((point['interval'][1] - point['interval'][0]) / 2)}"
