"""Data flows one way: a room imports only from rooms to its left."""

from __future__ import annotations

import ast
from pathlib import Path

import icone

ROOMS = [
    "nn", "errors", "validation", "terminal", "files", "recipe", "config", "data", "views", "encoders", "losses",
    "diversity", "methods", "runs", "training", "evaluation", "building", "pretraining", "inference", "evaluating",
    "report", "experiments", "demo", "__init__", "cli", "__main__",
]  # fmt: skip
EXCEPTIONS = {("runs.py", "report")}
"""`Run.plot_…` are conveniences for notebooks: imports inside a method, of what the user asks to see."""
PACKAGE = Path(icone.__file__).parent


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports anywhere, in functions too, but for the named exceptions inside functions."""
    tree = ast.parse(path.read_text())
    outer = {id(node) for node in tree.body}
    rooms = set()
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports out in full"
            names = [node.module or ""]
        found = {name.split(".")[1] for name in names if name.startswith("icone.")}
        if id(node) not in outer:
            found -= {room for file, room in EXCEPTIONS if file == path.relative_to(PACKAGE).as_posix()}
        rooms |= found
    return rooms


def test_every_file_belongs_to_a_known_room() -> None:
    assert {room_of(path) for path in PACKAGE.rglob("*.py")} == set(ROOMS)


def test_imports_go_left() -> None:
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path)
        wrong = {other for other in imported_rooms(path) if ROOMS.index(other) > ROOMS.index(room)}
        assert not wrong, f"{path.relative_to(PACKAGE)} imports from {wrong}"
