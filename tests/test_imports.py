"""Data flows one way: a room imports only from rooms to its left."""

from __future__ import annotations

import ast
from pathlib import Path

import icone

ROOMS = [
    "errors", "config", "data", "views", "encoders", "losses", "diversity", "methods", "runs", "training", "evaluation",
    "building", "pretraining", "inference", "evaluating", "demo", "__init__", "cli", "__main__",
]  # fmt: skip
PACKAGE = Path(icone.__file__).parent


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms that a file imports anywhere, in functions too."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports out in full"
            names = [node.module or ""]
        rooms |= {name.split(".")[1] for name in names if name.startswith("icone.")}
    return rooms


def test_every_file_belongs_to_a_known_room() -> None:
    assert {room_of(path) for path in PACKAGE.rglob("*.py")} == set(ROOMS)


def test_imports_go_left() -> None:
    for path in PACKAGE.rglob("*.py"):
        room = room_of(path)
        wrong = {other for other in imported_rooms(path) if ROOMS.index(other) > ROOMS.index(room)}
        assert not wrong, f"{path.relative_to(PACKAGE)} imports from {wrong}"
