"""What trains: method, views and loader of a configuration, the callbacks, and what compiles the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from icone import cuda
from icone.api.batching import check_accumulation
from icone.api.build import NOTHING, Given, autocast_dtype, make_method, make_training_views, pick_device, sample_flops
from icone.api.random_data import DataShape
from icone.config import PretrainConfig, is_object
from icone.config_text import to_json
from icone.data import Data, Loader
from icone.evaluation.live_probe import (
    DEFAULT_INTERVAL,
    FEW_INSTANCES,
    FEWEST_INSTANCES,
    FLOAT32_PASSES,
    MOST_INSTANCES,
    CollapseAlarm,
    LiveProbe,
    default_interval,
    plan_probe,
)
from icone.methods import Method
from icone.nn import penalise_activations
from icone.nn.ranks import Ranks
from icone.run import Run
from icone.training import Display
from icone.training.callbacks import Callback, Snapshots, build_loggers
from icone.training.context import seed_random_numbers
from icone.training.distributed import check_micro_batches
from icone.views import Views


class Parts(NamedTuple):
    """What trains, on its device."""

    method: Method
    views: Views
    loader: Loader

    @property
    def notes(self) -> list[str]:
        """What the user should know about how the method and its views were set up."""
        notes = [*self.method.notes]
        learns_from_views = self.method.reads == "features" and not self.method.needs_labels
        if learns_from_views and (why := self.views.why_identical):
            identical = "all views of a sample are the same, so that there is nothing to learn from their agreement"
            notes.append(f"{identical}: {why}")
        return [*notes, *filter(None, [self.views.why_other_range])]


def build_parts(
    config: PretrainConfig,
    data: Data,
    given: Given = NOTHING,
    ranks: Ranks | None = None,
    *,
    from_state: bool = False,
    first_lr: float | None = None,
) -> Parts:
    """Everything that can refuse the configuration, before anything is written; arguments as in `make_method`."""
    device = pick_device(config.device)
    seed_random_numbers(config.seed, device)
    method = make_method(config, data, given, from_state=from_state, first_lr=first_lr)
    views = make_training_views(config, data.preparation, given).to(device)
    loader = Loader(
        data.train,
        min(config.batch_size, len(data.train)) if from_state else config.batch_size,  # samples may have gone since
        seed=config.seed,
        device=device,
        workers=config.workers,
        smallest_batch=method.smallest_batch,
        ranks=ranks if views.draws_first else None,
        num_views=config.views,
    )
    if not from_state:
        check_accumulation(config, len(loader.sizes))
    method.autocast_dtype, method.micro_batch = autocast_dtype(config, device), config.micro_batch
    penalise_activations(method, rows=config.batch_size * config.accumulate * config.views)
    if device.type == "cuda":
        cuda.prepare_network(method)
    if ranks is not None:
        check_micro_batches(method, ranks)
        method.share(ranks)
    return Parts(method.to(device), views, loader)


def make_callbacks(
    run: Run,
    config: PretrainConfig,
    parts: Parts,
    display: Display,
    own: Sequence[Callback],
    progress: Callable[[int, int], None],
    probed: Sequence[int] = (),
) -> list[Callback]:
    """The live probe first, because it completes the row; the alarm last, because it may stop the run.

    `progress` is told how many of its samples the probe has looked at before the first step; `probed` are rows of the
    samples that it looked at in an earlier part of the run.
    """
    loggers: list[Callback] = [*build_loggers(run.folder, config), *own]
    if config.snapshots:
        loggers.append(Snapshots(parts.method.encoder, run, config.snapshots))
    if config.probe_every == 0:
        return loggers
    dataset = parts.loader.dataset
    every = _probe_interval(config, parts) if config.probe_every is None else config.probe_every
    is_rare = config.probe_every is None and every > DEFAULT_INTERVAL
    plan = plan_probe(
        every=every,
        first=not is_rare,
        fewest=FEWEST_INSTANCES if config.probe_every is None else FEW_INSTANCES,
        most=FEW_INSTANCES if is_rare and every >= config.epochs else MOST_INSTANCES,
        epochs=config.epochs,
        available=len(dataset),
        views=config.views,
        sample_bytes=dataset.preparation.nbytes * (2 if dataset.preparation.crops else 1),
        pass_cost=1 if parts.method.autocast_dtype is None else FLOAT32_PASSES,
    )
    probe = LiveProbe(parts.method, parts.views, dataset, parts.loader.device, plan, progress, probed)
    if probe.note:
        display.note(probe.note)
    alarm = CollapseAlarm(display, stop=config.stop_on_collapse, taught=parts.method.needs_labels)
    return [probe, *loggers, alarm]


def _probe_interval(config: PretrainConfig, parts: Parts) -> int:
    """Epochs from one measurement of the live probe to the next, where the user says nothing."""
    dataset, loader = parts.loader.dataset, parts.loader
    flops = len(dataset) * sample_flops(parts.method.encoder, config, dataset.preparation)
    micro_batches = len(loader.sizes) * config.passes_per_step // config.accumulate
    return default_interval(loader.device, epochs=config.epochs, micro_batches=micro_batches, flops=flops)


def step_compiler(config: PretrainConfig, parts: Parts) -> cuda.CompilerProcess | None:
    """What compiles the step in another process, where that can build it from the configuration alone.

    Ranks must take the same steps at the same time, and those before a capture are steps too.
    """
    described = not any(map(is_object, (config.encoder, config.pipeline)))
    own = type(parts.method).__module__.startswith("icone.")
    if parts.loader.device.type != "cuda" or parts.method.ranks is not None or not (described and own):
        return None
    request = {
        "config": to_json(config),
        "data": DataShape.of(parts.loader.dataset).to_json(),
        "device": str(parts.loader.device),
    }
    return cuda.CompilerProcess("icone.api.compile_ahead", request)
