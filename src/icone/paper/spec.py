"""One run of a sweep: its configuration, what is measured, and the name that both give it."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
from dataclasses import dataclass
from typing import Any

from icone.config import PretrainConfig, RuntimeConfig
from icone.config_text import from_json, to_json
from icone.methods import chosen_options
from icone.paper.contents import Contents, contents_of
from icone.recipe import RECIPE_VERSION

KEY_LENGTH = 20
MADE_UP = "random:"
"""Begins the source of a run whose samples hold nothing."""

_NOT_THE_RESULT = {f.name for f in dataclasses.fields(RuntimeConfig)} | {"data_root"}
_DETERMINING = [f.name for f in dataclasses.fields(PretrainConfig) if f.name not in _NOT_THE_RESULT]
_LATER = {
    name: getattr(PretrainConfig(source=""), name)
    for name in (
        "schedule", "micro_batch", "label_column", "group_column", "task", "include", "exclude", "no_labels",
        "channels_from", "missing_channels", "weights", "layer_decay", "warmup", "tiles", "stride", "background",
        "crop", "crop_overlap", "colour", "freeze_patch_embed",
    )
}  # fmt: skip
_LATER_OPTIONS: dict[str, object] = {"center_weight": 0.0}
_OPTIONAL = {"cost", "official_test"}
"""What came after the first stores, of settings, options of methods and measures: defaults are no part of a key, so
that known runs keep theirs."""
_NESTED = {"image_views", "volume_views", "point_views"}
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=str).encode


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Everything that determines the metrics of one run, and where its data is."""

    config: PretrainConfig
    test_fraction: float = 0.2
    """Share that tests the probes where the configuration holds nothing out."""
    geometry_instances: int = 256
    """Samples whose random views give LiDAR and alignment."""
    untrained: bool = False
    """Measure the encoder before training too."""
    trace: tuple[int, ...] = ()
    """Epochs after which the synthetic study looks at the representation; empty for all other experiments."""
    official_test: bool = False
    """Test the probes on the official test split instead of a held-out part."""
    cost: str = ""
    """Instead of training, measure time and memory of a step on made-up samples (`icone.paper.cost`): eager or captured
    on a GPU, or cpu; a following `literal` is IConE with the whole N × N matrix."""
    contents: Contents | None = None
    """What the data holds, where a grid of many runs has looked; None: `key` looks when it is first asked for."""

    @functools.cached_property
    def key(self) -> str:
        """Name of the run: a digest of what determines its result, not of where or how it is executed.

        `RECIPE_VERSION` is part of it: a configuration that trains or measures something else than before gets another.
        """
        return hashlib.sha256(_canonical(self.identity()).encode()).hexdigest()[:KEY_LENGTH]

    def identity(self) -> dict[str, Any]:
        """What determines the result, as JSON can hold it."""
        config = {name: getattr(self.config, name) for name in _DETERMINING}
        for name, default in _LATER.items():
            if config[name] == default:
                del config[name]
        config |= {name: _views(config[name]) for name in _NESTED}
        config |= self.found_contents()._asdict()
        config["options"] = _all_options(self.config.method, self.config.options, self.config.recipe)
        measures = {
            f"measure_{name}": getattr(self, name) for name in _MEASURES if getattr(self, name) or name not in _OPTIONAL
        }
        return {"recipe_version": RECIPE_VERSION, **config, **measures}

    def found_contents(self) -> Contents:
        """What the data held when the run was described."""
        return self.contents or contents_of(self.config)

    @property
    def shape(self) -> tuple[object, ...]:
        """What decides memory and time of a step: runs of one shape differ in seeds and small settings only."""
        c = self.config
        return (
            self.cost,
            c.source,
            c.subset,
            c.imbalance,
            c.size,
            c.crop,
            c.encoder,
            c.width,
            c.method,
            c.options,
            c.micro_batch,
            c.batch_size,
            c.views,
        )

    def to_json(self) -> dict[str, Any]:
        measures = {name: getattr(self, name) for name in _MEASURES}
        return {**measures, "config": to_json(self.config), "contents": list(self.found_contents())}


@dataclass(frozen=True)
class Cell:
    """A run of an experiment, and the labels by which its tables and figures find it."""

    spec: RunSpec
    labels: dict[str, Any]


_MEASURES = [f.name for f in dataclasses.fields(RunSpec) if f.name not in ("config", "contents")]


def spec_from_json(plain: dict[str, Any]) -> RunSpec:
    """The inverse of `RunSpec.to_json`."""
    restored = {"config": from_json(plain["config"]), "trace": tuple(plain["trace"])}
    return RunSpec(**{**plain, **restored, "contents": Contents(*plain["contents"])})


@functools.cache
def _all_options(method: str, options: tuple[str, ...], recipe: str) -> dict[str, object]:
    """Defaults too: where one changes, the runs of that method are others."""
    later = _LATER_OPTIONS.items()
    chosen = {
        name: value for name, value in chosen_options(method, options, recipe).items() if (name, value) not in later
    }
    if chosen.get("diversity") == "auto":  # what it was called, and is where a step can afford all pairs
        chosen["diversity"] = "orthogonality"
    return chosen


@functools.cache
def _views(value: Any) -> str:
    """Views are few and the same for most runs of a sweep; turning them into text would be most of the work."""
    return _canonical(dataclasses.asdict(value))
