"""One run of a sweep: its configuration, what is measured, and the name that both give it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from icone.config import PretrainConfig, RuntimeConfig, from_json, to_json

KEY_LENGTH = 20
FORMAT = 1
"""Raised when the same configuration starts to mean something else, so that old results are not taken for new."""

_NOT_THE_RESULT = {f.name for f in dataclasses.fields(RuntimeConfig)} | {"data_root"}
_DETERMINING = [f.name for f in dataclasses.fields(PretrainConfig) if f.name not in _NOT_THE_RESULT]


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that determines the figures of one run, and the place of its data."""

    config: PretrainConfig
    test_fraction: float = 0.2
    """Share that tests the probes where the configuration holds nothing out."""
    geometry_instances: int = 256
    """Samples whose random views give LiDAR and alignment."""
    untrained: bool = False
    """Measure the encoder before training too."""
    trace: tuple[int, ...] = ()
    """Epochs after which the synthetic study looks at the representation; empty for all other experiments."""

    @functools.cached_property
    def key(self) -> str:
        """Name of the run: a digest of what determines its result, not of where or how it is executed."""
        text = json.dumps(self.identity(), sort_keys=True, separators=(",", ":"), default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:KEY_LENGTH]

    def identity(self) -> dict[str, Any]:
        """What determines the result, as JSON can hold it."""
        config = {name: _plain(getattr(self.config, name)) for name in _DETERMINING}
        measured = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name != "config"}
        return {"format": FORMAT, **config, **{f"measure_{name}": value for name, value in measured.items()}}

    @property
    def shape(self) -> tuple[object, ...]:
        """What decides memory and time of a step: runs of one shape differ in seeds and small settings only."""
        c = self.config
        return (c.source, c.subset, c.imbalance, c.size, c.encoder, c.width, c.method, c.options, c.batch_size, c.views)

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(dataclasses.replace(self, trace=())), "trace": list(self.trace)} | {
            "config": to_json(self.config)
        }


def spec_from_json(plain: dict[str, Any]) -> RunSpec:
    """The inverse of `RunSpec.to_json`."""
    return RunSpec(**{**plain, "config": from_json(plain["config"]), "trace": tuple(plain["trace"])})


def _plain(value: object) -> object:
    return _views(value) if dataclasses.is_dataclass(value) else value


@functools.cache
def _views(value: Any) -> dict[str, Any]:
    """Views are few and the same for most runs of a sweep; turning them into dictionaries is most of the work."""
    return dataclasses.asdict(value)
