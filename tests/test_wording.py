"""A text about settings is written once, with flags; Python and the command line say what can be typed there."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
import typing
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import icone
from icone.cli import VERBS, main
from icone.config import FinetuneConfig, PretrainConfig
from icone.errors import InputError
from icone.files import write_json
from icone.paper.commands import Paper
from icone.report import write
from icone.run import Run
from icone.wording import COMMAND_LINE_ONLY, FUNCTIONS, OTHER_VERBS, SWITCHES, command_line, in_user_terms

PACKAGE = Path(icone.__file__).parent
FUNCTIONS_OF_THE_PACKAGE = [write.report if name == "report" else getattr(icone, name) for name in FUNCTIONS]


@pytest.mark.parametrize(
    ("text", "python", "flags"),
    [
        ("give --labels for probes", "give labels= for probes", "give --labels for probes"),
        ("--size must be at least 8", "size must be at least 8", "--size must be at least 8"),
        ("--skip-unreadable must be a", "skip_unreadable must be a", "--skip-unreadable must be a"),
        ("or --no-untrained, --resume.", "or untrained=False, resume=True.", "or --no-untrained, --resume."),
        ("(--test-fraction=0.2).", "(test_fraction=0.2).", "(--test-fraction 0.2)."),
        ('--window="-160 240" is', "window=(-160, 240) is", "--window -160 240 is"),
        ("--labels='my labels.csv'", 'labels="my labels.csv"', "--labels 'my labels.csv'"),
        ("--channels=gray or --channels=rgb", 'channels="gray" or channels="rgb"', "--channels gray or --channels rgb"),
        ("--options=diversity=log", 'options={"diversity": "log"}', "--options diversity=log"),
        ("--volume-views.rotate=0", "volume_views=VolumeViews(rotate=0)", "--volume-views.rotate 0"),
        ("`icone pretrain --crop` and `icone plan`", "`icone.pretrain(…, crop=…)` and `icone.plan`", None),
        (
            "--method=icone does not; --resume",
            'method="icone" does not; resume=True',
            "--method icone does not; --resume",
        ),
        ("next icone report runs/a --out b", "next icone report runs/a --out b", None),
        ("`ray start --head`, my--scan.nii, a/--x", "`ray start --head`, my--scan.nii, a/--x", None),
        ("`--import FILE.py`, --devices=2", "`--import FILE.py`, --devices 2", "`--import FILE.py`, --devices 2"),
    ],
)
def test_a_setting_is_called_as_its_reader_types_it(text: str, python: str, flags: str | None) -> None:
    assert in_user_terms(text) == python
    assert in_user_terms(python) == python  # an error that holds the text of another one is read twice
    with command_line():
        assert in_user_terms(text) == (text if flags is None else flags)


def test_errors_and_notes_name_the_argument_in_python_and_the_flag_in_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InputError, match=r"^size must be at least 8 .*, got 3$"):
        icone.inspect(np.zeros((4, 16, 16)), size=3)
    assert main(["inspect", "synthetic:gaussians", "--size", "3"]) == 2
    assert "--size must be at least 8" in capsys.readouterr().err
    images = np.random.default_rng(0).random((4, 5, 20, 20))
    found = icone.inspect(images, encoder="resnet10_3d")
    assert any("size=20 keeps their size" in note for note in found["notes"]), found["notes"]
    assert "size=20 keeps their size" in repr(found)
    assert "--" not in repr(found)
    np.save(tmp_path / "a.npy", images)
    assert main(["inspect", str(tmp_path / "a.npy"), "--encoder", "resnet10_3d", "--cache", "off"]) == 0
    assert "--size 20 keeps their size" in capsys.readouterr().out


def fields(*kinds: type) -> dict[str, object]:
    """The flags of verbs, and what type their values have."""
    return {
        field.name.replace("_", "-"): typing.get_type_hints(kind)[field.name]
        for kind in kinds
        for field in dataclasses.fields(kind)
    }


def test_switches_and_what_only_the_command_line_has_are_known() -> None:
    flags = fields(*(kind for name, kind in VERBS.items() if name != "paper"))
    arguments = {name for function in FUNCTIONS_OF_THE_PACKAGE for name in inspect.signature(function).parameters}
    arguments |= {field.name for kind in (PretrainConfig, FinetuneConfig) for field in dataclasses.fields(kind)}
    assert {*FUNCTIONS, *OTHER_VERBS} == set(VERBS)
    for flag, kind in flags.items():
        has_argument = flag.replace("-", "_") in arguments
        if kind is bool and has_argument and flag != "tiles":  # in `embed` a switch, in `pretrain` a number
            assert flag in SWITCHES, flag
        if not has_argument and flag not in ("name", "folder", "run-folder", "run-folders", "projection"):
            assert flag in COMMAND_LINE_ONLY, flag


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Texts of a file that can reach a person: all but docstrings; a value in an f-string is written {}."""
    tree = ast.parse(path.read_text())
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    parts |= {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(p.value) if isinstance(p, ast.Constant) else "{}" for p in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            yield node.lineno, node.value


def test_texts_name_flags_that_exist_with_their_values_behind_an_equals_sign() -> None:
    known = set(fields(*VERBS.values(), *Paper.VERBS.values())) | {"import", "help", "version"}
    known |= {f"no-{name}" for name in SWITCHES}
    words = "auto|off|paper|gray|rgb|captured|eager|icone|yes|zero|keep|group|torch|hub|onnx|classification|regression"
    loose = re.compile(rf"--[a-z][a-z.-]* (\{{\}}|-?\d|[A-Z]{{2,}}\b|\"|({words})\b)")
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent.name == "cli" or "paper" in path.relative_to(PACKAGE).parts:
            continue  # read on the command line alone
        for line, text in texts(path):
            text = re.sub(r"`[^`]*`|icone [a-z]+ .*|^--[a-z-]+$", "", text)  # commands, and single words of them
            for flag in re.findall(r"(?<![\w/-])--([a-z][a-z0-9-]*)", text):
                assert flag in known, f"{path}:{line}: there is no --{flag}"
            assert not loose.search(text), f"{path}:{line}: write --flag=value, not {loose.search(text)}"


def test_one_image_is_one_image_and_notes_of_a_run_are_flags_as_they_are_typed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one").mkdir()
    Image.effect_noise((16, 16), 50).save(tmp_path / "one" / "a.png")
    assert main(["inspect", str(tmp_path / "one"), "--encoder", "test_vit", "--size", "16", "--cache", "off"]) == 0
    assert "samples   1 image (2D)\n" in capsys.readouterr().out
    said = {"notes": ["if they are quantities, give --task=regression"]}
    write_json(tmp_path / "config.json", {"config": {"source": "scans"}, "data": said})
    assert Run(tmp_path).notes == ['if they are quantities, give task="regression"']
    with command_line():
        assert Run(tmp_path).notes == ["if they are quantities, give --task regression"]
