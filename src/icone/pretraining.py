"""`icone.pretrain`: from a source to a finished run folder, from nothing or from where it was left."""

from __future__ import annotations

import dataclasses
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import torch
from rich.console import Console

from icone.building import autocast_dtype, make_method, make_views, memory_errors, own_randomness, pick_device
from icone.config import PretrainConfig, differences
from icone.data import Data, Loader, compare_instances, file_digest, load_data
from icone.encoders import num_features
from icone.errors import InputError
from icone.evaluation.live import CollapseAlarm, LiveProbe, plan_probe
from icone.methods import Method, method_options, parse_options
from icone.runs import Run, write_tensors
from icone.training import Display, choose_display, fit
from icone.training.loggers import build_loggers
from icone.training.observers import Observer
from icone.training.snapshots import Snapshots
from icone.training.state import SavedState, load_state
from icone.views import Views


def pretrain(
    source: str | Path,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    extend: bool = False,
    console: Console | None = None,
    **settings: Any,
) -> Run:
    """Train an encoder on unlabelled images or volumes and return its run folder.

    `settings` are the fields of `icone.config.PretrainConfig` (batch_size, epochs, method, size, …).
    `out` is the run folder, by default `runs/` and the name of the source. `resume` continues an interrupted run
    bit for bit; `extend` continues on a folder that has gained or lost files.
    """
    known = {f.name for f in dataclasses.fields(PretrainConfig)}
    if unknown := settings.keys() - known:
        raise InputError(f"unknown settings: {', '.join(sorted(unknown))}; known: {', '.join(sorted(known))}")
    config = PretrainConfig(source=str(source), **settings)
    run = Run(out if out is not None else default_folder(config.source))
    console = console or Console()
    check_start(run, resume, extend)
    build_loggers(run.folder, config)  # refuses what is not installed before any data is read
    with own_randomness(pick_device(config.device)), memory_errors():
        if resume or extend:
            with run.locked():
                _continue(run, config, extend, console)
        else:
            _begin(run, config, console)
    return run


def default_folder(source: str) -> Path:
    """`runs/` and the last part of the source's name.

    >>> default_folder("data/scans/").as_posix(), default_folder("medmnist:adrenalmnist3d@64").as_posix()
    ('runs/scans', 'runs/adrenalmnist3d@64')
    """
    return Path("runs") / (Path(source.rsplit(":", 1)[-1]).stem or "run")


def check_start(run: Run, resume: bool, extend: bool) -> None:
    """Refuse before any data is read what would be refused in the end."""
    if resume and extend:
        raise InputError("--resume continues on the same files, --extend on changed ones: give one of the two")
    if run.exists() and not (resume or extend):
        raise InputError(f"{run.folder} already holds a run: continue it with --resume, or choose another --out")
    if (resume or extend) and not run.exists():
        raise InputError(f"nothing to continue: {run.folder} holds no run (give its folder with --out)")
    place = run.folder.absolute()
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise InputError(f"cannot write {run.folder}: {place} is a file; choose another --out")
    if not os.access(place, os.W_OK):
        raise InputError(f"no permission to write in {place}: choose another --out")


def _begin(run: Run, config: PretrainConfig, console: Console) -> None:
    data = _load(config, console)
    parts = _build(config, data)
    with run.locked():
        check_start(run, resume=False, extend=False)  # somebody may have been quicker
        _train(run, config, data, parts, console)


def _continue(run: Run, config: PretrainConfig, extend: bool, console: Console) -> None:
    changed = differences(run.config, config)
    if changed and not extend:
        raise InputError(
            f"{run.folder} was trained with another configuration ({'; '.join(changed)}): "
            "resume with the same settings, or start anew under another --out"
        )
    saved = load_state(run)
    data = _load(config, console)
    known_ids = saved.ids if saved else run.instances["ids"]
    change = compare_instances(known_ids, run.instances["digests"], data.train.ids, _digests(data))
    if change and not extend:
        raise InputError(f"the data has changed since the run began: {change}. --extend continues with it")
    parts = _build(config, data)
    if extend:
        console.print(f"extending: {change if change else 'the files are the same'}", highlight=False, soft_wrap=True)
    _train(run, config, data, parts, console, saved, change.rows if extend else None)


class _Parts(NamedTuple):
    """What trains, on its device."""

    method: Method
    views: Views
    loader: Loader


def _build(config: PretrainConfig, data: Data) -> _Parts:
    """Everything that can refuse the configuration, before anything is written."""
    device = pick_device(config.device)
    loader = Loader(data.train, config.batch_size, seed=config.seed, device=device, workers=config.workers)
    method = make_method(config, data)
    method.autocast_dtype = autocast_dtype(config, device)
    return _Parts(method.to(device), make_views(config, data.preparation).to(device), loader)


def _train(
    run: Run,
    config: PretrainConfig,
    data: Data,
    parts: _Parts,
    console: Console,
    saved: SavedState | None = None,
    rows: list[int | None] | None = None,
) -> None:
    run.describe(config, _facts(config, data, parts), _instances(data))
    with choose_display(console) as display:
        observers = _observers(run, config, parts, display)
        fit(*parts, config, run, display, saved, rows, observers)
    weights = parts.method.encoder.state_dict()
    write_tensors(run.encoder_file, weights, {"finished": "true", "epochs": str(config.epochs)})


def _observers(run: Run, config: PretrainConfig, parts: _Parts, display: Display) -> list[Observer]:
    """The live probe first, because it completes the row; the alarm last, because it may stop the run."""
    loggers: list[Observer] = [*build_loggers(run.folder, config)]
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
        sample_bytes=dataset.preparation.nbytes,
    )
    probe = LiveProbe(parts.method, parts.views, dataset, parts.loader.device, plan)
    return [probe, *loggers, CollapseAlarm(display, stop=config.stop_on_collapse)]


def _load(config: PretrainConfig, console: Console) -> Data:
    with console.status("reading data") as status:
        data = load_data(
            config,
            report=lambda text: console.print(text, highlight=False, soft_wrap=True, markup=False),
            progress=lambda done, total: status.update(f"reading data: {done}/{total}"),
        )
    for note in data.notes:
        console.print(f"note: {note}", highlight=False, soft_wrap=True, markup=False)
    return data


def _instances(data: Data) -> dict[str, Any]:
    train = data.train
    return {
        "ids": list(train.ids),
        "labels": train.labels.tolist(),
        "class_names": list(train.class_names),
        "digests": _digests(data),
        "test_ids": list(data.test.ids) if data.test else [],
        "minority": list(data.minority_classes),
    }


def _digests(data: Data) -> dict[str, str]:
    """Digests of the training files by id; nothing for samples that are not files of their own."""
    paths = dict(zip(data.source.ids, data.source.paths, strict=True))
    return {name: file_digest(path) for name in data.train.ids if (path := paths[name]) is not None and path.is_file()}


def _facts(config: PretrainConfig, data: Data, parts: _Parts) -> dict[str, Any]:
    """What was found, decided and applied: the run's provenance."""
    method, views, device = parts.method, parts.views, parts.loader.device
    packages = ("icone", "torch", "timm", "monai", "numpy", "scikit-learn")
    norms = sorted({type(m).__name__ for m in method.encoder.modules() if "Norm" in type(m).__name__})
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in packages}},
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "cpu",
        "data": {
            "fingerprint": data.source.fingerprint(),
            "instances": len(data.train),
            "held_out": len(data.test) if data.test else 0,
            "skipped": data.skipped,
            "notes": data.notes,
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
            "options": {**method_options(config.method), **parse_options(config.method, config.options)},
        },
    }
