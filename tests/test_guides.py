"""Every command in README and on the site: run at toy size on made data, or read by the parser of the program it calls.

The id of a test says which of the two was done: `run` or `slow run`, or `read` with the reason why it is not run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import nibabel as nib
import numpy as np
import pytest
import torch
import zarr
from PIL import Image
from torch.distributed.run import get_args_parser

from icone.cli import VERBS, _parsed, main
from icone.cli.help_text import _flags
from icone.encoders import build_encoder
from icone.paper.commands import Paper
from icone.validation import check_settings

ROOT = Path(__file__).parents[1]
OWN_TESTS = {"start.md": "icone", "README.md": "digits"}
"""Commands with this word on these pages are run one after the other by tests of their own: here they are read."""
NOT_RUN = {
    r"^pip |^make ": "changes the installation",
    r"^docker|^apptainer": "needs a container engine",
    r"^#!|^sbatch": "needs SLURM",
    r"^python benchmarks": "takes minutes",
    r"--weights (timm|hf-hub|medicalnet)": "needs a network",
    r"paper run (?!all --dry-run)": "takes minutes",
    r"paper show .*--(datasets|smoke)|paper show (batch|memory)": "shows runs of minutes",
    r"paper (export|import)": "carries runs of minutes",
    r"…": "leaves a value to the reader",
}
SLOW = r"--devices|^torchrun|--weights weights.pth|--format onnx|--label-fractions|--batch-size auto"
SMALLER = {
    r"--crop 96": "--crop 16", r"--size \d+": "--size 16", r"--tiles 64": "--tiles 16", r"--stride 32": "--stride 8",
    r"--epochs \d+": "--epochs 1", r"--batch-size 64": "--batch-size 16", r"--devices 4": "--devices 2",
    r"--nproc-per-node 4": "--nproc-per-node 2", r"runs/icone runs/simclr": "runs/scans runs/other",
    r"/new/place/": "moved/", r"\bRUN\b": "runs/scans", r"SwinUNETR": "SwinUNETR --size 32 --subset 2 --batch-size 1",
}  # fmt: skip
VOLUMES = {"--encoder": "resnet10_3d", "--width": "0.25", "--size": "16"}
IMAGES = {"--encoder": "test_resnet", "--size": "16"}
PRETRAIN = {"--epochs": "1", "--batch-size": "8", "--device": "cpu", "--cache": "off"}
ADDED: dict[str, dict[str, str]] = {
    "pretrain": PRETRAIN,
    "inspect": {"--cache": "off"},
    "plan": PRETRAIN,
    "evaluate": {"--geometry-instances": "8"},
    "report": {"--projections": "pca"},
    "figures": {"--names": "history"},
    "finetune": {"--epochs": "1", "--no-scratch": ""},
}
"""What makes a command small, where it does not say it itself."""


class Shown(NamedTuple):
    """A command, or a script, and the page that shows it."""

    page: str
    text: str

    @property
    def reason(self) -> str:
        """Why it is not run, or nothing."""
        if self.page in OWN_TESTS and OWN_TESTS[self.page] in self.text:
            return "a test of its own runs it"
        return next((reason for pattern, reason in NOT_RUN.items() if re.search(pattern, self.text)), "")

    def __str__(self) -> str:
        done = f"read ({self.reason})" if self.reason else "slow run" if re.search(SLOW, self.text) else "run"
        return f"{done}: {self.page}: {' '.join(self.text.split())[:100]}"


def pages() -> list[Path]:
    docs = ROOT / "docs"
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted(docs.glob("*.md")),
        *sorted(docs.glob("decisions/*.md")),
    ]


def fences(text: str) -> list[tuple[str, str]]:
    """The language and the text of every fence."""
    return re.findall(r"^```(\S*)[^\n]*\n(.*?)^```", text, re.M | re.S)


def shown() -> Iterator[Shown]:
    """The commands of fences that are `sh`, and those behind a `$` in fences without a language."""
    for page in pages():
        for language, text in fences(page.read_text(encoding="utf-8")):
            if language == "sh" and re.match(r"#!|sbatch", text):
                yield Shown(page.name, text)
            elif language == "sh":
                lines = re.sub(r'python -c "[^"]*"', "", text).replace("\\\n", " ").splitlines()
                yield from (Shown(page.name, re.sub(r"\s+#\s.*", "", line)) for line in lines if line.strip())
            elif not language:
                lines = [line[2:] for line in text.splitlines() if line.startswith("$ icone ")]
                yield from (Shown(page.name, line) for line in lines if "…" not in line)


SHOWN = list(dict.fromkeys(shown()))


def test_all_pages_take_part() -> None:
    """A fence that holds commands is marked so; else nothing here would see them."""
    assert len([one for one in SHOWN if not one.reason]) > 35
    for page in pages():
        for language, text in fences(page.read_text(encoding="utf-8")):
            assert language or not re.search(r"^(icone [a-z]+ |python |pip )", text, re.M), (page.name, text)


# ---- run ----


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with small data under the names that the guides use, and runs of them."""
    folder = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    rows = ["id,label,age,patient"]
    for name in ("scans", "other_scans", "cells", "hippocampus"):
        (folder / name).mkdir()
        for i in range(20):
            values = rng.integers(0, 120, (16, 16, 16)).astype(np.uint8) + np.uint8(100 * (i % 2))
            file = f"{name}_{i}.png" if name == "cells" else f"{name}_{i}.nii.gz"
            if name == "cells":
                Image.fromarray(values[0]).save(folder / name / file)
            else:
                nib.save(nib.Nifti1Image(values, np.eye(4)), folder / name / file)
            rows.append(f"{file},{'ab'[i % 2]},{20.5 + i},p{i // 2}")
    for name in ("labels.csv", "other.csv"):
        (folder / name).write_text("\n".join(rows) + "\n")
    shutil.copytree(folder / "scans", folder / "moved" / "scans")
    shutil.copy(folder / "scans" / "scans_0.nii.gz", folder / "scan.nii.gz")
    tissue = np.zeros((48, 48, 48), dtype=np.uint8)
    tissue[:, :32] = rng.integers(100, 200, (48, 32, 48))
    zarr.create_array(str(folder / "brain.zarr"), data=tissue, chunks=(16, 16, 16))
    (folder / "mine.toml").write_text('source = "scans"\n')
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for command in (
            "pretrain scans/ --out runs/scans", "pretrain scans/ --out runs/other --seed 1",
            "pretrain brain.zarr --tiles 16 --out runs/brain", "pretrain cells/ --seeds 2 --out runs/cells",
            "evaluate runs/scans --labels labels.csv", "evaluate runs/other", "evaluate runs/cells",
            "finetune runs/scans --labels labels.csv --out runs/scans-grade",
        ):  # fmt: skip
            assert main(small(f"icone {command}")) == 0
    return folder


def small(command: str) -> list[str]:
    """The words behind `icone`, at toy size."""
    for large, little in SMALLER.items():
        command = re.sub(large, little, command)
    _, verb, *words = shlex.split(command)
    added = ADDED.get(verb, {})
    if verb in ("pretrain", "plan", "inspect") and "--config" not in words and not words[0].startswith("runs"):
        kind = IMAGES if "cells" in words[0] else VOLUMES
        fixed = {"--crop", "--tiles"} & set(words)
        added = added | {flag: value for flag, value in kind.items() if not (fixed and flag == "--size")}
    if "monai:" in command:
        added = {flag: value for flag, value in added.items() if flag != "--width"}
    missing = [word for flag, value in added.items() if flag not in words for word in (flag, value)]
    return [word for word in (verb, *words, *missing) if word]


def make_room(words: list[str]) -> None:
    """Remove the run that a command is going to write, unless it goes on with it."""
    if words[0] in ("pretrain", "finetune") and "--resume" not in words:
        out = words[words.index("--out") + 1] if "--out" in words else f"runs/{Path(words[1]).stem}"
        if words[0] == "pretrain" or "--out" in words:
            shutil.rmtree(out, ignore_errors=True)


def marked(one: Shown) -> Any:
    return pytest.param(one, id=str(one), marks=[pytest.mark.slow] if re.search(SLOW, one.text) else [])


@pytest.mark.parametrize("one", [marked(one) for one in SHOWN if not one.reason])
def test_run(
    one: Shown, world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """The command ends with 0 in a copy of the world."""
    shutil.copytree(world, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")
    (tmp_path / "here" / "docs").symlink_to(ROOT / "docs")
    if "weights.pth" in one.text:
        network = build_encoder("monai:SwinUNETR", in_channels=1, spatial_dims=3, size=32)
        torch.save(network.state_dict(), "weights.pth")
    if one.text.startswith("torchrun"):
        launcher, inner = one.text.split(" -m icone ")
        make_room(words := small(f"icone {inner}"))
        launcher = re.sub("per-node 4", "per-node 2", launcher).removeprefix("torchrun")
        command = [sys.executable, "-m", "torch.distributed.run", *launcher.split(), "-m", "icone", *words]
        assert subprocess.run(command).returncode == 0, capfd.readouterr().err
        return
    make_room(words := small(one.text.replace("--out docs/results.md", "--out results.md")))
    assert main(words) == 0, capfd.readouterr().err


# ---- read ----


def read_icone(words: list[str]) -> None:
    """By the real parser, and its checks of values."""
    if words == ["--version"] or "--help" in words:
        words = [word for word in words if word not in ("--help", "--version")]
        assert not words or words[0] in VERBS, words
    elif words[0] == "--tyro-write-completion":
        assert main([*words[:2], "/dev/null"]) == 0
    else:
        command = _parsed(shlex.split(re.sub(r"--import \S+", "", shlex.join(words))))
        check_settings(command.verb if isinstance(command, Paper) else command)


def read_pip(words: list[str]) -> None:
    assert words[0] == "install", words
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for named in re.findall(r"\[([^\]]+)\]", words[1]):
        assert named == "extra" or set(named.split(",")) <= extras.keys(), named


def read_make(words: list[str]) -> None:
    assert re.search(rf"^{words[0]}:", (ROOT / "Makefile").read_text(), re.M), words


def read_python(words: list[str]) -> None:
    """A script of the repository names every flag, as an argument or as a field."""
    if words[0] == "-m":
        assert (ROOT / "src" / Path(*words[1].split("."))).with_suffix(".py").is_file(), words
        return
    source = (ROOT / words[0]).read_text(encoding="utf-8")
    for word in words[1:]:
        if word.startswith("--"):
            assert re.search(rf'"{word}"|\b{word[2:].replace("-", "_")}\b *:', source), (words[0], word)


def read_pytest(words: list[str]) -> None:
    assert (ROOT / words[-1]).is_file(), words


def read_torchrun(words: list[str]) -> None:
    """By its own parser; in a sentence it may stand without a program to start."""
    given = get_args_parser().parse_args(words if "-m" in words else [w for w in words if w != "--help"] + ["a", "b"])
    if given.module:
        assert given.training_script == "icone"
        read_icone(given.training_script_args)


def read_container(words: list[str]) -> None:
    """Recipes are there and know the build arguments; what runs inside is a command of icone."""
    if words[0] == "run":
        read_icone(words[1 + next(i for i, word in enumerate(words) if word in ("icone:cuda", "icone.sif")) :])
        return
    recipe = (ROOT / next(word for word in words if word.startswith("packaging/"))).read_text()
    for name in (word.split("=")[0] for word in words if word.startswith("TORCH_BACKEND=")):
        assert re.search(rf"^(ARG|   ) {name}=", recipe, re.M), name


READERS: dict[str, Callable[[list[str]], None]] = {
    "icone": read_icone, "pip": read_pip, "make": read_make, "python": read_python, "pytest": read_pytest,
    "torchrun": read_torchrun, "docker": read_container, "apptainer": read_container,
}  # fmt: skip


def read_script(text: str) -> None:
    """bash can read it, and so can icone and torchrun what it calls."""
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    values = {"$SLURM_ARRAY_TASK_ID": "3", "$SLURM_NNODES": "3", "$head": "node1"}
    joined = re.sub(r"\\\n\s*", "", text)
    calls = [line for line in joined.splitlines() if line.startswith("srun") or "icone paper" in line]
    assert calls
    for line in calls:
        for name, value in values.items():
            line = line.replace(name, value)
        found = re.search(r"\b(torchrun|icone) .*", line)
        assert found is not None, line
        program, *words = shlex.split(found[0].replace("'", ""))
        READERS[program](words)


@pytest.mark.parametrize("one", [pytest.param(one, id=str(one)) for one in SHOWN if one.reason])
def test_read(one: Shown) -> None:
    """The program that it calls knows its verbs, flags and values."""
    if re.match(r"#!|sbatch", one.text):
        read_script(one.text)
    else:
        program, *words = shlex.split(one.text)
        READERS[program](words)


INLINE = re.compile(r"`((?:TORCH=\S+ )?(?:icone|pip|make|python|pytest|torchrun)\s[^`]+|--[a-z][^`]*)`", re.S)
OTHERS = {
    "--signal", "--requeue", "--signals-to-handle", "--gpus", "--ipc", "--max-restarts", "--only", "--compiled",
    "--where", "--grid", "--peers", "--table",
}  # fmt: skip
"""Flags of SLURM, torchrun, docker and benchmarks that stand alone in a sentence."""


KINDS = {name: kind for name, kind in VERBS.items() if kind is not Paper}
KINDS |= {f"paper {name}": kind for name, kind in Paper.VERBS.items()}


def flags_of(kind: type[Any]) -> set[str]:
    found = [flag.usage for _, flags in _flags(kind) for flag in flags if not flag.is_positional]
    named = {name.rstrip(",") for usage in found for name in usage.split() if name.startswith("--")}
    return named | {f"--no-{name[2:]}" for name in named} | {"--help", "--import"}


FLAGS = {name: flags_of(kind) for name, kind in KINDS.items()}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_commands_in_sentences(page: Path) -> None:
    """Those without a gap are read; of the others verb and flags exist."""
    text = re.sub(r"^```.*?^```", "", page.read_text(encoding="utf-8"), flags=re.M | re.S)
    everywhere = set().union(OTHERS, *FLAGS.values())
    for span in (" ".join(found.split()) for found in INLINE.findall(text)):
        program, *words = shlex.split(span.replace("\\|", "|").removeprefix("TORCH=2.9.0 "))
        flags = {word.split("=")[0] for word in (program, *words) if re.match(r"--[a-z][^…/]*$", word)}
        if program.startswith("--"):
            assert not flags - everywhere, span
        elif program == "icone" and words != ["paper"] and not words[0].startswith("--"):
            verb = " ".join(words[: 2 if words[0] == "paper" else 1])
            assert not flags - FLAGS[verb], span
            rest = words[len(verb.split()) :]
            if rest and not rest[0].startswith("--") and "…" not in span:
                read_icone(words)
        elif program != "icone" and "…" not in span:
            READERS[program](words)
