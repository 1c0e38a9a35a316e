"""Data flows one way: a package imports only from packages to its left."""

from __future__ import annotations

import ast
import importlib
import inspect
import io
import sys
import threading
from collections import Counter
from pathlib import Path
from types import FrameType

import torch
from PIL import Image

import icone
from icone.terminal import Terminal

ORDER = [
    "wording", "errors", "nn", "validation", "terminal", "readable", "files", "find_runs", "process", "recipe",
    "config", "config_text", "data", "tensor_files", "views", "encoders", "methods", "run", "seeds", "outputs",
    "training", "cuda", "evaluation", "finetuning", "api", "report", "paper", "demo", "losses", "diversity",
    "__init__", "cli", "__main__",
]  # fmt: skip
"""`nn` imports nothing but the exceptions; `losses` and `diversity` are old names of what is in `nn`."""
EXCEPTIONS = {("run.py", "report")}
"""`Run.plot_…` are conveniences for notebooks: imports inside a method, of what the user asks to see."""
PACKAGE = Path(icone.__file__).parent


def package_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_packages(path: Path) -> set[str]:
    """Packages that a file imports anywhere, in functions too, but for the named exceptions inside functions."""
    tree = ast.parse(path.read_text())
    outer = {id(node) for node in tree.body}
    packages = set()
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports out in full"
            names = [node.module or ""]
        found = {name.split(".")[1] for name in names if name.startswith("icone.")}
        if id(node) not in outer:
            found -= {package for file, package in EXCEPTIONS if file == path.relative_to(PACKAGE).as_posix()}
        packages |= found
    return packages


def test_every_file_belongs_to_a_known_package() -> None:
    assert {package_of(path) for path in PACKAGE.rglob("*.py")} == set(ORDER)


def test_imports_go_left() -> None:
    for path in PACKAGE.rglob("*.py"):
        package = package_of(path)
        wrong = {other for other in imported_packages(path) if ORDER.index(other) > ORDER.index(package)}
        assert not wrong, f"{path.relative_to(PACKAGE)} imports from {wrong}"


def test_no_two_modules_share_a_name() -> None:
    """A reader who searches for a file finds one; a loss and its method, `base` and `registry` aside."""
    names = Counter(path.name for path in PACKAGE.rglob("*.py"))
    shared = {name for name, count in names.items() if count > 1}
    allowed = {"__init__.py", "base.py", "registry.py", *(path.name for path in (PACKAGE / "nn" / "losses").iterdir())}
    assert shared <= allowed


def test_old_places_of_public_names_still_work() -> None:
    assert importlib.import_module("icone.losses") is icone.nn.losses
    assert importlib.import_module("icone.diversity") is icone.nn.diversity
    assert importlib.import_module("icone.losses.contrastive").nt_xent(torch.ones(2, 2, 4), 0.5) > 0
    assert icone.methods.AnchorTable is icone.AnchorTable is icone.nn.AnchorTable


def test_a_walk_from_a_file_to_its_features_is_short(tmp_path: Path) -> None:
    """Modules whose functions run in `icone.embed`: as many as a newcomer has to read."""
    (tmp_path / "images").mkdir()
    for number in range(4):
        Image.effect_noise((16, 16), 50).save(tmp_path / "images" / f"{number}.png")
    quiet = Terminal(file=io.StringIO())
    run = icone.pretrain(
        tmp_path / "images", encoder="test_vit", size=16, epochs=1, out=tmp_path / "run", console=quiet, probe_every=0
    )
    walked: set[Path] = set()

    def note(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if frame.f_code.co_flags & inspect.CO_OPTIMIZED and path.is_relative_to(PACKAGE):  # bodies of classes are not
            walked.add(path)

    threading.setprofile(note)
    sys.setprofile(note)
    try:
        icone.embed(run, cache="off", console=quiet)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert 20 < len(walked) <= 42
