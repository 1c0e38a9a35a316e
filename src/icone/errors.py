"""Exceptions for what a user can mend, and the sentences for an unknown name and for a package that is missing."""

from __future__ import annotations

import difflib
import errno
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from icone.wording import InUserTerms


def printable(text: str) -> str:
    r"""A text without control characters, and valid as UTF-8: what is neither is written as a backslash escape.

    File names hold both: an escape sequence would move the cursor of a terminal, a line break would forge a line of
    a table, and a byte that is not UTF-8 cannot be written to JSON, CSV or HTML. Python keeps such a byte as one
    half of a surrogate pair (PEP 383).

    >>> printable("a\x1b[2J\n\udcff é.png")
    'a\\x1b[2J\\n\\xff é.png'
    """
    if text.isprintable():
        return text
    return "".join(_escaped(c) if unicodedata.category(c) in ("Cc", "Cs") else c for c in text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xDC80 <= code <= 0xDCFF:  # a byte that is not UTF-8
        return f"\\x{code - 0xDC00:02x}"
    if 0x80 <= code <= 0xFF:  # a control character, not the byte of the same number
        return f"\\u{code:04x}"
    return character.encode("unicode_escape").decode()


class InputError(InUserTerms, ValueError):
    """Something that the user gave is wrong.

    The message is one sentence or two for a person: what is wrong, where (the file or the value),
    and the way out. The command line prints it without a traceback and exits with code 2. It is `printable`,
    whatever the names in it hold. It is written with flags and their values (`--size=64`), and says in Python what
    is typed there (`icone.wording`).
    """

    def __init__(self, message: object = "") -> None:
        super().__init__(printable(str(message)))


class UndefinedError(InputError):
    """What was asked for does not exist: a method at a batch size where its loss is constant or not a number."""


class NotEnoughMemory(InputError):
    """An allocation failed; the same may work where more memory is free."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed, on the host or on a GPU, in PyTorch or in a library that allocates by itself.

    >>> is_out_of_memory(RuntimeError("CUDA error: out of memory")), is_out_of_memory(RuntimeError("shapes differ"))
    (True, False)
    """
    return isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY)


_NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED", "CUDNN_STATUS_ALLOC_FAILED")
"""Of these PyTorch raises only some as an error of their own type."""


def is_disk_full(error: BaseException) -> bool:
    """Whether an error, or one that it was raised from, says that a disk or a quota is full.

    >>> is_disk_full(OSError(28, "No space left on device")), is_disk_full(OSError(2, "No such file"))
    (True, False)
    """
    cause: BaseException | None = error
    while cause is not None:
        if (isinstance(cause, OSError) and cause.errno in (errno.ENOSPC, errno.EDQUOT)) or any(
            sign in str(cause) for sign in ("No space left on device", "the disk is full", "Disk quota exceeded")
        ):
            return True
        cause = cause.__cause__ or cause.__context__
    return False


def one_line(error: BaseException) -> str:
    """The first line of an exception's message, or its type where it has none; of a `KeyError`, a name, with its type.

    >>> one_line(EOFError()), one_line(KeyError("image"))
    ('EOFError', "KeyError: 'image'")
    """
    text = str(error).strip()
    if isinstance(error, KeyError):
        return type_and_line(error)
    return text.splitlines()[0] if text else type(error).__name__


def type_and_line(error: BaseException) -> str:
    """The type of an exception and the first line of its message, for mistakes in code.

    >>> type_and_line(ZeroDivisionError("division by zero")), type_and_line(EOFError())
    ('ZeroDivisionError: division by zero', 'EOFError')
    """
    return ": ".join([type(error).__name__, *str(error).strip().splitlines()[:1]])


OWN_CODE = ". One of your own is known once it is registered (on the command line: `--import FILE.py`)"
"""Ends the sentence about an unknown name of a kind that users can register."""


def nearest_names(name: str, known: Iterable[str], most: int = 3) -> list[str]:
    """The names that were perhaps meant, the nearest first.

    A name that differs in case or signs alone comes before names that it begins, the shortest of them first, and these
    before names of a similar spelling.

    >>> nearest_names("vit_small", ["gcvit_small", "vit_small_patch16_224", "vit_small_patch16", "resnet18"])
    ['vit_small_patch16', 'vit_small_patch16_224', 'gcvit_small']
    >>> nearest_names("ResNet18-3d", ["resnet10_3d", "resnet18_3d", "resnet18d"], most=1)
    ['resnet18_3d']
    """
    plain = plain_spelling(name)

    def distance(other: str) -> tuple[float, int, str]:
        spelling = plain_spelling(other)
        if spelling == plain:
            return 0.0, 0, other
        if plain and spelling.startswith(plain):
            return 1.0, len(other), other
        return 3.0 - difflib.SequenceMatcher(None, plain, spelling).ratio(), 0, other

    ranked = sorted(distance(other) for other in known)
    return [other for rank, _, other in ranked[:most] if rank <= 3.0 - SIMILAR]


SIMILAR = 0.6
"""Share of two spellings that agrees, from which on one may be meant by the other."""


def plain_spelling(name: str) -> str:
    """A name without case and signs.

    >>> plain_spelling("ResNet18-3d") == plain_spelling("resnet18_3d")
    True
    """
    return "".join(c for c in name.lower() if c.isalnum())


def unknown_name(kind: str, name: str, known: Iterable[str], more: str = "") -> InputError:
    """Say that `name` is no known `kind`, with the nearest names that are, and perhaps `more`.

    >>> print(unknown_name("method", "simcrl", ["simclr", "byol"]))
    unknown method 'simcrl'; did you mean simclr? Known: byol, simclr
    """
    names = sorted(known)
    near = nearest_names(name, names)
    hint = f"; did you mean {', '.join(near)}?" if near else "."
    listed = f" Known: {', '.join(names)}" if len(names) <= 20 else f" ({len(names)} names are known)"
    return InputError(f"unknown {kind} {name!r}{hint}{listed}{more}")


@contextmanager
def optional(extra: str, what: str) -> Iterator[None]:
    """Import in this context what only `what` needs: a package that is missing becomes an `InputError`.

    `extra` is the extra of pyproject.toml that installs it.

    >>> with optional("report", "icone report"):
    ...     import no_such_package
    Traceback (most recent call last):
    icone.errors.InputError: icone report needs the package no_such_package: pip install 'icone[report]'
    """
    try:
        yield
    except ImportError as error:  # of MONAI an error of its own, which only the text tells
        told = re.search(r"No module named '([^']+)", str(error))
        if not isinstance(error, ModuleNotFoundError) and told is None:
            raise
        package = (error.name or (told[1] if told else "")).partition(".")[0]
        raise InputError(f"{what} needs the package {package}: pip install 'icone[{extra}]'") from error


class TrainingError(InUserTerms, RuntimeError):
    """Training cannot go on, through nobody's input: a loss that is not finite. Exit code 3, no traceback."""


class CollapseError(TrainingError):
    """The features have collapsed and the user asked to stop then; the state is saved."""


class LostRank(TrainingError):
    """Another process of a run that several train has ended; the last saved state is kept."""

    is_said = False
    """Whether another process tells it."""


class InterruptedRun(KeyboardInterrupt):
    """The user or the system asked the run to stop; its state is saved. Exit code 130.

    Like Ctrl-C elsewhere in Python it passes `except Exception`, so that a sweep of one's own stops too.
    """

    wants_requeue = False
    """Whether a SLURM job asked for it by SIGUSR1, shortly before its time is over."""


@contextmanager
def tell_interruptions(what_is_kept: Callable[[], str | None]) -> Iterator[None]:
    """Say to whoever interrupts the block what is kept; None: nothing, and the interruption passes as it is.

    An `InterruptedRun` has said so already.
    """
    try:
        yield
    except InterruptedRun:
        raise
    except KeyboardInterrupt as error:
        if (kept := what_is_kept()) is None:
            raise
        raise InterruptedRun(f"interrupted; {kept}") from error
