"""The capability table against counts made by hand."""

from __future__ import annotations

import io
import shlex
from pathlib import Path

import pytest
import tyro

import icone.methods
from icone.cli import Command
from icone.methods import METHODS, parse_options
from icone.methods.capabilities import STORED, Capability, capabilities, find_capability, option_table
from icone.methods.measured_capabilities import measure, text_of_all
from icone.terminal import Terminal

DIM, ENCODER, INSTANCES, CLASSES = 10, 1000, 50, 4


@pytest.fixture(scope="module")
def rows() -> dict[str, Capability]:
    sizes = {"dim": DIM, "encoder_parameters": ENCODER, "num_instances": INSTANCES, "num_classes": CLASSES}
    return {name: measure(method, **sizes) for name, method in METHODS.items()}


def test_what_is_stored_is_what_is_measured() -> None:
    stored = Path(icone.methods.__file__).with_name(STORED).read_text(encoding="utf-8")
    assert stored == text_of_all(), "write it anew: python -m icone.methods.measured_capabilities"
    assert [row.name for row in capabilities()] == list(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_explains_every_option_and_ends_with_a_command(name: str) -> None:
    method = find_capability(name)
    output = io.StringIO()
    Terminal(file=output, width=300).print(option_table(method))
    shown = output.getvalue()
    for option in method.options:
        assert option.text.endswith(".")
        (row,) = (line for line in shown.splitlines() if line.split()[:1] == [option.name])
        assert all(part in row for part in (str(option.default).lower(), option.allowed, option.text))
    words = shlex.split(method.example)
    command = tyro.cli(Command, prog="icone", args=words[1:])
    assert command.method == name
    assert (command.batch_size or 1) >= method.smallest_batch
    parse_options(name, command.options)


def test_every_method_has_a_row_that_says_everything(rows: dict[str, Capability]) -> None:
    assert list(rows) == list(METHODS)
    for row in rows.values():
        assert row.about.splitlines()[0].endswith(".")
        assert row.prevents_collapse
        assert bool(row.why_not_smaller) == (row.smallest_batch > 1)
    assert {row.name for row in rows.values() if row.needs_labels} == {
        "cross_entropy",
        "supcon",
        "icone_class",
        "icone_instance",
    }


def test_losses_that_are_means_over_samples_need_no_second_pass(rows: dict[str, Capability]) -> None:
    """`tests/training/test_micro_batches.py` holds all of them to the weights of the plain batch."""
    once = {row.name for row in rows.values() if not row.second_pass}
    assert once == {"moco", "dino", "diet", "cross_entropy", "icone_class", "mae", "simmim", "npid"}


def linear(inputs: int, outputs: int) -> int:
    return inputs * outputs + outputs


def test_tables_and_classifiers_grow_with_the_data(rows: dict[str, Capability]) -> None:
    assert rows["icone_instance"].extra_parameters == INSTANCES * DIM
    assert rows["diet"].extra_parameters == INSTANCES * DIM
    assert rows["icone_class"].extra_parameters == CLASSES * DIM
    assert rows["cross_entropy"].extra_parameters == linear(DIM, CLASSES)
    for name in ("icone_instance", "diet", "icone_class", "cross_entropy", "supcon"):
        assert rows[name].extra_numbers == 0
        assert rows[name].extra_bytes == 16 * rows[name].extra_parameters


def test_heads_have_the_published_sizes(rows: dict[str, Capability]) -> None:
    assert rows["simclr"].extra_parameters == linear(DIM, 2048) + 2 * 2048 + linear(2048, 128)
    assert rows["icone"].extra_parameters == rows["simclr"].extra_parameters + INSTANCES * 128
    assert rows["swav"].extra_parameters == rows["simclr"].extra_parameters + 300 * 128
    assert rows["vicreg"].extra_parameters == linear(DIM, 2048) + 2 * linear(2048, 2048) + 2 * 2 * 2048
    assert rows["supcon"].extra_parameters == linear(DIM, DIM) + linear(DIM, 128)
    projector = linear(DIM, 4096) + 2 * 4096 + linear(4096, 256)
    predictor = linear(256, 4096) + 2 * 4096 + linear(4096, 256)
    assert rows["byol"].extra_parameters == projector + predictor
    dino = linear(DIM, 2048) + linear(2048, 2048) + linear(2048, 256) + 256 * 65536
    assert rows["dino"].extra_parameters == dino


def test_copies_and_queues_are_counted_as_kept(rows: dict[str, Capability]) -> None:
    head = linear(DIM, DIM) + linear(DIM, 128)
    assert rows["moco"].extra_parameters == head
    assert rows["moco"].extra_numbers == ENCODER + head + 4096 * 128 + 1  # copy, queue and its pointer
    assert rows["moco"].extra_bytes == 16 * head + 4 * rows["moco"].extra_numbers
    assert rows["dino"].extra_numbers == ENCODER + rows["dino"].extra_parameters + 65536
