"""The state of a run in training as named tensors: everything a bit-identical continuation needs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from icone.errors import InputError
from icone.runs import Run, read_tensors, write_tensors
from icone.training.step import TrainStep


@dataclass
class SavedState:
    """What lies in the state file: tensors by name, finished steps, the history so far, ids of the table's rows."""

    tensors: dict[str, Tensor]
    step: int
    history: list[dict[str, Any]]
    ids: list[str]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors below a prefix, without it."""
        start = prefix + "/"
        return {name[len(start) :]: t for name, t in self.tensors.items() if name.startswith(start)}


def save_state(run: Run, step: TrainStep, done: int, history: list[dict[str, Any]], ids: Sequence[str]) -> None:
    """Write the state file in one atomic replacement."""
    tensors = {
        **{f"method/{name}": t for name, t in step.method.state_dict().items()},
        **{f"batch_norm/{name}": t for name, t in step.batch_norms.tensors().items()},
        **{f"optimizer/{name}": t for name, t in optimizer_state(step).items()},
        **{f"meter/{name}": t for name, t in step.meter.state().items()},
        **{f"random/{name}": t for name, t in _random_state(step.count.device).items()},
    }
    # Tied tensors are stored once per name: safetensors refuses shared memory.
    tensors = {name: t.detach().clone() for name, t in tensors.items()}
    metadata = {"step": str(done), "history": json.dumps(history), "ids": json.dumps(list(ids))}
    write_tensors(run.state_file, tensors, metadata)


def load_state(run: Run) -> SavedState | None:
    """The last saved state; None if the run was stopped before it had one, and so begins at its first step."""
    if not run.state_file.is_file():
        return None
    tensors, metadata = read_tensors(run.state_file)
    return SavedState(tensors, int(metadata["step"]), json.loads(metadata["history"]), json.loads(metadata["ids"]))


def restore(step: TrainStep, saved: SavedState) -> None:
    """Continue exactly where `saved` was taken."""
    device = step.count.device
    try:
        step.method.load_state_dict(saved.part("method"))
    except RuntimeError as error:
        raise InputError(f"the saved state does not fit this configuration: {error}") from error
    step.batch_norms.load(saved.part("batch_norm"))
    load_optimizer_state(step, saved.part("optimizer"))
    step.meter.load(saved.part("meter"))
    step.count.fill_(saved.step)
    random = saved.part("random")
    torch.set_rng_state(random["cpu"])
    if device.type == "cuda" and "cuda" in random:
        torch.cuda.set_rng_state(random["cuda"], device)


def restore_extended(step: TrainStep, saved: SavedState, rows: list[int | None]) -> None:
    """Take over weights and moments for a changed set of instances.

    `rows[i]` is the old row of new instance i, or None for a new one, whose anchor and moments stay fresh.
    """
    new = [i for i, row in enumerate(rows) if row is not None]
    old = [row for row in rows if row is not None]
    tables = step.method.per_instance

    def merged(name: str, fresh: Tensor, known: Tensor) -> Tensor:
        if name not in tables or known.dim() == 0:
            return known
        fresh = fresh.clone()
        fresh[new] = known[old].to(fresh)
        return fresh

    fresh_method = step.method.state_dict()
    known_method = saved.part("method")
    step.method.load_state_dict({n: merged(n, fresh_method[n], t) for n, t in known_method.items()})
    step.batch_norms.load(saved.part("batch_norm"))
    parameters = dict(step.method.named_parameters())
    moments: dict[str, Tensor] = {}
    for key, known in saved.part("optimizer").items():
        name, _ = key.rsplit("/", 1)
        moments[key] = merged(name, torch.zeros_like(parameters[name]), known)
    load_optimizer_state(step, moments)


def optimizer_state(step: TrainStep) -> dict[str, Tensor]:
    """The optimizer's tensors as `parameter name/entry`."""
    names = {id(p): name for name, p in step.method.named_parameters()}
    return {f"{names[id(p)]}/{key}": t for p, entries in step.optimizer.state.items() for key, t in entries.items()}


def load_optimizer_state(step: TrainStep, tensors: dict[str, Tensor]) -> None:
    parameters = dict(step.method.named_parameters())
    for key, tensor in tensors.items():
        name, entry = key.rsplit("/", 1)
        step.optimizer.state[parameters[name]][entry].copy_(tensor)


def _random_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state
