"""`icone.pretrain`: from a source to finished run folders, from nothing or from where they were left."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from icone import cuda
from icone.api.batching import batch_norm_at_one, one_at_a_time, uneven_micro_batches
from icone.api.build import Given, describe_objects, join_settings, memory_errors, own_randomness, pick_device
from icone.api.data_defaults import (
    BatchChoice,
    check_batches,
    high_rate,
    with_data_defaults,
    with_defaults_of_before,
)
from icone.api.going_on import (
    GoingOn,
    as_it_began,
    check_left,
    check_left_samples,
    check_left_scale,
    check_outside_data,
    check_samples_left,
    check_snapshots,
    check_start,
    first_lr,
    kept_scale,
    last_epoch,
    put_initial_weights,
    read_so_far,
    tell_probed,
)
from icone.api.inspect import show_summary
from icone.api.planning import Plan, make_plan
from icone.api.random_data import DataShape
from icone.api.seen_samples import earlier_split, seen_by_weights, trained_before
from icone.api.training_data import KnownData, instances_record, load_training_data, provenance
from icone.api.training_parts import Parts, build_parts, make_callbacks, step_compiler
from icone.api.weights import with_network_of_weights
from icone.config import EncoderConfig, PretrainConfig, is_object
from icone.config_text import different_data, to_command, to_toml
from icone.data import Data, check_path, larger_last_batch, where_samples_are
from icone.encoders.pretrained import LOADED_WEIGHTS, LoadedWeights
from icone.errors import InputError, TrainingError, tell_interruptions
from icone.evaluation.live_probe import LiveProbe
from icone.nn import plain_state_dict
from icone.outputs import default_folder
from icone.process import busy_cores, is_launched, is_restarted, is_silent
from icone.recipe import RECIPE_VERSION
from icone.run import Run, free_folder
from icone.seeds import seeds_command
from icone.tensor_files import write_tensors
from icone.terminal import Terminal, counted, say
from icone.training import Display, Fit, PlainDisplay, choose_display, fit
from icone.training.callbacks import Callback, Row, as_callback, build_loggers
from icone.training.checkpoint import load_book
from icone.training.distributed import check_batch_size, joined_ranks, one_reads_first
from icone.training.progress import ProgressBar
from icone.training.signals import requeued_jobs
from icone.validation import check_arguments


@check_arguments
def pretrain(
    source: Any,
    *,
    encoder: Any = "auto",
    views: Any = 2,
    num_views: int | None = None,
    method: Any = "icone",
    options: Any = (),
    labels: Any = None,
    groups: Any = None,
    callbacks: Sequence[Callback | Callable[[Row], object]] = (),
    out: str | Path | None = None,
    resume: bool = False,
    extend: bool = False,
    adjust: bool = False,
    console: Console | None = None,
    **settings: Any,
) -> Run:
    """Train an encoder on unlabelled images or volumes and return its run folder.

    - `source`: a path (a folder, an array file, a CSV with a column of paths), `medmnist:NAME@SIZE`, `synthetic:NAME`;
      or an object: a list of paths, an array or tensor (N, C, *size) or (N, *size), a list of arrays or PIL images, a
      map-style Dataset, a DataFrame with a column `path` and perhaps `label`, `group`, `split`, an `icone.data.Source`.
    - `encoder`: a name, or any `nn.Module` (B, C, *size) -> (B, features), which is copied with its weights.
    - `views`: their number, or a callable that makes one random view (C, *size) of one sample (C, *size) in [0, 1]; it
      is called `num_views` times for every sample (2).
    - `method`: a name, a class, or an instance that was built for this data.
    - `options`: settings of the method, as a dictionary or as texts `name=value`.
    - `labels`: a CSV, a sequence with one label per sample, or a mapping from ids to labels.
    - `groups`: the group of every sample (patient, well), a sequence or a mapping from ids; no split parts a group.
    - `callbacks`: `icone.Callback`s, or functions of the row of an epoch.
    - `settings`: the other fields of `icone.config.PretrainConfig` (batch_size, epochs, size, …). One
      value alone may stand for a list: `include="*.png"`. Without `batch_size` a step takes 16 images, or one volume
      or point; with `batch_size="auto"` 16 samples, as many at a time as fit (`icone.plan`).

    What is given as an object cannot be rebuilt from the run folder. The `Run` that is returned remembers it; to resume
    the run, or to use it in another process, give it again. `out` is the run
    folder, by default `runs/` and the name of the source. `resume` continues an interrupted run, bit for bit on the
    same machine and software with the same number of threads, with `adjust` from its last state on with another lr,
    weight_decay or clip_gradient; `extend` continues on a folder that has gained or lost files, or with other epochs.

    In a script that torchrun starts, all its processes train this one run: each has its share of every batch, and
    batch_size counts the samples of all. A script that torchrun or SLURM has started again resumes.
    """
    described, given = describe_objects(source, encoder, views, num_views, method, options, labels)
    config, choice = join_settings(settings, described)
    if choice == "by plan" and is_launched():
        raise InputError("--batch-size=auto plans for one process: give a number for several")
    given_labels = None if described["labels"] is not None else labels
    own_callbacks = [as_callback(one) for one in callbacks]
    run = Run(out if out is not None else default_folder(config.source))
    config = with_network_of_weights(config, run)
    console = Terminal(quiet=True) if is_silent() else console or Terminal()
    if is_restarted() and run.exists():
        resume, extend = True, False
    going_on = GoingOn(resume, extend, adjust)
    check_outside_data(run, config)
    if not going_on:
        check_path(config.source)
        check_snapshots(config, config.epochs)
    check_start(run, resume, extend)
    build_loggers(run.folder, config)  # refuses what is not installed before any data is read
    device = pick_device(config.device)
    with requeued_jobs(console), joined_ranks(device) as ranks, own_randomness(device), memory_errors(config):
        book = load_book(run) if going_on else None
        if book is not None:
            config = as_it_began(book, config, choice)
            check_batch_size(config.batch_size, ranks)
            going_on.changes(book, config, run)
            check_snapshots(config, last_epoch(book, config, going_on))
        elif choice == "given":
            check_batches(config, ranks)
        with one_reads_first(ranks):
            split = earlier_split(run) if going_on else None
            kept = kept_scale(run, config) if going_on else None
            data = load_training_data(config, console, source, given_labels, groups, split, kept)
        samples = len(data.data.train.ids)
        if book is None:
            dims = data.data.preparation.spatial_dims
            config = with_data_defaults(config, choice, dims, samples, given.method, ranks)
        elif samples < config.batch_size:
            check_samples_left(book, config, samples)
            say(console, f"note: {counted(samples, 'sample')} are left, and a step takes all of them")
        is_planned = not going_on and choice == "by plan"
        plan = _plan(config, data.data, given, device, console) if is_planned else None
        config = config if plan is None else plan.apply(config)
        with console.status("building the encoder"):
            began = None if book is None else first_lr(book)
            parts = build_parts(config, data.data, given, ranks, from_state=book is not None, first_lr=began)
        show_summary(data.data.summary, config, parts.method.encoder, parts.loader.device, console)
        if device.type == "cpu" and (note := busy_cores(torch.get_num_threads())):
            say(console, f"note: {note}")
        if not going_on and given.method is None and (note := one_at_a_time(config, samples)):
            say(console, f"note: {note}")
        for text in [] if plan is None else [*plan.sentences(), f"--batch-size=auto is {plan.said}"]:
            say(console, f"plan: {text}")
        with contextlib.ExitStack() as stack:
            stack.enter_context(memory_errors(config))
            if ranks is None or ranks.rank == 0:
                stack.enter_context(run.locked())
                check_start(run, resume, extend)  # somebody may have been quicker
            stack.enter_context(tell_interruptions(partial(_kept, [run])))
            display = stack.enter_context(choose_display(console))
            one = _prepare(run, config, data, parts, display, console, going_on, own_callbacks)
            fit([one])
            _finish(one)
    network = given.encoder if given.method is None else given.method.encoder
    own_data = source if is_object(config.source) else None
    run.remember({"encoder": network, "views": given.views, "data": own_data, "labels": given_labels, "groups": groups})
    return run


def pretrain_many(
    configs: Sequence[PretrainConfig],
    outs: Sequence[str | Path],
    *,
    resume: bool = False,
    choice: BatchChoice = "given",
    console: Console | None = None,
) -> list[Run]:
    """Train several runs (seeds, methods, settings) on the same data, each as it would train alone.

    With the captured engine they train side by side, which small batches leave room for, else one after another.
    With `resume` the finished ones are left as they are, the others continue or begin. One that has other settings,
    samples or epochs than asked for, as after it was extended alone, is an error before anything is trained. A run that
    fails does not stop the others; its error is raised when they are done. With the choice "by data" all runs have the
    batch size that `icone.pretrain` takes where none is given, instead of their own.
    """
    if not configs or len(configs) != len(outs):
        raise InputError(f"every run has settings and a folder: got {len(configs)} configs and {len(outs)} outs")
    if is_launched() and os.environ["WORLD_SIZE"] != "1":
        runs_given = counted(len(configs), "run")
        raise InputError(f"several processes share one run, and {runs_given} were given: train each by itself")
    runs = [Run(out) for out in outs]
    configs = [_known_defaults(config, run) for config, run in zip(configs, runs, strict=True)]
    there = next((run.config for run in runs if run.exists()), None)
    if choice == "by data" and there is not None:
        configs = [dataclasses.replace(config, batch_size=there.batch_size) for config in configs]
        choice = "given"
    first, console = configs[0], console or Terminal()
    resume = resume or is_restarted()
    if not resume:
        check_path(first.source)
    for config, run in zip(configs, runs, strict=True):
        if other := different_data(first, config):
            raise InputError(f"runs that train together need the same data: {other} differs for {run.folder}")
        check_outside_data(run, config)
        check_start(run, resume and run.exists(), extend=False)
        if run.exists():
            check_left(run, config)
        elif choice == "given":
            check_batches(config)
        check_snapshots(config, run.epochs if run.exists() else config.epochs)
        build_loggers(run.folder, config)
    device = pick_device(first.device)
    side_by_side = device.type == "cuda" and all(config.engine != "eager" for config in configs)
    with requeued_jobs(console), own_randomness(device), memory_errors(first):
        kept = next((kept_scale(run, config) for config, run in zip(configs, runs, strict=True) if run.exists()), None)
        data = load_training_data(first, console, first.source, kept=kept)
        if not any(run.exists() and run.config.encoder == EncoderConfig.encoder for run in runs):
            decide = partial(
                with_data_defaults, choice=choice, spatial_dims=data.data.preparation.spatial_dims,
                samples=len(data.data.train.ids),
            )  # fmt: skip
            configs = [c if r.exists() else decide(c) for c, r in zip(configs, runs, strict=True)]
            # else all get the network of those that are there
        waiting = [(c, r) for c, r in zip(configs, runs, strict=True) if not (resume and r.exists() and r.finished)]
        together = [waiting] if side_by_side else [[one] for one in waiting]
        for config, run in zip(configs, runs, strict=True):
            if run.exists():
                check_left_scale(run, data)
            if run.exists() and run.finished:
                check_left_samples(run, data, config, partial(say, console))
        show_summary(data.data.summary, configs[0], None, device, console)
        if waiting and (note := one_at_a_time(configs[0], len(data.data.train.ids))):
            say(console, f"note: {note}")
        command = seeds_command(configs, runs)
        if command and waiting:
            changed = any(run.exists() and (run.record.get("extensions") or run.record.get("changes")) for run in runs)
            say(console, _repeat_line(command, bool(changed)))
        with tell_interruptions(partial(_kept, runs)):
            _train_groups(together, data, resume, console, says_repeat=not command)
    return runs


def _known_defaults(config: PretrainConfig, run: Run) -> PretrainConfig:
    """The configuration with the network and the warm-up that its weights or its own beginning have decided."""
    config = with_network_of_weights(config, run)
    return with_defaults_of_before(config, run.config) if run.exists() else config


Waiting = Sequence[tuple[PretrainConfig, Run]]
"""Runs that are trained together, with their settings."""


def _train_groups(
    groups: Sequence[Waiting], data: KnownData, resume: bool, console: Console, says_repeat: bool
) -> None:
    """Train one group after another; one that fails is left, and its error is raised at the end."""
    failed: list[InputError | TrainingError] = []
    for group in groups:
        try:
            _train_together(group, data, resume, console, says_repeat)
        except (InputError, TrainingError) as error:
            failed.append(error)
            if len(groups) > 1:
                say(console, f"note: {group[0][1].folder} failed: {error}")
    if failed:
        raise failed[0]


def _train_together(group: Waiting, data: KnownData, resume: bool, console: Console, says_repeat: bool) -> None:
    """Train runs side by side; each prints how to repeat it, where no command repeats all of them."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(memory_errors(group[0][0]))
        fits = []
        for config, run in group:
            again = resume and run.exists()
            began = first_lr(load_book(run)) if again else None
            parts = build_parts(config, data.data, from_state=again, first_lr=began)
            stack.enter_context(run.locked())
            check_start(run, again, extend=False)  # somebody may have been quicker
            display = stack.enter_context(PlainDisplay(console, name=run.folder.name))
            fits.append(_prepare(run, config, data, parts, display, console, GoingOn(resume=again), (), says_repeat))
        try:
            fit(fits)
        finally:
            for one in fits:
                if one.done == one.total_steps:
                    _finish(one)


def _prepare(
    run: Run,
    config: PretrainConfig,
    known: KnownData,
    parts: Parts,
    display: Display,
    console: Console,
    going_on: GoingOn,
    own_callbacks: Sequence[Callback] = (),
    says_repeat: bool = True,
) -> Fit:
    """The run's training, from nothing or from its saved state; what can be refused is refused before writing."""
    tell = partial(say, console)
    data, saved, rows, changes, kept = known.data, *read_so_far(run, config, known, going_on, tell)
    advice = [] if saved else [batch_norm_at_one(config, data.preparation.spatial_dims), high_rate(config)]
    for note in filter(None, [*parts.notes, uneven_micro_batches(config, parts.method.ranks), *advice]):
        tell(f"note: {note}")
    if max(parts.loader.sizes) > config.batch_size:
        tell(f"note: {larger_last_batch(parts.loader)}")
    if parts.loader.device.type == "cuda":
        tell(f"note: {where_samples_are(parts.loader)}")
    initial = None
    if (is_object(config.encoder) or config.weights is not None) and saved is None:  # only the run has these weights
        initial = {name: tensor.clone() for name, tensor in plain_state_dict(parts.method.encoder).items()}
    with ProgressBar(console) as bar:
        measured = partial(bar, "measuring the untrained encoder")
        if saved is not None:
            put_initial_weights(run, parts.method.encoder)
        callbacks = [] if is_silent() else make_callbacks(run, config, parts, display, own_callbacks, measured, kept)
        probed = next((probe.ids for probe in callbacks if isinstance(probe, LiveProbe)), saved.probed if saved else [])
        if saved is not None:
            tell_probed(saved, kept, probed, tell)
        progress = partial(bar, "embedding what the anchors start from")
        digests = [known.digests[name] for name in data.train.ids]
        engine = partial(cuda.accelerate, engine=config.engine, compiler=step_compiler(config, parts))
        one = Fit(*parts, config, run, display, saved, rows, callbacks, progress, digests, changes, engine, probed)
    if initial is not None and one.writes:
        write_tensors(run.initial_file, initial, {})
    with one.context.active():
        one.save()
    weights: LoadedWeights | None = getattr(parts.method.encoder, LOADED_WEIGHTS, None)
    if weights is not None:
        console.print(weights.table())
    facts = {
        **provenance(config, data, parts),
        "weights": weights.to_json() if weights else run.record.get("weights") if saved else None,
        "epochs_before": one.epochs_before,
        "extensions": one.extensions,
        "changes": changes,
    }
    if says_repeat and to_toml(config) is not None:
        possible = dataclasses.replace(config, batch_size=min(config.batch_size, len(data.train)))
        command = [*to_command(possible, free_folder(run.folder)), *_devices(one)]
        tell(_repeat_line(command, bool(one.extensions or changes)))
    if one.writes:
        before = [] if saved is None else trained_before(run, saved, data, config, tell, extends=going_on.extend)
        run.begin(config, facts, instances_record(known, before, seen_by_weights(run, data, config)), one.history)
    return one


def _kept(runs: Sequence[Run]) -> str | None:
    """What is kept of runs that are interrupted before or after their steps."""
    begun = [run.folder.as_posix() for run in runs if run.exists()]
    return f"the last saved state is in {', '.join(begun)}" if begun else None


def _repeat_line(command: Sequence[str], has_changed: bool) -> str:
    """The command that repeats training; nothing repeats a run that changed on the way."""
    return f"{'anew' if has_changed else 'repeat':<9} {shlex.join(command)}"


def _devices(one: Fit) -> list[str]:
    """The flag that starts as many processes, where ours has started them."""
    return ["--devices", str(one.ranks.size)] if one.ranks is not None and "ICONE_LAUNCHER" in os.environ else []


def _plan(config: PretrainConfig, data: Data, given: Given, device: torch.device, console: Console) -> Plan:
    """How batches of `--batch-size auto` are computed."""
    shape = DataShape.of(data.train)
    with console.status("planning: taking steps on random samples"):
        in_memory = 0 if data.train.images is None else shape.nbytes
        return make_plan(config, shape, device, partial(build_parts, given=given, from_state=True), in_memory)


def _finish(one: Fit) -> None:
    """Write the trained encoder, which makes the run a finished one."""
    weights = plain_state_dict(one.step.method.encoder)
    about = {"finished": True, "epochs": one.config.epochs, "extensions": one.extensions}
    if one.writes:
        write_tensors(one.run.encoder_file, weights, {**about, "recipe_version": RECIPE_VERSION})
    if one.ranks is not None:
        one.ranks.barrier()  # whoever goes on finds a finished run
