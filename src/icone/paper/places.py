"""Runs and requests without the places of the machine that they come from: its folders, and its name.

A file of runs may be published, and how a lab arranges its disks is nobody else's business. Of an absolute path the
last name stays. The key of a run stays the same: data counts there by its contents (`icone.paper.contents`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_FOLDERS = r"(?:~\w*)?/(?:[^/\s'\"`:;,()]+/)+"
"""The folders of a path in a sentence, up to its last name."""


def run_without_places(content: dict[str, Any]) -> dict[str, Any]:
    """What the file of an outcome holds, without places: data and labels have names, and the host has none.

    Sentences (the reason, the notes) lose the folders of the paths in them. What else is a path decides the key, and
    stays: `place_in` finds it.
    """
    config, outcome = content["spec"]["config"], content["outcome"]
    within = _sentence_folders(config)
    config = config | {
        "source": _named(config["source"]),
        "labels": _named(config.get("labels")),
        "data_root": None,
        "cache": "off" if config.get("cache") == "off" else "auto",  # as on import
    }
    outcome = outcome | {
        "host": "",
        "reason": outcome["reason"] and within.sub("", outcome["reason"]),
        "notes": [within.sub("", note) for note in outcome["notes"]],
    }
    return content | {"spec": content["spec"] | {"config": config}, "outcome": outcome}


def request_without_places(options: dict[str, Any]) -> dict[str, Any]:
    """The options of an experiment without places: a path becomes its last name in the working folder, `./scans`.

    Without its data sets a request would ask for others, those of the paper. So `icone paper show` needs no options on
    another machine where its working folder holds data of that name; else the import says which name it did not find.
    The root of the MedMNIST files is left out: they are found by name.
    """
    return {name: None if name == "data_root" else _here(value) for name, value in options.items()}


def place_in(plain: Any) -> str | None:
    """The first place among the texts of a JSON value."""
    return next(filter(is_place, _texts(plain)), None)


def is_place(text: str) -> bool:
    """Whether a text is a path that tells where something lies on a machine; one below the working folder does not.

    >>> [is_place(text) for text in ("/data/scans", "~/scans", "../scans", "data/scans", "medmnist:bloodmnist@28")]
    [True, True, True, False, False]
    """
    return text.startswith(("/", "~")) or ".." in Path(text).parts


def _named(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) and is_place(value) else value


def _here(value: Any) -> Any:
    if isinstance(value, list):
        return [_here(one) for one in value]
    return value if (name := _named(value)) == value else f"./{name}"


def _sentence_folders(config: dict[str, Any]) -> re.Pattern[str]:
    """Finds folders in sentences: those of data and labels, with blanks too, and whatever else looks like some."""
    values = [config.get(name) for name in ("source", "labels", "data_root")]
    folders = {Path(value).parent for value in values if isinstance(value, str) and is_place(value)}
    known = sorted((re.escape(f"{folder}/") for folder in folders if folder.name), key=len, reverse=True)
    return re.compile(rf"(?<![\w./~])(?:{'|'.join([*known, _FOLDERS])})")


def _texts(plain: Any) -> Iterator[str]:
    if isinstance(plain, str):
        yield plain
    elif isinstance(plain, (dict, list)):
        for value in plain.values() if isinstance(plain, dict) else plain:
            yield from _texts(value)
