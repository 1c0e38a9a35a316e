"""`icone.plan`: does a run fit, and how long will it take, before it is begun."""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any

from rich.console import Console

from icone.api.batching import batch_norm_at_one, one_at_a_time, uneven_micro_batches
from icone.api.build import describe_objects, join_settings, memory_errors, own_randomness, pick_device
from icone.api.data_defaults import check_batches, high_rate, with_data_defaults
from icone.api.planning import make_plan, plan_parts
from icone.api.random_data import DataShape
from icone.api.training_parts import build_parts
from icone.api.weights import with_network_of_weights
from icone.data import inspect_data, open_source
from icone.data.notes import ENLARGED
from icone.readable import Readable
from icone.terminal import Terminal
from icone.training.progress import ProgressBar
from icone.validation import check_arguments
from icone.wording import in_user_terms


@check_arguments
def plan(
    source: Any,
    *,
    encoder: Any = "auto",
    views: Any = 2,
    num_views: int | None = None,
    method: Any = "icone",
    options: Any = (),
    labels: Any = None,
    console: Console | None = None,
    **settings: Any,
) -> Readable:
    """What `icone.pretrain` of the same arguments would take, as a dictionary; nothing is written.

    The dictionary shows itself as the table of `icone plan`: as the value of a cell or a prompt, or by `print`.

    A few steps are taken on random samples of the prepared shape, with the real method, encoder and optimizer; at most
    20 s, after the data was looked at. If they do not fit, smaller micro-batches are tried, and last activation
    checkpointing. The dictionary has `fits`, `batch_size`, `flags` (of the way that fits), `seconds` (of all steps),
    `epochs`, `steps_per_epoch`, `device`, `free` (bytes), `samples` (how many of these the samples will take), `notes`,
    and `trials`: for each way `micro_batch`, `checkpoint_activations`, `fits`, `memory` (bytes), `step_seconds`, and
    whether it was `measured`.
    """
    described, given = describe_objects(source, encoder, views, num_views, method, options, labels)
    config, choice = join_settings(settings, described)
    config = with_network_of_weights(config)
    if choice == "given":
        check_batches(config)
    console = console or Terminal()
    device = pick_device(config.device)
    with own_randomness(device), memory_errors(config):
        with ProgressBar(console) as bar:
            opened = open_source(source, config, None if described["labels"] is not None else labels)
            summary, preparation = inspect_data(config, bar, opened)
        shape = DataShape.expected(summary, preparation)
        config = with_data_defaults(config, choice, preparation.spatial_dims, shape.samples, given.method)
        with console.status("taking steps on random samples"):
            found = make_plan(config, shape, device, partial(build_parts, given=given, from_state=True))
    hints = [f"{note}, and steps on smaller samples are faster" for note in summary.notes if note.startswith(ENLARGED)]
    if found.chosen is not None:
        chosen = found.apply(config)
        larger = one_at_a_time(chosen, shape.samples) if given.method is None else ""
        slow = batch_norm_at_one(chosen, preparation.spatial_dims)
        hints += filter(None, [uneven_micro_batches(chosen), slow, larger, high_rate(chosen)])
    found = dataclasses.replace(found, notes=[*found.notes, *map(in_user_terms, hints)])
    return Readable(found.to_json(), plan_parts)
