"""What importing the package sets in the environment, before CUDA begins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

NAME = "CUDA_DEVICE_MAX_CONNECTIONS"
PROGRAM = f"import os, icone; print(os.environ.get({NAME!r}))"


@pytest.mark.parametrize(
    ("given", "service", "expected"), [(None, False, "32"), ("8", False, "8"), (None, True, "None"), ("4", True, "4")]
)
def test_queues_to_the_gpu(given: str | None, service: bool, expected: str, tmp_path: Path) -> None:
    """32, unless someone has set it, or processes of a multi-process service share them."""
    environment = {name: value for name, value in os.environ.items() if name != NAME}
    environment["CUDA_MPS_PIPE_DIRECTORY"] = str(tmp_path if service else tmp_path / "missing")
    if given is not None:
        environment[NAME] = given
    found = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, check=True, capture_output=True, text=True)
    assert found.stdout.strip() == expected
