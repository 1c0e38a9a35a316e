"""The recipe is in one place, and any training loop can have it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import icone
from icone.config import PretrainConfig, TrainingConfig
from icone.encoders import build_encoder
from icone.methods import METHODS, Setting, build_method, method_options
from icone.recipe import BASE_LR, PAPER_OPTIONS, WEIGHT_DECAY, parameter_groups
from icone.training.optimizer import build_optimizer


@pytest.mark.parametrize("recipe", ["icone", "paper"])
@pytest.mark.parametrize("batch_size", [1, 16, 64])
def test_a_loop_of_your_own_gets_the_optimizer_of_a_run(recipe: str, batch_size: int) -> None:
    torch.manual_seed(0)
    encoder = build_encoder(in_channels=4, spatial_dims=0, features=8)
    method = build_method("icone", encoder, Setting(num_instances=10, batch_size=batch_size), recipe=recipe)
    config = PretrainConfig(source="none", recipe=recipe, batch_size=batch_size)  # type: ignore[arg-type]
    run = build_optimizer(method, config, torch.device("cpu"))
    groups = parameter_groups(
        method.encoder,
        method.head,  # type: ignore[arg-type]
        method.objective,  # type: ignore[arg-type]
        batch_size=batch_size,
        recipe=recipe,  # type: ignore[arg-type]
    )
    own = torch.optim.AdamW(groups)
    assert len(own.param_groups) == len(run.param_groups)
    for ours, theirs in zip(own.param_groups, run.param_groups, strict=True):
        assert {id(p) for p in ours["params"]} == {id(p) for p in theirs["params"]}
        for name in ("lr", "betas", "eps", "weight_decay"):
            assert ours[name] == pytest.approx(theirs[name])


def test_anchors_have_an_epsilon_of_their_own_unless_the_recipe_is_the_papers() -> None:
    loss = icone.IConELoss(num_instances=20, dim=4)
    encoder, anchors = parameter_groups(nn.Linear(3, 4), loss, batch_size=1)
    assert anchors["eps"] > 1000 * encoder["eps"]
    (together,) = parameter_groups(nn.Linear(3, 4), loss, batch_size=1, recipe="paper")
    assert (together["lr"], together["betas"], together["eps"]) == (1e-4, (0.9, 0.999), 1e-8)


def test_what_is_spared_is_not_decayed() -> None:
    layer = nn.Linear(3, 4)
    decays = {
        id(p): group["weight_decay"]
        for group in parameter_groups(layer, batch_size=4, undecayed=[layer.bias])
        for p in group["params"]
    }
    assert decays == {id(layer.weight): WEIGHT_DECAY, id(layer.bias): 0.0}


def test_defaults_of_the_configuration_are_those_of_the_recipe() -> None:
    assert (TrainingConfig().lr, TrainingConfig().weight_decay) == (BASE_LR, WEIGHT_DECAY)


@pytest.mark.parametrize("name", METHODS)
def test_options_of_the_paper_exist_and_differ_from_the_defaults(name: str) -> None:
    defaults = method_options(name)
    for option, value in METHODS[name].paper_options.items():
        assert defaults[option] != value
    assert METHODS[name].paper_options == PAPER_OPTIONS.get(name, {})
