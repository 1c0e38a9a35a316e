"""`pip install icone` trains, embeds and evaluates; what an extra brings says which one when it is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SCRIPT = Path(__file__).with_name("core_only.py")
PACKAGES = {
    "report": "plotly",
    "figures": "matplotlib",
    "umap": "umap",
    "paper": "matplotlib",
    "cluster": "ray",
    "dicom": "pydicom",
    "zarr": "zarr",
    "hdf5": "h5py",
    "itk": "SimpleITK",
    "medmnist": "medmnist",
    "monai": "monai",
    "nnunet": "dynamic_network_architectures",
    "onnx": "onnx",
    "tensorboard": "tensorboard",
    "wandb": "wandb",
    "mlflow": "mlflow",
}
"""What is asked for without its extra, and the package that it misses first."""
EXTRAS = {"figures": "report", "umap": "report"}
"""The extra that installs it, where it has another name."""
BLOCKED = """
import importlib.metadata, importlib.util, json, runpy, sys

modules, distributions = map(set, json.loads(sys.argv.pop(1)))
installed, find_spec = importlib.metadata.distribution, importlib.util.find_spec

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in modules:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

def distribution(name):
    if name in distributions:
        raise importlib.metadata.PackageNotFoundError(name)
    return installed(name)

def found(name, package=None):
    return None if name.partition(".")[0] in modules else find_spec(name, package)

sys.meta_path.insert(0, Missing())
importlib.util.find_spec = found
importlib.metadata.distribution = distribution
sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name="__main__")
"""
"""Runs a script as if some packages were not installed."""


def core_distributions() -> set[str]:
    """What `pip install icone` brings, and what that brings in turn; of those that are installed here."""
    found: set[str] = set()
    waiting = [("icone", "")]
    while waiting:
        name, extra = waiting.pop()
        try:
            requirements = distribution(name).requires or []
        except PackageNotFoundError:
            continue
        found.add(canonicalize_name(name))
        for text in requirements:
            wanted = Requirement(text)
            needed = wanted.marker is None or wanted.marker.evaluate({"extra": extra})
            if needed and canonicalize_name(wanted.name) not in found:
                waiting += [(wanted.name, each) for each in wanted.extras or {""}]
    return found


def check(printed: str) -> None:
    said = json.loads(printed.splitlines()[-1])
    assert said.keys() == PACKAGES.keys()
    for what, package in PACKAGES.items():
        assert package in said[what], what
        assert f"pip install 'icone[{EXTRAS.get(what, what)}]'" in said[what], what


def test_the_core_works_where_no_extra_is_installed(tmp_path: Path) -> None:
    core = core_distributions()
    missing = {
        module: owners
        for module, owners in packages_distributions().items()
        if not any(canonicalize_name(owner) in core for owner in owners)
    }
    blocked = json.dumps([list(missing), [owner for owners in missing.values() for owner in owners]])
    command = [sys.executable, "-c", BLOCKED, blocked, str(SCRIPT), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    check(done.stdout)


@pytest.mark.slow
def test_the_wheel_alone_works_in_a_fresh_environment(tmp_path: Path) -> None:
    """Built, installed without extras by `uv`, and used; several gigabytes are downloaded where none are kept."""
    uv = Path(sys.executable).with_name("uv")
    python = tmp_path / "venv" / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run([uv, "build", "--wheel", "--out-dir", tmp_path, SCRIPT.parents[1]], check=True)
    subprocess.run([uv, "venv", "--python", sys.executable, tmp_path / "venv"], check=True)
    subprocess.run([uv, "pip", "install", "--python", python, *tmp_path.glob("*.whl")], check=True)
    command = [python, SCRIPT, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr
    check(done.stdout)
