"""The run folder: whole files or none, one writer, sentences for what a disk refuses."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from icone.errors import InputError
from icone.runs import Run, read_tensors, replacing, write_json, write_tensors, write_text


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
    with pytest.raises(InputError, match=r"disk is full.*--resume"):
        write_tensors(target, {"a": torch.zeros(3)}, {"step": "2"})
    assert read_tensors(target)[1] == {"step": "1"}
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]


def test_really_full_device() -> None:
    """Linux offers a device that is always full: writing through our own path reports it."""
    if not Path("/dev/full").exists():
        pytest.skip("no /dev/full here")
    from icone.runs import _disk_errors

    with pytest.raises(InputError, match="disk is full"), _disk_errors(Path("/dev/full")):
        Path("/dev/full").write_text("x")


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("I am a file")
    with pytest.raises(InputError, match="in the way"):
        write_json(tmp_path / "runs" / "a" / "config.json", {})


HOLD = """
import sys, time
from icone.runs import Run
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
