"""The script for a shell completes flags, and the names of encoders and methods behind theirs."""

from __future__ import annotations

import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path

import pytest

from icone.cli import VERBS, main
from icone.paper.commands import Paper

pytestmark = [
    pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here"),
    pytest.mark.skipif(int(version("tyro").partition(".")[0]) < 1, reason="an older tyro calls its function otherwise"),
]


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "icone"
    assert main(["--tyro-write-completion", "bash", str(path)]) == 0
    return path


def completed(script: Path, *lines: str) -> list[list[str]]:
    """What bash offers for the last word of each line."""
    function = 'try() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _tyro_icone; echo "${COMPREPLY[@]}"; }'
    tried = "\n".join([f"source {script}", function, *(f"try {line}" for line in lines)])
    done = subprocess.run(["bash", "-c", tried], capture_output=True, text=True, check=True)
    return [line.split() for line in done.stdout.splitlines()]


def test_names_of_encoders_methods_and_views_are_completed(script: Path) -> None:
    encoders, volumes, methods, views, verbs = completed(
        script,
        "icone pretrain --encoder test_",
        "icone inspect scans --encoder resnet18_3",
        "icone plan --method sim",
        "icone pretrain --image-views.b",
        "icone ev",
    )
    assert {"test_resnet", "test_vit"} <= set(encoders)
    assert volumes == ["resnet18_3d"]
    assert methods == ["simclr", "simmim"]
    assert {"--image-views.blur", "--image-views.brightness"} <= set(views)
    assert verbs == ["evaluate"]


def test_only_flags_are_offered_for_a_flag(script: Path) -> None:
    """A help text with a line break in it would be offered too."""
    verbs = [verb for verb in VERBS if verb != "paper"] + [f"paper {verb}" for verb in Paper.VERBS]
    for verb, offered in zip(verbs, completed(script, *(f"icone {verb} --" for verb in verbs)), strict=True):
        assert "--debug" in offered
        assert [word for word in offered if not word.startswith("-")] == [], verb


def test_other_names_stay_allowed() -> None:
    """The parser itself knows no list of names: an encoder of one's own is registered when it is asked for."""
    assert main(["pretrain", "synthetic:gaussians", "--encoder", "my_own_network"]) == 2
