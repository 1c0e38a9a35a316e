"""Damaged run folders: each damage is one sentence that names the file."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from icone.api.embed import load_encoder
from icone.api.pretrain import pretrain
from icone.errors import InputError
from icone.run import Run
from icone.tensor_files import read_metadata, write_tensors

POINTS: dict[str, Any] = {
    "source": "synthetic:gaussians@x8", "epochs": 1, "features": 4, "batch_size": 4, "device": "cpu", "cache": "off",
}  # fmt: skip


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return pretrain(**POINTS, out=tmp_path_factory.mktemp("template") / "run", console=Console(file=io.StringIO()))


@pytest.fixture
def run(template: Run, tmp_path: Path) -> Run:
    shutil.copytree(template.folder, tmp_path / "run")
    return Run(tmp_path / "run")


def resume(run: Run) -> Any:
    return pretrain(**POINTS, out=run.folder, resume=True, console=Console(file=io.StringIO()))


TEXTS = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda text: b"",
    "missing": lambda text: None,
    "garbage": lambda text: b"\xff\xfe\0garbage",
    "another type": lambda text: b"[1, 2]",
    "an empty object": lambda text: b"{}",
    "a number": lambda text: b"7",
    "deeply nested": lambda text: b"[" * 100_000,
    "other keys": lambda text: b'{"config": {"nonsense": 1}, "data": {}, "ids": 1, "labels": 2, "trained": 3}',
    "other values": lambda text: text.replace(b'"epochs": 1', b'"epochs": "many"').replace(b'"ids": [', b'"idz": ['),
    "settings of a list": lambda text: text.replace(b'"config": {', b'"config": [], "other": {'),
}
READS: dict[str, Callable[[Run], Any]] = {
    "config.json": lambda run: run.config,
    "instances.json": lambda run: run.instances,
}


@pytest.mark.parametrize("damage", TEXTS)
@pytest.mark.parametrize("name", READS)
def test_a_damaged_description_is_named(run: Run, name: str, damage: str) -> None:
    path = run.folder / name
    new = TEXTS[damage](path.read_bytes())
    if new == path.read_bytes():
        new = b'"no such text"'
    path.unlink()
    if new is not None:
        path.write_bytes(new)
    with pytest.raises(InputError, match=name):
        READS[name](run)


@pytest.mark.parametrize("damage", ["truncated", "empty", "missing", "garbage", "other keys"])
def test_a_run_is_used_or_refused_whatever_is_damaged(run: Run, damage: str) -> None:
    """The state decides: descriptions are written anew on resume; without config.json the folder is no run."""
    for name in ("instances.json", "history.jsonl"):
        new = TEXTS[damage]((run.folder / name).read_bytes())
        (run.folder / name).unlink()
        if new is not None:
            (run.folder / name).write_bytes(new)
    resume(run)
    assert len(run.instances["ids"]) == 8
    assert len(run.history) == 1


@pytest.mark.parametrize(
    "text", ['{"epoch": 0}\n{"epo\n', "\n", "7\n", '{"loss": 1}\n', '{"epoch": "x"}\n', "\udcff\n"]
)
def test_a_damaged_history_is_named(run: Run, text: str) -> None:
    (run.folder / "history.jsonl").write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=r"history\.jsonl"):
        _ = run.history


@pytest.mark.parametrize("text", ["{}", "[]", "", "{"])
def test_a_damaged_result_is_named(run: Run, text: str) -> None:
    run.result_file.write_text(text)
    with pytest.raises(InputError, match=r"result\.json"):
        _ = run.result


def flip(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    content[min(int(place * len(content)), len(content) - 1)] ^= 1
    path.write_bytes(content)


def rewrite(path: Path, change: Callable[[dict[str, torch.Tensor]], Any], *, metadata: bool = True) -> None:
    """Change tensors of a file behind our back, with its old metadata or without."""
    tensors = load_file(path)
    change(tensors)
    with safe_open(path, framework="pt") as file:
        kept = file.metadata()
    save_file(tensors, path, kept if metadata else None)


def resealed(path: Path, change: Callable[[dict[str, torch.Tensor]], Any]) -> None:
    """The same with a checksum that is right, as a mistake of ours would leave it."""
    about = {name: value for name, value in read_metadata(path).items() if name != "checksum"}
    tensors = load_file(path)
    change(tensors)
    write_tensors(path, tensors, about)


def without(prefix: str) -> Callable[[dict[str, torch.Tensor]], None]:
    def change(tensors: dict[str, torch.Tensor]) -> None:
        names = [name for name in tensors if name.startswith(prefix)]
        assert names, prefix
        for name in names:
            del tensors[name]

    return change


def altered(name: str, change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[dict[str, torch.Tensor]], None]:
    return lambda tensors: tensors.update({name: change(tensors[name])})


def of_json(change: Callable[[dict[str, Any]], Any]) -> Callable[[torch.Tensor], torch.Tensor]:
    def changed(tensor: torch.Tensor) -> torch.Tensor:
        book = json.loads(bytes(tensor.tolist()))
        change(book)
        return torch.tensor(list(json.dumps(book).encode()), dtype=torch.uint8)

    return changed


BIAS = "method/encoder.layers.0.bias"
STATES: dict[str, Callable[[Path], Any]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xff" * 1000),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-100]),
    **{f"a bit flipped at {p}": partial(flip, place=p) for p in (0.0, 0.001, 0.2, 0.4, 0.6, 0.8, 1.0)},
    "no metadata": lambda path: rewrite(path, lambda tensors: None, metadata=False),
    "another value": lambda path: rewrite(path, altered(BIAS, lambda t: t + 1)),
    "another shape": lambda path: resealed(path, altered(BIAS, lambda t: t[:-1])),
    "another type": lambda path: resealed(path, altered(BIAS, lambda t: t.double())),
    "no moments": lambda path: resealed(path, without("optimizer/")),
    "no random numbers": lambda path: resealed(path, without("random/")),
    "no weights": lambda path: resealed(path, without("method/")),
    "no sums": lambda path: resealed(path, without("meter/")),
    "no book": lambda path: resealed(path, without("book")),
    "another tensor": lambda path: resealed(path, lambda tensors: tensors.update({"method/more": torch.zeros(1)})),
    "a book of nothing": lambda path: resealed(path, altered("book", lambda t: t[:0])),
    "a book that is a list": lambda path: resealed(path, altered("book", lambda t: torch.tensor([91, 93]).byte())),
    "a book without steps": lambda path: resealed(path, altered("book", of_json(lambda book: book.pop("step")))),
    "fewer digests": lambda path: resealed(path, altered("book", of_json(lambda book: book["digests"].pop()))),
    "steps of text": lambda path: resealed(path, altered("book", of_json(lambda book: book.update(step="x")))),
}


@pytest.mark.parametrize("damage", STATES)
def test_a_damaged_state_is_refused_and_nothing_is_written(run: Run, damage: str) -> None:
    STATES[damage](run.state_file)
    before = {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()}
    with pytest.raises(InputError, match=r"state"):
        resume(run)
    assert {p: p.read_bytes() for p in run.folder.rglob("*") if p.is_file()} == before
    load_encoder(run)  # which does not need it


ENCODERS: dict[str, Callable[[Path], Any]] = {
    "missing": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(b"\xff" * 1000),
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-10]),
    **{f"a bit flipped at {p}": partial(flip, place=p) for p in (0.0, 0.05, 0.3, 0.6, 1.0)},
    "no metadata": lambda path: rewrite(path, lambda tensors: None, metadata=False),
    "NaN": lambda path: resealed(path, altered("layers.0.bias", lambda t: t * float("nan"))),
    "infinite": lambda path: resealed(path, altered("layers.0.bias", lambda t: t + float("inf"))),
    "another value": lambda path: rewrite(path, altered("layers.0.bias", lambda t: t + 1)),
    "another shape": lambda path: resealed(path, altered("layers.0.bias", lambda t: t[:-1])),
    "another type": lambda path: resealed(path, altered("layers.0.bias", lambda t: t.half())),
    "a missing layer": lambda path: resealed(path, without("layers.0")),
    "another layer": lambda path: resealed(path, lambda tensors: tensors.update({"more": torch.zeros(1)})),
}


@pytest.mark.parametrize("damage", ENCODERS)
def test_a_damaged_encoder_is_refused_and_resume_brings_it_back(run: Run, template: Run, damage: str) -> None:
    ENCODERS[damage](run.encoder_file)
    with pytest.raises(InputError, match=r"encoder"):
        load_encoder(run)
    repr(run)
    resume(run)
    assert run.encoder_file.read_bytes() == template.encoder_file.read_bytes()
