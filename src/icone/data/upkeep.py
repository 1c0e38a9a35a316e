"""`icone cache`: what is kept on disk, whether it is intact, and how to be rid of it."""

from __future__ import annotations

import time

from rich.console import Console
from rich.table import Table

from icone.data.cache import Cache, Entry, cache_folder
from icone.data.memory import GB
from icone.errors import InputError


def upkeep(setting: str, console: Console, *, check: bool = False, clear: bool = False) -> None:
    """Show what a cache holds; with `check` read it all and delete what is damaged, with `clear` delete it all."""

    def say(text: str) -> None:
        console.print(text, highlight=False, soft_wrap=True, markup=False)

    folder = cache_folder(setting)
    if folder is None:
        raise InputError("no folder is kept with --cache off; name one, or leave it out for the user's own")
    if folder.exists() and not folder.is_dir():
        raise InputError(f"{folder} is a file; name the folder that was given as --cache")
    cache = Cache(folder, say)
    entries = cache.entries()
    total = sum(entry.nbytes for entry in entries) / GB
    if not entries:
        say(f"{folder} keeps nothing")
    elif not clear:
        console.print(_table(entries))
        say(f"{folder} keeps {total:.2f} GB; icone cache --clear deletes it")
    for entry in entries if check else ():
        if not cache.is_intact(entry.key):
            cache.remove(entry.key)
            say(f"{entry.key} was damaged and is deleted; the next run makes it anew")
    if clear:
        left = cache.clear()
        say(f"deleted {total:.2f} GB in {folder}")
        if left:
            say(f"note: {left} files could not be deleted; they belong to another user")
    if hidden := cache.unreadable():
        say(f"note: {hidden} entries belong to another user and cannot be read; they are passed over")


def _table(entries: list[Entry]) -> Table:
    table = Table("source", "kept", "samples", "shape", "MB", "last used", "name")
    for entry in reversed(entries):
        count, *shape = entry.about["shape"]
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(entry.used))
        size = f"{entry.nbytes / 1e6:.1f}"
        row = (entry.about["source"], entry.about["kind"], str(count), "×".join(map(str, shape)), size, used, entry.key)
        table.add_row(*row)
    return table
