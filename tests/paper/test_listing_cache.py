"""A list that a store keeps: the same as a new one, without the packages that take seconds to import."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from icone.paper.experiments import EXPERIMENTS
from icone.paper.listing import experiment_lines
from icone.paper.listing_cache import KEPT, recall
from icone.paper.listing_table import Listing
from icone.paper.options import Options
from icone.paper.outcome import Outcome
from icone.paper.store import Store

SMOKE = Options(smoke=True)


@pytest.fixture
def kept(store: Store, monkeypatch: pytest.MonkeyPatch) -> Listing:
    """A store with three runs of the synthetic study, and its list."""
    for cell in EXPERIMENTS["synthetic"].cells(SMOKE)[:3]:
        store.record(cell.spec, Outcome(status="done", device="cpu"))
    listing = experiment_lines(SMOKE, store)
    monkeypatch.delitem(sys.modules, "icone.paper.experiments")  # as in a process that has just begun
    return listing


def rounded(listing: Listing | None) -> list[object]:
    assert listing is not None
    return [line._replace(left=line.left._replace(seconds=round(line.left.seconds, -1))) for line in listing.lines]


def test_the_kept_list_is_the_new_one_and_counts_what_came_since(store: Store, kept: Listing) -> None:
    found = recall(SMOKE, store.folder)
    assert found is not None
    assert rounded(found) == rounded(kept)
    assert found.total.wanted == kept.total.wanted
    assert found[2:] == kept[2:]
    for cell, status in zip(EXPERIMENTS["synthetic"].cells(SMOKE)[3:5], ("done", "failed"), strict=True):
        store.record(cell.spec, Outcome(status=status, reason="no luck"))  # type: ignore[arg-type]
    line = next(line for line in recall(SMOKE, store.folder).lines if line.name == "synthetic")  # type: ignore[union-attr]
    assert (line.done, line.failed, line.left.runs) == (4, 1, 3)


def test_it_is_made_again_where_it_does_not_hold(store: Store, kept: Listing, tmp_path: Path) -> None:
    assert recall(Options(smoke=True, seeds=1), store.folder) is None
    stray = store.outcomes / "notes.txt"  # which needs a sentence
    stray.touch()
    assert recall(SMOKE, store.folder) is None
    stray.unlink()
    damaged = store.outcomes / f"{'0' * 20}.1.json"
    damaged.write_text("{")
    assert recall(SMOKE, store.folder) is None
    damaged.unlink()
    assert recall(SMOKE, store.folder) is not None
    for cell in EXPERIMENTS["dataset-size"].cells(SMOKE)[:21]:  # they would correct the estimates
        store.record(cell.spec, Outcome(status="done"))
    assert recall(SMOKE, store.folder) is None
    experiment_lines(SMOKE, store)
    assert recall(SMOKE, store.folder) is not None
    store.remember("views", Options(smoke=True, seeds=3).to_json())
    assert recall(SMOKE, store.folder) is None
    (store.folder / KEPT).write_text("{")
    assert recall(SMOKE, store.folder) is None


def test_data_that_has_changed_makes_it_again(store: Store, kept: Listing, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    for name in ("a/1.png", "b/1.png"):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_bytes(b"one")
    options = Options(datasets=(str(folder),))
    experiment_lines(options, store)
    sys.modules.pop("icone.paper.experiments", None)
    assert recall(options, store.folder) is not None
    (folder / "b" / "1.png").write_bytes(b"other")
    assert recall(options, store.folder) is None


def test_list_with_a_store_does_not_wait_for_pytorch(store: Store) -> None:
    for cell in EXPERIMENTS["synthetic"].cells(SMOKE):
        store.record(cell.spec, Outcome(status="done", device="cpu"))
    experiment_lines(SMOKE, store)
    words = ["paper", "list", "--smoke", "--store", str(store.folder)]
    code = f"import sys; from icone.cli import main; print(main({words}), *sys.modules, sep='\\n')"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60).stdout.splitlines()
    assert "0" in said
    assert not {"torch", "pandas", "sklearn", "numpy", "pyarrow"} & set(said[said.index("0") :])
