"""The boundary at the command line: whatever is typed or lies on a disk ends in a sentence, never in a traceback."""

from __future__ import annotations

import errno
import io
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from rich.console import Console

import icone
from icone.api.build import pick_device
from icone.api.pretrain import pretrain
from icone.cli import main
from icone.data.cache import TAG
from icone.demo import demo
from icone.errors import InputError, printable
from icone.run import OWN_FILES, Run
from icone.terminal import Terminal

POINTS = ["synthetic:gaussians", "--subset", "20", "--features", "4", "--epochs", "1", "--probe-every", "0"]
SETTINGS: dict[str, Any] = {
    "source": "synthetic:gaussians", "subset": 20, "features": 4, "epochs": 1, "probe_every": 0,
}  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An evaluated run."""
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main(["pretrain", *POINTS, "--out", str(folder)]) == 0
    assert main(["evaluate", str(folder), "--geometry-instances", "0"]) == 0
    return folder


# Paths

PATHS = {
    "loop": "{there}/loop/x",
    "too long": "{there}/" + "x" * 300,
    "too deep": "{there}/" + "/".join(["y" * 100] * 50),
    "no such user": "~nosuchuser/x",
    "under proc": "/proc/x",
    "a file in between": "{there}/file/x",
    "empty": "",
}
VERBS: dict[str, Callable[[str, str], list[str]]] = {
    "pretrain": lambda bad, run: ["pretrain", bad],
    "pretrain --out": lambda bad, run: ["pretrain", *POINTS, "--out", bad],
    "pretrain --labels": lambda bad, run: ["pretrain", *POINTS, "--out", "new", "--labels", bad],
    "embed": lambda bad, run: ["embed", bad],
    "embed source": lambda bad, run: ["embed", run, bad, "--out", "new.csv"],
    "embed --out": lambda bad, run: ["embed", run, "--out", bad and bad + ".csv"],
    "evaluate": lambda bad, run: ["evaluate", bad],
    "evaluate --labels": lambda bad, run: ["evaluate", run, "--labels", bad],
    "report": lambda bad, run: ["report", bad],
    "report --out": lambda bad, run: ["report", run, "--projections", "pca", "--out", bad],
    "report --table": lambda bad, run: ["report", run, "--projections", "pca", "--table", bad],
    "figures": lambda bad, run: ["figures", bad],
    "figures --out": lambda bad, run: ["figures", run, "--names", "spectrum", "--out", bad],
    "demo --out": lambda bad, run: ["demo", "--out", bad],
    "paper export": lambda bad, run: ["paper", "export", bad, "--store", run],
    "paper import": lambda bad, run: ["paper", "import", bad, "--store", "new"],
    "paper run --store": lambda bad, run: ["paper", "run", "synthetic", "--smoke", "--store", bad],
}


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_path_that_cannot_be_is_a_sentence(
    verb: str, path: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    there = tmp_path / "there"
    there.mkdir()
    monkeypatch.chdir(there)
    (there / "loop").symlink_to(there / "loop")
    (there / "file").write_text("dear")
    before = sorted(there.rglob("*"))
    assert main(VERBS[verb](PATHS[path].format(there=there), str(run))) == 2
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert "mistake of icone" not in message
    assert sorted(there.rglob("*")) == before


@pytest.mark.parametrize("path", [p for p in PATHS if p not in ("empty", "no such user")])
def test_a_cache_that_cannot_be_is_said_and_done_without(
    path: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("dear")
    words = ["--out", str(tmp_path / "run"), "--cache", PATHS[path].format(there=tmp_path)]
    assert main(["pretrain", *POINTS, *words]) == 0
    assert "cannot be kept" in capsys.readouterr().out


@pytest.mark.parametrize("where", ["os.listdir", "os.mkdir", "os.scandir", "pathlib.Path.read_text"])
def test_no_permission_is_a_sentence_with_the_path(
    where: str, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(path: Any, *_: Any, **__: Any) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    (tmp_path / "images").mkdir()
    commands = {
        "os.listdir": ["cache", str(tmp_path)],
        "os.mkdir": ["figures", str(run), "--names", "spectrum", "--out", str(tmp_path / "new")],
        "os.scandir": ["pretrain", str(tmp_path / "images")],
        "pathlib.Path.read_text": ["embed", str(run)],
    }
    with monkeypatch.context() as patch:
        patch.setattr(where, refused)
        assert main(commands[where]) == 2
    message = " ".join(capsys.readouterr().err.split())
    assert "ermission" in message
    assert str(tmp_path) in message or str(run) in message


def test_home_is_put_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["pretrain", *POINTS, "--out=~/runs/one", "--cache", "~/kept"]) == 0
    assert Run(tmp_path / "runs" / "one").finished
    assert (tmp_path / "kept" / TAG).is_file()


@pytest.mark.parametrize(
    "name",
    [n for n in OWN_FILES if n not in ("state", "snapshots", "wandb", "tensorboard")] + ["state/state.safetensors"],
)
def test_files_of_a_run_are_not_written_over(name: str, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (tmp_path / "link").symlink_to(copy)
    before = {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()}
    for folder in (copy, tmp_path / "link"):
        assert main(["report", str(run), "--projections", "pca", "--out", str(folder / name)]) == 2
        if name.endswith(".npz"):
            assert main(["embed", str(run), "--out", str(folder / name)]) == 2
    assert {path: path.read_bytes() for path in copy.rglob("*") if path.is_file()} == before


def test_a_report_may_lie_beside_the_files_of_its_run(run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    for _ in range(2):
        assert icone.report([copy], out=copy / "report.html", projections=["pca"], thumbnails=False).is_file()


def test_a_run_among_its_data_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(4):
        Image.new("L", (16, 16), i * 30).save(tmp_path / f"{i}.png")
    for more in ([], ["--seeds", "2"]):
        assert main(["pretrain", str(tmp_path), "--out", str(tmp_path / "run"), *more]) == 2
        assert "lies inside the data" in capsys.readouterr().err


# Caches and runs that are the user's own


def test_a_folder_of_the_user_is_never_cleared_nor_used_as_a_cache(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["thesis.json", "data.npy", "old.tmp"]
    for name in names:
        (tmp_path / name).write_text("dear")
        os.utime(tmp_path / name, (0, 0))
    for words in (["cache", str(tmp_path), "--clear"], ["cache", str(tmp_path), "--check"], ["cache", str(tmp_path)]):
        assert main(words) == 2
        assert "is not a cache" in capsys.readouterr().err
    assert main(["pretrain", *POINTS, "--cache", str(tmp_path), "--out", str(tmp_path / "run")]) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


@pytest.mark.parametrize("verb", ["embed", "evaluate", "report"])
def test_a_stored_configuration_does_not_choose_the_cache(verb: str, run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(run, tmp_path / "run")
    (copy / "result.json").unlink()
    record = json.loads((copy / "config.json").read_text())
    record["config"]["cache"] = str(tmp_path / "strangers")
    (copy / "config.json").write_text(json.dumps(record))
    words = {
        "embed": ["embed", str(copy), "--out", str(tmp_path / "e.csv")],
        "evaluate": ["evaluate", str(copy), "--geometry-instances", "0"],
        "report": ["report", str(copy), "--projections", "pca", "--out", str(tmp_path / "r.html")],
    }[verb]
    assert main(words) == 0
    assert not (tmp_path / "strangers").exists()
    if verb == "report":
        (copy / "result.json").unlink()
    assert main([*words, "--cache", str(tmp_path / "mine")]) == 0
    assert (tmp_path / "mine" / TAG).is_file()


@pytest.mark.parametrize("size", [0, 60, -1])
def test_an_empty_or_short_array_in_the_cache_is_made_anew(
    size: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pretrain", *POINTS, "--cache", str(tmp_path / "cache")]
    assert main([*words, "--out", str(tmp_path / "one")]) == 0

    def damage() -> list[Path]:
        files = sorted((tmp_path / "cache").glob("*.npy"))
        for path in files:
            os.truncate(path, size % path.stat().st_size)
        return files

    damage()
    assert main([*words, "--out", str(tmp_path / "two")]) == 0
    assert "made anew" in capsys.readouterr().out
    assert (tmp_path / "one" / "encoder.safetensors").stat().st_size > 0
    files = damage()
    assert main(["cache", str(tmp_path / "cache"), "--check"]) == 0
    assert capsys.readouterr().out.count("was damaged and is deleted") == len(files) == 2


@pytest.mark.parametrize("kind", ["another run", "another seed", "more files", "no run", "a link"])
def test_the_demo_leaves_what_is_not_its_own(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icone.demo.SETTINGS", SETTINGS)
    folder = tmp_path / "demo"
    if kind == "no run":
        folder.mkdir()
        (folder / "a.png").write_bytes(b"")
    elif kind == "a link":
        folder.symlink_to(tmp_path)
    else:
        changes: dict[str, Any] = {"source": "synthetic:gaussians@x30"} if kind == "another run" else {}
        changes |= {"seed": 7} if kind == "another seed" else {}
        pretrain(**SETTINGS | changes, out=folder, console=Console(quiet=True))
    if kind == "more files":
        (folder / "thoughts.txt").write_text("dear")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(InputError, match=r"choose another out=|move it away"):
        demo(folder, Console(quiet=True))
    assert sorted(tmp_path.rglob("*")) == before


def test_the_demo_replaces_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("icone.demo.SETTINGS", SETTINGS)
    for _ in range(2):
        result = demo(tmp_path / "demo", console := Console(file=io.StringIO(), width=300))
        printed = console.file.getvalue()  # type: ignore[attr-defined]
        assert result["verdict"]["headline"] in printed
        assert result["verdict"]["advice"] in printed
        assert f"icone report {tmp_path}/demo" in printed
        assert printed.splitlines()[0].endswith("a minute or two on two cores.")
        page = tmp_path / "demo" / "report.html"
        assert not page.exists()
        page.touch()  # as that command does, which is no reason to refuse the next demo


# What is printed


@pytest.mark.parametrize("name", ["a[/x]", "[bold]b", "[red", ":smile:", "c\x1b[2Jd", "e\x07\x9bf", "g\udcffh", "i\rj"])
def test_names_are_printed_as_they_are_and_never_obeyed(
    name: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = shutil.copytree(run, tmp_path / name), str(tmp_path / name)
    assert main(["pretrain", *POINTS, "--out", out + "/new", "--cache", out + "/cache"]) == 0
    assert main(["cache", out + "/cache"]) == 0
    assert main(["embed", str(run), "--out", out + "/e.csv"]) == 0
    assert main(["report", out, "--projections", "pca", "--out", out + "/r.html", "--no-thumbnails"]) == 0
    assert main(["pretrain", *POINTS, "--out", str(folder)]) == 2
    shown = "".join(capsys.readouterr())
    assert printable(name) in shown.replace("\n", "")
    assert all(character.isprintable() or character in "\n\t" for character in shown)


def test_text_in_tables_and_titles_is_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.table import Table

    table = Table("[/x]", title="[/y]")
    table.add_row("[/z]\x1b[31m")
    console = Terminal(width=60)
    console.print(table)
    console.rule("[/w]")
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("[/x]", "[/y]", "[/z]\\x1b[31m", "[/w]"))


# What is left


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (FileNotFoundError(errno.ENOENT, "No such file or directory", "/some/where"), 2, "/some/where"),
        (OSError(errno.ELOOP, "Too many levels", "/a", None, "/b"), 2, "/a and /b"),
        (OSError(errno.ENOSPC, "No space left on device"), 2, "No space left"),
        (MemoryError(), 2, "not enough memory"),
        (KeyError("anchors"), 70, "KeyError"),
        (OSError("of a library"), 70, "of a library"),
        (RecursionError("deep"), 70, "mistake of icone"),
        (UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed"), 70, "UnicodeEncodeError"),
    ],
)
def test_whatever_is_left_is_a_sentence(
    error: Exception,
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def failing(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("icone.methods.capabilities.method_table", failing)
    assert main(["methods"]) == code
    message = capsys.readouterr().err
    assert words in message
    assert "Traceback" not in message
    written = list(tmp_path.iterdir())
    assert len(written) == (code == 70)
    if written:
        assert str(written[0]) in message
        assert "Traceback" in written[0].read_text()
    with pytest.raises(type(error)):
        main(["methods", "--debug"])


def test_a_mistake_of_ours_is_said_even_if_no_traceback_can_be_written(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/proc")
    monkeypatch.setattr("icone.methods.capabilities.method_table", lambda: 1 / 0)
    assert main(["methods"]) == 70
    assert "--debug shows it" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("redirection", "code"),
    [("| head -c 1", 0), (">&-", 0), ("> /dev/full", 74), ("2>&-", 0), (">&- 2>&- <&-", 0)],
)
def test_an_output_that_nobody_reads(redirection: str, code: int) -> None:
    command = f"set -o pipefail; {sys.executable} -m icone --help {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_training_goes_on_without_an_output(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        def flush(self) -> None:
            pass

        def isatty(self) -> bool:
            return False

        def fileno(self) -> int:
            raise OSError

    monkeypatch.setattr(sys, "stdout", Full())
    assert main(["pretrain", *POINTS, "--out", str(tmp_path / "run")]) == 74
    assert Run(tmp_path / "run").finished


# Devices


@pytest.mark.parametrize(
    "name", ["mps", "xpu", "tpu", "meta", "abacus", "cpu:7", "cuda:-1", "", "cuda:99999999999", "hpu"]
)
def test_a_device_that_is_not_there_is_said(name: str) -> None:
    with pytest.raises(InputError, match=r"device|there is no"):
        pick_device(name)


@pytest.mark.parametrize(("count", "name"), [(0, "cuda"), (0, "cuda:9"), (2, "cuda:2"), (2, "cuda:9")])
def test_a_gpu_that_is_not_there_is_said(count: int, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: count > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    with pytest.raises(InputError, match="the last is cuda:1" if count else "no cuda device"):
        pick_device(name)
    if count:
        assert pick_device("cuda:1").index == 1


def test_an_ignored_signal_stays_ignored() -> None:
    from icone.training.signals import watch_signals

    former = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with watch_signals() as wish:
            os.kill(os.getpid(), signal.SIGHUP)
        assert not wish.requested
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, former)


@pytest.mark.parametrize("kind", ["images", "run"])
def test_a_demo_does_not_write_among_other_things(kind: str, run: Path, tmp_path: Path) -> None:
    folder = run if kind == "run" else tmp_path / "pictures"
    if kind == "images":
        folder.mkdir()
        (folder / "a.png").write_bytes(b"")
    before = sorted(folder.rglob("*"))
    assert main(["demo", "--out", str(folder)]) == 2
    assert sorted(folder.rglob("*")) == before
