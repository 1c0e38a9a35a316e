"""Exceptions for what a user can mend, and the sentence that goes with an unknown name."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class InputError(ValueError):
    """Something that the user gave is wrong.

    The message is one sentence or two for a person: what is wrong, where (the file or the value),
    and the way out. The command line prints it without a traceback and exits with code 2.
    """


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


def one_line(error: BaseException) -> str:
    """The first line of an exception's message, or its type where it has none.

    >>> one_line(EOFError())
    'EOFError'
    """
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def unknown_name(kind: str, name: str, known: Iterable[str]) -> InputError:
    """Say that `name` is no known `kind`, with the nearest names that are.

    >>> print(unknown_name("method", "simcrl", ["simclr", "byol"]))
    unknown method 'simcrl'; did you mean simclr? Known: byol, simclr
    """
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"; did you mean {', '.join(near)}?" if near else "."
    listed = f" Known: {', '.join(names)}" if len(names) <= 20 else f" ({len(names)} names are known)"
    return InputError(f"unknown {kind} {name!r}{hint}{listed}")


class TrainingError(RuntimeError):
    """Training cannot go on, through nobody's input: a loss that is not finite. Exit code 3, no traceback."""


class CollapseError(TrainingError):
    """The features have collapsed and the user asked to stop then; the state is saved."""


class InterruptedRun(Exception):
    """The user or the system asked the run to stop; its state is saved. Exit code 130."""
