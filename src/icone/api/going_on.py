"""How a run begins or goes on: in a free folder, resumed, adjusted or extended; what cannot be is refused."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import nn

from icone.api.data_defaults import BatchChoice, with_batch_of_before, with_defaults_of_before
from icone.api.run_labels import check_same_classes, check_same_labels, differences_but_place, way_to_labels
from icone.api.seen_samples import recorded_instances
from icone.api.training_data import KnownData
from icone.config import EncoderConfig, PretrainConfig
from icone.config_text import differences, from_json
from icone.data import DIGEST_VERSION, Data, InstanceChange, Preparation, check_outside, compare_instances
from icone.data.loader import too_large_batch
from icone.data.notes import intensity_note
from icone.errors import InputError
from icone.nn import plain_state_dict
from icone.outputs import outputs_in
from icone.run import Run, check_free, free_folder
from icone.tensor_files import misfit, read_tensors
from icone.terminal import counted, either
from icone.training.checkpoint import SavedState, StateBook, load_state
from icone.validation import check_folder, refused, user_path

ADJUSTABLE = {"lr", "weight_decay", "clip_gradient"}
"""Settings that may change on the way, because no tensor of the state depends on them."""
FIXED = {f.name for f in dataclasses.fields(EncoderConfig)} | {
    "size", "crop", "channels", "method", "options", "recipe",
}  # fmt: skip
"""Settings that a saved state belongs to: other data can be trained on with it, but not another network."""


@dataclass(frozen=True)
class GoingOn:
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
        before = from_json(book.config)
        changes = differences(before, config) if self.extend else differences_but_place(before, config)
        names = [change.partition(":")[0] for change in changes]
        if self.extend and (refused := [c for c, name in zip(changes, names, strict=True) if name in FIXED]):
            raise InputError(
                f"{run.folder} cannot be extended with another network ({'; '.join(refused)}): "
                "leave these settings as they were, or start anew under another --out"
            )
        if self.resume and changes and not (self.adjust and ADJUSTABLE.issuperset(names)):
            hint = "add --adjust to change them from here on, " if ADJUSTABLE.issuperset(names) else ""
            source = before.source
            moved = [] if is_same_place(source, config.source) else [f"source: {source} -> {config.source}"]
            can_train_on = "epochs" in names and not moved and FIXED.isdisjoint(names)
            raise InputError(
                f"{run.folder} was trained with another configuration ({'; '.join([*moved, *changes])}): "
                f"resume with the same settings, {hint}or start anew under another --out"
                + (_ways_to_train_on(book, config.epochs, run) if can_train_on else "")
                + way_to_labels(before, config)
            )
        return changes


def is_same_place(one: str, other: str) -> bool:
    """Whether two sources are one, however their path is written.

    >>> is_same_place("scans/", "./scans"), is_same_place("scans", "digits.npz")
    (True, False)
    """
    return one == other or os.path.abspath(user_path(one)) == os.path.abspath(user_path(other))


def _ways_to_train_on(book: StateBook, epochs: int, run: Run) -> str:
    """How this run can have other epochs than it was planned with."""
    done = len(book.history) - book.epochs_before
    goal = f"to {counted(epochs, 'epoch')} in all" if done < epochs else f"for {counted(epochs, 'epoch')} more"
    weights = f"; --weights={shlex.quote(str(run.folder))} --out=NEW starts a new run from its encoder"
    return (
        ". The schedule of the learning rate ends with the epochs, so that --resume keeps them. --extend instead of "
        f"--resume trains on {goal}, with their schedule" + (weights if run.finished else "")
    )


def check_start(run: Run, resume: bool, extend: bool) -> None:
    """Refuse before any data is read what would be refused in the end."""
    if resume and extend:
        raise InputError("--resume continues on the same files, --extend on changed ones: give one of the two")
    if run.exists() and not (resume or extend):
        raise InputError(
            f"{run.folder} already holds a run: continue it with --resume, or choose another folder, such as "
            f"--out={shlex.quote(free_folder(run.folder).as_posix())}"
        )
    if (resume or extend) and not run.exists():
        flag = "--extend" if extend else "--resume"
        way_out = f"leave {flag} out to begin one, or give the folder of another with --out"
        raise InputError(f"nothing to continue: {run.folder} holds no run; {way_out}")
    check_folder(run.folder)
    if not run.exists():
        check_free(run.folder)


EXTEND_ALONE = "`icone pretrain --extend` with its --seed and --out"
"""How one of several runs is extended: those that train together are not."""


def check_left(run: Run, config: PretrainConfig) -> None:
    """Refuse to leave a run among others as it is, where it was trained in another way than they are to be."""
    extended = bool(run.record.get("extensions", 0))
    if extended and run.epochs != config.epochs:
        raise InputError(
            f"{run.folder} was extended alone to {counted(run.epochs, 'epoch')}, and the others are to have "
            f"{config.epochs}: runs of different lengths cannot be compared. Extend each of the others by itself "
            f"({EXTEND_ALONE}), or move {run.folder} away and give --resume again, which trains it anew"
        )
    if changes := differences_but_place(run.config, config):
        raise InputError(
            f"{run.folder} is there already with other settings ({'; '.join(changes)}), which --resume does not "
            "change: give the settings that it was trained with, or choose another --out"
            + way_to_labels(run.config, config)
        )


def check_left_samples(run: Run, known: KnownData, config: PretrainConfig, say: Callable[[str], None]) -> None:
    """Refuse to leave a finished run among others as it is, where they would train on other samples or labels."""
    told = run.instances
    digests = told["digests"] if told.get("digest_version") == DIGEST_VERSION else {}
    if change := compare_instances(told["ids"], digests, known.data.train.ids, known.digests):
        raise InputError(
            f"{run.folder} is finished, and the data has changed since ({change}), so that the others would train on "
            f"other samples: extend every run by itself ({EXTEND_ALONE}), or choose another --out"
        )
    check_same_labels(run.folder, told, run.config, config, known.data.train, say)


def check_outside_data(run: Run, config: PretrainConfig) -> None:
    """Refuse a run folder among the data, where its arrays would be taken for samples."""
    data = user_path(config.source)
    if data.is_dir():
        check_outside("the run folder", run.folder, data, "--out")


def as_it_began(book: StateBook, config: PretrainConfig, choice: BatchChoice) -> PretrainConfig:
    """The configuration with the network, the batch size and the warm-up that were chosen when the run began."""
    before = from_json(book.config)
    return with_defaults_of_before(with_batch_of_before(config, before, choice), before)


SCALED_BY = ("window", "intensity", "channels", "colour")
"""Settings that ask for a scale of intensities."""


def kept_scale(run: Run, config: PretrainConfig) -> Preparation | None:
    """The preparation whose scale of intensities a run keeps: its encoder has learned it. None where settings of now
    ask for another one."""
    before = run.config
    return run.preparation if all(getattr(before, name) == getattr(config, name) for name in SCALED_BY) else None


def check_left_scale(run: Run, known: KnownData) -> None:
    """Refuse to train a run among others whose samples are scaled in another way than its own."""
    if run.preparation.scale != known.data.preparation.scale:
        raise InputError(
            f"{run.folder} began with other samples than the others, and scales intensities in another way: go on with "
            "each run by itself (`icone pretrain` with its --seed and --out), or choose another --out"
        )


def _other_scale(run: Run, config: PretrainConfig, now: Preparation) -> str:
    """A note where samples are scaled in another way than a run did so far; else nothing."""
    was, will_be = (
        intensity_note(preparation, of).removeprefix("intensity: ")
        for preparation, of in ((run.preparation, run.config), (now, config))
    )
    return "" if was == will_be else f"intensities were scaled so far: {was}; from here on: {will_be}"


def first_lr(book: StateBook) -> float:
    """The learning rate with which a run began, whatever it was changed to since.

    Its anchors were drawn at the scale of this rate, and the ε of their Adam belongs to their length.
    """
    changed = [text for change in book.changes for text in change["settings"] if text.startswith("lr: ")]
    return float(changed[0].removeprefix("lr: ").partition(" -> ")[0]) if changed else from_json(book.config).lr


def last_epoch(book: StateBook, config: PretrainConfig, going_on: GoingOn) -> int:
    """The number of epochs that a run has in the end, where it goes on with these settings."""
    done = len(book.history)
    adds = going_on.extend and done - book.epochs_before >= config.epochs
    return (done if adds else book.epochs_before) + config.epochs


def check_snapshots(config: PretrainConfig, last: int) -> None:
    """Refuse `--snapshots` after the `last` epoch of a run; those of an extended one count from its beginning."""
    if config.snapshots and max(config.snapshots) > last:
        most = f"--epochs={last}" if last == config.epochs else f"{last}, the epochs of the whole run"
        raise refused("snapshots", config.snapshots, f"at most {most}")


def _missed_snapshots(run: Run, book: StateBook, config: PretrainConfig, last: int) -> str:
    """A note about epochs of `--snapshots` that a run has done already, without keeping its weights; else nothing."""
    done = len(book.history)
    missed = [epoch for epoch in config.snapshots if epoch <= done and not run.snapshot_file(epoch).is_file()]
    if not missed:
        return ""
    epochs = f"{either(len(missed), 'epoch', 'epochs')} {', '.join(map(str, missed))}"
    return (
        f"the weights after {epochs}, which --snapshots asks for, are gone: epochs count from the beginning of the "
        f"run, and {done} of {last} are done"
    )


def check_samples_left(book: StateBook, config: PretrainConfig, samples: int) -> None:
    """Refuse a batch larger than all samples, unless it is the one that the run began with: samples have gone since."""
    if config.batch_size != from_json(book.config).batch_size:
        raise too_large_batch(config.batch_size, samples)


class SoFar(NamedTuple):
    """What a run goes on from; all of it is empty where it begins."""

    saved: SavedState | None
    rows: list[int | None] | None
    """The old row of each sample, where the run is extended."""
    changes: list[dict[str, Any]]
    """Settings that were changed on the way."""
    kept: list[int]
    """Rows of the samples that the live probe has looked at so far."""


def read_so_far(
    run: Run, config: PretrainConfig, known: KnownData, going_on: GoingOn, say: Callable[[str], None]
) -> SoFar:
    """The saved state of a run that goes on, compared with its data and settings of now; what differs is said."""
    if not going_on:
        return SoFar(None, None, [], [])
    saved = load_state(run)
    change = _compare_samples(saved, known, say)
    _check_same_data(change, saved, config, known.data, run, going_on)
    if saved.step == 0:
        say("note: no state was saved yet after the start, so that training begins anew")
    changes = saved.changes
    if changed := going_on.changes(saved, config, run):
        changes = [*changes, {"epoch": len(saved.history), "step": saved.step, "settings": changed}]
        since = f"after step {saved.step}, from epoch {len(saved.history) + 1} on"
        say(f"note: settings change {since}: {'; '.join(changed)}")
    if change and not going_on.extend:
        raise InputError(f"the data has changed since the run began: {change}. --extend continues with it")
    if going_on.resume:
        before = from_json(saved.config)
        check_same_labels(run.folder, recorded_instances(run), before, config, known.data.train, say)
    if note := _missed_snapshots(run, saved, config, last_epoch(saved, config, going_on)):
        say(f"note: {note}")
    if note := _other_scale(run, config, known.data.preparation):
        say(f"note: {note}")
    if going_on.extend:
        check_same_classes(run, recorded_instances(run), config, known.data.train, say)
        samples = change if change else "the files are the same"
        say(f"extending: {samples}{_new_samples(saved, run, known.data, change)}")
        say(f"extending: {_where_it_goes_on(saved, config)}")
        if (older := outputs_in(run.folder)) and run.finished:
            say(f"note: {', '.join(older)} in {run.folder} will be out of date: written before this training")
    return SoFar(saved, change.rows if going_on.extend else None, changes, _still_probed(saved, change))


def _new_samples(saved: StateBook, run: Run, data: Data, change: InstanceChange) -> str:
    """How many samples the run did not know, and how many of them it holds out."""
    earlier = recorded_instances(run)
    before = {*saved.ids, *earlier.get("test_ids", ()), *earlier.get("trained_before", ())}
    held_out = 0 if data.test is None else len(set(data.test.ids) - before)
    found = held_out + len(change.gained)
    are = either(held_out, "is", "are")
    return f". {counted(found, 'new sample')}: {held_out} of them {are} held out for testing" if found else ""


def _where_it_goes_on(saved: SavedState, config: PretrainConfig) -> str:
    """With which epoch an extended run goes on, and what becomes of one that was interrupted."""
    done = len(saved.history)
    if done - saved.epochs_before >= config.epochs:
        return (
            f"{counted(done, 'epoch')} {either(done, 'is', 'are')} finished; {config.epochs} more "
            f"{either(config.epochs, 'follows', 'follow')}, with a learning-rate schedule of their own"
        )
    goes_on = f"training goes on with epoch {done + 1} of {saved.epochs_before + config.epochs}"
    if not (seen := int(saved.tensors["meter/#instances"])):
        return goes_on
    return (
        f"epoch {done + 1} was interrupted after {seen:,} of {counted(len(saved.ids), 'sample')}. It is repeated from "
        "its start, on all samples of now; the weights keep what they have learned in it"
    )


def _compare_samples(saved: StateBook, known: KnownData, say: Callable[[str], None]) -> InstanceChange:
    """How the training samples differ from those of a state."""
    before = dict(zip(saved.ids, saved.digests, strict=True))
    if saved.digest_version != DIGEST_VERSION:
        before = {}
        say("note: the run knows its samples by digests of another version, so that only their names are compared")
    return compare_instances(saved.ids, before, known.data.train.ids, known.digests)


def _still_probed(saved: StateBook, change: InstanceChange) -> list[int]:
    """The rows of the samples that the live probe has looked at so far and that are still there."""
    probed = set(saved.probed)
    return [new for new, old in enumerate(change.rows) if old is not None and saved.ids[old] in probed]


def tell_probed(saved: StateBook, kept: Sequence[int], probed: Sequence[str], say: Callable[[str], None]) -> None:
    """Say where the live probe cannot look at the very samples of before, so that its figures are of others."""
    if saved.probed and probed and not len(saved.probed) == len(kept) == len(probed):
        samples = counted(len(probed), "sample")
        say(
            f"note: the live probe looks at {samples} from here on, and knows {len(kept)} of them. "
            f"Its figures, those before training too, are not of the {len(saved.probed)} samples of earlier epochs"
        )


def put_initial_weights(run: Run, encoder: nn.Module) -> None:
    """Give the encoder of a run that goes on the weights that it began with, which a seed does not make.

    The live probe measures it before the saved state takes their place.
    """
    if not run.initial_file.is_file():
        return
    weights, _ = read_tensors(run.initial_file)
    if wrong := misfit(plain_state_dict(encoder), weights):
        raise InputError(f"{run.initial_file} does not fit the run's configuration: {wrong}")
    encoder.load_state_dict(weights)


def _check_same_data(
    change: InstanceChange, saved: StateBook, config: PretrainConfig, data: Data, run: Run, going_on: GoingOn
) -> None:
    """Refuse data that has no sample of the run; contents may all have changed where the files are the same."""
    before = from_json(saved.config).source
    if change.keeps_content or (change.changed and is_same_place(before, config.source)):
        return
    way = "Choose another --out"
    if going_on.extend and run.finished:
        was, now = run.preparation, data.preparation
        if (was.spatial_dims, was.channels) == (now.spatial_dims, now.channels):
            way += f"; with --weights={shlex.quote(str(run.folder))} the new run starts from the encoder of this one"
    samples = counted(len(saved.ids), "sample")
    raise InputError(
        f"{run.folder} is a run of other data: it has {samples} of {before}, and none of them is among "
        f"the {len(data.train)} of {config.source}. {way}"
    )
