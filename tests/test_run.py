"""The run folder: whole files or none, one writer, sentences for what a disk refuses."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from icone.errors import InputError
from icone.files import replacing, write_json, write_text
from icone.run import Run, check_free
from icone.tensor_files import read_tensors, write_tensors


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path) -> None:
    target = tmp_path / "file.txt"
    write_text(target, "old")
    with pytest.raises(ZeroDivisionError), replacing(target) as temporary:
        temporary.write_text(f"half {1 / 0}")
    assert target.read_text() == "old"
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_a_full_disk_is_a_sentence_and_keeps_the_old_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "state.safetensors"
    write_tensors(target, {"a": torch.ones(3)}, {"step": "1"})

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("icone.files.os.fsync", full)
    with pytest.raises(InputError, match=r"disk is full.*resume=True"):
        write_tensors(target, {"a": torch.zeros(3)}, {"step": "2"})
    assert read_tensors(target)[1] == {"step": "1"}
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]


def test_really_full_device() -> None:
    """Linux offers a device that is always full: writing through our own path reports it."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    from icone.files import disk_errors

    with pytest.raises(InputError, match="disk is full"), disk_errors(Path("/dev/full")):
        Path("/dev/full").write_text("x")


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("I am a file")
    with pytest.raises(InputError, match="in the way"):
        write_json(tmp_path / "runs" / "a" / "config.json", {})


HOLD = """
import sys, time
from icone.run import check_free, Run
with Run(sys.argv[1]).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        with pytest.raises(InputError, match="another process is writing"), Run(tmp_path).locked():
            pass
        process.kill()  # a killed writer leaves no lock behind
        process.wait()
    with Run(tmp_path).locked():
        pass


def test_a_torn_last_line_of_the_history_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_text('{"epoch": 0}\n{"epo')
    assert Run(tmp_path).history == [{"epoch": 0}]


def test_a_folder_that_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        Run.open(tmp_path)


def test_an_unreadable_state_is_said(tmp_path: Path) -> None:
    (tmp_path / "x.safetensors").write_bytes(b"not tensors")
    with pytest.raises(InputError, match=r"cannot read .*x\.safetensors"):
        read_tensors(tmp_path / "x.safetensors")


@pytest.mark.parametrize("name", [".file.txt.tmp", "file.txt.tmp", ".icone-0000000000000000.tmp"])
def test_a_planted_link_is_not_followed(tmp_path: Path, name: str) -> None:
    precious = tmp_path / "precious"
    precious.write_text("of another user")
    (tmp_path / name).symlink_to(precious)
    write_text(tmp_path / "file.txt", "ours")
    write_tensors(tmp_path / "file.safetensors", {"a": torch.ones(3)}, {})
    assert precious.read_text() == "of another user"
    assert not (tmp_path / "file.txt").is_symlink()


def test_a_target_that_is_a_link_is_replaced_and_not_written_through(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("of another user")
    (tmp_path / "file.txt").symlink_to(precious)
    write_text(tmp_path / "file.txt", "ours")
    assert (precious.read_text(), (tmp_path / "file.txt").read_text()) == ("of another user", "ours")


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_files_have_the_permissions_of_the_umask(tmp_path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        write_text(tmp_path / "file.txt", "x")
        write_tensors(tmp_path / "file.safetensors", {"a": torch.ones(3)}, {})
    finally:
        os.umask(before)
    assert {p.stat().st_mode & 0o777 for p in tmp_path.iterdir()} == {0o666 & ~umask}


WRITE = """
import sys
from pathlib import Path
from icone.files import replace_file
for round in range(16):
    sys.stdin.readline()
    for _ in range(20):
        with replace_file(Path(sys.argv[1])) as temporary:
            temporary.write_text(sys.argv[2] * 10_000)
    print("done", flush=True)
"""


def test_two_processes_that_write_one_file_never_meet(tmp_path: Path) -> None:
    """Whatever their order, both succeed, and the file is that of one of them."""
    target = tmp_path / "file.txt"
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    writers = [subprocess.Popen([sys.executable, "-c", WRITE, str(target), word], **pipes) for word in "ab"]
    for _ in range(16):
        for writer in writers:
            assert writer.stdin is not None
            writer.stdin.write("go\n")
            writer.stdin.flush()
        for writer in writers:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "done\n"
        assert target.read_text() in ("a" * 10_000, "b" * 10_000)
    for writer in writers:
        writer.communicate()
        assert writer.returncode == 0
    assert [p.name for p in tmp_path.iterdir()] == ["file.txt"]


def test_what_killed_writers_left_goes_with_the_next_start_and_nothing_else(tmp_path: Path) -> None:
    ours = [tmp_path / ".icone-0123456789abcdef.tmp", tmp_path / "state" / ".icone-0123456789abcdef.tmp"]
    theirs = [tmp_path / "mine.tmp", tmp_path / ".icone-notes.tmp"]
    (tmp_path / "state").mkdir()
    for path in (*ours, *theirs):
        path.write_text("x")
    with Run(tmp_path).locked():
        pass
    assert not any(path.exists() for path in ours)
    assert all(path.exists() for path in theirs)


def test_the_same_weights_are_the_same_bytes(tmp_path: Path) -> None:
    """Several entries of metadata would come in an order of their own every time."""
    about = {"finished": True, "epochs": 3, "extensions": 0, "recipe_version": 2}
    for number in range(8):
        write_tensors(tmp_path / str(number), {name: torch.arange(5.0) for name in "cab"}, about)
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("kind", ["directory", "link in a circle"])
def test_what_is_in_the_way_of_a_target_is_said(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "file.txt"
    if kind == "directory":
        (target / "more").mkdir(parents=True)
    else:
        target = tmp_path / "loop" / "file.txt"
        (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(InputError, match="in the way"):
        write_text(target, "x")


def test_a_folder_with_files_of_its_owner_is_refused(tmp_path: Path) -> None:
    """Nothing of theirs may be replaced, not even a file with the name of one of ours."""
    check_free(tmp_path / "new")
    check_free(tmp_path)
    (tmp_path / ".DS_Store").touch()
    check_free(tmp_path)
    (tmp_path / "result.json").write_text("{}")
    with pytest.raises(InputError, match=r"holds other files, such as result\.json, .* out=.*-run"):
        check_free(tmp_path)
    with contextlib.chdir(tmp_path), pytest.raises(InputError, match=r"such as out=.run"):
        check_free(Path())
    (tmp_path / "state").mkdir()  # a run that was killed before its config.json was written
    check_free(tmp_path)
    (tmp_path / "paper.tex").touch()
    with pytest.raises(InputError, match=r"such as paper\.tex,"):
        check_free(tmp_path)
