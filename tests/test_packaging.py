"""What is published: the citation, the contents of wheel and source distribution, and that both install and work."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path, PurePosixPath

import pytest
import torch
import yaml
from packaging.specifiers import SpecifierSet

from icone.cli import _parsed, main
from icone.recipe import RECIPE_VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
SMALL = ["synthetic:shapes@16x12", "--encoder", "resnet10_3d", "--epochs", "1", "--batch-size", "2", "--device", "cpu"]


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the source distribution, the first built from the second."""
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "--directory", str(folder)]
    subprocess.run([*build, "--target", "sdist"], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (unpacked,) = (folder / "unpacked").iterdir()
    subprocess.run([*build, "--target", "wheel"], cwd=unpacked, check=True, capture_output=True)
    return folder


def test_the_citation_is_of_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert {"cff-version", "message", "title", "authors"} <= citation.keys()  # what the format asks for
    assert (citation["title"], citation["version"]) == (PROJECT["name"], PROJECT["version"])
    assert citation["license"] == PROJECT["license"]
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Almpanakis", "Kreshuk"]


def test_version_names_what_a_report_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    torch_version = torch.__version__.partition("+")[0]  # its packages leave out for which device they were built
    python = ".".join(map(str, sys.version_info[:3]))
    said = capsys.readouterr().out
    assert said.startswith(f"icone {PROJECT['version']} (recipe {RECIPE_VERSION}), torch {torch_version}")
    assert said.endswith(f", Python {python}\n")


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_forms_and_workflows_are_yaml(path: Path) -> None:
    form = yaml.safe_load(path.read_text())
    if path.name == "ci.yml":
        assert form["jobs"]["ci"]["steps"][-1] == {"run": ".ci/run"}
    fields = [part["id"] for part in form.get("body", [])]
    assert len(fields) == len(set(fields))


def test_wheel_and_source_hold_the_package_and_nothing_else(dist: Path) -> None:
    paths = [path for path in (ROOT / "src" / "icone").rglob("*") if path.is_file()]
    package = {path.relative_to(ROOT / "src").as_posix() for path in paths if path.parent.name != "__pycache__"}
    assert {"icone/py.typed", "icone/paper/step_times.json", "icone/report/assets/page.html"} <= package
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        assert {name for name in wheel.namelist() if ".dist-info/" not in name} == package
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in wheel.namelist())
    with tarfile.open(next(dist.glob("*.tar.gz"))) as source:
        files = {PurePosixPath(*PurePosixPath(name).parts[1:]) for name in source.getnames()}
    top = {".gitignore", "CHANGELOG.md", "CITATION.cff", "LICENSE", "PKG-INFO", "README.md", "pyproject.toml", "src"}
    assert {file.parts[0] for file in files} == top
    assert sum(file.stat().st_size for file in dist.iterdir() if file.is_file()) < 3_000_000


RECIPES = {
    "Dockerfile": {
        "copied": r"^COPY (.+) \S+$",
        "extras": r"^ARG EXTRAS=(\S+)$",
        "backend": r"^ARG TORCH_BACKEND=(\S+)$",
        "installs": r'uv pip install --system --no-cache --torch-backend "\$TORCH_BACKEND" "/opt/icone\[\$EXTRAS\]"',
        "starts": r'^ENTRYPOINT \["(\w+)"\]$',
    },
    "icone.def": {
        "copied": r"^    (\S+) /opt/icone/\S+$",
        "extras": r"^    EXTRAS=(\S+)$",
        "backend": r"^    TORCH_BACKEND=(\S+)$",
        "installs": r'uv pip install .*--torch-backend "{{ TORCH_BACKEND }}" "/opt/icone\[{{ EXTRAS }}\]"',
        "starts": r'^    exec (\w+) "\$@"$',
    },
}
"""Where the recipes of containers say what they copy, install and start."""


@pytest.mark.parametrize("name", RECIPES)
def test_what_a_container_needs_is_there(name: str) -> None:
    """No engine builds it here: files, extras, PyTorch's packages, the entry point and the test command are checked."""
    recipe = (ROOT / "packaging" / name).read_text()
    found = {key: re.findall(pattern, recipe, re.M) for key, pattern in RECIPES[name].items()}
    copied = {file for files in found["copied"] for file in files.split()}
    assert all((ROOT / file).exists() for file in copied)
    # What the build of the wheel reads: a file that is missing in the image would end it.
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert copied >= {"pyproject.toml", "src", PROJECT["readme"], "LICENSE"}
    assert copied >= {
        path for path in config["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"] if "." in path
    }
    (extras,) = found["extras"]
    assert set(extras.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert re.fullmatch(r"cpu|cu\d{3}", *found["backend"])
    assert found["installs"]
    assert found["starts"] == [*PROJECT["scripts"]]
    (python,) = re.findall(r"python:(\d+\.\d+)-slim", recipe)
    assert python in SpecifierSet(PROJECT["requires-python"])
    for command in re.findall(r"^    icone (pretrain .*?) --out", recipe, re.M):  # the test of the Apptainer recipe
        assert _parsed(shlex.split(command)).epochs == 1


@pytest.mark.slow
@pytest.mark.parametrize("suffix", [".whl", ".tar.gz"])
def test_it_installs_from_nothing_and_works(dist: Path, tmp_path: Path, suffix: str) -> None:
    """Several gigabytes are downloaded where none are kept."""
    uv = Path(sys.executable).with_name("uv")
    (archive,) = (path for path in dist.iterdir() if path.name.endswith(suffix))
    bin = tmp_path / "venv" / "bin"
    subprocess.run([uv, "venv", "--python", sys.executable, tmp_path / "venv"], check=True)
    subprocess.run([uv, "pip", "install", "--python", bin / "python", f"{archive}[report]"], check=True)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment = {**kept, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def icone(*words: str) -> str:
        command = [str(bin / "icone"), *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert icone("--version").startswith(f"icone {PROJECT['version']} (recipe ")
    icone("pretrain", *SMALL, "--out", "run")
    icone("embed", "run", "--out", "embeddings.parquet")
    icone("report", "run", "--out", "report.html")
    icone("paper", "list")  # reads step_times.json and the printed numbers
    assert (tmp_path / "embeddings.parquet").stat().st_size > 0
    assert "</html>" in (tmp_path / "report.html").read_text()
    where = [str(bin / "python"), "-c", "import icone; print(icone.__file__)"]
    found = subprocess.run(where, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True).stdout
    assert Path(found.strip()).is_relative_to(tmp_path)
