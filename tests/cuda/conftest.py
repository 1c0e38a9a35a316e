"""Streams for machines without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch
import torch._dynamo  # it must not see the stand-ins when it is first imported


class StandInStream:
    """Keeps what it was asked to wait for; work on it runs at once."""

    def __init__(self, device: torch.device | None = None, priority: int = 0) -> None:
        self.priority, self.cuda_stream = priority, id(self)
        self.waited_for: list[StandInStream] = []

    def wait_stream(self, other: StandInStream) -> None:
        self.waited_for.append(other)


@pytest.fixture
def stand_in_streams(monkeypatch: pytest.MonkeyPatch) -> list[StandInStream]:
    """Replace the streams of CUDA; the last one of the list is the current stream."""
    current = [StandInStream()]

    @contextmanager
    def on(stream: StandInStream) -> Iterator[None]:
        current.append(stream)
        try:
            yield
        finally:
            current.pop()

    monkeypatch.setattr(torch.cuda, "Stream", StandInStream)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: current[-1])
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    return current
