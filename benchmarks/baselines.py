"""Every method on generated volumes, on equal terms: does it learn, and what do small batches do to it?

    python benchmarks/baselines.py --workers 2 --out benchmarks/results

One encoder, the same views, optimizer, schedule, epochs and probes for all; mean ± standard deviation over seeds of
the balanced accuracy in percent, linear probe / kNN-5. First table: every method at a batch size it likes, against its
untrained encoder, with the margin that it is held to. Second: what it loses from there, and from a large batch, to the
smallest batch at which it is defined, at equal epochs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import tyro

from icone.methods import METHODS, option_texts
from learning import Entry, Metrics, Outcome, Terms, markdown, measure_and_tell, spread

SEEDS = 3
LARGE = 16
ACCURACIES = ("linear_probe", "knn_5")
LEAST_LOSS, MOST_LOSS = 8, 6
"""Points of the linear probe, in the mean over seeds: methods that need a batch of 2 lose at least the one from the
batch they like to the smallest; IConE loses at most the other from the large batch to batch size 1."""


class Contender(NamedTuple):
    """A method, the batch size it likes, and what it is held to, in points of the linear probe."""

    name: str
    method: str
    likes: int
    margin: float
    """Every seed gains at least this over its untrained encoder, at the batch size it likes."""
    options: tuple[str, ...] = ()

    def entry(self, seed: int, batch_size: int) -> Entry:
        return Entry(self.name, self.method, batch_size, self.options, seed)

    @property
    def smallest(self) -> int:
        return METHODS[self.method].min_batch_size


def contender(method: str, variant: str = "", gain: float | None = None, **options: object) -> Contender:
    """A method as its class describes itself (`Method.learning`), or a variant of it by other options."""
    learning = METHODS[method].learning
    name = f"{method}, {variant}" if variant else method
    texts = option_texts({**options, **learning.options})
    return Contender(name, method, learning.batch_size, learning.gain if gain is None else gain, texts)


VARIANTS = (
    contender("icone", "VCReg", 16, diversity="variance_covariance"),
    contender("icone", "SIGReg", 18, diversity="sigreg"),
)
CONTENDERS = sorted((*map(contender, METHODS), *VARIANTS), key=lambda c: list(METHODS).index(c.method))


class Comparison(NamedTuple):
    """What came of one contender, seed by seed."""

    contender: Contender
    liked: list[Outcome]
    large: list[Outcome]
    smallest: list[Outcome]
    """At the smallest batch at which it is defined."""
    undefined: str
    """Why it is not at batch size 1; empty where it is."""

    def losses(self, since: Sequence[Outcome], metric: str = "linear_probe") -> list[float]:
        """Points lost from the runs at another batch size, the liked or the large one, to the smallest."""
        return [a.trained[metric] - b.trained[metric] for a, b in zip(since, self.smallest, strict=True)]


def entries_of(contenders: Sequence[Contender], seeds: int) -> list[Entry]:
    """Every contender with every seed at its batch sizes; whether it is defined at 1 takes one try."""
    sizes = [(c, size) for c in contenders for size in sorted({c.likes, LARGE, c.smallest})]
    entries = [c.entry(seed, size) for seed in range(seeds) for c, size in sizes]
    return entries + [c.entry(0, 1) for c in contenders if c.smallest > 1]


def compare(found: Mapping[Entry, Outcome], contenders: Sequence[Contender], seeds: int) -> list[Comparison]:
    """The outcomes, contender by contender."""

    def runs(contender: Contender, batch_size: int) -> list[Outcome]:
        return [found[contender.entry(seed, batch_size)] for seed in range(seeds)]

    return [
        Comparison(c, runs(c, c.likes), runs(c, LARGE), runs(c, c.smallest), found[c.entry(0, 1)].undefined)
        for c in contenders
    ]


def learning_table(comparisons: Sequence[Comparison]) -> str:
    """Every method at the batch size it likes against its untrained encoder."""
    header = ["method", "B", "untrained", "trained", "gain", "less 2 std", "margin", "options"]
    return markdown(header, [_learning_row(c) for c in comparisons])


def _learning_row(comparison: Comparison) -> list[str]:
    contender, liked = comparison.contender, comparison.liked
    gains = [outcome.gain() for outcome in liked]
    return [
        contender.name,
        str(liked[0].entry.batch_size),
        _accuracies([outcome.untrained for outcome in liked]),
        _accuracies([outcome.trained for outcome in liked]),
        spread(gains),
        f"{np.mean(gains) - 2 * np.std(gains, ddof=1):.1f}",
        f"{contender.margin:g}",
        " ".join(contender.options),
    ]


def small_batch_table(comparisons: Sequence[Comparison]) -> str:
    """What the methods lose at the smallest batch, at equal epochs, and why some go no lower than 2."""
    header = ["method", "liked B", "trained", f"B = {LARGE}", "smallest B", "trained"]
    header += ["lost from liked", f"lost from {LARGE}", "RankMe from liked"]
    reasons = [f"- undefined: {c.undefined}" for c in comparisons if c.undefined]
    return "\n".join([markdown(header, [_small_batch_row(c) for c in comparisons]), "", *reasons])


def _small_batch_row(comparison: Comparison) -> list[str]:
    contender, liked, large, smallest, _ = comparison
    return [
        contender.name,
        str(contender.likes),
        _accuracies([outcome.trained for outcome in liked]),
        _accuracies([outcome.trained for outcome in large]),
        str(smallest[0].entry.batch_size),
        _accuracies([outcome.trained for outcome in smallest]),
        *(" / ".join(spread(comparison.losses(since, m)) for m in ACCURACIES) for since in (liked, large)),
        " → ".join(spread([o.trained["rankme"] for o in runs]) for runs in (liked, smallest)),
    ]


def tables(comparisons: Sequence[Comparison]) -> str:
    learning, small = learning_table(comparisons), small_batch_table(comparisons)
    return f"## They learn\n\n{learning}\n\n## Small batches\n\n{small}\n"


def _accuracies(runs: Sequence[Metrics]) -> str:
    """Linear probe / kNN-5."""
    return " / ".join(spread([run[name] for run in runs]) for name in ACCURACIES)


def main(
    *,
    terms: Annotated[Terms, tyro.conf.arg(name="")] = Terms(),  # noqa: B008
    methods: tuple[str, ...] = (),
    seeds: int = SEEDS,
    workers: int = 1,
    reuse: Path | None = None,
    out: Path | None = None,
) -> None:
    """Compare the methods and print both tables.

    Args:
        methods: Those that take part (default: all).
        workers: Runs at the same time, each in a process with one thread.
        reuse: The JSON file of an earlier comparison, or an interrupted one, whose runs are not repeated.
        out: Folder that both tables and the figures of every run are written to.
    """
    contenders = [c for c in CONTENDERS if not methods or c.method in methods]

    def tell(found: Mapping[Entry, Outcome]) -> str:
        return tables(compare(found, contenders, seeds))

    entries = entries_of(contenders, seeds)
    measure_and_tell(terms, entries, tell, name="baselines", workers=workers, reuse=reuse, out=out)


if __name__ == "__main__":
    tyro.cli(main, description=__doc__)
