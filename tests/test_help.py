"""`--help` of every verb at 80 columns, and settings that come from a file."""

from __future__ import annotations

import dataclasses
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import tyro

from icone.cli import TASKS, VERBS, Command, main
from icone.cli.examples import EXAMPLES
from icone.cli.given_files import read_config
from icone.cli.help_text import PRETRAIN_GROUPS, _flags, check_flags
from icone.cli.learn import Pretrain
from icone.config import ImageViews, PretrainConfig
from icone.config_text import from_json, to_json, to_toml
from icone.paper.commands import Paper

ROOT = Path(__file__).parents[1]
NAMES = ["", *VERBS, *(f"paper {name}" for name in Paper.VERBS)]


@pytest.mark.parametrize("name", NAMES)
def test_help_fits_into_80_columns_and_ends_with_examples(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert main([*name.split(), "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert len(EXAMPLES[name]) >= 2
    commands = [f"  {command}" for _, command in EXAMPLES[name]]
    assert [line for line in lines[lines.index("Examples") :] if line in commands] == commands
    kind = Paper.VERBS[name.split()[1]] if " " in name else VERBS.get(name)
    if kind is not None and kind is not Paper:  # every flag that tyro takes is shown
        flags = {field.name.replace("_", "-") for field in dataclasses.fields(kind)} - {"pipeline"}
        shown = "\n".join(lines)
        positional = {
            "source",
            "sources",
            "names",
            "run-folder",
            "run-folders",
            "folder",
            "name",
            "experiments",
            "file",
        }
        assert all(f"--{flag}" in shown for flag in flags - positional)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("pretrain cells/ --epoch 2", "unknown flag --epoch; did you mean --epochs? `icone pretrain --help` lists all"),
        ("pretrain cells/ --batchsize=4", "unknown flag --batchsize; did you mean --batch-size"),
        ("embed runs/cells --epochs 3", "unknown flag --epochs"),
        ("paper list --seedz 3", "unknown flag --seedz; did you mean --seeds"),
        (
            "pretrain cells/ --exclude --yy*",
            "unknown flag --yy*. A value of --exclude that begins with -- follows an equals sign, without a space.",
        ),
        ("pretrain cells/ --zzzz", "unknown flag --zzzz. `icone pretrain --help` lists all"),
    ],
)
def test_an_unknown_flag_is_said_in_one_line(words: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words.split()) == 2
    output = capsys.readouterr()
    assert f"error: {said}" in " ".join(output.err.split())
    assert output.out == ""
    assert "╭" not in output.err


def test_all_spellings_of_a_flag_are_known() -> None:
    words = ["--batch_size", "4", "--batch-size=4", "--no-resume", "--no-labels", "--no-no-labels", "--size=-1", "-x"]
    check_flags([*words, "--image-views.crop_scale", "0.2", "1", "--", "--what"], "pretrain", Pretrain)
    check_flags(["--no-untrained"], "evaluate", VERBS["evaluate"])


@pytest.mark.parametrize("verb", ["inspect", "plan", "pretrain", "embed", "predict", "export", "evaluate", "finetune"])
def test_a_missing_word_has_the_name_that_the_help_gives_it(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    word = capsys.readouterr().out.split()[3]  # Usage: icone VERB WORD
    assert main([verb]) == 2
    said = capsys.readouterr().err.split()
    assert word in said
    assert not {"STR", "PATH"} & {*said}


def test_help_and_lists_do_not_wait_for_pytorch(tmp_path: Path) -> None:
    """Importing it takes seconds; so do pandas and scikit-learn."""
    commands = [["--help"], ["pretrain", "--help"], ["--version"], ["methods"], ["methods", "mae"], ["paper", "list"]]
    code = f"import sys; from icone.cli import main; print([main(c) for c in {commands}], *sys.modules, sep='\\n')"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60)
    said = run.stdout.splitlines()
    codes = str([0] * len(commands))
    assert codes in said, run.stderr
    assert not {"torch", "pandas", "sklearn", "numpy"} & set(said[said.index(codes) :])


def test_every_setting_of_pretrain_has_a_group() -> None:
    grouped = [name for names in PRETRAIN_GROUPS.values() for name in names]
    assert len(grouped) == len(set(grouped))
    assert set(grouped) == {field.name for field in dataclasses.fields(Pretrain)} - {"pipeline"}
    assert {name for verbs in TASKS.values() for name in verbs} == set(VERBS)


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name not in ("", "paper")])
def test_examples_parse(name: str) -> None:
    for _, command in EXAMPLES[name]:
        words = shlex.split(command)
        if "--config" not in words:  # those are tested below
            assert words[0] == "icone"
            assert tyro.cli(Command, prog="icone", args=words[1:]) is not None


def test_settings_survive_a_toml_file(tmp_path: Path) -> None:
    """By the reader of TOML in the standard library, for texts that need escapes too."""
    config = PretrainConfig(
        source='a "scan"\\ü\n',
        window=(-160, 240),
        include=("*.png",),
        image_views=ImageViews(blur=0),
        lr=1e-7,
        warmup=0.1,
    )
    file = tmp_path / "config.toml"
    text = to_toml(config)
    assert text is not None
    file.write_text(text, encoding="utf-8")
    read = read_config(file, Pretrain, Pretrain)
    plain = {field.name: getattr(read, field.name) for field in dataclasses.fields(PretrainConfig)}
    assert to_json(PretrainConfig(**plain)) == to_json(config)
    assert from_json(to_json(config)) == config
    assert to_toml(dataclasses.replace(config, source="object:ndarray")) is None
    assert to_toml(dataclasses.replace(config, labels=Path("\udcff.csv"))) is None


def test_a_run_is_repeated_by_its_file_and_flags_win(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", "synthetic:gaussians", "--subset", "40", "--features", "4", "--epochs", "1"]
    assert main([*words, "--out", str(tmp_path / "a")]) == 0
    command = "icone pretrain synthetic:gaussians --batch-size 1 --epochs 1 --features 4 --subset 40"
    command += f" --out {tmp_path / 'a-2'}"
    assert f"repeat    {command}" in capsys.readouterr().out.splitlines()
    about, _, by_file, *first = (tmp_path / "a" / "config.toml").read_text().splitlines()
    assert about.startswith("# The settings of this run")
    assert by_file == f"# icone pretrain --config {tmp_path / 'a' / 'config.toml'} --out {tmp_path / 'a-2'}"
    assert main([*shlex.split(by_file)[2:], "--seed", "3"]) == 0
    repeated = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("repeat"))
    assert "--seed 3" in repeated
    assert repeated.endswith(f"--out {tmp_path / 'a-2-2'}")
    second = (tmp_path / "a-2" / "config.toml").read_text().splitlines()[3:]
    assert [line for line in second if line not in first] == ["seed = 3"]
    assert main(shlex.split(command)[1:]) == 2  # that folder is taken now, and another is named
    assert f"--out {tmp_path / 'a-2-2'}" in capsys.readouterr().err


def test_no_command_repeats_a_run_that_was_extended(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["pretrain", "synthetic:gaussians", "--subset", "8", "--features", "4", "--epochs", "1"]
    words += ["--out", str(tmp_path / "a")]
    assert main(words) == 0
    assert main([*words, "--extend"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in said if " --out " in line] == ["repeat", "anew"]
    assert "which had other samples or settings before" in (tmp_path / "a" / "config.toml").read_text()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("epoch = 3", "did you mean epochs"),
        ("[image_views]\nblurr = 1", "did you mean image_views.blur"),
        ("image_views = 3", "must be a table"),
        ("epochs = '3'", "--epochs must be a whole number"),
        ("epochs = 0", "--epochs must be at least 1"),
        ("epochs =", "is no TOML file"),
    ],
)
def test_a_wrong_file_is_named(text: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    assert main(["plan", "scans", f"--config={file}"]) == 2
    message = capsys.readouterr().err
    assert reason in message
    assert "mine.toml" in message


OTHER_TOOLS = {
    "--gpus", "--ipc", "--rdzv-id", "--rdzv-backend", "--rdzv-endpoint", "--signals-to-handle", "--signal", "--requeue",
    "--only", "--compiled", "--where",
}  # fmt: skip
"""Flags of Docker, torchrun, SLURM and the scripts in benchmarks/ that stand by themselves on the pages."""


def all_flags() -> set[str]:
    kinds = [kind for kind in (*VERBS.values(), *Paper.VERBS.values()) if kind is not Paper]
    usages = [flag.usage for kind in kinds for _, flags in _flags(kind) for flag in flags if not flag.is_positional]
    named = {word.strip(",") for usage in usages for word in usage.split() if word.startswith("--")}
    return named | {"--help", "--version", "--import"} | {"--no-" + flag.removeprefix("--") for flag in named}


@pytest.mark.parametrize("page", sorted([*ROOT.glob("docs/*.md"), ROOT / "README.md"]), ids=lambda page: page.name)
def test_every_flag_that_a_page_names_exists(page: Path) -> None:
    """In commands of icone and wherever a flag stands by itself; commands of other tools have flags of their own."""
    text = page.read_text(encoding="utf-8")
    pieces = re.findall(r"```.*?```|`[^`\n]+`", text, re.DOTALL)
    lines = [line for piece in pieces for line in piece.strip("`").splitlines()]
    ours = [line for line in lines if re.match(r"(\$ )?icone |--", line.strip())]
    words = {word for line in ours for word in re.findall(r"(?<!\S)--[a-z][a-z0-9.…-]*", line)}
    found = {word.rstrip(".") for word in words if "…" not in word}  # --image-views.… stands for several
    assert found - all_flags() - OTHER_TOOLS == set()
