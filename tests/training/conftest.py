"""Fixtures for the loop."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Makes the next run stop after so many steps, as Ctrl-C would."""

    def arrange(steps: int) -> None:
        class Wish:
            asked = 0
            wants_requeue = False

            @property
            def requested(self) -> bool:
                self.asked += 1
                return self.asked == steps

        @contextmanager
        def watching(**options: bool) -> Iterator[Any]:
            monkeypatch.undo()
            yield Wish()

        # The module by its name: the package's attribute of that name is the function in it.
        monkeypatch.setattr(sys.modules["icone.training.loop"], "watch_signals", watching)

    return arrange
