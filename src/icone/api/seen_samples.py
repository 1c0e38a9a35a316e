"""Which samples a run has seen, where it goes on or begins from another: what was trained on is no test sample."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from icone.api.weights import origin_run
from icone.config import PretrainConfig
from icone.data import DIGEST_VERSION, Data, Dataset, DigestMemory, EarlierSplit, cache_folder
from icone.errors import InputError
from icone.run import Run
from icone.terminal import counted, either
from icone.training.checkpoint import StateBook, load_book


def earlier_split(run: Run) -> EarlierSplit:
    """What a run has trained on, by its state, and what it has held out."""
    return EarlierSplit(frozenset(load_book(run).ids), frozenset(recorded_instances(run).get("test_ids", ())))


def trained_before(
    run: Run, saved: StateBook, data: Data, config: PretrainConfig, say: Callable[[str], None], *, extends: bool
) -> list[str]:
    """Samples that a run was trained on and is no longer, as data that assigns parts may have it: no test samples.

    Where it is extended, held-out samples are compared by content too: a file may have another name now.
    """
    earlier, test = recorded_instances(run), data.test
    seen = {*saved.ids, *earlier.get("ids", ()), *earlier.get("trained_before", ())}
    if extends and test is not None and saved.digest_version == DIGEST_VERSION:
        seen |= _with_content_of(test, set(saved.digests), config)
    if test is not None and (lost := seen.intersection(test.ids)):
        was = either(len(lost), "was", "were")
        say(f"note: {counted(len(lost), 'held-out sample')} {was} trained on before: probes leave them out")
    return sorted(seen.difference(data.train.ids))


def seen_by_weights(run: Run, data: Data, config: PretrainConfig) -> list[str]:
    """Held-out samples that the run of `--weights` was trained on, or one whose weights that began from.

    Whoever goes on may no longer have that run.
    """
    if data.test is None or config.weights is None:
        return []
    seen = set(recorded_instances(run).get("seen_by_weights", ())).intersection(data.test.ids)
    contents: set[str] = set()
    folders: set[Path] = set()
    weights: str | None = config.weights
    while weights is not None and (other := origin_run(weights)) is not None and other.folder not in folders:
        folders.add(other.folder)
        if recorded_instances(other).get("digest_version") == DIGEST_VERSION:
            contents.update(recorded_instances(other).get("digests", {}).values())
        weights = other.config.weights
    return sorted(seen | _with_content_of(data.test, contents, config) if contents else seen)


def recorded_instances(run: Run) -> dict[str, Any]:
    """What a run says about its samples; nothing where that is missing or damaged: who goes on writes it anew."""
    try:
        return run.instances
    except InputError:
        return {}


def _with_content_of(dataset: Dataset, contents: set[str], config: PretrainConfig) -> set[str]:
    """The samples of a data set whose digest is among those of other samples."""
    memory = DigestMemory(cache_folder(config.cache) if dataset.source.is_cacheable else None, config.source)
    digests = dataset.source.digests(dataset.positions, memory, config.workers)
    return {name for name, digest in zip(dataset.ids, digests, strict=True) if digest in contents}
