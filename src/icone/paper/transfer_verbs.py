"""`icone paper export` and `icone paper import`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro
from rich.console import Console

from icone.terminal import counted, say

if TYPE_CHECKING:
    from icone.paper.store import Store

STORE = Path("runs/paper")


def say_notes(store: Store, console: Console) -> None:
    """Print what a store has passed over."""
    for note in store.notes:
        say(console, f"note: {note}")


@dataclass(frozen=True, kw_only=True)
class PaperExport:
    """Write the finished runs of a store to one small file.

    `icone paper import` takes them into a store elsewhere, where they are not run again. States of unfinished runs are
    folders of the store, and are not part of the file. Nor are failed runs, the folders of the data and the name of the
    host: the file may be published.
    """

    file: Annotated[Path, tyro.conf.Positional]
    """File to write, a zip archive."""
    store: Path = STORE
    """The sweep's folder."""
    features: bool = False
    """With what the maps of `umap` and the pictures of `synthetic` are drawn from, which is many times as large."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.paper.store import Store
        from icone.paper.transfer import export_runs
        from icone.validation import check_target

        check_target(self.file, "FILE")
        store = Store(self.store)
        runs, features, size, failed = export_runs(store, self.file, features=self.features)
        say_notes(store, console)
        more = f" and the features of {features}" if self.features else ""
        more += f", without {counted(failed, 'failed one')}" if failed else ""
        say(console, f"wrote {self.file} ({size / 1e6:.2f} MB): {counted(runs, 'run')}{more}")


@dataclass(frozen=True, kw_only=True)
class PaperImport:
    """Take finished runs of other stores into a store.

    Runs that the store has ended stay as they are, and failed ones are not taken. Every run is checked: what it says it
    was must give the key that it has.
    """

    sources: Annotated[tuple[Path, ...], tyro.conf.Positional]
    """Files of `icone paper export`, or folders of stores."""
    store: Path = STORE
    """The sweep's folder; it is made where there is none."""
    debug: bool = False
    """Show the traceback of an error."""

    def run(self, console: Console) -> None:
        from icone.errors import InputError
        from icone.paper.store import Store
        from icone.paper.transfer import import_runs

        if not self.sources:
            raise InputError("name at least one file of `icone paper export`, or the folder of a store")
        store = Store(self.store)
        for source, count in import_runs(store, self.sources).items():
            parts = [f"{counted(count.added, 'run')} added", f"{count.known} known before"]
            parts += [f"{count.failed} failed ones left out"] if count.failed else []
            parts += [f"{count.others} refused"] if count.others else []
            say(console, f"{source}: {', '.join(parts)}")
            if count.others:
                say(
                    console,
                    f"refused are runs whose key is not that of what they say they were: another version of icone or "
                    f"of its recipe wrote them, or {source} was changed",
                )
        say_notes(store, console)
