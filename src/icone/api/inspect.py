"""`icone.inspect`: what was understood of a data set, before anything is trained."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from typing import Any

import torch
from rich.console import Console
from torch import nn

from icone.api.build import (
    check_data,
    check_given,
    describe_source,
    join_settings,
    make_encoder,
    memory_errors,
    own_randomness,
    pick_device,
)
from icone.api.data_defaults import with_data_defaults
from icone.config import OBJECT, PretrainConfig
from icone.data import Summary, inspect_data, open_source
from icone.encoders import num_features
from icone.encoders.registry import encoder_name
from icone.readable import Part, Readable, show
from icone.terminal import Terminal, counted
from icone.training.progress import ProgressBar
from icone.validation import check_arguments
from icone.wording import in_user_terms


@check_arguments
def inspect(data: Any, *, labels: Any = None, console: Console | None = None, **settings: Any) -> Readable:
    """What `icone.pretrain(data, …)` would understand of its data, as a dictionary; nothing is trained.

    The dictionary shows itself as the lines of `icone inspect`: as the value of a cell or a prompt, or by `print`.

    `data`, `labels` and `settings` are those of `icone.pretrain`. The dictionary has `samples`, `dimensions`, `shape`,
    `spacing`, `channels` (a list of {name, low, high}), `classes`, `groups`, `splits`, `skipped`, `size`, `scale` (by
    how much each axis shrinks or grows), `memory` (bytes of all prepared samples), `encoder`, `features`, `device`,
    `batch_size` and `notes`. `shape` and `spacing` are {min, max} where the samples differ. `notes` says what was
    guessed.
    """
    check_data("data", data)
    check_given(labels=labels)
    is_table = isinstance(labels, (str, os.PathLike))
    described = {"source": describe_source(data), "labels": labels if is_table else None}
    config, choice = join_settings(settings, described)
    console = console or Terminal()
    device = pick_device(config.device)
    with own_randomness(device), memory_errors():
        with ProgressBar(console) as bar:
            source = open_source(data, config, None if is_table else labels)
            summary, preparation = inspect_data(config, bar, source)
        config = with_data_defaults(config, choice, preparation.spatial_dims, summary.splits["train"])
        encoder = make_encoder(config, preparation)
    return Readable(_plain(summary, config, encoder, device), inspection_parts)


def show_summary(
    summary: Summary, config: PretrainConfig, encoder: nn.Module | None, device: torch.device, console: Console
) -> None:
    """Print what was understood, a line each, and the notes."""
    name = encoder_name(config.encoder, summary.dimensions).removeprefix(OBJECT)
    features = "" if encoder is None else f", {counted(num_features(encoder), 'feature')}"
    show(console, _parts(summary, name + features, str(device), config.batch_size))


def inspection_parts(found: dict[str, Any], plan: str = "icone.plan") -> list[Part]:
    """What is said about a data set, a line each, and the notes; `plan` is the call or command that tells the time."""
    summary = Summary(**{field.name: found[field.name] for field in dataclasses.fields(Summary)})
    encoder = f"{found['encoder'].removeprefix(OBJECT)}, {counted(found['features'], 'feature')}"
    time = f"{plan}, with the same settings, says how long training takes, and its memory"
    return _parts(summary, encoder, found["device"], found["batch_size"], [("time", time)])


def _parts(
    summary: Summary, encoder: str, device: str, batch_size: int, more: Sequence[tuple[str, str]] = ()
) -> list[Part]:
    batch = f"{counted(batch_size, 'sample')} a step"
    lines = [*summary.lines(), ("encoder", encoder), ("device", device), ("batch", batch), *more]
    return [*lines, *(f"note: {note}" for note in summary.notes)]


def _plain(summary: Summary, config: PretrainConfig, encoder: nn.Module, device: torch.device) -> dict[str, Any]:
    """The summary as JSON can hold it, the notes last."""
    plain = dataclasses.asdict(summary)
    notes = [in_user_terms(note) for note in plain.pop("notes")]
    name = encoder_name(config.encoder, summary.dimensions)
    chosen = {"encoder": name, "features": num_features(encoder), "device": str(device)}
    return plain | chosen | {"batch_size": config.batch_size, "notes": notes}
