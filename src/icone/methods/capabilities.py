"""What the methods need and what it costs: the rows of `icone methods`.

What PyTorch has to count is stored in capabilities.json, so that the command answers at once. `python -m
icone.methods.measured_capabilities` writes the file, and a test compares it with the methods as they are.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from importlib import resources
from typing import NamedTuple

from rich import box
from rich.console import Group
from rich.table import Table

from icone.errors import unknown_name

STORED = "capabilities.json"
ANY_BATCH = "any batch size"


class Option(NamedTuple):
    """A setting of a method's own, for `--options name=value`."""

    name: str
    default: bool | int | float | str
    allowed: str
    """Its type and values in words."""
    text: str
    """What it does, in a sentence."""


@dataclass(frozen=True, kw_only=True)
class Capability:
    """One method at a glance; parameters and memory come on top of the encoder's own."""

    name: str
    about: str
    """Its docstring: what it does and its paper."""
    prevents_collapse: str
    smallest_batch: int
    why_not_smaller: str
    good_batch: int
    """A batch size at which it learns well."""
    second_pass: bool
    """Whether micro-batches are encoded a second time; else their gradients add up to that of the batch."""
    needs_labels: bool
    extra_parameters: int
    """Trained numbers: heads, classifiers, tables."""
    extra_numbers: int
    """Numbers that are kept but not trained: moving copies, queues, centres."""
    extra_bytes: int
    options: tuple[Option, ...]

    @property
    def example(self) -> str:
        """A command that trains with this method and sets one of its options."""
        words = ["icone", "pretrain", "scans/", "--method", self.name]
        words += ["--batch-size", str(self.good_batch)] if self.smallest_batch > 1 else []
        words += ["--labels", "labels.csv"] if self.needs_labels else []
        words += ["--options", f"{self.options[0].name}={_written(self.options[0].default)}"] if self.options else []
        return shlex.join(words)


def capabilities() -> list[Capability]:
    """All methods with their cost for ViT-S/16 and 5,000 images of 10 classes.

    >>> {row.name: row.extra_parameters for row in capabilities()}["diet"] == 5000 * 384
    True
    """
    stored = read_stored()
    registry = sys.modules.get("icone.methods.registry")
    if registry is None:  # nobody in this process can have registered a method
        return list(stored.values())
    from icone.methods.measured_capabilities import is_built_in, measure

    return [stored[name] if is_built_in(method) else measure(method) for name, method in registry.METHODS.items()]


def find_capability(name: str) -> Capability:
    known = {row.name: row for row in capabilities()}
    if name not in known:
        raise unknown_name("method", name, known)
    return known[name]


def read_stored() -> dict[str, Capability]:
    """The methods of this package by name, as they were last measured."""
    rows = json.loads((resources.files("icone.methods") / STORED).read_text(encoding="utf-8"))
    rows = [Capability(**row | {"options": tuple(Option(**one) for one in row["options"])}) for row in rows]
    return {row.name: row for row in rows}


def method_table() -> Table:
    """All methods at a glance; memory is that of weights, gradients and moments beyond the encoder's."""
    caption = (
        "+ : beyond the encoder, for ViT-S/16, 5,000 images and 10 classes. passes: how often --micro-batch encodes a "
        "sample to get the gradient of the whole batch; 2: again, with the gradient of its features"
    )
    table = Table(box=box.SIMPLE, caption=caption, pad_edge=False, collapse_padding=True)
    table.add_column("method", no_wrap=True)
    table.add_column("what prevents collapse")
    table.add_column("min B", justify="right")
    table.add_column("passes", justify="right")
    table.add_column("labels", no_wrap=True)
    table.add_column("+weights", justify="right", no_wrap=True)
    table.add_column("+memory", justify="right", no_wrap=True)
    for row in capabilities():
        labels = "needed" if row.needs_labels else "none"
        parameters, memory = f"{row.extra_parameters / 1e6:.2f} M", f"{row.extra_bytes / 1e6:.0f} MB"
        passes = "2" if row.second_pass else "1"
        table.add_row(row.name, row.prevents_collapse, str(row.smallest_batch), passes, labels, parameters, memory)
    return table


def option_table(method: Capability) -> Group:
    """What a method does, its paper, each of its options in a row, and its smallest batch."""
    table = Table(box=box.SIMPLE, pad_edge=False, leading=1)
    table.add_column("option", no_wrap=True)
    table.add_column("default", no_wrap=True)
    table.add_column("values")
    table.add_column("what it does")
    for option in method.options:
        table.add_row(option.name, _written(option.default), option.allowed, option.text)
    batch = f"{method.smallest_batch} ({method.why_not_smaller})" if method.why_not_smaller else ANY_BATCH
    return Group(
        _unwrapped(method.about),
        table if method.options else "\nno options\n",
        f"smallest batch: {batch}",
        f"labels: {'needed' if method.needs_labels else 'none'}",
    )


def _written(value: bool | int | float | str) -> str:
    """A value as `--options` reads it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unwrapped(text: str) -> str:
    """Paragraphs in one line each, which the terminal breaks by its own width."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in text.split("\n\n"))
