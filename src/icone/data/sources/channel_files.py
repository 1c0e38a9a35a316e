"""A folder in which every channel of a sample is a file of its own, such as the sequences of an MRI."""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from icone.data.formats.base import colour_by_names
from icone.data.formats.lazy import LazyImage
from icone.data.identity import DigestMemory, content_digest
from icone.data.layouts import labels_from_folders, splits_from_folders
from icone.data.sources.base import Sample
from icone.data.sources.folder import FolderFiles
from icone.data.sources.found_files import FoundSample, Patterns, find_samples
from icone.errors import InputError
from icone.terminal import counted, either


class FilePattern(NamedTuple):
    """How the files of one sample are called, from a text like `{id}_{t1,t2,flair}.nii.gz`.

    `{id}` is what they have in common, folders included; the names in braces are the channels, in their order; `*`
    stands for any characters but a slash.
    """

    text: str
    channels: tuple[str, ...]
    expression: re.Pattern[str]

    @classmethod
    def parse(cls, text: str) -> FilePattern:
        """
        >>> FilePattern.parse("{id}_{t1,t2}.nii").expression.fullmatch("a/7_t2.nii").groupdict()
        {'id': 'a/7', 'channel': 't2'}
        """
        pieces = re.split(r"(\{[^{}]*\}|\*)", text)
        groups = [piece[1:-1] for piece in pieces if piece.startswith("{") and piece != "{id}"]
        channels = tuple(name.strip() for name in groups[0].split(",")) if groups else ()
        if "{id}" not in pieces or len(groups) != 1 or len(set(channels)) < 2 or "" in channels:
            raise InputError(
                f"cannot understand --channels-from={shlex.quote(text)}: write {{id}} where the name of the sample "
                'stands and the channels in braces, for example "{id}_{t1,t2,flair}.nii.gz"'
            )
        if len(set(channels)) < len(channels):
            raise InputError(f"--channels-from={shlex.quote(text)} names a channel twice")
        written, seen = "", False
        for piece in pieces:
            if piece == "{id}":
                written += "(?P=id)" if seen else "(?P<id>.+)"
                seen = True
            elif piece.startswith("{"):
                written += f"(?P<channel>{'|'.join(map(re.escape, channels))})"
            else:
                written += "[^/]*" if piece == "*" else re.escape(piece)
        return cls(text, channels, re.compile(written))

    def name(self, sample_id: str, channel: str) -> str:
        """How the file of a channel would be called."""
        return re.sub(r"\{[^{}]*\}", lambda part: sample_id if part[0] == "{id}" else channel, self.text)


class ChannelFilesSource(FolderFiles):
    """One sample for every `{id}`, its channels read from one file each, in the order of the pattern."""

    def __init__(
        self,
        folder: Path,
        pattern: str,
        patterns: Patterns | None,
        axes: str | None,
        fill_missing: bool,
        labels: Path | None = None,
    ) -> None:
        """`labels` is the table of them, which may lie among the files."""
        wanted = FilePattern.parse(pattern)
        found = find_samples(folder, patterns, labels)
        by_id: dict[str, dict[str, FoundSample]] = {}
        unmatched = []
        for name, sample in sorted(found.samples.items()):
            match = wanted.expression.fullmatch(name)
            if match is None:
                unmatched.append(name)
            elif match["channel"] in (parts := by_id.setdefault(match["id"], {})):
                raise InputError(
                    f"{sample.path} and {parts[match['channel']].path} are the same channel of {match['id']}"
                )
            else:
                parts[match["channel"]] = sample
        if not by_id:
            examples = ", ".join(unmatched[:3]) or "nothing that can be read"
            wanted_name = shlex.quote(pattern)
            raise InputError(f"no file in {folder} is called like --channels-from={wanted_name}; it holds {examples}")
        self._files = [
            [parts[channel]._replace(axes=axes) if channel in parts else None for channel in wanted.channels]
            for parts in by_id.values()
        ]
        lacking = _lacking(list(by_id), self._files, wanted, fill_missing)
        assigned, below = splits_from_folders(list(by_id))
        firsts = {key: next(iter(parts.values())) for key, parts in by_id.items()}
        super().__init__(folder.resolve().name, firsts, labels_from_folders(below), axes)
        self.folder, self.channel_names, self.assigned = folder, wanted.channels, assigned
        self.reading = f"{axes or ''} {pattern}"
        notes = [*found.notes, *lacking]
        if unmatched:
            are = either(len(unmatched), "is", "are")
            others = f"{counted(len(unmatched), 'file')} not called like {pattern} {are} left out"
            notes.append(f"{others}, such as {unmatched[0]}")
        self.notes, self.left_out = tuple(notes), tuple(found.left_out)

    def regions(self, position: int) -> LazyImage | None:
        """None: a sample is several files, each of which is read whole."""
        return None

    def _files_of(self, position: int) -> list[Path]:
        return [file for part in self._files[position] if part is not None for file in part.files]

    def _bytes_needed(self, position: int) -> int:
        return sum(part.bytes_needed() for part in self._files[position] if part is not None)

    def _read(self, position: int) -> Sample:
        parts = self._files[position]
        samples = {channel: part.read() for channel, part in enumerate(parts) if part is not None}
        first = next(iter(samples.values()))
        for channel, sample in samples.items():
            part = parts[channel]
            assert part is not None
            if sample.array.shape != first.array.shape or len(sample.array) != 1:
                raise InputError(
                    f"{part.path} has the shape {sample.array.shape} where one channel of {first.array.shape[1:]} is "
                    "expected: the files of a sample must have one channel each and be of one size"
                )
        spacings = {sample.spacing for sample in samples.values()}
        notes = ("the files of one sample differ in their spacing: that of the first channel is used",)
        blank = np.zeros_like(first.array[0])
        return first._replace(
            array=np.stack([samples[at].array[0] if at in samples else blank for at in range(len(parts))]),
            is_colour=colour_by_names(self.channel_names),
            names=self.channel_names,
            notes=(*first.notes, *(notes if not _alike(list(spacings)) else ())),
            missing=tuple(at for at in range(len(parts)) if at not in samples),
        )

    def _digest(self, position: int, memory: DigestMemory) -> str:
        """Which channel a file is belongs to the content."""
        parts = [
            [] if part is None else [memory.of_file(file) for file in part.files] for part in self._files[position]
        ]
        return content_digest(repr(parts).encode())


def _lacking(
    ids: list[str], files: Sequence[Sequence[FoundSample | None]], wanted: FilePattern, fill_missing: bool
) -> list[str]:
    """A note about samples that lack a channel; an error where they may not."""
    missing = [
        (key, channel)
        for key, parts in zip(ids, files, strict=True)
        for channel, part in zip(wanted.channels, parts, strict=True)
        if part is None
    ]
    if not missing:
        return []
    samples = len({key for key, _ in missing})
    if not fill_missing:
        key, channel = missing[0]
        more = f" ({samples} of {len(ids)} samples lack a channel)" if samples > 1 else ""
        raise InputError(
            f"the sample {key} lacks the channel {channel}: there is no file {wanted.name(key, channel)}{more}; "
            "add it, or let missing channels be zero with --missing-channels=zero"
        )
    counts = Counter(channel for _, channel in missing)
    listed = ", ".join(f"{channel} ({counts[channel]})" for channel in wanted.channels if channel in counts)
    lack = either(samples, "lacks", "lack")
    return [f"{samples} of {counted(len(ids), 'sample')} {lack} a channel, which is zero there: {listed}"]


def _alike(spacings: list[tuple[float, ...] | None]) -> bool:
    known = [spacing for spacing in spacings if spacing is not None]
    return all(np.allclose(known[0], other, rtol=0.01) for other in known[1:])
