"""`icone.pretrain`: from a source to finished run folders, from nothing or from where they were left."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import os
import platform
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from icone import cuda
from icone.api.build import (
    NOTHING,
    Given,
    autocast_dtype,
    describe_objects,
    join_settings,
    make_method,
    make_training_views,
    memory_errors,
    own_randomness,
    pick_device,
)
from icone.api.inspect import show_summary
from icone.api.planning import Plan, auto_batch, make_plan
from icone.api.random_data import DataShape
from icone.api.seen_samples import earlier_split, seen_by_weights, trained_before
from icone.config import (
    OBJECT,
    EncoderConfig,
    PretrainConfig,
    differences,
    different_data,
    from_json,
    is_object,
    to_command,
    to_json,
    to_toml,
)
from icone.data import (
    DIGEST_VERSION,
    Data,
    DigestMemory,
    EarlierSplit,
    InstanceChange,
    Loader,
    cache_folder,
    check_outside,
    compare_instances,
    larger_last_batch,
    load_data,
    open_source,
    where_samples_are,
)
from icone.encoders import num_features
from icone.encoders.pretrained import LOADED_WEIGHTS, LoadedWeights
from icone.errors import InputError
from icone.evaluation.live_probe import CollapseAlarm, LiveProbe, plan_probe
from icone.methods import Method, chosen_options
from icone.nn import plain_state_dict
from icone.nn.ranks import Ranks
from icone.process import is_launched, is_restarted, is_silent
from icone.recipe import RECIPE_VERSION
from icone.run import Run, check_free, write_tensors
from icone.terminal import Terminal, say
from icone.training import Display, Fit, PlainDisplay, choose_display, fit
from icone.training.callbacks import Callback, Row, Snapshots, as_callback, build_loggers
from icone.training.checkpoint import StateBook, load_book, load_state
from icone.training.context import seed_random_numbers
from icone.training.distributed import check_batch_size, check_micro_batches, joined_ranks, one_reads_first
from icone.training.progress import ProgressBar
from icone.training.signals import requeued_jobs
from icone.validation import check_arguments, check_folder, user_path
from icone.views import Views

ADJUSTABLE = {"lr", "weight_decay", "clip_gradient"}
"""Settings that may change on the way, because no tensor of the state depends on them."""
FIXED = {f.name for f in dataclasses.fields(EncoderConfig)} | {
    "size",
    "crop",
    "channels",
    "method",
    "options",
    "recipe",
}
"""Settings that a saved state belongs to: other data can be trained on with it, but not another network."""


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
    - `settings`: the other fields of `icone.config.PretrainConfig` (batch_size, epochs, size, …). With
      `batch_size="auto"` the run takes batches of 16, as many samples at a time as fit (`icone.plan`).

    What is given as an object cannot be rebuilt from the run folder. The `Run` that is returned remembers it; to resume
    the run, or to use it in another process, give it again. `out` is the run
    folder, by default `runs/` and the name of the source. `resume` continues an interrupted run, bit for bit on the
    same machine and software with the same number of threads, with `adjust` from its last state on with another lr,
    weight_decay or clip_gradient; `extend` continues on a folder that has gained or lost files, or with other epochs.

    In a script that torchrun starts, all its processes train this one run: each has its share of every batch, and
    batch_size counts the samples of all. A script that torchrun or SLURM has started again resumes.
    """
    described, given = describe_objects(source, encoder, views, num_views, method, options, labels)
    config, is_auto = join_settings(settings, described)
    if is_auto and is_launched():
        raise InputError("--batch-size=auto plans for one process: give a number for several")
    given_labels = None if described["labels"] is not None else labels
    own_callbacks = [as_callback(one) for one in callbacks]
    run = Run(out if out is not None else default_folder(config.source))
    console = Terminal(quiet=True) if is_silent() else console or Terminal()
    if is_restarted() and run.exists():
        resume, extend = True, False
    going_on = _GoingOn(resume, extend, adjust)
    _check_outside_data(run, config)
    check_start(run, resume, extend)
    build_loggers(run.folder, config)  # refuses what is not installed before any data is read
    device = pick_device(config.device)
    with requeued_jobs(console), joined_ranks(device) as ranks, own_randomness(device), memory_errors(config):
        if is_auto and going_on:
            config = _same_batches(load_book(run), config)
        check_batch_size(config.batch_size, ranks)
        if going_on:
            going_on.changes(load_book(run), config, run)
        with one_reads_first(ranks):
            data = _load(config, console, source, given_labels, groups, earlier_split(run) if going_on else None)
        plan = _plan(config, data.data, given, device, console) if is_auto and not going_on else None
        config = config if plan is None else plan.apply(config)
        with console.status("building the encoder"):
            parts = build_parts(config, data.data, given, ranks, from_state=bool(going_on))
        show_summary(data.data.summary, config, parts.method.encoder, parts.loader.device, console)
        for text in [] if plan is None else [*plan.sentences(), f"--batch-size=auto is {plan.said}"]:
            say(console, f"plan: {text}")
        with contextlib.ExitStack() as stack:
            stack.enter_context(memory_errors(config))
            if ranks is None or ranks.rank == 0:
                stack.enter_context(run.locked())
                check_start(run, resume, extend)  # somebody may have been quicker
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
    console: Console | None = None,
) -> list[Run]:
    """Train several runs (seeds, methods, settings) on the same data, each as it would train alone.

    With the captured engine they train side by side, which small batches leave room for, else one after another.
    With `resume` the finished ones are left as they are, the others continue or begin. A run that fails does not stop
    the others; its error is raised when they are done.
    """
    if is_launched() and os.environ["WORLD_SIZE"] != "1":
        raise InputError("several processes share one run, and --seeds trains several runs: give one of the two")
    first, console = configs[0], console or Terminal()
    resume = resume or is_restarted()
    runs = [Run(out) for out in outs]
    for config, run in zip(configs, runs, strict=True):
        if other := different_data(first, config):
            raise InputError(f"runs that train together need the same data: {other} differs for {run.folder}")
        _check_outside_data(run, config)
        check_start(run, resume and run.exists(), extend=False)
        build_loggers(run.folder, config)
    waiting = [(c, r) for c, r in zip(configs, runs, strict=True) if not (resume and r.exists() and r.finished)]
    device = pick_device(first.device)
    side_by_side = device.type == "cuda" and all(config.engine != "eager" for config in configs)
    together = [waiting] if side_by_side else [[one] for one in waiting]
    with requeued_jobs(console), own_randomness(device), memory_errors(first):
        data = _load(first, console, first.source)
        show_summary(data.data.summary, first, None, device, console)
        for group in together:
            _train_together(group, data, resume, console)
    return runs


def _train_together(group: Sequence[tuple[PretrainConfig, Run]], data: _Known, resume: bool, console: Console) -> None:
    with contextlib.ExitStack() as stack:
        fits = []
        for config, run in group:
            again = resume and run.exists()
            parts = build_parts(config, data.data, from_state=again)
            stack.enter_context(run.locked())
            check_start(run, again, extend=False)  # somebody may have been quicker
            display = stack.enter_context(PlainDisplay(console, name=run.folder.name))
            fits.append(_prepare(run, config, data, parts, display, console, _GoingOn(resume=again)))
        try:
            fit(fits)
        finally:
            for one in fits:
                if one.done == one.total_steps:
                    _finish(one)


def default_folder(source: str) -> Path:
    """`runs/` and the last part of the source's name.

    >>> default_folder("data/scans/").as_posix(), default_folder("medmnist:adrenalmnist3d@64").as_posix()
    ('runs/scans', 'runs/adrenalmnist3d@64')
    """
    if is_object(source):
        return Path("runs") / source.removeprefix(OBJECT).split()[0].lower()
    return Path("runs") / (Path(source.partition(":/")[0].rsplit(":", 1)[-1]).stem or "run")


def _free_folder(taken: Path) -> Path:
    """The first folder of this name and a number that is not there yet."""
    numbered = (taken.with_name(f"{taken.name}-{number}") for number in itertools.count(2))
    return next(folder for folder in numbered if not folder.exists())


def check_start(run: Run, resume: bool, extend: bool) -> None:
    """Refuse before any data is read what would be refused in the end."""
    if resume and extend:
        raise InputError("--resume continues on the same files, --extend on changed ones: give one of the two")
    if run.exists() and not (resume or extend):
        raise InputError(
            f"{run.folder} already holds a run: continue it with --resume, or choose another folder, such as "
            f"--out={shlex.quote(_free_folder(run.folder).as_posix())}"
        )
    if (resume or extend) and not run.exists():
        raise InputError(f"nothing to continue: {run.folder} holds no run (give its folder with --out)")
    check_folder(run.folder)
    if not run.exists():
        check_free(run.folder)


def _check_outside_data(run: Run, config: PretrainConfig) -> None:
    """Refuse a run folder among the data, where its arrays would be taken for samples."""
    data = user_path(config.source)
    if data.is_dir():
        check_outside("the run folder", run.folder, data, "--out")


@dataclass(frozen=True)
class _GoingOn:
    """How a run is continued: on the same samples, perhaps with adjusted settings, or on others; falsy if it begins."""

    resume: bool = False
    extend: bool = False
    adjust: bool = False

    def __post_init__(self) -> None:
        if self.adjust and not self.resume:
            raise InputError("--adjust changes settings of a run that is resumed: give --resume too")

    def __bool__(self) -> bool:
        return self.resume or self.extend

    def changes(self, book: StateBook, config: PretrainConfig, run: Run) -> list[str]:
        """The settings that change, as `name: old -> new`; an `InputError` for those that cannot."""
        changes = differences(from_json(book.config), config)
        names = [change.partition(":")[0] for change in changes]
        if self.extend and (refused := [c for c, name in zip(changes, names, strict=True) if name in FIXED]):
            raise InputError(
                f"{run.folder} cannot be extended with another network ({'; '.join(refused)}): "
                "leave these settings as they were, or start anew under another --out"
            )
        if self.resume and changes and not (self.adjust and ADJUSTABLE.issuperset(names)):
            hint = "add --adjust to change them from here on, " if ADJUSTABLE.issuperset(names) else ""
            before = from_json(book.config).source
            moved = [] if _is_same_place(before, config.source) else [f"source: {before} -> {config.source}"]
            can_train_on = "epochs" in names and not moved and FIXED.isdisjoint(names)
            raise InputError(
                f"{run.folder} was trained with another configuration ({'; '.join([*moved, *changes])}): "
                f"resume with the same settings, {hint}or start anew under another --out"
                + (_ways_to_train_on(book, config.epochs, run) if can_train_on else "")
            )
        return changes


def _is_same_place(one: str, other: str) -> bool:
    """Whether two sources are one, however their path is written.

    >>> _is_same_place("scans/", "./scans"), _is_same_place("scans", "digits.npz")
    (True, False)
    """
    return one == other or os.path.abspath(user_path(one)) == os.path.abspath(user_path(other))


def _ways_to_train_on(book: StateBook, epochs: int, run: Run) -> str:
    """How this run can have other epochs than it was planned with."""
    done = len(book.history) - book.epochs_before
    goal = f"to {epochs} epochs in all" if done < epochs else f"for {epochs} epochs more"
    weights = f"; --weights={shlex.quote(str(run.folder))} --out=NEW starts a new run from its encoder"
    return (
        ". The schedule of the learning rate ends with the epochs, so that --resume keeps them. --extend instead of "
        f"--resume trains on {goal}, with their schedule" + (weights if run.finished else "")
    )


class _Known(NamedTuple):
    """The data of runs, and the digests of the training samples by id."""

    data: Data
    digests: dict[str, str]


class Parts(NamedTuple):
    """What trains, on its device."""

    method: Method
    views: Views
    loader: Loader


def _prepare(
    run: Run,
    config: PretrainConfig,
    known: _Known,
    parts: Parts,
    display: Display,
    console: Console,
    going_on: _GoingOn,
    own_callbacks: Sequence[Callback] = (),
) -> Fit:
    """The run's training, from nothing or from its saved state; what can be refused is refused before writing."""
    tell = partial(say, console)
    data, saved, rows, changes = known.data, None, None, []
    if going_on:
        saved = load_state(run)
        changes = saved.changes
        change = _compare(saved, known, tell)
        _check_same_data(change, saved, config, data, run, going_on)
        if saved.step == 0:
            tell("note: no state was saved yet after the start, so that training begins anew")
        if changed := going_on.changes(saved, config, run):
            changes = [*changes, {"epoch": len(saved.history), "step": saved.step, "settings": changed}]
            tell(f"note: settings change after step {saved.step}, in epoch {len(saved.history)}: {'; '.join(changed)}")
        if change and not going_on.extend:
            raise InputError(f"the data has changed since the run began: {change}. --extend continues with it")
        if going_on.extend:
            tell(f"extending: {change if change else 'the files are the same'}")
            rows = change.rows
    for note in parts.method.notes:
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
        callbacks = [] if is_silent() else _callbacks(run, config, parts, display, own_callbacks, measured)
        progress = partial(bar, "embedding what the anchors start from")
        digests = [known.digests[name] for name in data.train.ids]
        engine = partial(cuda.accelerate, engine=config.engine, compiler=_compiler(config, parts))
        one = Fit(*parts, config, run, display, saved, rows, callbacks, progress, digests, changes, engine)
    if initial is not None and one.writes:
        write_tensors(run.initial_file, initial, {})
    with one.context.active():
        one.save()
    weights: LoadedWeights | None = getattr(parts.method.encoder, LOADED_WEIGHTS, None)
    if weights is not None:
        console.print(weights.table())
    facts = {
        **_facts(config, data, parts),
        "weights": weights.to_json() if weights else run.record.get("weights") if saved else None,
        "epochs_before": one.epochs_before,
        "extensions": one.extensions,
        "changes": changes,
    }
    if to_toml(config) is not None:
        tell(f"command   {shlex.join(to_command(config))}")
    if one.writes:
        before = [] if saved is None else trained_before(run, saved, data, config, tell, extends=going_on.extend)
        run.begin(config, facts, _instances(known, before, seen_by_weights(run, data, config)), one.history)
    return one


def _plan(config: PretrainConfig, data: Data, given: Given, device: torch.device, console: Console) -> Plan:
    """How batches of `--batch-size auto` are computed."""
    shape = DataShape.of(data.train)
    with console.status("planning: taking steps on random samples"):
        batched = dataclasses.replace(config, batch_size=auto_batch(shape, given.method))
        return make_plan(batched, shape, device, partial(build_parts, given=given, from_state=True))


def _same_batches(book: StateBook, config: PretrainConfig) -> PretrainConfig:
    """What `--batch-size auto` was when the run began."""
    names = ("batch_size", "micro_batch", "checkpoint_activations")
    before = from_json(book.config)
    return dataclasses.replace(config, **{name: getattr(before, name) for name in names})


def _compiler(config: PretrainConfig, parts: Parts) -> cuda.CompilerProcess | None:
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


def _compare(saved: StateBook, known: _Known, say: Callable[[str], None]) -> InstanceChange:
    """How the training samples differ from those of a state."""
    before = dict(zip(saved.ids, saved.digests, strict=True))
    if saved.digest_version != DIGEST_VERSION:
        before = {}
        say("note: the run knows its samples by digests of another version, so that only their names are compared")
    return compare_instances(saved.ids, before, known.data.train.ids, known.digests)


def _check_same_data(
    change: InstanceChange, saved: StateBook, config: PretrainConfig, data: Data, run: Run, going_on: _GoingOn
) -> None:
    """Refuse data that has no sample of the run; contents may all have changed where the files are the same."""
    before = from_json(saved.config).source
    if change.keeps_content or (change.changed and _is_same_place(before, config.source)):
        return
    way = "Choose another --out"
    if going_on.extend and run.finished:
        was, now = run.preparation, data.preparation
        if (was.spatial_dims, was.channels) == (now.spatial_dims, now.channels):
            way += f"; with --weights={shlex.quote(str(run.folder))} the new run starts from the encoder of this one"
    raise InputError(
        f"{run.folder} is a run of other data: it has {len(saved.ids)} samples of {before}, and none of them is among "
        f"the {len(data.train)} of {config.source}. {way}"
    )


def _finish(one: Fit) -> None:
    """Write the trained encoder, which makes the run a finished one."""
    weights = plain_state_dict(one.step.method.encoder)
    about = {"finished": True, "epochs": one.config.epochs, "extensions": one.extensions}
    if one.writes:
        write_tensors(one.run.encoder_file, weights, {**about, "recipe_version": RECIPE_VERSION})
    if one.ranks is not None:
        one.ranks.barrier()  # whoever goes on finds a finished run


def build_parts(
    config: PretrainConfig,
    data: Data,
    given: Given = NOTHING,
    ranks: Ranks | None = None,
    *,
    from_state: bool = False,
) -> Parts:
    """Everything that can refuse the configuration, before anything is written."""
    device = pick_device(config.device)
    seed_random_numbers(config.seed, device)
    method = make_method(config, data, given, from_state=from_state)
    views = make_training_views(config, data.preparation, given).to(device)
    loader = Loader(
        data.train,
        config.batch_size,
        seed=config.seed,
        device=device,
        workers=config.workers,
        smallest_batch=method.smallest_batch,
        ranks=ranks if views.draws_first else None,
        num_views=config.views,
    )
    method.autocast_dtype, method.micro_batch = autocast_dtype(config, device), config.micro_batch
    if device.type == "cuda":
        cuda.prepare_network(method)
    if ranks is not None:
        check_micro_batches(method, ranks)
        method.share(ranks)
    return Parts(method.to(device), views, loader)


def _callbacks(
    run: Run,
    config: PretrainConfig,
    parts: Parts,
    display: Display,
    own: Sequence[Callback],
    progress: Callable[[int, int], None],
) -> list[Callback]:
    """The live probe first, because it completes the row; the alarm last, because it may stop the run.

    `progress` is told how many of its samples the probe has looked at before the first step.
    """
    loggers: list[Callback] = [*build_loggers(run.folder, config), *own]
    if config.snapshots:
        loggers.append(Snapshots(parts.method.encoder, run, config.snapshots))
    if config.probe_every == 0:
        return loggers
    dataset = parts.loader.dataset
    plan = plan_probe(
        every=config.probe_every,
        epochs=config.epochs,
        available=len(dataset),
        views=config.views,
        sample_bytes=dataset.preparation.nbytes * (2 if dataset.preparation.crops else 1),
    )
    probe = LiveProbe(parts.method, parts.views, dataset, parts.loader.device, plan, progress)
    if probe.note:
        display.note(probe.note)
    alarm = CollapseAlarm(display, stop=config.stop_on_collapse, taught=parts.method.needs_labels)
    return [probe, *loggers, alarm]


def _load(
    config: PretrainConfig,
    console: Console,
    source: Any,
    labels: Any = None,
    groups: Any = None,
    earlier: EarlierSplit | None = None,
) -> _Known:
    with ProgressBar(console) as bar:
        opened = open_source(source, config, labels, groups)
        data = load_data(
            config,
            source=opened,
            report=partial(say, console),
            progress=bar,
            earlier=earlier,
        )
        memory = DigestMemory(cache_folder(config.cache) if opened.is_cacheable else None, config.source)
        digests = data.source.digests(
            data.train.positions,
            memory,
            config.workers,
            partial(bar, "digests of the contents"),
        )
        memory.save()
        if data.train.is_kept:
            data.source.close()
    return _Known(data, dict(zip(data.train.ids, digests, strict=True)))


def _instances(
    known: _Known, trained_before: Sequence[str] = (), seen_by_weights: Sequence[str] = ()
) -> dict[str, Any]:
    data, train = known.data, known.data.train
    seen = set(trained_before)
    return {
        "ids": list(train.ids),
        "labels": train.labels.tolist(),
        "class_names": list(train.class_names),
        "digests": known.digests,
        "digest_version": DIGEST_VERSION,
        "test_ids": [name for name in data.test.ids if name not in seen] if data.test else [],
        "trained_before": list(trained_before),
        "seen_by_weights": list(seen_by_weights),
        "minority": list(data.minority_classes),
    }


def _facts(config: PretrainConfig, data: Data, parts: Parts) -> dict[str, Any]:
    """What was found, decided and applied: the run's provenance."""
    method, views, device = parts.method, parts.views, parts.loader.device
    packages = ("icone", "torch", "timm", "numpy", "scikit-learn")
    norms = sorted({type(m).__name__ for m in method.encoder.modules() if "Norm" in type(m).__name__})
    return {
        "recipe_version": RECIPE_VERSION,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "data": {
            "fingerprint": data.source.fingerprint(),
            "instances": len(data.train),
            "held_out": len(data.test) if data.test else 0,
            "skipped": data.skipped,
            "notes": [*data.notes, *method.notes],
            "preparation": data.preparation.to_json(),
        },
        "views": views.describe(),
        "encoder": {
            "num_features": num_features(method.encoder),
            "parameters": sum(p.numel() for p in method.encoder.parameters()),
            "norms": norms,
        },
        "method": {
            "name": config.method,
            "options": chosen_options(config.method, config.options, config.recipe),
        },
    }
