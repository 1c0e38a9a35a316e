"""Every number among the options of every method has a range, and what lies outside of it is refused by a sentence."""

from __future__ import annotations

import pytest
import torch

from icone.encoders import build_encoder
from icone.errors import InputError
from icone.methods import METHODS, Setting, build_method, chosen_options, method_options, option_ranges, parse_options

NUMBERS = [
    (method, option, default)
    for method in METHODS
    for option, default in method_options(method).items()
    if isinstance(default, (int, float)) and not isinstance(default, bool)
]
ZERO_ALLOWED = {"icone": ("out",), "npid": ("negatives",), "simmim": ("mask_patch",)}
NAMES = [
    (method, option)
    for method in METHODS
    for option, default in method_options(method).items()
    if isinstance(default, (bool, str))
]


def build(method: str, *options: str) -> None:
    setting = Setting(num_instances=6, batch_size=4, labels=torch.tensor([0, 1] * 3), num_classes=2)
    build_method(method, build_encoder("mlp", spatial_dims=0, in_channels=2, features=4), setting, options)


@pytest.mark.parametrize(("method", "option", "default"), NUMBERS)
def test_numbers_that_no_method_can_use_are_refused(method: str, option: str, default: float) -> None:
    parse_options(method, [f"{option}={default}"])  # the default itself is fine
    absurd = ["-1", "nan", "inf", "-inf", "1e400", "", "many", "9" * 30, "9" * 5000]
    if isinstance(default, float):  # a finite weight or temperature may be as large as it likes
        absurd = [text for text in absurd if not text.startswith("9")]
    is_share = "momentum" in option or option in ("warmup", "label_smoothing", "class_share", "mask_ratio", "gamma")
    if is_share:
        absurd += ["2", "1.0001"]
    elif not option.endswith("weight") and option not in ZERO_ALLOWED.get(method, ()):
        absurd += ["0"]
    for text in absurd:
        with pytest.raises(InputError, match=f"^method option {option}="):
            build(method, f"{option}={text}")


@pytest.mark.parametrize(("method", "option"), NAMES)
def test_names_that_no_method_knows_are_refused(method: str, option: str) -> None:
    with pytest.raises(InputError, match="nonsense"):
        build(method, f"{option}=nonsense")


def test_every_number_among_the_options_has_a_range() -> None:
    assert {(method, option) for method in METHODS for option in option_ranges(method)} == {n[:2] for n in NUMBERS}


def test_iconeinstance_as_printed_pulls_to_the_class_alone() -> None:
    assert chosen_options("icone_instance", (), "icone")["class_share"] == 0.75
    printed = chosen_options("icone_instance", (), "paper")
    assert (printed["class_share"], printed["view_weight"], printed["normalisation"]) == (1.0, 1.0, "pair")
    assert chosen_options("icone_instance", ["class_share=0.5"], "paper")["class_share"] == 0.5
