"""The state of a run in training as named tensors: everything a bit-identical continuation needs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from icone.data import DIGEST_VERSION
from icone.errors import InputError
from icone.nn import AnchorTable
from icone.nn.ranks import Share
from icone.recipe import RECIPE_VERSION
from icone.run import Run
from icone.tensor_files import misfit, read_metadata, read_tensors, write_tensors
from icone.training.step import TrainStep

BOOK = "book"
"""The tensor that holds `StateBook` as JSON: the metadata of safetensors end at 100 MB, which ids can exceed."""


@dataclass(kw_only=True)
class StateBook:
    """What the state file says besides the tensors; it decides what the run is, whatever the other files say."""

    step: int
    """Finished steps of this training."""
    history: list[dict[str, Any]]
    config: dict[str, Any]
    ids: list[str]
    """The sample of each row of the anchor table."""
    digests: list[str]
    """Their contents, in the same order."""
    digest_version: int = DIGEST_VERSION
    epochs_before: int = 0
    """Rows of the history that earlier trainings wrote, before the run was extended."""
    extensions: int = 0
    """How often the run was extended."""
    terms: list[str] = field(default_factory=list)
    """The terms of the loss, in the order of the method."""
    changes: list[dict[str, Any]] = field(default_factory=list)
    """Settings that were changed on the way, each with the epoch from which on it holds."""
    probed: list[str] = field(default_factory=list)
    """The samples that the live probe looks at, for as long as the run has them."""

    def __post_init__(self) -> None:
        numbers = (self.step, self.digest_version, self.epochs_before, self.extensions)
        if not all(isinstance(number, int) for number in numbers) or len(self.ids) != len(self.digests):
            raise ValueError("its numbers or its list of samples cannot be used")


@dataclass(kw_only=True)
class SavedState(StateBook):
    """What lies in the state file."""

    tensors: dict[str, Tensor]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors below a prefix, without it."""
        return below(self.tensors, prefix)


def below(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names begin with a prefix and a slash, without the two."""
    start = prefix + "/"
    return {name[len(start) :]: t for name, t in tensors.items() if name.startswith(start)}


def save_state(run: Run, step: TrainStep, book: StateBook) -> None:
    """Write the state file in one atomic replacement.

    Where ranks train together all of them call it and wait until rank 0 has written the file. They go on with the
    numbers of rank 0, because what each computes for itself may differ in the last digit.
    """
    ranks = step.ranks
    if ranks is not None:
        own_rows = {id(t) for name, t in _parameters_and_moments(step) if name in _shares(step)}
        ranks.broadcast([t for t in step.tensors() if id(t) not in own_rows])
    tensors = _tensors(step)
    if ranks is None or ranks.rank == 0:
        _write(run, tensors, book)
    if ranks is not None:
        ranks.barrier()


def _write(run: Run, tensors: dict[str, Tensor], book: StateBook) -> None:
    # Tied tensors are stored once per name: safetensors refuses shared memory.
    tensors = {name: t.detach().clone() for name, t in tensors.items()}
    text = json.dumps(vars(book)).encode()
    tensors[BOOK] = torch.from_numpy(np.frombuffer(text, np.uint8).copy())
    write_tensors(run.state_file, tensors, {"recipe_version": RECIPE_VERSION, "extensions": book.extensions})


def load_book(run: Run) -> StateBook:
    """What the state file says, read without its other tensors; an `InputError` where this version cannot go on."""
    _check_version(run)
    try:
        with safe_open(run.state_file, framework="pt") as file:
            return StateBook(**_book(file.get_tensor(BOOK)))
    except (OSError, SafetensorError, ValueError, TypeError) as error:
        raise InputError(f"cannot read {run.state_file}, it is damaged: {error}") from error


def load_state(run: Run) -> SavedState:
    """The last saved state; an `InputError` where there is none, or none that this version can go on from."""
    _check_version(run)
    tensors, _ = read_tensors(run.state_file)
    try:
        return SavedState(**_book(tensors.pop(BOOK)), tensors=tensors)
    except (KeyError, ValueError, TypeError) as error:
        raise InputError(f"cannot read {run.state_file}, it is damaged: {error}") from error


def _book(tensor: Tensor) -> dict[str, Any]:
    book: dict[str, Any] = json.loads(tensor.numpy().tobytes())
    return book


def _check_version(run: Run) -> None:
    if not run.state_file.is_file():
        raise InputError(
            f"{run.folder} has no saved state to go on from ({run.state_file.name} is missing): "
            "bring it back from a backup, or start anew under another --out"
        )
    said = read_metadata(run.state_file)
    version = said.get("recipe_version", 1 if "step" in said else None)
    if version is None or ("checksum" not in said and version == RECIPE_VERSION):
        raise InputError(f"{run.state_file} is damaged: its metadata are missing; bring it back from a backup")
    if version != RECIPE_VERSION:
        raise InputError(
            f"{run.folder} was begun with version {version} of the recipe, and this is version {RECIPE_VERSION}, "
            "which trains in another way: finish the run with the version of icone that began it "
            f"({run.record.get('versions', {}).get('icone', 'unknown')}), or start anew under another --out"
        )


def restore(step: TrainStep, saved: SavedState) -> None:
    """Continue exactly where `saved` was taken."""
    _check_fits(step, saved)
    load_method_state(step, saved.part("method"))
    load_optimizer_state(step, saved.part("optimizer"))
    step.meter.load(saved.part("meter"), saved.terms)
    step.count.fill_(saved.step)
    set_random_states(saved.part("random"), step.count.device)


def restore_extended(step: TrainStep, saved: SavedState, rows: list[int | None]) -> None:
    """Take over weights and moments for a changed set of instances.

    `rows[i]` is the old row of new instance i, or None for a new one, whose anchor and moments stay fresh.
    """
    _check_fits(step, saved, step.method.per_instance)
    new = [i for i, row in enumerate(rows) if row is not None]
    old = [row for row in rows if row is not None]
    tables = step.method.per_instance

    def merged(name: str, fresh: Tensor, known: Tensor) -> Tensor:
        if name not in tables or known.dim() == 0:
            return known
        fresh = fresh.clone()
        fresh[new] = known[old].to(fresh)
        return fresh

    fresh_method = _method_state(step)
    known_method = saved.part("method")
    load_method_state(step, {n: merged(n, fresh_method[n], t) for n, t in known_method.items()})
    moments: dict[str, Tensor] = {}
    for key, known in saved.part("optimizer").items():
        name, _ = key.rsplit("/", 1)
        moments[key] = merged(name, torch.zeros_like(fresh_method[name]), known)
    load_optimizer_state(step, moments)


def _check_fits(step: TrainStep, saved: SavedState, tables: tuple[str, ...] = ()) -> None:
    """Refuse a state with other tensors than this training has; the rows of `tables` may be more or fewer."""
    per_instance = [f"method/{name}" for name in tables]
    per_instance += [f"optimizer/{name}/{moment}" for name in tables for moment in ("exp_avg", "exp_avg_sq")]
    # The meter has no terms before the first step; random numbers of a GPU may be missing on another machine.
    own, found = (
        {name: t for name, t in tensors.items() if name.split("/")[0] not in ("meter", "random")}
        for tensors in (_tensors(step), saved.tensors)
    )
    if wrong := misfit(own, found, rows=per_instance):
        raise InputError(f"the saved state does not fit this configuration and data: {wrong}")
    if not {"random/cpu", "meter/#instances"} <= saved.tensors.keys():
        raise InputError("the saved state is damaged: random numbers or sums of the loss are missing")


def _tensors(step: TrainStep) -> dict[str, Tensor]:
    return {
        **{f"method/{name}": t for name, t in _method_state(step).items()},
        **{f"optimizer/{name}": t for name, t in optimizer_state(step).items()},
        **{f"meter/{name}": t for name, t in step.meter.state().items()},
        **{f"random/{name}": t for name, t in random_states(step.count.device).items()},
    }


def _method_state(step: TrainStep) -> dict[str, Tensor]:
    """The method's tensors, with the rows of all ranks."""
    shares = _shares(step)
    return {name: _whole(t, shares.get(name)) for name, t in step.method.state_dict().items()}


def load_method_state(step: TrainStep, tensors: dict[str, Tensor]) -> None:
    shares = _shares(step)
    step.method.load_state_dict({name: _own(t, shares.get(name)) for name, t in tensors.items()})


def optimizer_state(step: TrainStep) -> dict[str, Tensor]:
    """The optimizer's tensors as `parameter name/entry`, with the rows of all ranks."""
    shares, moments = _shares(step), named_moments(step.method, step.optimizer)
    return {key: _whole(t, shares.get(key.rsplit("/", 1)[0])) for key, t in moments.items()}


def load_optimizer_state(step: TrainStep, tensors: dict[str, Tensor]) -> None:
    shares = _shares(step)
    own = {key: _own(t, shares.get(key.rsplit("/", 1)[0])) for key, t in tensors.items()}
    load_moments(step.method, step.optimizer, own)


def named_moments(network: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The tensors that an optimizer keeps about the parameters of a network, as `parameter name/entry`."""
    names = {id(p): name for name, p in network.named_parameters()}
    return {f"{names[id(p)]}/{key}": t for p, entries in optimizer.state.items() for key, t in entries.items()}


def load_moments(network: nn.Module, optimizer: torch.optim.Optimizer, tensors: dict[str, Tensor]) -> None:
    """Put back what `named_moments` gave."""
    parameters = dict(network.named_parameters())
    for key, tensor in tensors.items():
        name, entry = key.rsplit("/", 1)
        optimizer.state[parameters[name]][entry].copy_(tensor)


def _shares(step: TrainStep) -> dict[str, Share]:
    """The parameters of which this rank has some rows only."""
    tables = ((name, m) for name, m in step.method.named_modules() if isinstance(m, AnchorTable))
    return {f"{name}.weight": table.share for name, table in tables if table.share is not None}


def _parameters_and_moments(step: TrainStep) -> Iterator[tuple[str, Tensor]]:
    for name, p in step.method.named_parameters():
        yield name, p
        for moment in step.optimizer.state.get(p, {}).values():
            if moment.dim():
                yield name, moment


def _whole(tensor: Tensor, share: Share | None) -> Tensor:
    return tensor if share is None or tensor.dim() == 0 else share.gather(tensor.detach())


def _own(tensor: Tensor, share: Share | None) -> Tensor:
    return tensor if share is None or tensor.dim() == 0 else tensor[share.start : share.stop]


def random_states(device: torch.device) -> dict[str, Tensor]:
    """The random states of the CPU and of this device, by kind."""
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_states(states: dict[str, Tensor], device: torch.device) -> None:
    """Put back what `random_states` gave; a state of another kind of device may lack that of a GPU."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
